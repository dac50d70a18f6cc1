// A row for each name: parts side by side in a bar, or points on a line. The name stands above its
// row, so that long ones need no room at the side.
const whole = (share) => (Math.abs(share - 1) < 0.001 ? 1 : share);  // rounded parts of 100 %

class Rows extends Figure {
  constructor(node, spec) {
    super(node, spec);
    this.slider(spec.slider, spec.frames.map((one) => one.label), (i) => {
      this.frame = i;
      this.draw();
    }, 0);
  }

  get rows() { return this.spec.frames[this.frame].rows; }

  paint(width) {
    const { x, series, dots } = this.spec, rows = this.rows;
    const part = dots ? 24 : 16, each = part + 22;
    const area = { left: 8, right: width - 22, top: 4, bottom: 8 + rows.length * each };
    const height = area.bottom + 40;
    const seen = rows.flatMap((row) => row.parts.filter((p) => !this.hidden.has(series[p[0]])));
    const sums = rows.map((row) => row.parts.reduce(
      (sum, p) => sum + (this.hidden.has(series[p[0]]) ? 0 : p[1]), 0));
    const ends = dots ? range(seen.flatMap((p) => (
      p[1] === null ? [] : within(p[1], p[2] || 0, x))), x)
      : [0, x.percent ? whole(Math.max(...sums, 1e-6)) : Math.max(...sums, 1) * 1.04];
    const sx = scale(...((this.view && this.view.x) || ends), area.left, area.right, x.log);
    this.area = area;
    this.scales = { x: sx };
    const node = put(this.canvas(width, height), { class: "rows" });
    for (const v of ticks(sx, Math.floor((area.right - area.left) / 75), x.whole)) {
      svg("line", { class: "grid", x1: sx(v), x2: sx(v), y1: area.top, y2: area.bottom }, node);
      svg("text", { x: sx(v), y: area.bottom + 16,
        "text-anchor": sx(v) < 20 ? "start" : sx(v) > width - 30 ? "end" : "middle" }, node,
        shown(v, x));
    }
    svg("text", { class: "axis-name", x: area.right, y: height - 6, "text-anchor": "end" }, node,
      x.label);
    rows.forEach((row, k) => {
      const top = area.top + k * each;
      const name = svg("text", { class: "row-name", x: area.left, y: top + 14 }, node,
        short(row.name, Math.floor((area.right - area.left) / LETTER)));
      svg("title", {}, name, row.name);
      if (dots) this.dots(node, row, sx, top + 18 + part / 2);
      else this.bar(node, row, sx, top + 19, part);
    });
    this.writeLegend(series.map((name, i) => ({ name, sign: (into) => {
      if (dots) svg("path", { d: look(i).mark(4), transform: "translate(13,6)",
        style: `fill:${look(i).colour};stroke:${look(i).colour}` }, into);
      else svg("rect", { x: 4, y: 0, width: 18, height: 12, ...this.fill(i) }, into);
    } })), true);
    return node;
  }

  fill(i) {
    const { shade } = this.spec;
    const style = shade ? `fill:${ramp(shade[i])}` : `fill:${look(i).colour}`;
    return { style: shade || i < COLOURS ? style : `${style};fill-opacity:.55` };
  }

  bar(node, row, sx, top, high) {
    let sum = 0;
    for (const [i, value, text] of row.parts) {
      const name = this.spec.series[i];
      if (this.hidden.has(name) || !value) continue;
      const from = Math.max(sx(sum), this.area.left), to = Math.min(sx(sum + value),
        this.area.right + 4);
      sum += value;
      if (to <= from) continue;
      svg("rect", { class: "part", x: from, y: top, width: Math.max(to - from, 0.7), height: high,
        ...this.fill(i) }, node);
      this.target((from + to) / 2, top + high / 2, `${row.name}\n${name}: `
        + `${shown(value, this.spec.x)}${text ? `\n${text}` : ""}`, row.name);
    }
  }

  dots(node, row, sx, y) {
    svg("line", { class: "grid", x1: this.area.left, x2: this.area.right, y1: y, y2: y }, node);
    const count = row.parts.length;
    row.parts.forEach(([i, value, half], k) => {
      const name = this.spec.series[i], style = look(i);
      if (value === null || this.hidden.has(name)) return;
      const x = sx(value), at = y + (k - (count - 1) / 2) * Math.min(6, 22 / count);
      if (x < this.area.left - 6 || x > this.area.right + 6) return;
      if (half) {
        svg("path", { class: "whisker", style: `stroke:${style.colour}`,
          d: `M${within(value, half, this.spec.x).map(sx).join(`,${at}H`)}` }, node);
      }
      svg("path", { d: style.mark(4), transform: `translate(${x},${at})`,
        style: `fill:${style.colour};stroke:${style.colour}` }, node);
      this.target(x, at, `${row.name}\n${name}: ${shown(value, this.spec.x)}`
        + (half ? ` ± ${shown(half, { ...this.spec.x, digits: 2 })}` : ""), row.name);
    });
  }

  // The nearest bar is the one under the pointer, however long it is.
  nearest(x, y) {
    if (this.spec.dots) return super.nearest(x, y);
    const own = this.targets.filter((one) => Math.abs(one.y - y) < 12);
    return own.length ? own.reduce((a, b) => (Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a))
      : null;
  }

  values() {
    return { head: ["", "", this.spec.x.label, this.spec.dots ? "±" : ""],
      rows: this.rows.flatMap((row) => row.parts.map(([i, value, more]) => [
        row.name, this.spec.series[i], shown(value, this.spec.x),
        this.spec.dots ? (more ? shown(more, this.spec.x) : "") : more || ""])) };
  }
}
