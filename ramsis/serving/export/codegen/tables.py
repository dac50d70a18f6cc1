"""Generator of constant arrays for a policy set, in C and Go.

A :class:`Language` defines types, names and declarations of arrays. C arrays have no length, so it
follows each use of an array.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Sized
from importlib import resources
from string import ascii_letters, digits
from typing import NamedTuple

from ramsis import __version__
from ramsis.errors import InvalidValueError
from ramsis.runtime.monitor import SHORTEST_SPAN, WINDOW_MS
from ramsis.runtime.routing import AS_SHORT
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.serving.export.codegen.flat import (
    FlatAnswer,
    FlatCascade,
    FlatLevel,
    FlatPolicy,
    FlatSet,
)

_WIDTH = 96  # maximum number of characters of a line
_PLAIN = frozenset((ascii_letters + digits + " _-.,:;=+/()[]@#").encode())


def quoted(text: str) -> str:
    r"""Return a text as a literal of C and Go; bytes of UTF-8 that could end it or join are octal.

    >>> print(quoted('say "é" ??/'))
    "say \042\303\251\042 \077\077/"
    """
    data = text.encode("utf-8", "surrogatepass")
    return '"' + "".join(chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in data) + '"'


def real(value: float) -> str:
    """Return a finite double as a literal that every compiler reads exactly.

    A compiler that rounds twice, by way of a longer format, may misread the shortest decimal of a
    double. 20 digits are always read exactly.

    >>> real(100.0), real(0.1)
    ('100.0', '0.10000000000000000555')
    """
    text = format(value, ".20g")
    return text if "." in text or "e" in text else f"{text}.0"


def listed(values: Iterable[object], indent: str = "    ") -> str:
    """Return values with commas, in lines of limited width if possible.

    >>> print(listed([1, "{2, 3}"], ""))
    1, {2, 3},
    """
    lines = [indent]
    for value in values:
        item = f"{value},"
        if len(lines[-1]) + len(item) >= _WIDTH and lines[-1] != indent:
            lines.append(indent)
        lines[-1] += item if lines[-1] == indent else f" {item}"
    return "\n".join(lines)


def index_bits(policies: FlatSet) -> int:
    """Return the bits that hold any slack bin, answer and number of answers: 16, or 32."""
    cascades = [policy.cascade for policy in policies.policies if policy.cascade is not None]
    largest = max(len(policies.answers),
                  *(len(policy.edges_ms) + 1 for policy in policies.policies),
                  *(max(len(cascade.edges_ms) + 1, len(cascade.limits) + 2)
                    for cascade in cascades))
    return 16 if largest < 1 << 16 else 32


def check_identifier(name: str, where: str, reserved: Collection[str]) -> None:
    """Refuse a text that is no valid prefix of identifiers."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or name in reserved:
        raise InvalidValueError(
            "not an identifier", where=where, value=name,
            allowed="up to 40 lower-case letters, digits and _, from a letter on, and no keyword")


def template(name: str, **values: object) -> str:
    """Read a template beside this module, and replace the words between two ``@`` by values.

    ``@tables@`` becomes ``@tables``, which the caller replaces last, so that names of models or
    classes in the tables are not replaced.
    """
    values |= {"version": __version__, "as_short": AS_SHORT, "window_ms": WINDOW_MS,
               "shortest_span": SHORTEST_SPAN, "tolerance_ms": SLACK_TOLERANCE_MS,
               "tables": "@tables"}
    text = resources.files(__package__).joinpath(name).read_text("utf-8")
    return re.sub(r"@(\w+)@", lambda match: str(values[match[1]]), text)


