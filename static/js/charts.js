// Charts that answer to the pointer and the keyboard. Without this file they are pictures with links and a table.
"use strict";

// A chart's items are what its plot links or names: steps of time, bars of a distribution, runs of a trend. What zooming
// changes in the address of the page stands in the links of its items, where both ends of a stretch are known there.
const ZOOMS = [["since", "until"], ["min_ms", "max_ms"]];
const DRAG_PX = 6;
const charts = new Set();

class Chart {
  constructor(figure, plot) {
    this.figure = figure;
    this.plot = plot;
    this.items = findAll("a, g", plot).filter((item) => find(":scope > title", item));
    for (const item of this.items) {
      const title = find(":scope > title", item);
      item.dataset.readout ??= title.textContent; // the browser's own tooltip would stand beside the readout
      title.remove();
    }
    this.names = findAll(".chart-numbers thead th", figure).slice(1).map((head) => head.textContent.trim());
    this.at = this.from = null;
    this.box = plot.parentElement;
    this.box.classList.add("explored");
    figure.querySelector("[aria-hidden]:has(.explored), .explored[aria-hidden]")?.removeAttribute("aria-hidden");
    findAll("svg", this.box.parentElement).forEach((svg) => svg.setAttribute("aria-hidden", "true"));
    const caption = find("figcaption", figure)?.textContent.trim() ?? "";
    Object.assign(this.box, { tabIndex: 0, role: "group", ariaLabel: `${caption} ${this.hint()}` });
    this.cross = this.part("chart-cross");
    this.brush = this.part("chart-brush");
    this.readout = this.part("chart-readout");
    this.readout.setAttribute("role", "status");
    this.listen();
    this.offerLegend();
  }

  part(name) {
    const part = document.createElement("div");
    part.className = name;
    part.hidden = true;
    this.box.append(part);
    return part;
  }

