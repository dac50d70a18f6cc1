"""A set of policies as one C99 header: tables and lookup, without allocation or libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ramsis.errors import InputFileError
from ramsis.runtime import PolicySet, Selector
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
    listed,
    literal,
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
_TYPES = {"text": "const char *const", "whole": "const int64_t", "real": "const double",
          "place": "const uint32_t"}


def c_header(policies: PolicySet[Selector], prefix: str = "ramsis") -> str:
    """Return the text of the header.

    Parameters
    ----------
    prefix : str, optional
        Beginning of the names in the header; headers of different prefixes can be included
        together.
    """
    check_identifier(prefix, "prefix", _KEYWORDS)
    flat = flatten(policies)
    for text in _texts(flat):
        if "\0" in text:
            raise InputFileError("a name that C cannot hold", value=text,
                                 allowed="names without the character 0")
    written = re.sub(r"\bramsis_", f"{prefix}_", template("lookup.h", flat))
    written = re.sub(r"\bRAMSIS_", f"{prefix.upper()}_", written)
    tables = "\n".join([*_sizes(flat, prefix.upper()), *_language(prefix).lines(flat)]) + "\n"
    return written.replace("@tables", tables, 1)


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
        """Declare a constant array; C wants one entry at least."""
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
