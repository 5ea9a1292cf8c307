// What a pointer does to a timeline: hover and tap tell, drag moves, two fingers and the wheel zoom.

const STILL = 4; // pixels that a pointer may shake without it being a drag

class TimelinePointer {
  constructor(control) {
    this.control = control;
    this.held = new Map(); // pointers that are down, each with its place and the time that it holds on to
    this.chosen = null; // where a stretch that is being chosen starts
    const { canvas, overview } = control;
    const listen = (name, action, options) => canvas.addEventListener(name, action, options);
    listen("wheel", (event) => this.wheel(event), { passive: false });
    listen("dblclick", (event) => control.zoom(1 / 4, control.time(event.offsetX)));
    listen("pointerdown", (event) => this.down(event));
    listen("pointermove", (event) => this.drag(event));
    listen("pointerup", (event) => this.up(event));
    listen("pointercancel", (event) => this.up(event));
    listen("pointerleave", (event) => event.pointerType === "mouse" && this.tell(null));
    overview.addEventListener("pointerdown", (event) => this.grip(event));
    overview.addEventListener("pointermove", (event) => event.buttons && this.slide(event));
  }

  // The wheel belongs to the page until the picture has been clicked into, and with Ctrl never.
  wheel(event) {
    const { control } = this;
    const unit = event.deltaMode ? 16 : 1;
    const before = [control.view.from, control.view.to].join();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
      control.move(((event.deltaX || event.deltaY) * unit) / control.canvas.clientWidth);
    else if (event.ctrlKey || event.metaKey || document.activeElement === control.canvas)
      control.zoom(Math.exp(event.deltaY * unit * (event.ctrlKey ? 0.006 : 0.002)), control.time(event.offsetX));
    else return;
    if (event.ctrlKey || before !== [control.view.from, control.view.to].join()) event.preventDefault();
  }

  down(event) {
    if (event.button) return;
    if (event.isTrusted) event.currentTarget.setPointerCapture(event.pointerId);
    const { control } = this;
    const [x, time] = [event.offsetX, control.time(event.offsetX)];
    this.held.set(event.pointerId, { x, time, start: x, moved: false });
    const choosing = event.offsetY < RULER || event.shiftKey || control.whole;
    this.chosen = this.held.size === 1 && event.pointerType !== "touch" && choosing ? time : null;
  }

  drag(event) {
    const { control } = this;
    const held = this.held.get(event.pointerId);
    if (!held) return this.tell(event);
    held.x = event.offsetX;
    held.moved ||= Math.abs(held.x - held.start) > STILL;
    if (!held.moved) return;
    this.tell(null);
    if (this.chosen !== null) return control.choose([this.chosen, control.time(held.x)]);
    const [one, two] = [...this.held.values()];
    const width = control.canvas.clientWidth;
    const scale = two ? (two.time - one.time) / (two.x - one.x) : control.size / width;
    if (!(scale > 0 && Number.isFinite(scale))) return;
    const from = one.time - one.x * scale;
    control.show(from, from + width * scale);
  }

  up(event) {
    const { control } = this;
    const held = this.held.get(event.pointerId);
    if (!held) return;
    this.held.delete(event.pointerId);
    const chosen = this.chosen === null ? null : [this.chosen, control.time(held.x)].sort((a, b) => a - b);
    this.chosen = null;
    control.choose(null);
    if (event.type === "pointercancel") return;
    if (!held.moved) this.tell(event);
    else if (chosen) control.show(...chosen);
    // The finger that is left holds what is under it now.
    for (const left of this.held.values()) left.time = control.time(left.x);
  }

  // In the overview the window is moved by its middle; elsewhere it comes to the pointer.
  grip(event) {
    if (event.isTrusted) this.control.overview.setPointerCapture(event.pointerId);
    const { view, size, block } = this.control;
    const time = (event.offsetX / this.control.overview.clientWidth) * block.span;
    if (this.control.whole) this.control.zoom(1 / 8, time);
    const inside = time >= view.from && time <= view.to;
    this.offset = inside && size === this.control.size ? time - view.from : this.control.size / 2;
    this.slide(event);
  }

  slide(event) {
    const from = (event.offsetX / this.control.overview.clientWidth) * this.control.block.span - this.offset;
    this.control.show(from, from + this.control.size);
  }

  // Says what lies under the pointer; of several events, the longest.
  tell(event) {
    const { control } = this;
    const { block, picture, view, tip } = control;
    const lane = event ? picture.laneAt(event.offsetY) : -1;
    const pixel = control.size / control.canvas.clientWidth;
    const time = event ? control.time(event.offsetX) : 0;
    const near = lane < 0 ? [] : picture.events.under(lane, time - pixel * 1.5, time + pixel * 1.5);
    const exact = near.filter((index) => block.events.start[index] <= time && picture.events.ends[index] >= time);
    const length = (index) => block.events.duration[index];
    const longest = (best, index) => (best !== null && length(best) >= length(index) ? best : index);
    const found = (exact.length ? exact : near).reduce(longest, null);
    if (found !== view.picked) control.pick(found);
    tip.hidden = found === null;
    if (found === null) return;
    control.describe(found, lane, near.length - 1);
    const room = control.stage.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(Math.min(event.offsetX + 14, room), 0)}px`;
    tip.style.top = `${picture.tops[lane] + picture.body + 6}px`;
  }
}
