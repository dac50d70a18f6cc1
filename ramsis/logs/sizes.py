"""Names of columns and keys of request sizes, by their unit."""

from __future__ import annotations

import re
from collections.abc import Sequence

SIZES: dict[str, tuple[str, ...]] = {
    "tokens": ("tokens", "n tokens", "num tokens", "seq", "seq len", "seqlen", "sequence length",
               "seq length", "sequence len", "sequence", "input tokens", "input len",
               "input length", "prompt tokens", "prompt len", "prompt length", "isl", "length",
               "lengths", "max len", "max length", "longest", "longest length", "padded length",
               "input sequence length", "tokens input", "max seq len", "max sequence length",
               "context length", "context tokens", "request tokens", "num prefill tokens",
               "prefill tokens", "num input tokens", "num prompt tokens", "avg tokens"),
    "pixels": ("pixels", "width", "resolution", "image size", "img size", "image width",
               "img width", "infer img size", "n pixels", "num pixels"),
    "characters": ("characters", "chars", "n chars", "num chars", "text length"),
    "atoms": ("atoms", "n atoms", "natoms", "num atoms"),
    "units": ("size", "request size", "input size", "item size", "longest size", "max size"),
}
"""Names of columns of sizes, in words, by the unit that they name."""

_UNIT_OF = {text: unit for unit, texts in SIZES.items() for text in texts}
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def words_of(name: str) -> str:
    """Return the words of a name in lower case.

    >>> words_of("ContextTokens"), words_of("seq_len")
    ('context tokens', 'seq len')
    """
    return " ".join(re.findall(r"[a-z]+|[0-9]+", _CAMEL.sub(" ", name).lower()))


def unit_of_size(name: str) -> str:
    """Return the unit of a column of sizes; ``units`` where its name tells none.

    >>> unit_of_size("seq_len"), unit_of_size("n")
    ('tokens', 'units')
    """
    words = words_of(name)
    return _UNIT_OF.get(words) or next((unit for unit in SIZES if unit in words.split()), "units")


def size_names(names: Sequence[str]) -> list[str]:
    """Return the names that denote sizes; only ``size`` where it is among them.

    >>> size_names(["TIMESTAMP", "ContextTokens", "GeneratedTokens"])
    ['ContextTokens']
    """
    fitting = [name for name in names if words_of(name) in _UNIT_OF]
    return [name for name in fitting if words_of(name) == "size"][:1] or fitting
