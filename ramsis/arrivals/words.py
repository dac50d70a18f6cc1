"""Arrival processes by name: the words of ``--arrivals`` and the entries of policy files.

    poisson                                     {"process": "poisson"}
    negative-binomial:4                         {"process": "negative-binomial", "dispersion": 4}
    mmpp:ratio=4,burst-ms=500,share=0.2         {"process": "mmpp", "ratio": 4, "burst_ms": 500,
                                                 "share": 0.2}
    package.module:name                         {"process": "package.module:name", ...}

A module is imported only when the user names it. A file that names one is not enough.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from ramsis.arrivals.modulated import MarkovModulated
from ramsis.arrivals.negative_binomial import NegativeBinomial
from ramsis.arrivals.process import ArrivalProcess, Poisson, ProcessFactory
from ramsis.errors import InvalidValueError, describe

__all__ = ["KNOWN_PROCESSES", "describe_process", "from_description", "process_factory"]

KNOWN_PROCESSES = ("poisson", "negative-binomial:I", "mmpp:ratio=R,burst-ms=B,share=S")
"""How ``--arrivals`` names the processes that come with the package."""

_RATE_TOLERANCE = 1e-9


def _negative_binomial(load_qps: float, dispersion: float) -> ArrivalProcess:
    process = NegativeBinomial(load_qps, dispersion)
    return Poisson(load_qps) if dispersion == 1.0 else process


def _modulated(load_qps: float, ratio: float, burst_ms: float, share: float) -> ArrivalProcess:
    process = MarkovModulated(load_qps, ratio, burst_ms, share)
    return Poisson(load_qps) if ratio == 1.0 else process


_Maker = Callable[..., ArrivalProcess]
_MAKERS: dict[str, tuple[_Maker, tuple[str, ...]]] = {
    "poisson": (Poisson, ()),
    "negative-binomial": (_negative_binomial, ("dispersion",)),
    "mmpp": (_modulated, ("ratio", "burst_ms", "share")),
}


def describe_process(process: ArrivalProcess) -> dict[str, Any]:
    """The ``arrivals`` entry of a policy file: the process's name and parameters.

    A class without ``describe`` is named by its import path.
    """
    own = getattr(process, "describe", None)
    if callable(own):
        return dict(own())
    kind = type(process)
    return {"process": f"{kind.__module__}:{kind.__qualname__}"}


def process_factory(text: str) -> ProcessFactory:
    """The factory that ``--arrivals TEXT`` names.

    Parameters
    ----------
    text : str
        One of :data:`KNOWN_PROCESSES`, or ``package.module:name`` of a callable that takes a
        load in queries per second and returns an :class:`ArrivalProcess` of that rate. A
        negative binomial process of dispersion 1 and a modulated one of ratio 1 are Poisson.

    Raises
    ------
    InvalidValueError
        When the name is unknown, cannot be imported, or is not callable, or a parameter is
        missing, unknown or out of range.

    Examples
    --------
    >>> process_factory("negative-binomial:4")(100.0)
    NegativeBinomial(load_qps=100.0, dispersion=4.0)
    """
    name, _, words = text.partition(":")
    if name in _MAKERS and (words or not text.endswith(":")):
        maker, keys = _MAKERS[name]
        return _with(maker, _parameters(text, words, keys))
    if not words:
        raise InvalidValueError(
            describe("unknown arrival process", where="arrivals", value=text,
                     allowed=", ".join(KNOWN_PROCESSES) + ", or package.module:name of your own")
        )
    return _checked(_imported(text), text, {})


def from_description(
    arrivals: Mapping[str, Any], load_qps: float, *, own: str | None = None
) -> ArrivalProcess:
    """The process that a policy file names, at its load.

    Parameters
    ----------
    arrivals : mapping
        The file's entry: ``process`` and parameters.
    own : str, optional
        ``package.module:name`` that the user trusts; the only one that is imported.

    Raises
    ------
    InvalidValueError
        When the process cannot be made from the file's words alone.
    """
    name = str(arrivals.get("process"))
    parameters = {key: value for key, value in arrivals.items() if key != "process"}
    if name in _MAKERS:
        maker, keys = _MAKERS[name]
        if set(parameters) != set(keys):
            raise _wrong_parameters(name, sorted(parameters), keys)
        return _with(maker, {k: _number(k, v, name) for k, v in parameters.items()})(load_qps)
    if ":" not in name:
        raise InvalidValueError(
            describe("unknown arrival process", where="arrivals", value=name,
                     allowed=", ".join([*_MAKERS, "package.module:name"]))
        )
    if name != own:
        raise InvalidValueError(
            describe("an arrival process of its maker's own is not imported on a file's word",
                     where="arrivals", value=name,
                     allowed=f"--arrivals {name}, where you trust that module")
        )
    return _checked(_imported(name), name, parameters)(load_qps)


def _with(maker: _Maker, parameters: Mapping[str, float]) -> ProcessFactory:
    maker(1.0, **parameters)  # refuses numbers out of range before there is a load
    return lambda load_qps: maker(load_qps, **parameters)


def _parameters(text: str, words: str, keys: tuple[str, ...]) -> dict[str, float]:
    """Parameters of a word such as ``mmpp:ratio=4,burst-ms=500,share=0.2``."""
    pairs = [word.partition("=") for word in words.split(",") if word]
    if len(keys) == 1 and len(pairs) == 1 and not pairs[0][1]:
        return {keys[0]: _number(keys[0], words, text)}
    given = {key.strip().replace("-", "_"): value for key, _, value in pairs}
    if set(given) != set(keys) or len(given) != len(pairs):
        raise _wrong_parameters(text, sorted(given), keys)
    return {key: _number(key, value, text) for key, value in given.items()}


def _wrong_parameters(text: str, given: list[str], keys: tuple[str, ...]) -> InvalidValueError:
    wanted = ", ".join(key.replace("_", "-") for key in keys) or "none"
    return InvalidValueError(
        describe("wrong parameters of an arrival process", where=f"arrivals {text!r}",
                 value=", ".join(given), allowed=wanted)
    )


def _number(key: str, value: object, text: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidValueError(
            describe(f"{key.replace('_', '-')} is not a number", where=f"arrivals {text!r}",
                     value=value, allowed="a finite number")
        )
    return number


def _imported(text: str) -> Callable[..., Any]:
    module_name, _, attribute = text.partition(":")
    try:
        factory = attrgetter(attribute)(importlib.import_module(module_name))
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InvalidValueError(
            describe(f"cannot import arrival process ({error})", where="arrivals", value=text,
                     allowed="package.module:name of an importable callable")
        ) from error
    if not callable(factory):
        raise InvalidValueError(
            describe("arrival process is not callable", where="arrivals", value=text,
                     allowed="a callable that takes load_qps")
        )
    made: Callable[..., Any] = factory
    return made


def _checked(
    factory: Callable[..., Any], text: str, parameters: Mapping[str, Any]
) -> ProcessFactory:
    takes = ", ".join(["load_qps", *parameters])

    def make(load_qps: float) -> ArrivalProcess:
        try:
            process = factory(load_qps, **parameters)
        except TypeError as error:
            raise InvalidValueError(
                describe(f"cannot make an arrival process ({error})", where="arrivals",
                         value=text, allowed=f"a callable that takes {takes}")
            ) from error
        if not isinstance(process, ArrivalProcess):
            raise InvalidValueError(
                describe("not an arrival process", where=f"arrivals {text}",
                         value=type(process).__name__,
                         allowed="an object with rate_per_ms and log_pf(count, interval_ms)")
            )
        wanted = load_qps / 1000.0
        if not abs(process.rate_per_ms - wanted) <= _RATE_TOLERANCE * wanted:
            raise InvalidValueError(
                describe("the process does not have the rate of its load",
                         where=f"arrivals {text}: rate_per_ms", value=process.rate_per_ms,
                         allowed=f"{wanted:.10g}, a thousandth of {load_qps:g} QPS")
            )
        return process

    return make
