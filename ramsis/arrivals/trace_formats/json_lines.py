"""Instants in a file of JSON lines: one object a line, the time under a key."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.arrivals.trace_formats.columns import joined, lines_of
from ramsis.arrivals.trace_formats.files import blocks
from ramsis.arrivals.trace_formats.instants import Instants
from ramsis.errors import InputFileError
from ramsis.files import parsed
from ramsis.garbage_collection import without_collection


def read_json_lines(
    path: Path, key: str, unit: str | None, *, in_any_order: bool = False
) -> tuple[NDArray[np.float64], int]:
    """The instants under a key, and how many go back in time.

    Parameters
    ----------
    key : str
        Of each line's object; numbers, or texts in ISO 8601.
    unit : str, optional
        Of numbers.
    in_any_order : bool
        Sort instants that go back, instead of refusing them.

    Returns
    -------
    times_ms : ndarray, shape (lines,)
        Since the first, not falling.
    went_back : int
    """
    parts: list[NDArray[np.float64]] = []
    instants: Instants | None = None
    went_back = 0
    for first, text in blocks(path):
        values = _at_once(text, key)
        lines = [] if values is not None else list(lines_of(text, first))
        if values is None:
            values = [_value(content, key, f"{path}: line {line}") for line, content in lines]
        if not values:
            continue
        if instants is None:
            line = lines[0][0] if lines else first
            instants = Instants(_text(values[0]), unit, f"{path}: line {line}")
        times = instants.numbers(values)
        if times is None:
            times = np.array([instants.one(_text(value)) for value in values])
        numbers = [line for line, _ in lines] or range(first, first + len(values))
        _refuse(path, numbers, values, times, parts, in_any_order=in_any_order)
        last = parts[-1][-1] if parts else -math.inf
        went_back += int((np.diff(times, prepend=last) < 0).sum())
        parts.append(times)
    if not parts:
        raise InputFileError("no timestamps", where=str(path),
                             allowed="a JSON object in each line")
    all_times = joined(parts)
    if went_back:
        all_times.sort()
    all_times -= all_times[0]
    return all_times, went_back


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


@cache
def _parser() -> Callable[[str], Any]:
    """A fast one where it is installed; what it refuses, the standard library reads by line."""
    try:
        return importlib.import_module("orjson").loads  # type: ignore[no-any-return]
    except ImportError:
        return json.loads


@without_collection()  # which would look at all that JSON becomes
def _at_once(text: str, key: str) -> list[Any] | None:
    """The value of the key in each line of a block; None: go line by line."""
    body = text.removesuffix("\n")
    try:
        found = _parser()("[" + body.replace("\n", ",") + "]")
        if len(found) == body.count("\n") + 1:
            values = [item[key] for item in found]
            if {type(value) for value in values} <= {int, float, str}:
                return values
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return None


def _value(content: str, key: str, where: str) -> Any:
    item = parsed(content, where)
    if not isinstance(item, dict):
        raise InputFileError("not a JSON object", where=where, value=content)
    if key not in item:
        raise InputFileError("no such key", where=where, value=key,
                             allowed=", ".join(list(item)[:12]))
    value = item[key]
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputFileError("not a timestamp", where=f"{where}, {key}", value=value)
    return value


def _refuse(
    path: Path, lines: Sequence[int], values: list[Any], times: NDArray[np.float64],
    parts: list[NDArray[np.float64]], *, in_any_order: bool,
) -> None:
    bad = ~np.isfinite(times)
    what = "not a timestamp of the same kind as the first"
    if not bad.any() and not in_any_order:
        last = parts[-1][-1] if parts else -math.inf
        bad = np.diff(times, prepend=last) < 0
        what = "timestamp goes back in time"
    if bad.any():
        place = int(np.argmax(bad))
        raise InputFileError(what, where=f"{path}: line {lines[place]}", value=values[place])
