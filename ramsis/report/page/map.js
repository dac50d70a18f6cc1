// The table of a policy: queued requests by slack; colour is the model, or the batch.
class PolicyMap extends Figure {
  constructor(node, spec) {
    super(node, spec);
    this.idle = 0; this.by = 0;
    this.frame = Math.floor((spec.frames.length - 1) / 2);  // a typical load
    this.slider(spec.slider, spec.frames.map((one) => one.label), (i) => {
      this.frame = i;
      this.view = null;
      this.offerIdle();
      this.draw();
    }, this.frame);
    this.choose("colour", ["model", "batch"], (i) => { this.by = i; this.draw(); });
    this.note = html("p", { class: "note", "aria-live": "polite" });
    node.insertBefore(this.note, this.legend);
    this.offerIdle();
  }

  get table() { return this.spec.frames[this.frame]; }

  offerIdle() {
    if (this.idleSlider) this.idleSlider.remove();
    const idle = this.table.idle;
    this.idle = idle.length - 1;
    this.idleSlider = this.slider("idle workers", idle.map(String), (i) => {
      this.idle = i;
      this.draw();
    }, this.idle);
  }

  // Runs of equal answers in the states of a row that occur: [first bin, last bin + 1, code].
  runs(row, ends = this.table.slack.length) {
    const found = [], { rows } = this.table;
    for (let i = 0; i < rows[row].length && rows[row][i] < ends; i += 2) {
      found.push([rows[row][i], Math.min(ends, i + 2 < rows[row].length ? rows[row][i + 2] : ends),
        rows[row][i + 1]]);
    }
    return found;
  }

  paint(width) {
    const t = this.table, narrow = width < 480;
    const height = narrow ? 300 : 380;
    const last = t.slack[t.slack.length - 1], step = t.slack.length > 1
      ? last - t.slack[t.slack.length - 2] : 1;
    const edges = [...t.slack, last + step], lines = t.index[this.idle];
    const area = { left: 14 + LETTER * String(t.queued[t.queued.length - 1]).length,
      right: width - 14, top: 26, bottom: height - 40 };
    const longest = Math.max(1, t.rare.filter((bins) => bins > 0).length);
    const ends = { x: [edges[0], edges[edges.length - 1]], y: [0.5, longest + 0.5] };
    const view = this.view || ends;
    const sx = scale(...view.x, area.left, area.right, false);
    const sy = scale(...view.y, area.bottom, area.top, false);
    this.area = area; this.scales = { x: sx, y: sy };
    const node = this.canvas(width, height);
    const clip = `clip${Figure.count = (Figure.count || 0) + 1}`;
    svg("rect", { x: area.left, y: area.top, width: area.right - area.left,
      height: area.bottom - area.top }, svg("clipPath", { id: clip }, node));
    const inner = svg("g", { "clip-path": `url(#${clip})`, "shape-rendering": "crispEdges" }, node);
    // Neighbouring rows that are equal are drawn as one.
    for (let n = 0; n < lines.length;) {
      let end = n + 1;
      while (end < lines.length && lines[end] === lines[n] && t.rare[end] === t.rare[n]) end++;
      const top = sy(end + 0.5), high = sy(n + 0.5) - top;
      for (const [from, to, code] of this.runs(lines[n], t.rare[n])) {
        svg("rect", { x: sx(edges[from]), y: top, width: sx(edges[to]) - sx(edges[from]) + 0.4,
          height: high + 0.4, style: `fill:${this.colour(code)}` }, inner);
      }
      n = end;
    }
    for (const v of ticks(sx, Math.floor((area.right - area.left) / 70))) {
      svg("text", { x: sx(v), y: area.bottom + 16, "text-anchor": "middle" }, node, shown(v));
    }
    let lowest = Infinity;
    for (const v of ticks(sy, narrow ? 5 : 8, true)) {
      if (v < 1 || v > lines.length || sy(v) > lowest - 12) continue;
      lowest = sy(v);
      svg("text", { x: area.left - 5, y: sy(v) + 4, "text-anchor": "end" }, node,
        String(t.queued[v - 1]));
    }
    svg("text", { class: "axis-name", x: 2, y: 14 }, node, "queued requests");
    svg("text", { class: "axis-name", x: area.right, y: height - 6, "text-anchor": "end" }, node,
      "slack of the earliest deadline (ms)");
    svg("rect", { class: "frame", x: area.left, y: area.top, width: area.right - area.left,
      height: area.bottom - area.top }, node);
    this.aim(lines, edges);
    this.note.textContent = t.note + (t.rare[longest - 1] < t.slack.length
      ? "; states that hardly occur are left white" : "");
    this.writeLegend(this.entries(lines), false);
    return node;
  }

