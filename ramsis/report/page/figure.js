// What every figure has: a title, controls, a legend, a tip, zoom, keys, and its data as a table.
const tip = html("div", { class: "tip", role: "presentation" }, document.body);

class Figure {
  constructor(node, spec) {
    this.node = node; this.spec = spec; this.view = null; this.hidden = new Set();
    this.frame = 0; this.focus = null; this.targets = [];
    this.controls = html("div", { class: "controls" }, node);
    this.legend = html("ul", { class: "legend" }, node);
    this.plot = html("div", { class: "plot" }, node);
    this.said = html("p", { class: "unseen", "aria-live": "polite" }, node);
    if (spec.zoom !== false) this.zoomButtons();
    this.dataTable();
  }

  // The width that it is drawn for; that of a page when printed.
  draw() {
    const width = printing ? 640 : Math.max(260, this.plot.clientWidth);
    tip.style.display = "none";
    this.plot.replaceChildren();
    this.targets = [];
    const svgNode = this.paint(width);
    put(svgNode, { role: "img", tabindex: "0", "aria-label": this.spec.label }, this.plot);
    this.watch(svgNode);
    this.node.dataset.drawn = "yes";
  }

  canvas(width, height) {
    return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  }

  // A point with a text that is shown when the pointer or the keys are there.
  target(x, y, text, group) {
    this.targets.push({ x, y, text, group });
  }

