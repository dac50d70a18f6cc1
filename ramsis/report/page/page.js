// Every figure of the page, drawn again when its width changes and for print.
let printing = false;
const KINDS = { curves: Curves, rows: Rows, map: PolicyMap, explore: Explore };
const figures = [...document.querySelectorAll("figure[data-chart]")].map((node) => {
  const spec = JSON.parse(document.getElementById(node.dataset.chart).textContent);
  const figure = new KINDS[spec.kind](node, spec);
  figure.draw();
  let width = figure.plot.clientWidth;
  new ResizeObserver(() => requestAnimationFrame(() => {
    if (!printing && Math.abs(figure.plot.clientWidth - width) > 2) {
      width = figure.plot.clientWidth;
      figure.draw();
    }
  })).observe(figure.plot);
  return figure;
});
function printed(now) {
  if (printing === now) return;
  printing = now;
  figures.forEach((one) => one.draw());
}
window.addEventListener("beforeprint", () => printed(true));
window.addEventListener("afterprint", () => printed(false));
window.matchMedia("print").addEventListener("change", (event) => printed(event.matches));
window.addEventListener("scroll", () => { tip.style.display = "none"; }, { passive: true });
document.documentElement.dataset.ready = "yes";
