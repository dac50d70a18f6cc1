"""Parameter types of the command line, each of which parses a word to a typed object.

A bad word is refused in one line with its option, its value and the allowed values. Ranges that
the library defines, as of a fraction or a number of workers, are checked there.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ramsis.cluster.parsing import (
    ByType,
    by_type,
    not_by_type,
    read_profiles,
    read_slos,
    read_workers,
)
from ramsis.errors import InvalidValueError, OutputError, install
from ramsis.report.figure import check_figure

# Slow modules are imported by the functions that need them, so that commands start quickly.
if TYPE_CHECKING:
    from ramsis.arrivals import Arrivals
    from ramsis.sim import SlowSpells

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType

__all__ = ["ARRIVALS", "BATCH_SIZES", "COSTS", "DIMENSION", "FIGURE", "GRID", "LIMITS", "LOADS",
           "LOG_COLUMN", "MODELS", "OUT_FILE", "OUT_FOLDER", "OUT_PLACE", "PROFILES",
           "SCHEDULER_TEXT", "SHARES", "SIZE_POINTS", "SLOS", "SLOWNESS", "SLOW_SPELLS", "TRACE",
           "WORKERS", "ByType", "TraceName", "complete_files", "complete_profiles"]


@dataclass(frozen=True)
class TraceName:
    """A trace by its name, with the path of its file if it exists."""

    name: str
    path: Path


class Word(_ParamType):
    """Parameter type of a word that a function parses.

    ``name`` stands in help texts without a metavar of their own. ``parse`` takes the text and the
    option's name, and raises InvalidValueError for a bad text. For shell completion, ``words``
    returns names, and ``files`` says whether a word may also be a file.
    """

    def __init__(
        self, name: str, parse: Callable[[str, str], object],
        words: Callable[[], Iterable[str]] | None = None, files: bool = False,
    ) -> None:
        self.name = name
        self._parse = parse
        self._known = words
        self._files = files

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        """Complete a word in a shell, names before files."""
        names = [CompletionItem(name) for name in (self._known() if self._known else ())
                 if name.startswith(incomplete)]
        return names or [CompletionItem(incomplete, type="file")] * self._files

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Convert a text to the object that it names; other objects are returned unchanged."""
        if not isinstance(value, str):
            return value
        return self._parse(value, param.opts[0] if param is not None else self.name)


def complete_files(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[Any]]:
    """Complete names of files and folders in a shell."""
    return [CompletionItem(incomplete, type="file")]


class Out(click.Path):
    """Name of a file or folder to write; what cannot be written is refused before any work.

    ``check`` takes the name, which is not empty, and the option.
    """

    def __init__(
        self, check: Callable[[str, str], object] = lambda name, where: None, **settings: Any
    ) -> None:
        super().__init__(path_type=Path, **settings)
        self._check = check

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Check the name of an output file, and return its path."""
        where = param.opts[0] if param is not None else "out"
        if not str(value).strip():  # as of an unset variable; the path is the current folder
            kind = "file" if self.file_okay else "folder"
            raise InvalidValueError(f"no name of a {kind}", value=value, allowed="a path",
                                    where=where)
        self._check(str(value), where)
        return super().convert(value, param, ctx)


class OutPlace(Out):
    """Name of an output folder, or a URL, which is not checked."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Return the path of an output folder, or its URL as text."""
        if "://" not in str(value):
            return super().convert(value, param, ctx)
        require("fsspec", "store", "a URL", param.opts[0] if param is not None else "out")
        return value


def _check_file(name: str, where: str) -> None:
    """Refuse a name of a folder, and one that no file can have."""
    try:
        if stat.S_ISDIR(os.stat(name).st_mode):
            raise OutputError("is a folder", where=name, allowed="a file name")
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:  # too long, or below a file
        raise OutputError(f"cannot write file ({getattr(error, 'strerror', None) or error})",
                          where=name) from None


def _check_figure_file(name: str, where: str) -> None:
    check_figure(name, where)
    _check_file(name, where)


def _loads(text: str, where: str) -> tuple[float, ...]:
    from ramsis.arrivals import parse_loads

    return parse_loads(text)


def _trace(text: str, where: str) -> TraceName:
    from ramsis.arrivals.load_table import find_trace

    return TraceName(text, find_trace(text))


def _arrivals(text: str, where: str) -> Arrivals:
    from ramsis.arrivals import Arrivals

    return Arrivals.parse(text)


