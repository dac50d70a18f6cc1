"""What is said once: nouns, how to install an extra, and the names of parameters."""

import ast
import re
from collections import Counter

from tests.test_imports import ROOT, SOURCES, tree

NOUNS = {"Policy", "DecisionTable", "PolicySet", "Selector", "ServiceTimes", "Cluster", "Station",
         "SloClass", "Fleet", "Scenario", "Recipe", "Replica", "LatencyTable", "ProfileSet"}


Noted = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


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
