"""Schemes as a sweep names them.

``worker`` stands for worker policies that the sweep generates, with the settings of ``ramsis
generate`` after a colon: ``worker:grid=fixed:10,objective=per-decision``. Everything else is a
scheme of :mod:`ramsis.sim`, as ``ramsis simulate --scheme`` takes it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ramsis.errors import InvalidValueError, describe
from ramsis.policy import SERVICES
from ramsis.sim import RateTrace, SchemeSpec, scheme
from ramsis.synthesis import SynthesisSettings

__all__ = ["DEFAULT_LEVELS", "WORKER", "PolicyScheme", "scheme_document", "settings_document",
           "sweep_scheme"]

WORKER = "worker"
DEFAULT_LEVELS = 30
"""Load levels up to a trace's peak."""

_NUMBERS = {"max_queue": 1, "levels": 2}
_PRICE = "violation_price"
_KEYS = ("levels", *sorted(item.name for item in fields(SynthesisSettings)
                           if item.name not in ("slo_ms", "workers")))
_BETWEEN = re.compile(rf",(?=(?:{'|'.join(_KEYS)})=)")
"""The commas before a parameter; others belong to a value, such as that of ``arrivals``."""
_SPREAD = 4.0  # standard deviations of the load monitor's reading that levels reach beyond
_WINDOW_S = 0.5


@dataclass(frozen=True)
class PolicyScheme:
    """Worker policies to generate.

    Attributes
    ----------
    given : Mapping
        Settings of :class:`~ramsis.synthesis.SynthesisSettings` that were given.
    levels : int
        Load levels for a trace, >= 2.
    """

    given: Mapping[str, Any]
    levels: int = DEFAULT_LEVELS

    def settings(self, *, slo_ms: float, workers: int, service: str) -> SynthesisSettings:
        """The settings for a cell: by default its own service times."""
        known = service if service in SERVICES else "p95"
        return SynthesisSettings(slo_ms=slo_ms, workers=workers,
                                 **{"service": known, **self.given})

    def loads(self, trace: RateTrace) -> tuple[float, ...]:
        """Equally spaced loads that cover what the load monitor will read on a trace.

        Over its window of half a second a Poisson load λ is read with a standard deviation of
        √(2λ); levels go four of these below the lowest and above the highest rate. There are
        ``levels`` of them from 0 to the top, of which those below the range are left out.
        """
        busy = trace.rate_qps[trace.rate_qps > 0]
        low, high = float(busy.min()), float(busy.max())
        top = high + _SPREAD * math.sqrt(high / _WINDOW_S)
        bottom = low - _SPREAD * math.sqrt(low / _WINDOW_S)
        step = top / self.levels
        return tuple(float(f"{step * i:.6g}") for i in range(1, self.levels + 1)
                     if step * (i + 1) > bottom)


def sweep_scheme(text: str) -> PolicyScheme | SchemeSpec:
    """What a scheme of the specification stands for.

    >>> sweep_scheme("worker:grid=fixed:10").given
    {'grid': 'fixed:10'}

    Raises
    ------
    InvalidValueError
        An unknown name or parameter, or a value out of range.
    """
    name, _, rest = text.partition(":")
    if name != WORKER:
        return scheme(text)
    given: dict[str, Any] = {}
    for part in filter(None, _BETWEEN.split(rest)):
        key, equals, value = part.partition("=")
        if not (equals and value) or key in given or key not in _KEYS:
            raise InvalidValueError(describe("not a parameter of the scheme", where="worker",
                                             value=part, allowed=", ".join(_KEYS)))
        given[key] = _number(key, value) if key in _NUMBERS or key == _PRICE else value
    levels = given.pop("levels", DEFAULT_LEVELS)
    made = PolicyScheme(given, levels)
    made.settings(slo_ms=1.0, workers=1, service="p95")  # refuses unknown words
    return made


def _number(key: str, value: str) -> float:
    if key == _PRICE:
        try:
            return float(value)
        except ValueError:
            raise InvalidValueError(describe("not a value of the parameter",
                                             where=f"worker: {key}", value=value,
                                             allowed="a number >= 0")) from None
    if not value.isdecimal() or int(value) < _NUMBERS[key]:
        raise InvalidValueError(describe("not a value of the parameter", where=f"worker: {key}",
                                         value=value,
                                         allowed=f"a whole number >= {_NUMBERS[key]}"))
    return int(value)


def settings_document(settings: SynthesisSettings) -> dict[str, Any]:
    """All that a policy depends on but its load and the models, the same for 100 and 100.0 ms."""
    return {**asdict(settings), **settings.as_dict()}


def scheme_document(spec: SchemeSpec) -> dict[str, Any]:
    """Name and parameters of a scheme, without where it keeps its files."""
    parameters = asdict(spec)  # type: ignore[call-overload]
    parameters.pop("store", None)
    return {"name": spec.name, **parameters}