def _numbers(text: str, where: str) -> ByType[float]:
    """Parse an option with one number > 0 for each worker type."""
    by_name = by_type(text, where)
    if not by_name:
        raise not_by_type(text, where)
    return ByType({name: _positive(value, f"{where}: {name}") for name, value in by_name.items()},
                  True, text)


def _positive(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise InvalidValueError("not positive", where=where, value=text,
                                allowed="a finite number > 0")
    return number


def _duration_ms(text: str, where: str) -> float:
    from ramsis.arrivals.trace_formats.instants import UNITS

    match = re.fullmatch(r"([0-9.e+-]+) ?([a-z]+)", text.strip())
    if match is None or match[2] not in UNITS:
        raise InvalidValueError("not a duration", where=where, value=text,
                                allowed=f"a number and a unit ({', '.join(UNITS)}), as 10s")
    return _positive(match[1], where) * UNITS[match[2]]


def _positives(text: str, where: str) -> tuple[float, ...]:
    numbers = tuple(_positive(number, where) for number in text.split(","))
    if len(set(numbers)) < len(numbers):
        raise InvalidValueError("a number stands twice", where=where, value=text,
                                allowed="different numbers > 0")
    return numbers


def _shares(text: str, where: str) -> tuple[float, ...]:
    try:
        shares = tuple(float(share) for share in text.split(","))
    except ValueError:
        shares = (-1.0,)
    if not all(0.0 <= share <= 1.0 for share in shares):
        raise InvalidValueError("not shares", where=where, value=text,
                                allowed="numbers from 0 to 1, such as 0.9 or 0.99,0.9,0.5")
    return shares


def _limits(text: str, where: str) -> ByType[int]:
    """Parse one number of workers >= 1 per worker type."""
    limits = _numbers(text, where).values
    for name, number in limits.items():
        if not number.is_integer() or number < 1:
            raise InvalidValueError("not a number of workers", where=f"{where}: {name}",
                                    value=number, allowed="a whole number >= 1")
    return ByType({name: int(number) for name, number in limits.items()}, True, text)


def _grid(text: str, where: str) -> str:
    from ramsis.worker.problem.queue import parse_grid

    parse_grid(text)
    return text


def _models(text: str, where: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) != len(names):
        raise InvalidValueError("not a list of model names", where=where, value=text,
                                allowed="names separated by commas, each once")
    return names


def _batches(text: str, where: str, *, what: str) -> tuple[int, ...]:
    """Parse whole numbers from 1, such as batch sizes.

    They are ``4``, ``from:to``, ``from:to:step``, or several of these. The result is sorted and
    without duplicates; both ends of a range are in it, whatever the step.
    """
    from ramsis.profiles.values import MAX_BATCH  # imported here as it takes long

    sizes: set[int] = set()
    for part in text.split(","):
        numbers = part.split(":")
        try:
            first, *more = (int(number) for number in numbers)
        except ValueError:
            first, more = 0, []
        last, step = (more or [first])[0], more[1] if len(more) == 2 else 1
        if not (1 <= first <= last <= MAX_BATCH and step >= 1 and len(more) <= 2):
            raise InvalidValueError(
                f"not a list of {what}", where=where, value=text,
                allowed=f"1,2,4 or from:to or from:to:step, in 1 … {MAX_BATCH}")
        sizes.update(range(first, last + 1, step), (last,))
    return tuple(sorted(sizes))


def _dimension(text: str, where: str) -> tuple[str, int]:
    name, _, size = text.rpartition("=")
    if not name or not size.isdecimal() or int(size) < 1:
        raise InvalidValueError("not the size of a dimension", where=where, value=text,
                                allowed="NAME=SIZE, SIZE from 1")
    return name, int(size)


def _device(text: str, where: str) -> str:
    uuid = re.fullmatch(r"MIG-[0-9A-Za-z/-]+", text)
    if text not in ("cpu", "cuda") and uuid is None:
        raise InvalidValueError("unknown device", where=where, value=text,
                                allowed="cpu, cuda, MIG-UUID as `nvidia-smi -L` has it")
    return text


def _pair(what: str, allowed: str, text: str, where: str) -> tuple[str, str]:
    name, _, value = text.rpartition("=") if allowed == "NAME=MODEL" else text.partition("=")
    if not name or not value:
        raise InvalidValueError(what, where=where, value=text, allowed=allowed)
    return name, value


def _slow_spells(text: str, where: str) -> SlowSpells | str:
    from ramsis.sim import SlowSpells

    return text if text == "profile" else SlowSpells.parse(text, where)


def _profile_names() -> Iterable[str]:
    from ramsis.profiles.file import shipped_names

    return shipped_names()


def _trace_names() -> Iterable[str]:
    from ramsis.arrivals.load_table import shipped_traces

    return shipped_traces()


def _scheduler_names() -> Iterable[str]:
    from ramsis.policy import DISPATCHES
    from ramsis.sim import SCHEDULERS
    from ramsis.sized import SIZED_SCHEDULERS

    return dict.fromkeys((*DISPATCHES, *SCHEDULERS, *SIZED_SCHEDULERS))


def _process_names() -> Iterable[str]:
    from ramsis.arrivals.registry import SHIPPED

    return SHIPPED


LOADS = Word("loads", _loads)
"""``400``, ``400,800`` or ``from:to:step``: a tuple of loads in requests per second."""
SHARES = Word("shares", _shares)
SLOWNESS = Word("slowness", _positives)
"""``1,1.15,1.3``: a tuple of different numbers > 0."""
ARRIVALS = Word("process", _arrivals, _process_names)
"""An arrival process: :class:`~ramsis.arrivals.Arrivals`. A module that it names is imported."""
SLOS = Word("slos", read_slos)
"""``100``, or ``100:0.3,150:0.7``: a tuple of :class:`~ramsis.cluster.cluster.SloClass`."""
WORKERS = Word("workers", read_workers)
"""``4``, or ``gpu=4,cpu=40``: :class:`ByType` of whole numbers."""
PROFILES = Word("profiles", read_profiles, _profile_names, files=True)
"""``NAME``, or ``gpu=FILE,cpu=FILE``: :class:`ByType` of files or names."""
complete_profiles = PROFILES.shell_complete
"""Shell completion of a profile set."""
COSTS = Word("costs", _numbers)
"""``gpu=3,cpu=0.5``: :class:`ByType` of numbers > 0."""
LIMITS = Word("limits", _limits)
"""``gpu=8``: :class:`ByType` of whole numbers >= 1."""
GROWTH = Word("growth", _positives)
"""``1.5,2``: a tuple of different numbers > 0."""
DURATION = Word("duration", _duration_ms)
"""``10s``: milliseconds."""
GRID = Word("grid", _grid)
"""``fixed:D`` or ``model``, as :func:`~ramsis.worker.problem.queue.slack_grid` takes it."""
TRACE = Word("trace", _trace, _trace_names, files=True)
"""A trace's file or name: :class:`TraceName`."""
SCHEDULER_TEXT = Word("scheduler", lambda text, where: text, _scheduler_names)
"""The text of a scheduler, whose meaning depends on the command."""
OUT_FOLDER = Out(file_okay=False)
"""A folder to write to: a path."""
OUT_PLACE = OutPlace(file_okay=False)
"""A folder to write to, or a URL: a path or a text."""
OUT_FILE = Out(_check_file)
"""A path to write to."""
FIGURE = Out(_check_figure_file)
"""A file name that ends in .png, .pdf or .svg: a path."""
MODELS = Word("models", _models)
"""``A,B,C``: a list of names."""
BATCH_SIZES = Word("batches", partial(_batches, what="batch sizes"))
"""``1,2,4``, ``1:32`` or ``1:32:4``: a rising tuple."""
SIZE_POINTS = Word("sizes", partial(_batches, what="sizes of requests"))
"""``8,32,128``, likewise."""
DEVICE = Word("device", _device, lambda: ("cpu", "cuda"))

DIMENSION = Word("dimension", _dimension)
"""``NAME=SIZE``: a pair."""
SLOW_SPELLS = Word("spells", _slow_spells)
"""``share=S,factor=F,length-ms=L``: :class:`~ramsis.sim.SlowSpells`; or ``profile``."""
LOG_COLUMN = Word("column", partial(_pair, "not the column of a field", "FIELD=NAME"))
"""``FIELD=NAME``: a pair."""
MODEL_NAME = Word("name", partial(_pair, "not a model for a name", "NAME=MODEL"))
"""``NAME=MODEL``: a pair."""


def require(libraries: str, extra: str, what: str, where: str) -> None:
    """Raise an error if one of some libraries, separated by blanks, is not installed.

    ``extra`` is the extra of this package that installs them, ``what`` needs them, and ``where``
    is the option or command; all are for the message.
    """
    for name in libraries.split():
        if not _installed(name):
            raise InvalidValueError(f"{what} needs {name}, which is not installed", where=where,
                                    allowed=install(extra))


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # a stub module without a specification
        return True
