"""Generator of a Go file with tables and lookup of policies, with the standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ramsis.runtime import PolicySet, Selector
from ramsis.serving.export.codegen.flat import FlatAnswer, flatten
from ramsis.serving.export.codegen.tables import (
    Language,
    check_identifier,
    index_bits,
    listed,
    literal,
    real,
    template,
)

_RESERVED = frozenset([
    "break", "case", "chan", "const", "continue", "default", "defer", "else", "fallthrough", "for",
    "func", "go", "goto", "if", "import", "interface", "internal", "main", "map", "package",
    "range", "return", "select", "struct", "switch", "type", "var", "vendor",
])
_KINDS = {"error": "None", "run": "Run", "drop": "Drop", "wait": "Wait", "second": "Second"}
_PUBLIC = {
    "ModelNames": "the models that answers name by their index",
    "Processes": "the arrival processes that there are policies for; not to be changed",
}
_TYPES = {"text": "string", "whole": "int", "real": "float64", "place": "uint32",
          "index": "tableIndex", "answer": "Answer", "policy": "Policy", "cascade": "cascade",
          "station": "Station", "share": "share", "class": "class", "level": "Level",
          "process": "Process"}


def go_file(policies: PolicySet[Selector], package: str = "ramsis") -> str:
    """Generate the Go file of a policy set, for a package with this name."""
    check_identifier(package, "package", _RESERVED)
    flat = flatten(policies)
    tables = "\n".join([f"const processCount = {len(flat.processes)}\n",
                        *_LANGUAGE.lines(flat)])
    return template(
        "lookup.go", index_bits=index_bits(flat), package=package).replace("@tables", tables, 1)


def _declared(
    kind: str, name: str, values: Sequence[object], by_line: bool
) -> Iterator[str]:
    if name in _PUBLIC:
        yield f"// {name} are {_PUBLIC[name]}."
    if not values:
        yield f"var {name} = []{_TYPES[kind]}{{}}\n"
        return
    yield f"var {name} = []{_TYPES[kind]}{{"
    yield "\n".join(f"\t{value}," for value in values) if by_line else listed(values, "\t")
    yield "}\n"


def _answer(answer: FlatAnswer) -> str:
    below_ms = "math.Inf(-1)" if answer.below_ms is None else real(answer.below_ms)
    return literal(_KINDS[answer.kind], answer.model, answer.batch, answer.run_as,
                   below_ms if answer.kind == "wait" else 0)


def _capitals(words: str) -> str:
    return "".join(word.capitalize() for word in re.split("[-_]", words))


_LANGUAGE = Language(
    lambda word: _capitals(word) if _capitals(word) in _PUBLIC else word, _declared, True,
    _answer, _capitals, "nil")
