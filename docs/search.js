// How results of the search are scored: what a page is about counts before what it mentions.
var Scorer = {
  objNameMatch: 18, objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 40, partialTitle: 7, term: 5, partialTerm: 2,
  score: ([docname, , , , score]) => score
    + (/^(questions|howto\/|start\/)/.test(docname) ? 12 : 0)
    + (docname === "glossary" ? 9 : 0)
    - (/^(architecture|performance|measurements|evaluation|cli$|python$)/.test(docname) ? 4 : 0),
};