  listen() {
    this.plot.addEventListener("dragstart", (event) => event.preventDefault());
    this.box.addEventListener("pointermove", (event) => this.point(event));
    this.box.addEventListener("pointerleave", (event) => this.from === null && event.pointerType !== "touch" && this.leave());
    this.box.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.target.closest(".chart-readout")) return;
      this.from = this.nearest(event);
      this.start = event.clientX;
      this.dragged = false;
    });
    window.addEventListener("pointerup", () => {
      if (this.from === null) return;
      if (this.dragged) this.zoom(this.from, this.at);
      this.from = null;
      this.brush.hidden = true;
    });
    window.addEventListener("pointercancel", () => { this.from = null; this.brush.hidden = true; });
    this.box.addEventListener("click", (event) => {
      const touched = event.pointerType === "touch" && !event.target.closest(".chart-readout");
      if (!this.dragged && !touched) return;
      event.preventDefault(); // a finger has no hover: its first tap shows, the link in the readout opens
      this.dragged = false;
      if (touched) this.show(this.nearest(event), true);
    }, true);
    this.box.addEventListener("focus", () => this.at === null && this.show(this.items.length - 1));
    this.box.addEventListener("focusout", (event) => this.box.contains(event.relatedTarget) || this.leave());
    this.box.addEventListener("keydown", (event) => this.press(event));
  }

  point(event) {
    const index = this.nearest(event);
    if (this.from !== null && this.canZoom() && Math.abs(event.clientX - this.start) > DRAG_PX) {
      if (!this.dragged) this.box.setPointerCapture(event.pointerId);
      this.dragged = true;
      this.select(this.from, index);
    }
    this.show(index);
  }

  press(event) {
    if (event.target !== this.box || event.ctrlKey || event.metaKey || event.altKey) return;
    const last = this.items.length - 1;
    const moves = { ArrowLeft: (this.at ?? last + 1) - 1, ArrowRight: (this.at ?? -1) + 1, Home: 0, End: last };
    if (event.key in moves) {
      const index = Math.min(Math.max(moves[event.key], 0), last);
      if (event.shiftKey && this.canZoom()) this.anchor ??= this.at ?? index;
      else this.anchor = undefined;
      this.show(index);
      if (this.anchor !== undefined) this.select(this.anchor, index);
      else this.brush.hidden = true;
    } else if (event.key === "Enter" && this.anchor !== undefined) this.zoom(this.anchor, this.at);
    else if (event.key === "Enter" && this.at !== null) this.open(this.items[this.at]);
    else if (event.key === "Escape" && (this.anchor !== undefined || this.at !== null)) {
      this.anchor = undefined;
      this.leave();
    } else return;
    event.preventDefault();
  }

  open(item) {
    const href = item.getAttribute("href");
    if (href) location.assign(new URL(href, location));
  }

  span(item) {
    const box = (find(".pointed, .aim, .bar", item) ?? item).getBoundingClientRect();
    const plot = this.box.getBoundingClientRect();
    return { left: box.left - plot.left, right: box.right - plot.left, middle: (box.left + box.right) / 2 - plot.left, height: (box.top + box.bottom) / 2 - plot.top };
  }

  nearest(event) {
    const box = this.box.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const isFlat = this.plot.dataset.scatter === undefined; // dots of a scatter may stand above each other
    const distances = this.items.map((item) => {
      const { middle, height } = this.span(item);
      return Math.hypot(middle - x, isFlat ? 0 : height - y);
    });
    return distances.indexOf(Math.min(...distances));
  }

  show(index, pinned = false) {
    const kin = this.kin();
    for (const chart of charts) if (chart === this || (kin && chart.kin() === kin)) chart.mark(index, chart === this, pinned);
  }

  mark(index, isPointed, pinned) {
    const item = this.items[index];
    if (!item) return;
    this.at = index;
    this.items.forEach((other) => other.classList.toggle("shown", other === item));
    const { middle } = this.span(item);
    this.cross.hidden = this.readout.hidden = false;
    this.cross.style.left = `${middle}px`;
    this.readout.replaceChildren(...this.lines(item, isPointed, pinned));
    const room = this.box.clientWidth, width = this.readout.offsetWidth;
    this.readout.style.left = `${Math.max(0, middle + 12 + width > room ? Math.min(middle - width - 12, room - width) : middle + 12)}px`;
  }

  lines(item, isPointed, pinned) {
    const values = item.dataset.values?.split("\n") ?? [];
    const title = document.createElement("b");
    title.textContent = item.dataset.title ?? item.dataset.readout;
    const rows = values.map((value, number) => {
      const row = document.createElement("div");
      const name = document.createElement("span");
      name.textContent = this.names[number] ?? "";
      row.append(name, document.createTextNode(value));
      row.hidden = this.figure.classList.contains(`without-${number + 1}`);
      return row;
    });
    if (!isPointed) return [title, ...rows];
    const href = item.getAttribute("href");
    const foot = document.createElement(pinned && href ? "a" : "small");
    foot.textContent = pinned && href ? gettext("Open") : this.hint();
    if (pinned && href) foot.href = href;
    return foot.textContent ? [title, ...rows, foot] : [title, ...rows];
  }

  hint() {
    const opens = this.items.some((item) => item.hasAttribute("href")) ? gettext("Click or Enter opens.") : "";
    return [opens, this.canZoom() ? gettext("Drag or Shift and arrows zooms.") : ""].filter(Boolean).join(" ");
  }

  leave() {
    for (const chart of charts) {
      chart.at = null;
      chart.cross.hidden = chart.readout.hidden = chart.brush.hidden = true;
      chart.items.forEach((item) => item.classList.remove("shown"));
    }
  }

  select(one, other) {
    const [first, last] = [Math.min(one, other), Math.max(one, other)].map((index) => this.span(this.items[index]));
    this.brush.hidden = false;
    this.brush.style.left = `${first.left}px`;
    this.brush.style.width = `${last.right - first.left}px`;
  }

  given(item, name) {
    return new URL(item?.getAttribute("href") ?? "", location).searchParams.get(name);
  }

  bounds() {
    const [first, last] = [this.items[0], this.items.at(-1)];
    const differs = (name) => this.given(first, name) !== this.given(last, name);
    return first?.hasAttribute("href") ? ZOOMS.find((names) => names.some(differs)) : undefined;
  }

  canZoom() {
    return this.items.length > 1 && this.bounds() !== undefined;
  }

  kin() {
    const last = this.items.at(-1);
    return this.canZoom() ? [this.items.length, this.given(this.items[0], "since"), this.given(last, "until"), this.bounds()].join() : "";
  }

  zoom(one, other) {
    const address = new URL(location);
    const [first, last] = [this.items[Math.min(one, other)], this.items[Math.max(one, other)]];
    this.bounds().forEach((name, end) => {
      const value = this.given(end ? last : first, name);
      if (value === null) address.searchParams.delete(name);
      else address.searchParams.set(name, value);
    });
    for (const name of ["period", "cursor", "refresh"]) address.searchParams.delete(name);
    location.assign(address);
  }

  offerLegend() {
    const series = this.names.length > 1 ? this.names : [];
    const marks = (number) => findAll(`[data-series="${number}"], [data-line="${number}"], [fill="url(#pattern-${number})"]`, this.box.parentElement);
    const known = find(".chart-keys", this.figure);
    const legend = known ?? document.createElement("ul");
    if (!known && series.length) {
      legend.className = "chart-keys";
      this.figure.prepend(legend);
    }
    series.forEach((name, index) => {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", className: "button plain small", ariaPressed: "true", ariaLabel: filled(gettext("Show %(name)s"), { name }) });
      button.addEventListener("click", () => {
        const isShown = this.figure.classList.toggle(`without-${index + 1}`) === false;
        button.ariaPressed = String(isShown);
        marks(index + 1).forEach((mark) => mark.classList.toggle("off", !isShown));
      });
      // a legend of bars lies as the bars do: the last series first
      const entry = known ? known.children[known.children.length - 1 - index] : legend.appendChild(document.createElement("li"));
      const key = find(".key", entry);
      if (key) {
        key.before(button);
        button.append(key);
        if (find("a .button", entry)) find("a", entry).before(button);
      } else {
        button.textContent = name;
        const line = `<svg class="key" width="22" height="14" aria-hidden="true"><path class="line" data-line="${index + 1}" d="M0 7H22"/></svg>`;
        if (find("path.line", this.figure)) button.insertAdjacentHTML("afterbegin", line);
        entry.append(button);
      }
    });
  }
}

function explore(root = document) {
  for (const chart of charts) if (!chart.figure.isConnected) charts.delete(chart);
  for (const plot of findAll(".chart .chart-plot > svg:first-child, .chart svg.plot", root)) {
    if (plot.parentElement.classList.contains("explored")) continue;
    const chart = new Chart(plot.closest(".chart"), plot);
    if (chart.items.length) charts.add(chart);
  }
}
document.addEventListener("htmx:load", (event) => explore(event.target));
explore();
