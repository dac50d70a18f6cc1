"""Generators of a C99 header and a Go file with tables and lookup of policies.

The header allocates nothing; the Go file needs the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from sys import float_info

from ramsis.errors import InputFileError
from ramsis.runtime import PolicySet, Selector
from ramsis.runtime.sized import SizedRule, SizedTables, orders, slopes
from ramsis.serving.export.codegen.flat import (
    DROPPED,
    NEVER,
    NONE,
    SURE,
    UNSURE,
    FlatAnswer,
    FlatSet,
    flatten,
)
from ramsis.serving.export.codegen.tables import (
    Language,
    check_identifier,
    index_bits,
    listed,
    literal,
    quoted,
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
_GO_TYPES = {"text": "string", "whole": "int", "real": "float64", "place": "uint32",
          "index": "tableIndex", "answer": "Answer", "policy": "Policy", "cascade": "cascade",
          "station": "Station", "share": "share", "class": "class", "level": "Level",
          "process": "Process", "long": "int64", "cell": "uint8", "sized": "Policy"}

_KEYWORDS = frozenset([
    "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "compl", "const",
    "continue", "default", "delete", "do", "double", "else", "enum", "explicit", "export",
    "extern", "false", "float", "for", "friend", "goto", "if", "inline", "int", "long", "mutable",
    "namespace", "new", "not", "operator", "or", "private", "protected", "public", "register",
    "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "template",
    "this", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using",
    "virtual", "void", "volatile", "while", "xor",
])
_TYPES = {"text": "const char *const", "whole": "const int64_t", "long": "const int64_t",
          "real": "const double", "place": "const uint32_t",
          "cell": "const uint8_t"}


def c_header(policies: PolicySet[Selector], prefix: str = "ramsis") -> str:
    """Generate the C header of a policy set, with names that begin with ``prefix``.

    Headers of different prefixes can be included together.
    """
    check_identifier(prefix, "prefix", _KEYWORDS)
    flat = flatten(policies)
    _check_names(_texts(flat))
    return _written(template("lookup.h", index_bits=index_bits(flat)), prefix,
                    [*_sizes(flat, prefix.upper()), *_language(prefix).lines(flat)])


def sized_header(policies: Sequence[tuple[float, SizedTables]], prefix: str = "ramsis") -> str:
    """Generate the C header of policies for requests with a size.

    ``policies`` are load and tables of each policy, by increasing load; for ``prefix`` see
    :func:`c_header`.
    """
    check_identifier(prefix, "prefix", _KEYWORDS)
    lines = [f"#define {prefix.upper()}_SIZED_POLICIES {len(policies)}",
             *_sized_lines(policies, _language(prefix), "sized_")]
    return _written(template("sized.h"), prefix, lines)


def _sized_lines(
    policies: Sequence[tuple[float, SizedTables]], language: Language, beginning: str
) -> list[str]:
    """Return the declarations of policies for requests with a size, by increasing load.

    All names have the same ``beginning``.
    """
    arrays: dict[tuple[str, tuple[object, ...]], str] = {}  # equal ones are written once
    lines: list[str] = []

    def array(kind: str, word: str, values: Iterable[object]) -> str:
        entries = tuple(map(real, values) if kind == "real" else values)  # type: ignore[arg-type]
        name = arrays.get((kind, entries))
        if name is None:
            word = f"{beginning}{word}_{len(arrays)}"
            name = arrays[kind, entries] = language.name(word)
            lines.extend(language.array(kind, word, entries))
        return name

    rows = []
    for load_qps, tables in policies:
        _check_names(tables.models)
        bins, rule = tables.bins, SizedRule(tables)
        ranks = [rank for levels in orders(tables) for cells in levels
                 for _, rank in sorted(zip(cells, range(len(cells)), strict=True))]
        gains = [reward[c] - value for reward in tables.reward for level in tables.values
                 for c, row in enumerate(level) for value in row]
        times = [row for model in tables.times_ms for row in model]
        padded = tables.law == "padded"
        slope = [value for row in times for value in [*slopes(row)[:-1], float_info.max]] \
            if padded else [0.0]
        lengths = () if language.knows_length else (
            len(tables.models), len(tables.edges), len(tables.price), len(tables.sizes))
        rows.append(literal(
            real(load_qps), real(tables.slo_ms), tables.workers,
            array("text", "models", map(quoted, tables.models)), int(padded), *lengths, bins,
            len(times[0]), array("long", "edges", tables.edges),
            array("real", "mean_size", tables.mean_size),
            array("long", "work_us", tables.work_us), tables.level_us,
            rule.bin_us, array("real", "middle_ms", rule.middle_ms),
            array("real", "alone_ms", rule.longest_ms), array("cell", "rank", ranks),
            array("long", "gain", gains),
            array("long", "aging", (value for level in tables.aging for row in level
                                    for value in row)),
            array("real", "price", tables.price), array("long", "sizes", tables.sizes),
            array("real", "times_ms", chain.from_iterable(times)),
            array("real", "slopes", slope)))
    lines += language.array("sized", f"{beginning}policies", rows, by_line=True)
    return lines


def _written(text: str, prefix: str, lines: Iterable[str]) -> str:
    """Return a template of source code, filled with a prefix and tables."""
    text = re.sub(r"\bramsis_", f"{prefix}_", text)
    text = re.sub(r"\bRAMSIS_", f"{prefix.upper()}_", text)
    return text.replace("@tables", "\n".join(lines) + "\n", 1)


def _check_names(names: Iterable[str]) -> None:
    for name in names:
        if "\0" in name:
            raise InputFileError("a name that C cannot hold", value=name,
                                 allowed="names without the character 0")


def _texts(flat: FlatSet) -> Iterator[str]:
    yield from flat.models
    for label, levels in flat.processes:
        yield label
        for level in levels:
            for station in level.stations:
                yield from (station.name, *station.worker_types)


def _language(prefix: str) -> Language:
    upper = prefix.upper()

    def declared(
        kind: str, name: str, values: Sequence[object], by_line: bool
    ) -> Iterator[str]:
        """Declare a constant array; C requires at least one entry."""
        entries = values or [0]
        yield f"static {_TYPES.get(kind, f'const {prefix}_{kind}')} {name}[{len(entries)}] = {{"
        yield "\n".join(f"    {value}," for value in entries) if by_line else listed(entries)
        yield "};"

    def answer(answer: FlatAnswer) -> str:
        below = "-HUGE_VAL" if answer.below_ms is None else real(answer.below_ms)
        return literal(f"{upper}_{answer.kind.upper()}", answer.model, answer.batch,
                       answer.run_as, below)

    return Language(lambda word: f"{prefix}_{word}", declared, False, answer,
                    lambda rule: f"{upper}_{rule.upper().replace('-', '_')}", "NULL")


def _sizes(flat: FlatSet, upper: str) -> Iterator[str]:
    levels = [level for _, held in flat.processes for level in held]
    for word, value in (("MODELS", len(flat.models)), ("PROCESSES", len(flat.processes)),
                        ("NONE", NONE), ("DROPPED", DROPPED), ("NEVER", NEVER),
                        ("SURE", SURE), ("ANY_SURENESS", UNSURE)):
        yield f"#define {upper}_{word} {value}"
    yield "/* Most queues of a station, and most stations of a level. */"
    queues = max(station.queues for level in levels for station in level.stations)
    yield f"#define {upper}_MOST_QUEUES {queues}"
    yield f"#define {upper}_MOST_STATIONS {max(len(level.stations) for level in levels)}\n"


def go_file(policies: PolicySet[Selector], package: str = "ramsis") -> str:
    """Generate the Go file of a policy set, for a package with this name."""
    check_identifier(package, "package", _RESERVED)
    flat = flatten(policies)
    tables = "\n".join([f"const processCount = {len(flat.processes)}\n",
                        *_LANGUAGE.lines(flat)])
    return template(
        "lookup.go", index_bits=index_bits(flat), package=package).replace("@tables", tables, 1)


def sized_go_file(
    policies: Sequence[tuple[float, SizedTables]], package: str = "ramsis"
) -> str:
    """Generate the Go file of policies for requests with a size; see :func:`sized_header`."""
    check_identifier(package, "package", _RESERVED)
    tables = "\n".join(_sized_lines(policies, _LANGUAGE, ""))
    return template("sized.go", package=package).replace("@tables", tables, 1)


def _declared(
    kind: str, name: str, values: Sequence[object], by_line: bool
) -> Iterator[str]:
    if name in _PUBLIC:
        yield f"// {name} are {_PUBLIC[name]}."
    if not values:
        yield f"var {name} = []{_GO_TYPES[kind]}{{}}\n"
        return
    yield f"var {name} = []{_GO_TYPES[kind]}{{"
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
