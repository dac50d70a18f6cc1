// Drawing: elements, scales, ticks, marks. Texts are set as text, never as HTML.
const NS = "http://www.w3.org/2000/svg";

function put(node, attributes, parent, text) {
  for (const name in attributes || {}) {
    if (attributes[name] !== null && attributes[name] !== undefined) {
      node.setAttribute(name, attributes[name]);
    }
  }
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}
const svg = (name, attributes, parent, text) =>
  put(document.createElementNS(NS, name), attributes, parent, text);
const html = (name, attributes, parent, text) =>
  put(document.createElement(name), attributes, parent, text);

function shown(value, axis) {
  if (value === null || value === undefined || Number.isNaN(value)) return "none";
  if (axis && axis.percent) return trimmed(100 * value, axis.digits || 4) + " %";
  return trimmed(value, (axis && axis.digits) || 5);
}
function trimmed(value, digits) {
  if (value !== 0 && Math.abs(value) < 1e-4) {  // no powers of ten
    return value.toFixed(2 - Math.floor(Math.log10(Math.abs(value)))).replace(/0+$/, "");
  }
  return String(Number(value.toPrecision(Math.abs(value) >= 1e7 ? 3 : digits)));
}

// A scale from values in [low, high] to pixels in [from, to].
function scale(low, high, from, to, log) {
  const f = log ? Math.log : (v) => v;
  const g = log ? Math.exp : (v) => v;
  const a = f(low), span = f(high) - a || 1;
  const at = (v) => from + ((f(v) - a) / span) * (to - from);
  at.back = (p) => g(a + ((p - from) / (to - from)) * span);
  at.low = low; at.high = high; at.log = log;
  at.near = (share) => g(a + share * span);
  return at;
}
function ticks(s, count, whole) {
  const { low, high } = s;
  if (s.log && whole) {
    const first = Math.ceil(Math.log2(low) - 0.01), last = Math.floor(Math.log2(high) + 0.01);
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => 2 ** (first + i));
  }
  if (s.log && high / low > 8) {
    const found = [], wide = Math.log10(high / low) > count;
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) {
      for (const m of wide ? [1] : [1, 2, 5]) {
        const value = m * Math.pow(10, e);
        if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
      }
    }
    const step = Math.ceil(found.length / (count + 2));
    return found.filter((_, i) => i % step === 0);
  }
  const raw = (high - low) / Math.max(count, 1), power = Math.pow(10, Math.floor(Math.log10(raw)));
  let step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((m) => m >= raw * 0.999);
  if (whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) {
    found.push(Number((i * step).toPrecision(12)));
  }
  return found;
}

// The range of some values, with room; the range of a log scale holds positive values only.
function range(values, axis) {
  let low = Infinity, high = -Infinity;
  for (const v of values) {
    if (v === null || Number.isNaN(v) || (axis.log && v <= 0)) continue;
    if (v < low) low = v;
    if (v > high) high = v;
  }
  if (low > high) return axis.log ? [1, 10] : [0, 1];
  if (axis.log) {
    if (axis.reach) high = Math.max(high, axis.reach);
    return low === high ? [low / 2, high * 2] : [low / 1.15, high * 1.15];
  }
  if (axis.zero) low = Math.min(low, 0);
  if (axis.reach) high = Math.max(high, axis.reach);
  const room = (high - low || Math.abs(high) * 0.1 || (axis.percent ? 0.01 : 1)) * 0.06;
  const lowest = axis.zero && low >= 0 ? 0 : low - room;
  return [axis.min !== undefined ? Math.max(lowest, axis.min) : lowest,
          axis.max !== undefined ? Math.min(high + room, Math.max(axis.max, high)) : high + room];
}

// The ends of an interval; those of what cannot be negative, or above some value, end there.
function within(value, half, axis) {
  const low = value - half, high = value + half;
  return [axis.zero && value >= 0 ? Math.max(0, low) : low,
    axis.max !== undefined && value <= axis.max ? Math.min(axis.max, high) : high];
}

const DASHES = ["", "7 3", "2 3", "9 3 2 3", "5 2", "13 3", "9 3 2 3 2 3"];
const COLOURS = 8;
const MARKS = [
  (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`,
  (r) => `M${-r},${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
  (r) => `M0,${-1.3 * r}L${1.2 * r},${r}L${-1.2 * r},${r}z`,
  (r) => `M0,${-1.4 * r}L${1.4 * r},0L0,${1.4 * r}L${-1.4 * r},0z`,
  (r) => `M0,${1.3 * r}L${1.2 * r},${-r}L${-1.2 * r},${-r}z`,
  (r) => `M${-r},${-r}L${r},${r}M${-r},${r}L${r},${-r}`,
  (r) => `M0,${-1.3 * r}V${1.3 * r}M${-1.3 * r},0H${1.3 * r}`,
];
const look = (i) => ({
  colour: `var(--c${i % COLOURS})`, dash: DASHES[i % DASHES.length], mark: MARKS[i % MARKS.length],
});

// From dark to light, as the eye orders them (viridis).
const RAMP = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141],
  [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];
function ramp(share) {
  const x = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1), i = Math.min(Math.floor(x), 7);
  const mix = RAMP[i].map((v, k) => Math.round(v + (RAMP[i + 1][k] - v) * (x - i)));
  return `rgb(${mix.join(",")})`;
}

// How a line is drawn; one of a model has the model's colour.
const lookOf = (one, place) => {
  const own = look(one.look === undefined ? place : one.look);
  return typeof one.shade === "number" ? { ...own, colour: ramp(one.shade) } : own;
};

// Dashes of lines of reference in turn: bounds, targets.
const REFERENCES = ["1.5 3", "9 4", "1.5 7"];

const LETTER = 6.3;
function short(text, letters) {
  return text.length <= letters ? text : text.slice(0, Math.max(1, letters - 1)) + "…";
}