class Language(NamedTuple):
    """How constant tables are written in a programming language."""

    name: Callable[[str], str]
    # declares a table: kind of its values, name, values, and whether each is on another line
    declared: Callable[[str, str, Sequence[object], bool], Iterator[str]]
    knows_length: bool
    answer: Callable[[FlatAnswer], str]
    dispatch: Callable[[str], str]
    nothing: str  # null pointer

    def array(
        self, kind: str, word: str, values: Iterable[object], *, by_line: bool = False
    ) -> Iterator[str]:
        """Yield the lines that declare a table."""
        return self.declared(kind, self.name(word), list(values), by_line)

    def many(self, word: str, values: Sized) -> tuple[object, ...]:
        """Return a literal's reference to a table, with its length where the language needs it."""
        return (self.name(word),) if self.knows_length else (self.name(word), len(values))

    def lines(self, flat: FlatSet) -> Iterator[str]:
        """Yield the declarations of all tables, each after the tables that it references."""
        yield from self.array("text", "model_names", map(quoted, flat.models))
        yield from self.array("answer", "answers", map(self.answer, flat.answers), by_line=True)
        for p, policy in enumerate(flat.policies):
            for kind, word in (("whole", "idle"), ("whole", "queued"), ("real", "edges_ms"),
                               ("place", "row_of"), ("index", "rows")):
                values = getattr(policy, word)
                yield from self.array(kind, f"p{p}_{word}",
                                      map(real, values) if kind == "real" else values)
            if policy.cascade is not None:
                yield from self._cascade(policy.cascade, f"p{p}_cascade")
        yield from self.array("policy", "policies", (
            self._policy(policy, f"p{p}") for p, policy in enumerate(flat.policies)),
            by_line=True)
        for p, (_, levels) in enumerate(flat.processes):
            for k, level in enumerate(levels):
                yield from self._parts(level, f"l{p}_{k}")
            yield from self.array("level", f"l{p}", (
                literal(real(level.load_qps), real(level.slowness),
                        *self.many(f"l{p}_{k}_stations", level.stations),
                        *self.many(f"l{p}_{k}_classes", level.classes))
                for k, level in enumerate(levels)), by_line=True)
        yield from self.array("process", "processes", (
            literal(quoted(label), *self.many(f"l{p}", levels))
            for p, (label, levels) in enumerate(flat.processes)), by_line=True)

    def _policy(self, policy: FlatPolicy, prefix: str) -> str:
        return literal(
            self.dispatch(policy.dispatch), real(policy.slo_ms), real(policy.load_qps),
            policy.workers, *self.many(f"{prefix}_idle", policy.idle),
            *self.many(f"{prefix}_queued", policy.queued),
            *self.many(f"{prefix}_edges_ms", policy.edges_ms), self.name(f"{prefix}_row_of"),
            self.name(f"{prefix}_rows"), policy.longer,
            self.nothing if policy.cascade is None else f"&{self.name(f'{prefix}_cascade')}[0]")

    def _cascade(self, cascade: FlatCascade, prefix: str) -> Iterator[str]:
        """Yield the declaration of second opinions, after the tables that it references."""
        named: list[object] = []
        for kind, word in (("real", "edges_ms"), ("place", "row_of"), ("index", "rows"),
                           ("whole", "gather"), ("whole", "least"), ("real", "late_below_ms"),
                           ("real", "call_below_ms"), ("real", "wait_ms"), ("index", "seconds"),
                           ("index", "limit_of"), ("real", "limits")):
            values = getattr(cascade, word)
            yield from self.array(kind, f"{prefix}_{word}",
                                  map(real, values) if kind == "real" else values)
            named += (self.many(f"{prefix}_{word}", values)
                      if word in ("edges_ms", "gather", "seconds")
                      else [self.name(f"{prefix}_{word}")])
        yield from self.array("cascade", prefix, [literal(
            real(cascade.levels_per_fresh), real(cascade.levels_per_unsure), cascade.queued,
            cascade.models, *named)], by_line=True)

    def _parts(self, level: FlatLevel, prefix: str) -> Iterator[str]:
        """Yield the declarations of a level's stations and classes, and of their tables."""
        for s, station in enumerate(level.stations):
            yield from self.array("text", f"{prefix}_s{s}_types",
                                  map(quoted, station.worker_types))
        yield from self.array("station", f"{prefix}_stations", (
            literal(quoted(station.name), *self.many(f"{prefix}_s{s}_types", station.worker_types),
                    station.workers, station.queues, real(station.load_qps),
                    f"&{self.name('policies')}[{station.policy}]")
            for s, station in enumerate(level.stations)), by_line=True)
        for c, (_, shares) in enumerate(level.classes):
            yield from self.array("share", f"{prefix}_c{c}",
                                  (literal(s, real(upto)) for s, upto in shares))
        yield from self.array("class", f"{prefix}_classes", (
            literal(real(slo_ms), *self.many(f"{prefix}_c{c}", shares))
            for c, (slo_ms, shares) in enumerate(level.classes)), by_line=True)


def literal(*values: object) -> str:
    """Return a C or Go literal of a structure with some values."""
    return "{" + ", ".join(map(str, values)) + "}"
