"""Counts that must not rise.

They are branches on kinds, and nouns defined twice.
What kind of policy, settings, table or cluster there is, is asked where files are read and where
the command line takes words; everywhere else the object itself knows what to do. ``python -m
tests.test_architecture`` prints what is found, with the places that may ask.
"""

from __future__ import annotations

import ast
import re
from collections import Counter

from tests.test_imports import ROOT, SOURCES, tree

KINDS = {
    "Policy", "PolicySet", "DecisionTable", "Selector", "SynthesisSettings", "Cluster", "Station",
    "ServiceTimes", "LatencyTable", "ProfileSet", "WorkerProblem", "CentralProblem", "Recipe",
    "InTurn", "ShortestQueue", "Central", "Policies", "PerType", "Plan",
    "ModelSwitching", "Fleet", "Fleets", "WorkerAnalysis", "CentralAnalysis", "Compiled",
}
"""Classes of which one may stand in the place of another."""
TELLING = {"kind", "dispatch", "batching"}
"""Attributes that say of which kind an object is."""
KIND_WORDS = re.compile(
    r"worker|fleet|round-robin|shortest-queue|central-queue|variable|maximal|[A-Z_]*DISPATCH\w*")
ONE_KIND_HAS = {"slo_classes", "idle_levels", "queue_levels", "max_queue", "batching", "dispatch",
                "late", "spare_idle", "stations", "max_batch"}
"""Attributes that ``hasattr`` would tell kinds by."""
MAY_ASK = (
    r"ramsis/policy/.*", r"ramsis/runtime/(__init__|table|table_reader|manifest|fields)\.py",
    r"ramsis/cli/(main|options/\w+|policies/(generate|policy))\.py",
    r"placement_milp/(io|consistency)\.py", r"ramsis/scenario/(records|reading)\.py",
)
"""Readers of files, and the front door of the command line."""
KNOWN = Counter({
    # One profile, one table or one set of policies may be given in the place of several.
    "ramsis/bounds/fluid.py: isinstance(table, LatencyTable)": 1,
    "ramsis/sim/schedulers/policies.py: isinstance(policies, PolicySet)": 1,
    "ramsis/synthesis/capacity/fewest.py: isinstance(types, ProfileSet)": 1,
    "ramsis/synthesis/sets.py: isinstance(cluster, Cluster)": 1,
    # A scheduler that needs measurements of its own before it can run.
    "ramsis/sweep/jobs.py: isinstance(spec, ModelSwitching)": 1,
    # A scheduler that has policies, and with them a price of violations.
    "ramsis/sweep/jobs.py: isinstance(spec, Policies)": 1,
})
"""Branches that there are. Shorten this list; do not add to it."""

SAME = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
NOUNS = {"Policy", "DecisionTable", "PolicySet", "Selector", "ServiceTimes", "Cluster", "Station",
         "SloClass", "Fleet", "Scenario", "Recipe", "Replica", "LatencyTable", "ProfileSet"}


Noted = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def named(node: ast.AST) -> set[str]:
    """Names, attributes and texts in an expression."""
    found = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            found.add(one.id)
        elif isinstance(one, ast.Attribute):
            found.add(one.attr)
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            found.add(one.value)
    return found


def asks(node: ast.AST) -> bool:
    """Whether an expression, or a case of ``match``, asks for a kind."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
        if node.func.id in ("isinstance", "issubclass"):
            return bool(named(node.args[1]) & KINDS)
        if node.func.id == "hasattr" or (node.func.id == "getattr" and len(node.args) == 3):
            return bool(named(node.args[1]) & ONE_KIND_HAS)
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], SAME):
        sides = [node.left, *node.comparators]
        attributes = {one.attr for one in sides if isinstance(one, ast.Attribute)}
        return bool(attributes & TELLING) and any(
            KIND_WORDS.fullmatch(word) for one in sides for word in named(one))
    return isinstance(node, ast.MatchClass) and bool(named(node.cls) & KINDS)


def branches() -> Counter[str]:
    """Branches on kinds where none should be, with how often each is there."""
    found: Counter[str] = Counter()
    for path in SOURCES:
        name = path.relative_to(ROOT).as_posix()
        if not any(re.fullmatch(pattern, name) for pattern in MAY_ASK):
            found.update(f"{name}: {ast.unparse(node)}" for node in ast.walk(tree(path))
                         if asks(node))
    return found


def test_kinds_are_asked_for_where_files_and_words_are_read_only():
    assert branches() == KNOWN


def test_one_place_says_how_to_install_an_extra():
    saying = [str(path.relative_to(ROOT)) for path in SOURCES
              if "pip install 'ramsis[" in path.read_text()]
    assert saying == ["ramsis/errors.py"]


def test_a_noun_is_defined_once():
    homes = Counter(node.name for path in SOURCES
                    for node in tree(path).body
                    if isinstance(node, ast.ClassDef) and node.name in NOUNS)
    assert homes == Counter(NOUNS)


def documented(node: Noted) -> list[str]:
    """Return the names that the sections on parameters and attributes of a docstring list."""
    sections = re.split(r"^(\w[\w ]*)\n---+\n", ast.get_docstring(node) or "", flags=re.MULTILINE)
    return [name for title, body in zip(sections[1::2], sections[2::2], strict=True)
            if title in ("Parameters", "Attributes")
            for line in re.findall(r"^\S.*", body, re.MULTILINE)
            for name in re.findall(r"\w+", line.partition(" :")[0])]


def names(node: Noted, classes: dict[str, ast.ClassDef]) -> set[str]:
    """Return a function's parameters, or what a class or one that it inherits from defines."""
    if not isinstance(node, ast.ClassDef):
        return {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)}
    defined = set()
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef):
            defined |= {part.name} | (names(part, classes) if part.name == "__init__" else set())
        elif isinstance(part, ast.Name | ast.Attribute) and isinstance(part.ctx, ast.Store):
            defined.add(part.id if isinstance(part, ast.Name) else part.attr)
    return defined.union(*(names(classes[base], classes) for base in map(ast.unparse, node.bases)
                           if base in classes))


def test_docstrings_name_parameters_as_signatures_do():
    nodes = [(path, node) for path in SOURCES for node in ast.walk(tree(path))
             if isinstance(node, Noted)]
    classes = {node.name: node for _, node in nodes if isinstance(node, ast.ClassDef)}
    listed = ((path, node, name) for path, node in nodes for name in documented(node))
    assert [f"{path.relative_to(ROOT)}: {node.name}: {name}" for path, node, name in listed
            if name not in names(node, classes)] == []


if __name__ == "__main__":
    for branch, count in branches().items():
        print(count, branch)
