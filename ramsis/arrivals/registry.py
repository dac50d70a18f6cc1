"""Registry of arrival processes by name, for the command line, sweeps, policy files and Python.

    poisson                                     {"process": "poisson"}
    negative-binomial:4                         {"process": "negative-binomial", "dispersion": 4}
    mmpp:ratio=4,burst-ms=500,share=0.2         {"process": "mmpp", "ratio": 4, "burst_ms": 500,
                                                 "share": 0.2}
    renewal:2                                   {"process": "renewal", "cv": 2}
    fixed-rate                                  {"process": "fixed-rate"}
    trace:FILE                                  {"process": "trace", "file": FILE,
                                                 "requests": N, "digest": …[, "size": COLUMN]}
    package.module:name                         {"process": "package.module:name", ...}

A new process is a module with a subclass of :class:`~ramsis.arrivals.process.ShippedProcess`, and
its name in :data:`SHIPPED`. A user-defined module is imported only if the user names it
(:mod:`ramsis.plugins`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from ramsis.arrivals.modulated import MarkovModulated
from ramsis.arrivals.negative_binomial import NegativeBinomial
from ramsis.arrivals.process import ArrivalProcess, ProcessWithRate, Sampler, ShippedProcess
from ramsis.arrivals.recorded import PROCESS as TRACE
from ramsis.arrivals.recorded import RecordedProcess
from ramsis.arrivals.renewal import FixedRate, Poisson, Renewal
from ramsis.errors import InvalidValueError
from ramsis.plugins import blamed, own
from ramsis.reprs import dataclass

_RATE_TOLERANCE = 1e-9

SHIPPED: Mapping[str, type[ShippedProcess]] = {
    process.name: process
    for process in (Poisson, NegativeBinomial, MarkovModulated, Renewal, FixedRate)
}
"""The processes that come with the package, by name."""

OWN = "package.module:name of your own"


def patterns() -> tuple[str, ...]:
    """Return the syntax of ``--arrivals`` for each built-in process and for traces."""
    return (*(kind.pattern() for kind in SHIPPED.values()), f"{TRACE}:FILE")


@dataclass(frozen=True)
class Arrivals:
    """Factory of an arrival process: name and parameters; call it with a load.

    Attributes
    ----------
    name : str
        One of :data:`SHIPPED`, ``trace``, or ``package.module:name`` of a callable that takes a
        load in requests per second, and its parameters by keyword.
    parameters : tuple of (str, value)
        Parameters by their names in Python.

    Examples
    --------
    >>> Arrivals.parse("negative-binomial:4")(100.0)
    NegativeBinomial(load_qps=100.0, dispersion=4.0)
    """

    name: str
    parameters: tuple[tuple[str, Any], ...] = ()
    _maker: Callable[..., Any] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.name == TRACE:
            object.__setattr__(self, "_maker", RecordedProcess)
        elif self._maker is None and self.name not in SHIPPED:
            object.__setattr__(self, "_maker", maker_of(self.name))

    @classmethod
    def parse(cls, text: str) -> Arrivals:
        """Parse the name of an arrival process.

        A process that is Poisson by its parameters, such as ``renewal:1``, becomes ``poisson``.

        Parameters
        ----------
        text : str
            Such as ``negative-binomial:4``; see :func:`patterns`.

        Raises
        ------
        InvalidValueError
            When the name is unknown, cannot be imported, or is not callable, or a parameter is
            missing, unknown or out of range.
        """
        name, _, words = text.partition(":")
        if name in SHIPPED and (words or not text.endswith(":")):
            return _shipped(SHIPPED[name], _parameters(text, words, SHIPPED[name]))
        if name == TRACE and words:
            return _of_trace(RecordedProcess(1.0, words))
        if not words:
            raise InvalidValueError("unknown arrival process", where="arrivals", value=text,
                                    allowed=f"{', '.join(patterns())}, or {OWN}")
        return cls(text)

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> Arrivals:
        """Create the factory from the ``arrivals`` entry of a policy file."""
        name = str(description.get("process"))
        parameters = {key: value for key, value in description.items() if key != "process"}
        if name in SHIPPED:
            kind = SHIPPED[name]
            if set(parameters) != {parameter.name for parameter in kind.parameters}:
                raise _wrong_parameters(name, sorted(parameters), kind)
            return _shipped(kind, {k: _number(k, v, name, kind) for k, v in parameters.items()})
        if name == TRACE:
            if set(parameters) - {"size"} != {"file", "requests", "digest"} or not all(
                    isinstance(parameters.get(key, ""), str) for key in ("file", "size")):
                raise InvalidValueError(
                    "wrong parameters of an arrival process", where=f"arrivals {name!r}",
                    value=", ".join(sorted(parameters)),
                    allowed="file (a path), requests, digest, and size (a column)")
            return _of_trace(RecordedProcess(1.0, **parameters))
        if ":" not in name:
            raise InvalidValueError("unknown arrival process", where="arrivals", value=name,
                                    allowed=", ".join([*SHIPPED, "package.module:name"]))
        return cls(name, tuple(parameters.items()))

    def with_sizes_of(self, path: str | os.PathLike[str], column: str = "") -> Arrivals:
        """Return the arrivals with request sizes, if they repeat the trace in the file ``path``.

        Parameters
        ----------
        path : path
            A file of sizes; arrivals of any other file are returned as they are.
        column : str
            Column of the sizes; detected by its name if empty.

        Raises
        ------
        InputFileError
            The trace has no such column.
        """
        file = str(dict(self.parameters).get("file"))
        if self.name != TRACE or not all(Path(name).exists() for name in (file, path)) or (
                not os.path.samefile(file, path)):
            return self
        return _of_trace(RecordedProcess(1.0, file, size=column))

    @property
    def text(self) -> str:
        """Text that :meth:`parse` accepts; the name alone for a user-defined process."""
        if self.name == TRACE:
            return f"{TRACE}:{dict(self.parameters)['file']}"
        if self.name not in SHIPPED:
            return self.name
        return SHIPPED[self.name].written({name: _exact(value) for name, value in self.parameters})

    def __call__(self, load_qps: float) -> ProcessWithRate:
        """Return the process at a load in requests per second."""
        if self._maker is None:
            return SHIPPED[self.name](load_qps, **dict(self.parameters))  # type: ignore[call-arg]
        return made_by(self._maker, self.name, dict(self.parameters), load_qps)

    def counted(self, load_qps: float) -> ArrivalProcess:
        """Return the process at a load, with count probabilities, for policy synthesis.

        Raises
        ------
        InvalidValueError
            As for a call; or the process has no independent counts, with the reason.
        """
        process = self(load_qps)
        if isinstance(process, ArrivalProcess):
            return process
        why = getattr(process, "why_no_counts", "") or "it has no log_pf(count, interval_ms)"
        counted = ", ".join(kind.pattern() for kind in SHIPPED.values() if hasattr(kind, "log_pf"))
        raise InvalidValueError(f"no counts of this process are known ({why})",
                                where="arrivals", value=self.text,
                                allowed=f"{counted}, or {OWN}")

    def drawn(self, load_qps: float) -> Sampler:
        """Return the process at a load, with sampling, for a simulation.

        Raises
        ------
        InvalidValueError
            As for a call; or it has no ``sample``.
        """
        process = self(load_qps)
        if isinstance(process, Sampler):
            return process
        raise InvalidValueError("the process cannot be drawn from, so it cannot be simulated",
                                where="arrivals", value=self.text,
                                allowed="one with sample(duration_ms, rng)")


AnyArrivals = Arrivals | str | Callable[[float], ProcessWithRate]
"""Arrivals of a workload: arrivals, their text, or a function of the load to the process."""


def arrivals_of(description: AnyArrivals) -> Arrivals:
    """Return the factory for a text such as ``renewal:2``, a callable or a factory."""
    if isinstance(description, Arrivals):
        return description
    if isinstance(description, str):
        return Arrivals.parse(description)
    name = getattr(description, "__qualname__", type(description).__qualname__)
    return Arrivals(f"{description.__module__}:{name}", (), description)


def describe_process(process: ProcessWithRate) -> dict[str, Any]:
    """Return the ``arrivals`` entry of a policy file: the process's name and parameters.

    A class without ``describe`` is named by its import path.
    """
    describe = getattr(process, "describe", None)
    if callable(describe):
        return dict(describe())
    kind = type(process)
    return {"process": f"{kind.__module__}:{kind.__qualname__}"}


def format_process(process: ShippedProcess, digits: int | None = None) -> str:
    """Return the text that names a shipped process and its parameters, without its load.

    Parameters
    ----------
    digits : int, optional
        Significant digits of the parameters; exact by default.

    Examples
    --------
    >>> format_process(NegativeBinomial(100.0, 4.0))
    'negative-binomial:4'
    """
    values = {parameter.name: getattr(process, parameter.name) for parameter in process.parameters}
    return process.written({name: _exact(value) if digits is None else f"{value:.{digits}g}"
                            for name, value in values.items()})


def _of_trace(process: RecordedProcess) -> Arrivals:
    description = process.describe()
    return Arrivals(description.pop("process"), tuple(description.items()))


def _shipped(kind: type[ShippedProcess], parameters: Mapping[str, float]) -> Arrivals:
    """Create the factory of a built-in process; refuse parameters out of range."""
    same = kind(1.0, **parameters).simplest()  # type: ignore[call-arg]
    return Arrivals(same.name, tuple((parameter.name, getattr(same, parameter.name))
                                     for parameter in same.parameters))


def _exact(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _parameters(text: str, words: str, kind: type[ShippedProcess]) -> dict[str, float]:
    """Parse the parameters of a text such as ``mmpp:ratio=4,burst-ms=500,share=0.2``."""
    names = [parameter.name for parameter in kind.parameters]
    pairs = [word.partition("=") for word in words.split(",") if word]
    if len(names) == 1 and len(pairs) == 1 and not pairs[0][1]:
        return {names[0]: _number(names[0], words, text, kind)}
    values = {key.strip().replace("-", "_"): value for key, _, value in pairs}
    if set(values) != set(names) or len(values) != len(pairs):
        raise _wrong_parameters(text, sorted(values), kind)
    return {key: _number(key, value, text, kind) for key, value in values.items()}


def _wrong_parameters(
    text: str, words: list[str], kind: type[ShippedProcess]
) -> InvalidValueError:
    wanted = ", ".join(parameter.word for parameter in kind.parameters) or "none"
    return InvalidValueError("wrong parameters of an arrival process", where=f"arrivals {text!r}",
                             value=", ".join(words), allowed=wanted)


def _number(key: str, value: object, text: str, kind: type[ShippedProcess]) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidValueError(f"{key.replace('_', '-')} is not a number",
                                where=f"arrivals {text!r}", value=value,
                                allowed=f"{kind.pattern()} with finite numbers")
    return number


def maker_of(text: str) -> Callable[..., Any]:
    """Import the callable ``package.module:name``."""
    maker = own(text, "arrival process", where="arrivals", error=InvalidValueError,
                option="--arrivals")
    if not callable(maker):
        raise InvalidValueError("arrival process is not callable", where="arrivals", value=text,
                                allowed="a callable that takes load_qps")
    checked_maker: Callable[..., Any] = maker
    return checked_maker


def made_by(
    maker: Callable[..., Any], name: str, parameters: Mapping[str, Any], load_qps: float
) -> ProcessWithRate:
    """Create a process by calling a user's callable; refuse one without the load's rate."""
    with blamed(f"arrival process {name} failed", InvalidValueError):
        try:
            process = maker(load_qps, **parameters)
        except TypeError as error:
            takes = ", ".join(["load_qps", *parameters])
            raise InvalidValueError(f"cannot make an arrival process ({error})", where="arrivals",
                                    value=name,
                                    allowed=f"a callable that takes {takes}") from error
    if not isinstance(process, ArrivalProcess | Sampler):
        raise InvalidValueError(
            "not an arrival process", where=f"arrivals {name}", value=type(process).__name__,
            allowed="an object with rate_per_ms, and log_pf(count, interval_ms) or "
            "sample(duration_ms, rng)")
    wanted = load_qps / 1000.0
    if not abs(process.rate_per_ms - wanted) <= _RATE_TOLERANCE * wanted:
        raise InvalidValueError("the process does not have the rate of its load",
                                where=f"arrivals {name}: rate_per_ms", value=process.rate_per_ms,
                                allowed=f"{wanted:.10g}, a thousandth of {load_qps:g} QPS")
    return process
