// Lines and points over an axis of numbers; frames are chosen by a slider.
class Curves extends Figure {
  constructor(node, spec) {
    super(node, spec);
    this.slider(spec.slider, spec.frames.map((one) => one.label), (i) => {
      this.frame = i;
      this.draw();
    }, 0);
  }

  get series() { return this.spec.frames[this.frame].series; }
  get axes() { return this.spec; }

  paint(width) {
    const { x, y } = this.axes, all = this.series;
    const seen = all.filter((one) => !this.hidden.has(one.name));
    const narrow = width < 480, height = narrow ? 270 : 330;
    const values = seen.flatMap((one) => one.y.flatMap((v, i) => (
      v === null ? [] : one.half && one.half[i] ? within(v, one.half[i], y) : [v])));
    const ends = { x: range(seen.flatMap((one) => one.x), x), y: range(values, y) };
    const view = this.view || ends;
    const area = { left: 14, right: width - 14, top: 26, bottom: height - 40 };
    const sy = scale(...view.y, area.bottom, area.top, y.log);
    const marksY = ticks(sy, narrow ? 4 : 6, y.whole);
    area.left += LETTER * Math.max(...marksY.map((v) => shown(v, y).length), 2);
    const sx = scale(...view.x, area.left, area.right, x.log);
    this.area = area;
    this.scales = { x: sx, y: sy };
    const node = this.canvas(width, height);
    for (const v of marksY) {
      svg("line", { class: "grid", x1: area.left, x2: area.right, y1: sy(v), y2: sy(v) }, node);
      svg("text", { x: area.left - 6, y: sy(v) + 4, "text-anchor": "end" }, node, shown(v, y));
    }
    let last = -Infinity;
    for (const v of ticks(sx, Math.floor((area.right - area.left) / 70), x.whole)) {
      const text = shown(v, x), half = (LETTER * text.length) / 2;
      svg("line", { class: "grid", x1: sx(v), x2: sx(v), y1: area.top, y2: area.bottom }, node);
      if (sx(v) - half < last + 6) continue;
      last = sx(v) + half;
      const anchor = sx(v) + half > width ? "end" : "middle";
      svg("text", { x: anchor === "end" ? width - 1 : sx(v), y: area.bottom + 16,
        "text-anchor": anchor }, node, text);
    }
    svg("line", { class: "axis", x1: area.left, x2: area.right, y1: area.bottom,
      y2: area.bottom }, node);
    svg("text", { class: "axis-name", x: 2, y: 14 }, node, y.label);
    svg("text", { class: "axis-name", x: area.right, y: height - 6, "text-anchor": "end" }, node,
      x.label);
    const clip = `clip${Figure.count = (Figure.count || 0) + 1}`;
    svg("rect", { x: area.left - 6, y: area.top - 8, width: area.right - area.left + 14,
      height: area.bottom - area.top + 16 }, svg("clipPath", { id: clip }, node));
    const inner = svg("g", { "clip-path": `url(#${clip})` }, node);
    let place = 0, references = 0;
    all.forEach((one) => {
      if (one.ref) one.dash = REFERENCES[references++ % REFERENCES.length];
      const style = one.ref ? null : lookOf(one, one.look === undefined ? place++ : 0);
      if (!this.hidden.has(one.name)) this.line(inner, one, style, sx, sy);
    });
    this.nameDots(inner, all, sx, sy);
    this.writeLegend(this.entries(all), true);
    return node;
  }

