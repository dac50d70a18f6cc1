"""A set of policies as one Go file: tables and lookup, with the standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ramsis.runtime import PolicySet, Selector
from ramsis.runtime.monitor import SHORTEST_SPAN, WINDOW_MS
from ramsis.runtime.routing import AS_SHORT
from ramsis.serving.export.codegen.flat import FlatAnswer, FlatLevel, FlatPolicy, FlatSet, flatten
from ramsis.serving.export.codegen.text import (
    check_identifier,
    index_bits,
    listed,
    quoted,
    real,
    template,
)

_RESERVED = frozenset([
    "break", "case", "chan", "const", "continue", "default", "defer", "else", "fallthrough", "for",
    "func", "go", "goto", "if", "import", "interface", "internal", "main", "map", "package",
    "range", "return", "select", "struct", "switch", "type", "var", "vendor",
])
_KINDS = {"error": "None", "run": "Run", "drop": "Drop", "wait": "Wait"}


def go_file(policies: PolicySet[Selector], package: str = "ramsis") -> str:
    """The text of the file, for a package of this name."""
    check_identifier(package, "package", _RESERVED)
    flat = flatten(policies)
    tables = "\n".join(_tables(flat, f"uint{index_bits(flat)}"))
    written = template("lookup.go", {
        "package": package, "index_bits": index_bits(flat), "as_short": AS_SHORT,
        "window_ms": WINDOW_MS, "shortest_span": SHORTEST_SPAN, "tables": "@tables"})
    return written.replace("@tables", tables, 1)


def _tables(flat: FlatSet, index: str) -> Iterator[str]:
    """The constants of a set."""
    yield f"const processCount = {len(flat.processes)}"
    yield ""
    yield "// ModelNames are the models that answers name by their index."
    yield from _slice("ModelNames", "string", map(quoted, flat.models))
    yield from _slice("answers", "Answer", map(_answer, flat.answers), by_line=True)
    for p, policy in enumerate(flat.policies):
        yield from _policy(policy, p, index)
    for p, (_, levels) in enumerate(flat.processes):
        for k, level in enumerate(levels):
            yield from _level_slices(level, f"l{p}x{k}")
        yield from _slice(f"levels{p}", "Level", (
            _braces(real(level.load_qps), f"l{p}x{k}Stations", f"l{p}x{k}Classes")
            for k, level in enumerate(levels)), by_line=True)
    yield "// Processes are the arrival processes that there are policies for; not to be changed."
    yield from _slice("Processes", "Process", (
        _braces(quoted(label), f"levels{p}") for p, (label, _) in enumerate(flat.processes)),
        by_line=True)


def _slice(
    name: str, kind: str, values: Iterable[object], *, by_line: bool = False
) -> Iterator[str]:
    held = list(values)
    if not held:
        yield f"var {name} = []{kind}{{}}\n"
        return
    yield f"var {name} = []{kind}{{"
    yield "\n".join(f"\t{value}," for value in held) if by_line else listed(held, "\t")
    yield "}\n"


def _braces(*values: object) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def _answer(answer: FlatAnswer) -> str:
    below_ms = "math.Inf(-1)" if answer.below_ms is None else real(answer.below_ms)
    return _braces(_KINDS[answer.kind], answer.model, answer.batch, answer.run_as,
                   below_ms if answer.kind == "wait" else 0, "false")


def _policy(policy: FlatPolicy, p: int, index: str) -> Iterator[str]:
    yield from _slice(f"p{p}Idle", "int", policy.idle)
    yield from _slice(f"p{p}Queued", "int", policy.queued)
    yield from _slice(f"p{p}EdgesMs", "float64", map(real, policy.edges_ms))
    yield from _slice(f"p{p}RowOf", "uint32", policy.row_of)
    yield from _slice(f"p{p}Rows", index, policy.rows)
    dispatch = "".join(word.capitalize() for word in policy.dispatch.split("-"))
    arrays = ("Idle", "Queued", "EdgesMs", "RowOf", "Rows")
    values = [dispatch, real(policy.slo_ms), real(policy.load_qps), policy.workers,
              *(f"p{p}{array}" for array in arrays), policy.longer, policy.usual, policy.other,
              real(policy.probability), policy.late, policy.spare_idle]
    yield f"var policy{p} = Policy{{\n{listed(values, chr(9))}\n}}\n"


def _level_slices(level: FlatLevel, own: str) -> Iterator[str]:
    for s, station in enumerate(level.stations):
        yield from _slice(f"{own}s{s}Types", "string", map(quoted, station.worker_types))
    yield from _slice(f"{own}Stations", "Station", (
        _braces(quoted(station.name), f"{own}s{s}Types", station.workers, station.queues,
                real(station.load_qps), f"&policy{station.policy}")
        for s, station in enumerate(level.stations)), by_line=True)
    for c, (_, shares) in enumerate(level.classes):
        yield from _slice(f"{own}c{c}", "share", (_braces(s, real(upto)) for s, upto in shares))
    yield from _slice(f"{own}Classes", "class", (
        _braces(real(slo_ms), f"{own}c{c}") for c, (slo_ms, _) in enumerate(level.classes)),
        by_line=True)
