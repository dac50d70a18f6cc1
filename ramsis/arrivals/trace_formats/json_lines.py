"""Reader of JSON lines: one object per line, with times and sizes under keys."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.arrivals.sizes import are_sizes
from ramsis.arrivals.trace_formats.columns import called_times, joined, lines_of, size_of
from ramsis.arrivals.trace_formats.files import blocks
from ramsis.arrivals.trace_formats.instants import Instants, epoch_unit
from ramsis.errors import InputFileError
from ramsis.files import parsed
from ramsis.logs.dates import is_iso
from ramsis.memory import without_collection


def read_json_lines(
    path: Path, key: str, unit: str | None, *, in_any_order: bool = False,
    size_key: str | None = None,
) -> tuple[NDArray[np.float64], int, NDArray[np.float64] | None]:
    """Read the timestamps under a key, count those that go back in time, and read sizes.

    ``key`` is that of numbers, of a ``unit``, or texts in ISO 8601; nested keys, in objects or
    lists of these, are joined by points, such as ``turns.calls.timestamp``. ``size_key`` has the
    same form. Timestamps that go back are refused unless they may come ``in_any_order``. Returned
    are the times in ms, sorted, how many went back, and the sizes, if any, in the order of the
    times.
    """
    parts: list[NDArray[np.float64]] = []
    sizes: list[NDArray[np.float64]] = []
    instants: Instants | None = None
    went_back = 0
    for first, text in blocks(path):
        # A regular block is parsed at once, any other line by line.
        values = _at_once(text, key)
        numbers: Sequence[int]
        if values is not None:
            numbers = range(first, first + len(values))
        else:
            numbered = [(line, value) for line, content in lines_of(text, first)
                        for value in _values(content, key, f"{path}: line {line}")]
            numbers, values = [n for n, _ in numbered], [value for _, value in numbered]
        if not values:
            continue
        if instants is None:
            instants = Instants(_text(values[0]), unit, f"{path}: line {numbers[0]}")
        times = instants.numbers(values)
        if times is None:
            times = np.array([instants.one(_text(value)) for value in values])
        _refuse(path, numbers, values, times, parts, in_any_order=in_any_order)
        last = parts[-1][-1] if parts else -math.inf
        went_back += int((np.diff(times, prepend=last) < 0).sum())
        parts.append(times)
        if size_key is not None:
            sizes.append(_sizes(path, first, text, size_key, len(times)))
    if not parts:
        raise InputFileError("no timestamps", where=str(path),
                             allowed="a JSON object in each line")
    all_times = joined(parts)
    all_sizes = None if size_key is None else joined(sizes)
    if went_back:
        if all_sizes is not None:
            all_sizes = all_sizes[np.argsort(all_times, kind="stable")]
        all_times.sort()
    return all_times, went_back, all_sizes


def json_sizes(path: Path, key: str) -> NDArray[np.float64]:
    """Read the request sizes under a key of each line's object."""
    return joined([_sizes(path, first, text, key) for first, text in blocks(path)])


def _sizes(
    path: Path, first: int, text: str, key: str, number: int | None = None
) -> NDArray[np.float64]:
    """Read the request sizes in a block; ``number`` is its number of timestamps."""
    values = _at_once(text, key)
    if values is not None and {type(value) for value in values} <= {int, float}:
        sizes = np.array(values, dtype=float)
        if are_sizes(sizes).all():
            return sizes
    sizes = np.array([size_of([_text(value)], 0, f"{path}: line {line}, {key}")
                      for line, content in lines_of(text, first)
                      for value in _values(content, key, f"{path}: line {line}", "a size")])
    if number is not None and len(sizes) != number:
        raise InputFileError("not a size for each time", where=f"{path}: {key}", value=len(sizes),
                             allowed=f"{number} of them")
    return sizes


def time_keys(record: dict[str, Any], depth: int = 6) -> list[str]:
    """Return the paths of keys in an object that hold times.

    Keys with a usual name of times come first, then keys with dates or Unix times; keys of the
    object itself come before those of nested objects.

    >>> time_keys({"id": 1, "turns": [{"calls": [{"timestamp": 5, "model": "a"}]}]})
    ['turns.calls.timestamp']
    >>> time_keys({"spans": [{"begin": "1777629600132445000", "status": 1}]})
    ['spans.begin']
    """
    keys = list(record)
    named = [keys[i] for i in called_times([key.lower() for key in keys])]
    if times := [key for key in named if _may_be_time(record[key])]:
        return times
    below = []
    for key, value in record.items():
        item = value[0] if isinstance(value, list) and value else value
        if isinstance(item, dict) and depth:
            below += [f"{key}.{path}" for path in time_keys(item, depth - 1)]
    return [key for key, value in record.items() if is_time(value)] or below


def is_time(value: Any) -> bool:
    """Return whether a value is a date, or a Unix time in the years 2008 to 2042."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    return epoch_unit(_text(value)) is not None or (isinstance(value, str) and is_iso(value))


def _may_be_time(value: Any) -> bool:
    """Return whether a value may be a time under a usual key of times, where any number may."""
    return is_time(value) or (isinstance(value, int | float) and not isinstance(value, bool))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


@cache
def _parser() -> Callable[[str], Any]:
    """Return the parser of orjson if it is installed, else that of the standard library."""
    try:
        return importlib.import_module("orjson").loads  # type: ignore[no-any-return]
    except ImportError:
        return json.loads


@without_collection()  # collections would traverse all parsed objects
def _at_once(text: str, key: str) -> list[Any] | None:
    """Return the value of the key in each line of a block; None if lines must be read singly."""
    body = text.removesuffix("\n")
    try:
        items = _parser()("[" + body.replace("\n", ",") + "]")
        if len(items) == body.count("\n") + 1:
            values = [item[key] for item in items]
            if {type(value) for value in values} <= {int, float, str}:
                return values
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return None


def _values(content: str, key: str, where: str, what: str = "a timestamp") -> Iterator[Any]:
    """Yield the values under a key, or a path of keys, in a line; refuse other lines."""
    item = parsed(content, where)
    if not isinstance(item, dict):
        raise InputFileError("not a JSON object", where=where, value=content)
    for value in _below(item, [key] if key in item else key.split("."), where):
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise InputFileError(f"not {what}", where=f"{where}, {key}", value=value)
        yield value


def _below(item: Any, path: list[str], where: str) -> Iterator[Any]:
    """Yield the values under a path of keys, for all items of lists on the way."""
    if not path:
        yield item
    elif isinstance(item, list):
        for entry in item:
            yield from _below(entry, path, where)
    elif isinstance(item, dict) and path[0] in item:
        yield from _below(item[path[0]], path[1:], where)
    else:
        keys = list(item)[:12] if isinstance(item, dict) else []
        raise InputFileError("no such key", where=where, value=path[0], allowed=", ".join(keys))


def _refuse(
    path: Path, lines: Sequence[int], values: list[Any], times: NDArray[np.float64],
    parts: list[NDArray[np.float64]], *, in_any_order: bool,
) -> None:
    """Refuse a block with a bad timestamp or, unless in any order, one that goes back."""
    bad = ~np.isfinite(times)
    fault = "not a timestamp of the same kind as the first"
    if not bad.any() and not in_any_order:
        last = parts[-1][-1] if parts else -math.inf
        bad = np.diff(times, prepend=last) < 0
        fault = "timestamp goes back in time"
    if bad.any():
        place = int(np.argmax(bad))
        raise InputFileError(fault, where=f"{path}: line {lines[place]}", value=values[place])
