// The cells of a sweep: a quantity over one axis, a line for each value of another, the rest chosen.
class Explore extends Curves {
  constructor(node, spec) {
    super(node, { ...spec, frames: [{ label: "", series: [] }] });
    this.metric = 0; this.over = spec.over; this.lines = spec.lines;
    this.fixed = spec.axes.map(() => 0);
    this.choosers = html("span", { class: "choosers" });
    this.controls.prepend(this.choosers);
    this.offer();
  }

  get axes() {
    const axis = this.spec.axes[this.over];
    return { x: { label: axis.label, whole: axis.whole }, y: this.spec.metrics[this.metric] };
  }

  // The select boxes: what is drawn, over what, by what, and for which values of the rest.
  offer() {
    const { axes, metrics } = this.spec, numbers = [], all = axes.map((_, i) => i);
    axes.forEach((axis, i) => { if (axis.number) numbers.push(i); });
    const bar = this.controls, redraw = () => { this.view = null; this.offer(); this.draw(); };
    this.choosers.replaceChildren();
    this.controls = this.choosers;
    this.choose("show", metrics.map((m) => m.label), (i) => { this.metric = i; redraw(); },
      this.metric);
    this.choose("over", numbers.map((i) => axes[i].label), (k) => {
      if (numbers[k] === this.lines) this.lines = this.over;
      this.over = numbers[k];
      redraw();
    }, numbers.indexOf(this.over));
    const others = all.filter((i) => i !== this.over);
    if (others.length) {
      this.choose("a line for each", others.map((i) => axes[i].label), (k) => {
        this.lines = others[k];
        redraw();
      }, others.indexOf(this.lines));
    }
    for (const i of others.filter((one) => one !== this.lines)) {
      this.choose(axes[i].label, axes[i].values.map(String), (k) => {
        this.fixed[i] = k;
        redraw();
      }, this.fixed[i]);
    }
    this.controls = bar;
  }

  get series() {
    const { axes, cells, values, metrics } = this.spec, metric = metrics[this.metric];
    const found = new Map();
    cells.forEach((cell, k) => {
      if (cell.some((v, i) => i !== this.over && i !== this.lines && v !== this.fixed[i])) return;
      const y = values[k][metric.at];
      if (y === null) return;
      const line = this.lines === null || this.lines === undefined ? 0 : cell[this.lines];
      if (!found.has(line)) found.set(line, []);
      const half = metric.half === undefined ? null : values[k][metric.half];
      found.get(line).push([axes[this.over].values[cell[this.over]], y, half]);
    });
    const all = [...found.entries()].sort((a, b) => a[0] - b[0]).map(([line, points]) => {
      points.sort((a, b) => a[0] - b[0]);
      return { name: this.lines === null || this.lines === undefined ? metric.label
        : String(axes[this.lines].values[line]),
      look: axes[this.lines] ? axes[this.lines].looks[line] : 0, x: points.map((p) => p[0]),
      y: points.map((p) => p[1]), half: points.map((p) => p[2]) };
    });
    if (metric.bound !== undefined) {
      const bounds = new Map();
      cells.forEach((cell, k) => {
        if (cell.some((v, i) => i !== this.over && i !== this.lines && v !== this.fixed[i])) return;
        const x = axes[this.over].values[cell[this.over]], v = values[k][metric.bound];
        if (v !== null) bounds.set(x, Math.max(v, bounds.has(x) ? bounds.get(x) : -Infinity));
      });
      const xs = [...bounds.keys()].sort((a, b) => a - b);
      if (xs.length) {
        all.push({ name: "upper bound (one model per request)", ref: true, draw: "line", x: xs,
          y: xs.map((v) => bounds.get(v)) });
      }
    }
    return all;
  }
}