  // Names beside the points of lines that say so: at the first place that is free, or not at all.
  nameDots(inner, all, sx, sy) {
    const taken = this.targets.map((one) => [one.x - 5, one.y - 5, one.x + 5, one.y + 5]);
    const a = this.area;
    for (const one of all) {
      if (!one.named || !one.text || this.hidden.has(one.name)) continue;
      one.x.forEach((v, i) => {
        if (one.y[i] === null || (sx.log && v <= 0) || (sy.log && one.y[i] <= 0)) return;
        const x = sx(v), y = sy(one.y[i]), text = short(one.text[i], 24);
        const wide = 5.6 * text.length;
        const free = [[8, 12], [-8 - wide, -5], [8, -5], [-8 - wide, 12], [-wide / 2, 20],
          [-wide / 2, -10], [-wide / 2, 32], [-wide / 2, -22]].map(([dx, dy]) => (
          [x + dx, y + dy - 10, x + dx + wide, y + dy + 2])).find((box) => (
          box[0] >= a.left && box[2] <= a.right + 8 && box[1] >= a.top - 8 && box[3] <= a.bottom
          && !taken.some((o) => box[0] < o[2] && o[0] < box[2] && box[1] < o[3] && o[1] < box[3])));
        if (!free) return;
        taken.push(free);
        svg("text", { class: "dot-name", x: free[0], y: free[3] - 2 }, inner, text);
      });
    }
  }

  entries(all) {
    let place = 0;
    return all.map((one) => {
      const style = one.ref ? null : lookOf(one, one.look === undefined ? place++ : 0);
      return { name: one.name, drawn: one.x.length, sign: (into) => this.sign(into, one, style) };
    }).filter((one) => one.drawn);
  }

  sign(into, one, style) {
    if (one.draw !== "points") {
      svg("line", { x1: 1, x2: 25, y1: 6, y2: 6, class: style ? "curve" : "curve ref",
        style: style && `stroke:${style.colour}`, "stroke-dasharray": (style || one).dash }, into);
    }
    if (style && one.draw !== "line") {
      svg("path", { d: style.mark(4), transform: "translate(13,6)",
        style: `fill:${style.colour};stroke:${style.colour}` }, into);
    }
  }

  line(inner, one, style, sx, sy) {
    const stroke = style && `stroke:${style.colour}`;
    const points = one.x.map((v, i) => [v, one.y[i], i]).filter(([v, w]) => (
      w !== null && (!sx.log || v > 0) && (!sy.log || w > 0)));
    if (one.draw !== "points" && points.length > 1) {
      let d = "";
      points.forEach(([v, w, i], k) => {
        const broken = k && points[k - 1][2] !== i - 1;
        if (k && one.steps && !broken) d += `H${sx(v).toFixed(1)}`;
        d += `${k && !broken ? "L" : "M"}${sx(v).toFixed(1)},${sy(w).toFixed(1)}`;
      });
      svg("path", { d, class: style ? "curve" : "curve ref", style: stroke,
        "stroke-dasharray": (style || one).dash }, inner);
    }
    for (const [v, w, i] of points) {
      const x = sx(v), y = sy(w), half = one.half && one.half[i];
      if (half) {
        const [low, high] = within(w, half, this.axes.y).map(sy);
        svg("path", { class: "whisker", style: stroke,
          d: `M${x},${low}V${high}M${x - 3},${low}h6M${x - 3},${high}h6` }, inner);
      }
      if (style && one.draw !== "line") {
        svg("path", { d: style.mark(one.small ? 2.5 : 4), transform: `translate(${x},${y})`,
          style: `fill:${style.colour};${stroke}` }, inner);
      }
      if (x < this.area.left - 8 || x > this.area.right + 8
        || y < this.area.top - 8 || y > this.area.bottom + 8) continue;
      this.target(x, y, this.words(one, i), one.name);
    }
  }

  words(one, i) {
    const { x, y } = this.axes, half = one.half && one.half[i];
    const name = one.text ? one.text[i] : one.name;
    return `${name}\n${x.label}: ${shown(one.x[i], x)}\n${y.label}: ${shown(one.y[i], y)}`
      + (half ? ` ± ${shown(half, { ...y, digits: 2 })}` : "");
  }

  values() {
    const { x, y } = this.axes;
    return { head: ["", x.label, y.label, "±"],
      rows: this.series.flatMap((one) => one.x.map((v, i) => [
        one.text ? one.text[i] : one.name, shown(v, x), shown(one.y[i], y),
        one.half && one.half[i] ? shown(one.half[i], y) : ""])) };
  }
}
