// The events of a timeline as painting asks for them: those within a stretch, and the time of each row in columns.

function highest(shares, columns) {
  const sums = new Float64Array(columns);
  for (const share of shares) share?.forEach((size, place) => (sums[place] += size));
  return sums.reduce((most, size) => Math.max(most, size), 0);
}

class TimelineEvents {
  constructor(block) {
    this.block = block;
    const { start, duration, lane } = block.events;
    this.ends = start.map((place, index) => place + duration[index]);
    // Where events of a lane overlap, each moment counts once, for the event that began first.
    const reached = block.lanes.map(() => 0);
    this.starts = start.map((place, index) => {
      const from = Math.min(Math.max(place, reached[lane[index]]), this.ends[index]);
      reached[lane[index]] = Math.max(reached[lane[index]], this.ends[index]);
      return from;
    });
    this.members = block.lanes.map((_, number) => [...start.keys()].filter((index) => lane[index] === number));
  }

  // The events of a lane that touch a stretch.
  under(lane, from, to) {
    return this.members[lane].filter((index) => this.ends[index] >= from && this.block.events.start[index] <= to);
  }

  // The time of a view in which one of these events ran.
  busy(inside, { from, to }) {
    const within = (index) => Math.max(Math.min(this.ends[index], to) - Math.max(this.starts[index], from), 0);
    return inside.reduce((sum, index) => sum + within(index), 0);
  }

  // How many events of the lit rows a view holds, and their time in it.
  sum({ from, to, rows }) {
    const { start, row } = this.block.events;
    const found = [...start.keys()].filter((i) => rows.has(row[i]) && this.ends[i] >= from && start[i] <= to);
    const time = found.reduce((sum, i) => sum + Math.min(this.ends[i], to) - Math.max(start[i], from), 0);
    return { count: found.length, time };
  }

  // Where columns begin and end. Each band is cut into as many, so that what repeats from band to band looks alike;
  // they stand still while one moves along the axis.
  columns(view, width, wanted) {
    const scale = width / (view.to - view.from);
    const edges = [];
    let last = view.to;
    const cut = (start, end, count) => {
      const size = (end - start) / count;
      const first = Math.max(Math.floor((view.from - start) / size), 0);
      for (let place = first; place < count && start + place * size < view.to; place++) {
        edges.push(start + place * size);
        last = start + (place + 1) * size;
      }
    };
    const parts = (pixels) => Math.max(Math.round(pixels / wanted), 1);
    const free = (start, end) => end > start && cut(start, end, parts((end - start) * scale));
    const bands = this.block.bands ?? [];
    const covered = bands.reduce((sum, band) => sum + band.end - band.start, 0);
    const each = (covered / bands.length) * scale; // pixels
    let reached = 0;
    for (const band of each >= wanted / 2 ? bands : []) {
      free(reached, band.start);
      cut(band.start, band.end, parts(each));
      reached = band.end;
    }
    free(reached, this.block.span);
    return [...edges, last];
  }

  // For each row that has some of these events, the share that it was busy in each column.
  shares(inside, edges) {
    const found = this.block.rows.map(() => null);
    for (const index of inside) {
      const row = this.block.events.row[index];
      const share = (found[row] ??= new Float64Array(edges.length - 1));
      const [start, end] = [this.starts[index], this.ends[index]];
      for (let place = Math.max(above(edges, start) - 1, 0); edges[place] < end && place < share.length; place++) {
        const [left, right] = [edges[place], edges[place + 1]];
        share[place] += Math.max(Math.min(end, right) - Math.max(start, left), 0) / (right - left);
      }
    }
    return found;
  }
}
