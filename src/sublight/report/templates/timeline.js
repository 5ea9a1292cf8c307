// A timeline that one can zoom into, move along, and point at. It reads the numbers that are in the page as JSON.

const RATIO = 1.6; // of one press of a zoom button

function made(tag, name, text = "") {
  return Object.assign(document.createElement(tag), { className: name, textContent: text });
}

class TimelineControl {
  constructor(figure, block) {
    this.figure = figure;
    this.block = block;
    this.digits = Number(figure.dataset.decimals);
    this.view = { from: 0, to: block.span, rows: null, picked: null, chosen: null };
    const shorter = (least, time) => (time > 0 ? Math.min(least, time) : least);
    this.least = Math.max(block.events.duration.reduce(shorter, block.span / 100), block.span / 1e6);
    this.lit = null;
    this.build();
    this.buildKeys();
    this.picture = new TimelinePicture(figure, block);
    this.pointer = new TimelinePointer(this);
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.paint();
    this.follow();
  }

  build() {
    const still = this.figure.querySelector(".still");
    const tools = made("div", "tools");
    this.where = made("p", "where");
    this.where.setAttribute("role", "status");
    tools.append(
      button("−", "Zoom out", () => this.zoom(RATIO)),
      button("+", "Zoom in", () => this.zoom(1 / RATIO)),
      button("←", "Earlier", () => this.move(-0.25)),
      button("→", "Later", () => this.move(0.25)),
      button("All", "Show all", () => this.show(0, this.block.span)),
      this.where,
    );
    this.canvas = made("canvas", "lanes");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    const keys = "Arrow keys move, plus and minus zoom, 0 shows all.";
    this.canvas.setAttribute("aria-label", `${still.getAttribute("aria-label")}. ${keys}`);
    this.overview = made("canvas", "overview");
    this.overview.setAttribute("aria-hidden", "true");
    this.tip = made("div", "tip");
    this.tip.hidden = true;
    this.stage = made("div", "stage");
    this.stage.append(this.canvas, this.tip);
    const help = matchMedia("(hover: none)").matches
      ? "Two fingers zoom, one moves; a tap says what runs there."
      : "Ctrl + wheel zooms, dragging moves; a drag along the scale chooses a stretch.";
    still.replaceWith(tools, this.stage, this.overview, made("p", "help", help));
  }

  // Each name in the legend lights up its rows while it is pointed at, and until it is pressed again once it is.
  buildKeys() {
    let pressed = null;
    const key = (item, rows) => {
      const lit = { rows: new Set(rows), name: item.textContent };
      const press = button(lit.name, "", () => {
        pressed?.press.setAttribute("aria-pressed", "false");
        pressed = pressed?.press === press ? null : { press, lit };
        press.setAttribute("aria-pressed", String(pressed !== null));
        this.light(pressed?.lit ?? null);
      });
      press.setAttribute("aria-pressed", "false");
      press.addEventListener("pointerenter", () => this.light(lit));
      press.addEventListener("pointerleave", () => this.light(pressed?.lit ?? null));
      item.replaceChildren(press);
    };
    for (const group of this.figure.querySelectorAll(".keys > li")) {
      const row = (item) => Number(item.dataset.row);
      key(group.querySelector(".group"), [...group.querySelectorAll("[data-row]")].map(row));
      for (const item of group.querySelectorAll(".row")) key(item, [row(item)]);
    }
  }

  // The picture changes with the width of the page, and with the colours that the reader prefers.
  follow() {
    const again = () => {
      this.picture.look();
      this.paint();
    };
    for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", again);
    let width = this.stage.clientWidth;
    new ResizeObserver(() => {
      if (width === this.stage.clientWidth) return;
      width = this.stage.clientWidth;
      this.paint();
    }).observe(this.stage);
  }

  get size() {
    return this.view.to - this.view.from;
  }

  get whole() {
    return this.size >= this.block.span * (1 - 1e-9);
  }

  time(x) {
    return this.view.from + (x / this.canvas.clientWidth) * this.size;
  }

  show(from, to) {
    const size = Math.min(Math.max(to - from, this.least), this.block.span);
    this.view.from = Math.min(Math.max((from + to - size) / 2, 0), this.block.span - size);
    this.view.to = this.view.from + size;
    this.view.picked = null;
    this.tip.hidden = true;
    this.paint();
  }

  zoom(ratio, at = (this.view.from + this.view.to) / 2) {
    const real = Math.min(Math.max(ratio, this.least / this.size), this.block.span / this.size);
    this.show(at - (at - this.view.from) * real, at + (this.view.to - at) * real);
  }

  move(by) {
    this.show(this.view.from + by * this.size, this.view.to + by * this.size);
  }

  light(lit) {
    this.lit = lit;
    this.view.rows = lit?.rows ?? null;
    this.paint();
  }

  choose(stretch) {
    this.view.chosen = stretch;
    this.paint();
  }

  pick(index) {
    this.view.picked = index;
    this.paint();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const far = event.shiftKey ? 0.5 : 0.1;
    const actions = {
      ArrowLeft: () => this.move(-far),
      ArrowRight: () => this.move(far),
      "+": () => this.zoom(1 / RATIO),
      "=": () => this.zoom(1 / RATIO),
      "-": () => this.zoom(RATIO),
      0: () => this.show(0, this.block.span),
      Home: () => this.show(0, this.size),
      End: () => this.show(this.block.span - this.size, this.block.span),
      Escape: () => this.pointer.tell(null),
    };
    if (!Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    actions[event.key]();
  }

  paint() {
    const { shown, shares } = this.picture.paint(this.canvas, this.view);
    this.picture.paintOverview(this.overview, this.view);
    const { from, to } = this.view;
    Object.assign(this.figure.dataset, { from, to, shown, drawn: shares ? "shares" : "events" });
    this.where.textContent = this.words(shown, shares);
  }

  words(shown, shares) {
    const { block, view } = this;
    const unit = visible(block.unit);
    const digits = Math.min(Math.max(2 - Math.floor(Math.log10(this.size)), 0), 12);
    const stretch = `${short(view.from, digits)} – ${short(view.to, digits)} ${unit}`;
    const events = (count) => `${fixed(count, 0)} ${count === 1 ? "event" : "events"}`;
    if (this.lit) {
      const { count, time } = this.picture.events.sum(view);
      return `${stretch}: ${visible(this.lit.name)}, ${events(count)}, ${short(time, this.digits)} ${unit}`;
    }
    const how = shares ? "; columns are as high as the lane was busy" : "";
    return `${stretch}: ${events(shown)}${how}`;
  }

  describe(index, lane, others) {
    const { events, rows, names, lanes, unit, bands = [] } = this.block;
    const time = (value) => `${fixed(value, this.digits)} ${visible(unit)}`;
    const start = events.start[index];
    const band = bands.find((one) => one.start <= start && start < one.end);
    const place = [lanes[lane], ...(band ? [band.label] : [])].map(visible).join(", ");
    this.tip.replaceChildren(
      made("strong", "", visible(rows[events.row[index]].name)),
      made("code", "", visible(names[events.name[index]])),
      made("p", "", `start ${time(start)}, duration ${time(events.duration[index])}`),
      made("p", "muted", place + (others > 0 ? `; ${others} more at this place` : "")),
    );
  }
}

const blocks = JSON.parse(document.getElementById("document-data").textContent).blocks;
for (const [index, block] of blocks.entries())
  if (block.type === "timeline") new TimelineControl(document.getElementById(`part-${index}`), block);
