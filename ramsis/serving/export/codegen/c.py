"""A set of policies as one C99 header: tables and lookup, without allocation or libraries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ramsis.errors import InputFileError
from ramsis.runtime import PolicySet, Selector
from ramsis.runtime.monitor import SHORTEST_SPAN, WINDOW_MS
from ramsis.runtime.routing import AS_SHORT
from ramsis.serving.export.codegen.flat import (
    DROPPED,
    NEVER,
    NONE,
    FlatAnswer,
    FlatLevel,
    FlatPolicy,
    FlatSet,
    flatten,
)
from ramsis.serving.export.codegen.text import (
    check_identifier,
    index_bits,
    listed,
    quoted,
    real,
    template,
)

_KEYWORDS = frozenset([
    "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "compl", "const",
    "continue", "default", "delete", "do", "double", "else", "enum", "explicit", "export",
    "extern", "false", "float", "for", "friend", "goto", "if", "inline", "int", "long", "mutable",
    "namespace", "new", "not", "operator", "or", "private", "protected", "public", "register",
    "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "template",
    "this", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using",
    "virtual", "void", "volatile", "while", "xor",
])


def c_header(policies: PolicySet[Selector], prefix: str = "ramsis") -> str:
    """The text of the header.

    Parameters
    ----------
    policies : PolicySet of Selector
    prefix : str, optional
        What the names in the header begin with; headers of different prefixes can be included
        together.
    """
    check_identifier(prefix, "prefix", _KEYWORDS)
    flat = flatten(policies)
    for text in _texts(flat):
        if "\0" in text:
            raise InputFileError("a name that C cannot hold", value=text,
                                 allowed="names without the character 0")
    written = template("lookup.h", {
        "index_bits": index_bits(flat), "as_short": AS_SHORT, "window_ms": WINDOW_MS,
        "shortest_span": SHORTEST_SPAN, "tables": "@tables"})
    written = re.sub(r"\bramsis_", f"{prefix}_", written)
    written = re.sub(r"\bRAMSIS_", f"{prefix.upper()}_", written)
    # Put in last, so that no name of a model or class is taken for one of the header's own.
    tables = "\n".join(_tables(flat, prefix)) + "\n"
    return written.replace("@tables", tables, 1)


def _texts(flat: FlatSet) -> Iterator[str]:
    yield from flat.models
    for label, levels in flat.processes:
        yield label
        for level in levels:
            for station in level.stations:
                yield from (station.name, *station.worker_types)


def _tables(flat: FlatSet, name: str) -> Iterator[str]:
    """The constants of a set."""
    upper = name.upper()
    yield f"#define {upper}_MODELS {len(flat.models)}"
    yield f"#define {upper}_PROCESSES {len(flat.processes)}"
    yield f"#define {upper}_NONE {NONE}"
    yield f"#define {upper}_DROPPED {DROPPED}"
    yield f"#define {upper}_NEVER {NEVER}"
    yield "/* Most queues of a station, and most stations of a level. */"
    levels = [level for _, held in flat.processes for level in held]
    queues = max(station.queues for level in levels for station in level.stations)
    yield f"#define {upper}_MOST_QUEUES {queues}"
    yield f"#define {upper}_MOST_STATIONS {max(len(level.stations) for level in levels)}"
    yield ""
    yield from _array(f"const char *const {name}_model_names", map(quoted, flat.models))
    yield from _array(f"const {name}_answer {name}_answers",
                      (_answer(answer, upper) for answer in flat.answers), by_line=True)
    for p, policy in enumerate(flat.policies):
        yield from _policy_arrays(policy, f"{name}_p{p}", name)
    yield from _array(f"const {name}_policy {name}_policies", (
        _policy(policy, f"{name}_p{p}", upper) for p, policy in enumerate(flat.policies)),
        by_line=True)
    for p, (_, held) in enumerate(flat.processes):
        for k, level in enumerate(held):
            yield from _level_arrays(level, f"{name}_l{p}_{k}", name)
        yield from _array(f"const {name}_level {name}_l{p}", (
            _braces(real(level.load_qps), f"{name}_l{p}_{k}_stations", len(level.stations),
                    f"{name}_l{p}_{k}_classes", len(level.classes))
            for k, level in enumerate(held)), by_line=True)
    yield from _array(f"const {name}_process {name}_processes", (
        _braces(quoted(label), f"{name}_l{p}", len(held))
        for p, (label, held) in enumerate(flat.processes)), by_line=True)


def _array(declared: str, values: Iterable[object], *, by_line: bool = False) -> Iterator[str]:
    """A constant array, which C wants to have one entry at least."""
    held = list(values) or [0]
    yield f"static {declared}[{len(held)}] = {{"
    yield "\n".join(f"    {value}," for value in held) if by_line else listed(held)
    yield "};"


def _braces(*values: object) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def _answer(answer: FlatAnswer, upper: str) -> str:
    below = "-HUGE_VAL" if answer.below_ms is None else real(answer.below_ms)
    return _braces(f"{upper}_{answer.kind.upper()}", answer.model, answer.batch, answer.run_as,
                   below, 0)


def _policy_arrays(policy: FlatPolicy, own: str, name: str) -> Iterator[str]:
    yield from _array(f"const int64_t {own}_idle", policy.idle)
    yield from _array(f"const int64_t {own}_queued", policy.queued)
    yield from _array(f"const double {own}_edges_ms", map(real, policy.edges_ms))
    yield from _array(f"const uint32_t {own}_row_of", policy.row_of)
    yield from _array(f"const {name}_index {own}_rows", policy.rows)


def _policy(policy: FlatPolicy, own: str, upper: str) -> str:
    dispatch = f"{upper}_{policy.dispatch.upper().replace('-', '_')}"
    arrays = ("idle", "queued", "edges_ms", "row_of", "rows")
    return _braces(
        dispatch, real(policy.slo_ms), real(policy.load_qps), policy.workers,
        *(f"{own}_{array}" for array in arrays), len(policy.idle), len(policy.queued),
        len(policy.edges_ms), policy.longer, policy.usual, policy.other,
        real(policy.probability), policy.late, policy.spare_idle)


def _level_arrays(level: FlatLevel, own: str, name: str) -> Iterator[str]:
    for s, station in enumerate(level.stations):
        yield from _array(f"const char *const {own}_s{s}_types", map(quoted, station.worker_types))
    yield from _array(f"const {name}_station {own}_stations", (
        _braces(quoted(station.name), f"{own}_s{s}_types", len(station.worker_types),
                station.workers, station.queues, real(station.load_qps),
                f"&{name}_policies[{station.policy}]")
        for s, station in enumerate(level.stations)), by_line=True)
    for c, (_, shares) in enumerate(level.classes):
        yield from _array(f"const {name}_share {own}_c{c}",
                          (_braces(s, real(upto)) for s, upto in shares))
    yield from _array(f"const {name}_class {own}_classes", (
        _braces(real(slo_ms), f"{own}_c{c}", len(shares))
        for c, (slo_ms, shares) in enumerate(level.classes)), by_line=True)
