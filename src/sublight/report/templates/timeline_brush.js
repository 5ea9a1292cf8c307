// The strokes that a timeline is painted with: scale, names, single events, and shares of columns.

const RULER = 24;
const BAND = 18;
const LABEL = 20;
const GAP = 10;
const DIM = 0.18;

function hatch(colour, ground) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.fillStyle = ground;
  pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = colour;
  pen.lineWidth = 3;
  for (const x of [-8, 0, 8]) {
    pen.moveTo(x - 1, 9);
    pen.lineTo(x + 9, -1);
  }
  pen.stroke();
  return pen.createPattern(tile, "repeat");
}

class TimelineBrush {
  constructor(figure, block) {
    this.figure = figure;
    this.block = block;
    this.events = new TimelineEvents(block);
    this.names = block.lanes.map(visible);
    this.look();
    this.lay();
  }

  // Colours and letters as the style sheet has them now.
  look() {
    const style = getComputedStyle(this.figure);
    for (const name of ["ink", "muted", "line", "panel", "shade", "accent", "hatch"])
      this[name] = style.getPropertyValue(`--${name}`).trim();
    this.letters = style.fontFamily;
    this.fills = [];
    this.words = [];
    for (const item of this.figure.querySelectorAll("[data-row]")) {
      const unknown = item.closest(".unknown") !== null;
      const colour = getComputedStyle(item).getPropertyValue("--c").trim();
      this.fills[item.dataset.row] = unknown ? hatch(this.hatch, this.panel) : colour;
      this.words[item.dataset.row] = unknown ? this.ink : this.panel;
    }
  }

  // Where each lane is, from top to bottom.
  lay() {
    const count = this.names.length;
    this.body = count <= 2 ? 66 : count <= 4 ? 48 : 26;
    let y = RULER + (this.block.bands?.length ? BAND : 0);
    this.tops = this.names.map(() => {
      const top = y + LABEL;
      y = top + this.body + GAP;
      return top;
    });
    this.height = y;
  }

  paintScale(pen, view) {
    const { places, digits } = ticksWithin(view.from, view.to, Math.max(this.width / 100, 5));
    pen.font = `12px ${this.letters}`;
    let taken = -Infinity;
    for (const place of places) {
      const x = view.x(place);
      pen.fillStyle = this.line;
      pen.fillRect(Math.round(x), RULER - 6, 1, 6);
      for (const top of this.tops) pen.fillRect(Math.round(x), top, 1, this.body);
      const text = taken < 0 ? `${fixed(place, digits)} ${visible(this.block.unit)}` : fixed(place, digits);
      const wide = pen.measureText(text).width;
      const left = Math.min(Math.max(x - wide / 2, 0), this.width - wide);
      if (left < taken) continue;
      taken = left + wide + 12;
      pen.fillStyle = this.muted;
      pen.fillText(text, left, 12);
    }
    (this.block.bands ?? []).forEach((band, index) => {
      const [left, right] = [Math.max(view.x(band.start), 0), Math.min(view.x(band.end), this.width)];
      if (right <= left) return;
      pen.fillStyle = index % 2 ? this.shade : this.line;
      pen.fillRect(left, RULER, right - left, BAND - 3);
      pen.fillStyle = this.ink;
      pen.font = `11px ${this.letters}`;
      const label = fitting(pen, visible(band.label), right - left - 8);
      pen.fillText(label, (left + right - pen.measureText(label).width) / 2, RULER + 11.5);
    });
  }

  paintLabel(pen, view, name, top, inside) {
    pen.font = `12px ${this.letters}`;
    const share = `busy ${fixed((this.events.busy(inside, view) / (view.to - view.from)) * 100, 1)} %`;
    const room = this.width - pen.measureText(share).width;
    pen.fillStyle = this.muted;
    pen.fillText(share, room, top - 6);
    pen.font = `600 12px ${this.letters}`;
    pen.fillStyle = this.ink;
    pen.fillText(fitting(pen, name, room - 12), 0, top - 6);
  }

  // Shares on top of each other, `unit` pixels for a column that was always busy.
  paintShares(pen, view, shares, edges, ground, unit) {
    const heights = new Float64Array(edges.length - 1);
    const lit = (row) => !view.rows || view.rows.has(row);
    // What is pointed at stands on the ground, where its heights compare.
    const order = [...shares.keys()].filter((row) => shares[row]).sort((a, b) => lit(b) - lit(a) || a - b);
    for (const row of order) {
      pen.fillStyle = this.fills[row];
      pen.globalAlpha = lit(row) ? 1 : DIM;
      shares[row].forEach((share, place) => {
        if (!share) return;
        const [left, right] = [Math.round(view.x(edges[place])), Math.round(view.x(edges[place + 1]))];
        pen.fillRect(left, ground - heights[place] - share * unit, right - left, share * unit);
        heights[place] += share * unit;
      });
    }
    pen.globalAlpha = 1;
  }

  paintEvents(pen, view, inside, top, picked) {
    for (const index of inside) {
      const row = this.block.events.row[index];
      const [left, right] = [view.x(this.block.events.start[index]), view.x(this.events.ends[index])];
      const lit = !view.rows || view.rows.has(row);
      pen.globalAlpha = lit ? 1 : DIM;
      pen.fillStyle = this.fills[row];
      pen.fillRect(left, top, Math.max(right - left, 1), this.body);
      pen.fillStyle = this.panel;
      if (right - left > 3) pen.fillRect(left, top, 0.75, this.body);
      const [from, to] = [Math.max(left, 0) + 6, Math.min(right, this.width) - 5];
      if (lit && to - from > 24) this.paintWords(pen, index, from, to - from, top);
    }
    pen.globalAlpha = 1;
    if (picked !== null && inside.includes(picked)) {
      const [left, right] = [view.x(this.block.events.start[picked]), view.x(this.events.ends[picked])];
      pen.strokeStyle = this.ink;
      pen.lineWidth = 2;
      pen.strokeRect(left - 2, top - 2, Math.max(right - left, 1) + 4, this.body + 4);
    }
  }

  paintWords(pen, index, x, room, top) {
    const { events, rows, names, unit } = this.block;
    const row = events.row[index];
    const lines = [
      [`600 12px ${this.letters}`, visible(rows[row].name)],
      [`11px ${this.letters}`, `${short(events.duration[index], 3)} ${visible(unit)}`],
      [`11px ${this.letters}`, visible(names[events.name[index]].slice(0, 300))],
    ].slice(0, Math.floor((this.body - 8) / 18));
    const first = top + (this.body - lines.length * 17) / 2 + 12.5;
    pen.fillStyle = this.words[row];
    pen.strokeStyle = this.panel;
    pen.lineWidth = 4;
    lines.forEach(([font, text], line) => {
      pen.font = font;
      // A name that is cut is still a name; a number is not.
      const shown = line === 1 && pen.measureText(text).width > room ? "" : fitting(pen, text, room);
      if (this.words[row] === this.ink) pen.strokeText(shown, x, first + line * 17);
      pen.fillText(shown, x, first + line * 17);
    });
  }

  paintMarks(pen, view) {
    pen.strokeStyle = this.ink;
    pen.lineWidth = 1.5;
    pen.setLineDash([2, 4]);
    pen.beginPath();
    for (const { x } of this.block.marks ?? [])
      for (const top of this.tops) {
        pen.moveTo(view.x(x), top - 3);
        pen.lineTo(view.x(x), top + this.body + 3);
      }
    pen.stroke();
    pen.setLineDash([]);
  }
}
