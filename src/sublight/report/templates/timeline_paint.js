// Painting a timeline. Where events are narrower than a few pixels, a lane is cut into columns instead, and each is
// filled to the height of the time that it was busy, by row: nothing is left out and nothing is wider than it was.

const COLUMN = 6; // pixels of a column, about
const APART = 4; // pixels that events have on average where they are drawn one by one

class TimelinePicture extends TimelineBrush {
  laneAt(y) {
    return this.tops.findIndex((top) => y >= top - 2 && y <= top + this.body + 2);
  }

  // The pen of a canvas, cleared, with one unit for each pixel of the page.
  pen(canvas, height) {
    const scale = devicePixelRatio || 1;
    this.width = canvas.clientWidth;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(this.width * scale);
    canvas.height = Math.round(height * scale);
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    return pen;
  }

  // Paints what lies between `from` and `to`, and returns how many events that are and how they are drawn.
  paint(canvas, { from, to, rows, picked, chosen }) {
    const pen = this.pen(canvas, this.height);
    const view = { from, to, rows, x: (time) => ((time - from) / (to - from)) * this.width };
    pen.fillStyle = this.shade;
    for (const top of this.tops) pen.fillRect(0, top, this.width, this.body);
    this.paintScale(pen, view);
    const edges = this.events.columns(view, this.width, COLUMN);
    let shown = 0;
    let shares = false;
    this.names.forEach((name, lane) => {
      const inside = this.events.under(lane, from, to);
      const dense = inside.length * APART > this.width;
      this.paintLabel(pen, view, name, this.tops[lane], inside);
      if (dense) {
        const columns = this.events.shares(this.events.under(lane, edges[0], edges.at(-1)), edges);
        this.paintShares(pen, view, columns, edges, this.tops[lane] + this.body, this.body);
      } else this.paintEvents(pen, view, inside, this.tops[lane], picked);
      shown += inside.length;
      shares ||= dense;
    });
    this.paintMarks(pen, view);
    if (chosen) {
      const [left, right] = chosen.map(view.x).sort((a, b) => a - b);
      pen.globalAlpha = 0.2;
      pen.fillStyle = this.accent;
      pen.fillRect(left, 0, right - left, this.height);
    }
    return { shown, shares };
  }

  // All lanes over the whole span, and a frame around what is looked at.
  paintOverview(canvas, { from, to, rows }) {
    const height = Math.min(Math.max(this.names.length * 14, 28), 70);
    const pen = this.pen(canvas, height);
    const view = { from: 0, to: this.block.span, rows, x: (time) => (time / this.block.span) * this.width };
    const strip = height / this.names.length;
    pen.fillStyle = this.shade;
    pen.fillRect(0, 0, this.width, height);
    const edges = this.events.columns(view, this.width, COLUMN / 2);
    const lanes = this.events.members.map((inside) => this.events.shares(inside, edges));
    // Heights compare among lanes; the tallest column takes all there is.
    const tallest = Math.max(...lanes.map((shares) => highest(shares, edges.length - 1)), 0.01);
    const unit = (strip - 2) / tallest;
    lanes.forEach((shares, lane) => this.paintShares(pen, view, shares, edges, (lane + 1) * strip, unit));
    const [left, right] = [view.x(from), Math.max(view.x(to), view.x(from) + 3)];
    pen.globalAlpha = 0.5;
    pen.fillStyle = this.panel;
    pen.fillRect(0, 0, left, height);
    pen.fillRect(right, 0, this.width - right, height);
    pen.globalAlpha = 1;
    pen.strokeStyle = this.accent;
    pen.lineWidth = 2;
    pen.strokeRect(left + 1, 1, Math.max(right - left - 2, 1), height - 2);
  }
}