  // What the keys go through: a point in each run of each row.
  aim(lines, edges) {
    const { x, y } = this.scales;
    this.edges = edges;
    lines.forEach((row, n) => {
      if (n + 1 < y.low || n + 1 > y.high) return;
      for (const [from, to, code] of this.runs(row, this.table.rare[n])) {
        const a = Math.max(edges[from], x.low), b = Math.min(edges[to], x.high);
        if (a < b) this.target(x((a + b) / 2), y(n + 1), this.words(n, from, to, code), n);
      }
    });
  }

  nearest(px, py) {
    if (px < this.area.left || px > this.area.right || py < this.area.top
      || py > this.area.bottom) return null;
    const n = Math.round(this.scales.y.back(py)) - 1, slack = this.scales.x.back(px);
    const row = this.table.index[this.idle][n];
    if (row === undefined) return null;
    const found = this.runs(row, this.table.rare[n]).find(([from, to]) => slack >= this.edges[from]
      && slack < this.edges[to]);
    return found ? { x: px, y: py, text: this.words(n, ...found) } : null;
  }

  words(n, from, to, code) {
    const t = this.table, action = t.actions[code];
    const until = to < t.slack.length ? ` to ${shown(t.slack[to])}` : " or more";
    const what = code === -1 ? "wait" : code === -2 ? "drop the earliest"
      : `${this.spec.models[action[0]]}\nin a batch of ${action[1]}`;
    return `${t.queued[n]} queued, slack ${shown(t.slack[from])}${until} ms:\n${what}`;
  }

  colour(code) {
    if (code === -1) return "var(--wait)";
    if (code === -2) return "var(--drop)";
    const [model, batch] = this.table.actions[code];
    return this.by ? ramp(Math.log(batch) / Math.log(Math.max(2, this.spec.largest)))
      : ramp(this.spec.shade[model]);
  }

  entries(lines) {
    const codes = new Set(lines.flatMap((row, n) => (
      this.runs(row, this.table.rare[n]).map((run) => run[2]))));
    const found = new Map();
    for (const code of codes) {
      const action = this.table.actions[code];
      const name = code === -1 ? "wait" : code === -2 ? "drop the earliest"
        : this.by ? `batch of ${action[1]}` : this.spec.models[action[0]];
      const order = code < 0 ? 1e6 - code : this.by ? action[1] : action[0];
      if (!found.has(name)) found.set(name, { name, order, colour: this.colour(code) });
    }
    let sorted = [...found.values()].sort((a, b) => a.order - b.order);
    if (sorted.length > 16) {
      const step = (sorted.length - 1) / 15;
      sorted = Array.from({ length: 16 }, (_, i) => sorted[Math.round(i * step)]);
    }
    return sorted.map(({ name, colour }) => ({ name, sign: (into) => svg("rect", {
      class: "part", x: 4, y: 0, width: 18, height: 12, style: `fill:${colour}` }, into) }));
  }

  values() {
    const t = this.table, rows = [];
    t.index[this.idle].forEach((row, n) => {
      for (const [from, to, code] of this.runs(row, this.table.rare[n])) {
        const action = t.actions[code];
        rows.push([String(t.queued[n]), shown(t.slack[from]), to < t.slack.length
          ? shown(t.slack[to]) : "", code === -1 ? "wait" : code === -2 ? "drop"
          : this.spec.models[action[0]], code < 0 ? "" : String(action[1])]);
      }
    });
    return { head: ["queued", "slack from (ms)", "below (ms)", "model", "batch"], rows };
  }
}
