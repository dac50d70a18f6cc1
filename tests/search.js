// Runs the search of built documentation: node search.js FOLDER QUERY... prints, for each query,
// the pages in the order of the results, as JSON.
const fs = require("fs"), path = require("path"), vm = require("vm");
const [folder, ...queries] = process.argv.slice(2);
const read = (name) => fs.readFileSync(path.join(folder, name), "utf8");
const nothing = { remove() {}, appendChild() { return nothing; }, lastElementChild: null };
const context = vm.createContext({
  console, URLSearchParams, SPHINX_HIGHLIGHT_ENABLED: false,
  document: { getElementById: () => nothing, querySelectorAll: () => [], addEventListener() {},
    readyState: "loading", documentElement: { dataset: { content_root: "" } } },
  location: { search: "" },
  DOCUMENTATION_OPTIONS: { BUILDER: "html", FILE_SUFFIX: ".html", LINK_SUFFIX: ".html" },
  _ready() {}, _: (text) => text, Documentation: { ngettext: (one) => one },
});
context.window = context;
for (const name of ["_static/searchtools.js", "_static/language_data.js", "searchindex.js"]) {
  vm.runInContext(read(name).replace(/^const Search =/m, "var Search ="), context);
}
const found = queries.map((query) => {
  context.query = query;
  return vm.runInContext(
    "Search._performSearch(...Search._parseQuery(query)).map((one) => one[0]).reverse()", context);
});
console.log(JSON.stringify(found));