  watch(node) {
    let from = null, box = null;
    const place = (event) => {
      const r = node.getBoundingClientRect();
      return [event.clientX - r.left, event.clientY - r.top];
    };
    node.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      if (from && this.area) {
        const a = this.inArea(from), b = this.inArea([x, y]);
        box = box || svg("rect", { class: "box" }, node);
        put(box, { x: Math.min(a[0], b[0]), y: Math.min(a[1], b[1]),
          width: Math.abs(a[0] - b[0]), height: Math.abs(a[1] - b[1]) });
        return;
      }
      this.show(this.nearest(x, y), node);
    });
    node.addEventListener("pointerleave", () => this.show(null, node));
    node.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "mouse" && event.button === 0 && this.area) from = place(event);
    });
    const end = (event) => {
      if (from && box) {
        const a = this.inArea(from), b = this.inArea(place(event));
        if (Math.abs(a[0] - b[0]) > 6 && Math.abs(a[1] - b[1]) > 6) this.zoomTo(a, b);
        else box.remove();
      }
      from = box = null;
    };
    node.addEventListener("pointerup", end);
    node.addEventListener("pointercancel", end);
    node.addEventListener("dblclick", () => this.reset());
    node.addEventListener("keydown", (event) => this.key(event, node));
  }

  inArea([x, y]) {
    const a = this.area;
    return [Math.min(Math.max(x, a.left), a.right), Math.min(Math.max(y, a.top), a.bottom)];
  }

  nearest(x, y) {
    let best = null, least = 30 * 30;
    for (const one of this.targets) {
      const d = (one.x - x) ** 2 + (one.y - y) ** 2;
      if (d < least) { least = d; best = one; }
    }
    return best;
  }

  show(target, node, aloud) {
    const old = node.querySelector(".here");
    if (old) old.remove();
    if (!target) { tip.style.display = "none"; return; }
    svg("circle", { class: "here", cx: target.x, cy: target.y, r: 7 }, node);
    const r = node.getBoundingClientRect();
    tip.textContent = target.text;
    tip.style.display = "block";
    const wide = tip.offsetWidth, room = document.documentElement.clientWidth;
    const left = Math.min(Math.max(4, r.left + target.x + 12), Math.max(4, room - wide - 4));
    tip.style.left = left + window.scrollX + "px";
    tip.style.top = r.top + target.y + window.scrollY - tip.offsetHeight - 10 + "px";
    if (aloud) this.said.textContent = target.text;
  }

  key(event, node) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const jump = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "0" || event.key === "Escape") this.reset();
    else if (step || jump) this.move(step || 0, jump || 0, node);
    else return;
    event.preventDefault();
    if (!step && !jump) this.plot.firstChild.focus();
  }

  // The next point of the same line, or the nearest of the next line.
  move(step, jump, node) {
    if (!this.targets.length) return;
    const groups = [...new Set(this.targets.map((one) => one.group))];
    const here = this.targets.includes(this.focus) ? this.focus : null;
    let next = this.targets[0];
    if (here && step) {
      const own = this.targets.filter((one) => one.group === here.group);
      next = own[(own.indexOf(here) + step + own.length) % own.length];
    } else if (here) {
      const at = (groups.indexOf(here.group) + jump + groups.length) % groups.length;
      const own = this.targets.filter((one) => one.group === groups[at]);
      next = own.reduce((a, b) => (Math.abs(b.x - here.x) < Math.abs(a.x - here.x) ? b : a));
    }
    this.focus = next;
    this.show(next, node, true);
  }

  zoomButtons() {
    const bar = html("span", { class: "zoom", role: "group", "aria-label": "Zoom" });
    for (const [sign, words, act] of [["+", "Zoom in", () => this.zoom(0.5)],
      ["−", "Zoom out", () => this.zoom(2)], ["⟲", "Show all", () => this.reset()]]) {
      const button = html("button", { type: "button", title: words, "aria-label": words }, bar,
        sign);
      button.addEventListener("click", act);
    }
    this.controls.appendChild(bar);
  }

  zoom(factor) {
    if (!this.scales) return;
    const cut = (s) => {
      const [a, b] = factor < 1 ? [(1 - factor) / 2, (1 + factor) / 2] : [-0.5, 1.5];
      return [s.near(a), s.near(b)];
    };
    const view = {};
    for (const name in this.scales) view[name] = cut(this.scales[name]);
    this.view = view;
    this.draw();
  }

  zoomTo(a, b) {
    const view = {};
    for (const name in this.scales) {
      const k = name === "x" ? 0 : 1, s = this.scales[name];
      const ends = [s.back(a[k]), s.back(b[k])].sort((p, q) => p - q);
      view[name] = ends;
    }
    this.view = view;
    this.draw();
  }

  reset() {
    this.view = null;
    this.draw();
  }

  // A slider over the frames, where there are several.
  slider(words, labels, change, first) {
    if (labels.length < 2) return;
    const label = html("label", { class: "slider" }, this.controls);
    html("span", {}, label, words);
    const input = html("input", { type: "range", min: 0, max: labels.length - 1, step: 1,
      value: first || 0 }, label);
    const value = html("output", {}, label, labels[first || 0]);
    const tell = () => {
      value.textContent = labels[input.value];
      put(input, { "aria-valuetext": labels[input.value] });
    };
    input.addEventListener("input", () => { tell(); change(Number(input.value)); });
    tell();
    return label;
  }

  choose(words, labels, change, first) {
    const label = html("label", { class: "choice" }, this.controls);
    html("span", {}, label, words);
    const input = html("select", {}, label);
    labels.forEach((text, i) => html("option", { value: i }, input, text));
    input.value = first || 0;
    input.addEventListener("change", () => change(Number(input.value)));
    return label;
  }

  // Names with their marks; each hides and shows its line.
  writeLegend(entries, toggle) {
    this.legend.replaceChildren();
    for (const one of entries) {
      const item = html("li", {}, this.legend);
      const holder = toggle
        ? html("button", { type: "button", "aria-pressed": String(!this.hidden.has(one.name)),
          title: "Hide or show" }, item)
        : html("span", {}, item);
      const sign = svg("svg", { width: 26, height: 12, "aria-hidden": "true" }, holder);
      one.sign(sign);
      html("span", {}, holder, one.name);
      if (toggle) {
        holder.addEventListener("click", () => {
          if (this.hidden.has(one.name)) this.hidden.delete(one.name);
          else this.hidden.add(one.name);
          this.draw();
          this.legend.querySelectorAll("button")[entries.indexOf(one)].focus();
        });
      }
    }
  }

  // The values as a table, made when it is opened.
  dataTable() {
    const details = html("details", { class: "data" }, this.node);
    html("summary", {}, details, "Values of this figure");
    const holder = html("div", { class: "scroll", tabindex: "0", role: "region",
      "aria-label": "Values of this figure" }, details);
    details.addEventListener("toggle", () => {
      holder.replaceChildren();
      if (!details.open) return;
      const { head, rows } = this.values();
      const table = html("table", {}, holder);
      const top = html("tr", {}, html("thead", {}, table));
      head.forEach((name) => html("th", { scope: "col" }, top, name));
      const body = html("tbody", {}, table);
      rows.slice(0, 500).forEach((row) => {
        const line = html("tr", {}, body);
        row.forEach((cell) => html("td", {}, line, cell));
      });
      if (rows.length > 500) html("p", {}, holder, `500 of ${rows.length} rows`);
    });
  }
}
