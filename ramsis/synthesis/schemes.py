"""Policies as a scheme that is made for each cluster, called by how requests reach its workers.

The settings of ``ramsis generate`` follow a colon, as in
``round-robin:grid=fixed:10,max_queue=16``, ``central-queue:violation_price=0`` and
``round-robin:paper``, which is what the EuroSys '24 paper does. Everything else
is a scheme of :mod:`ramsis.sim`, as ``ramsis simulate --scheme`` takes it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ramsis.errors import InvalidValueError, describe
from ramsis.policy import DISPATCHES, SERVICES
from ramsis.runtime.monitor import WINDOW_MS
from ramsis.sim import RateTrace, SchemeSpec, scheme
from ramsis.sim.schemes import SCHEMES
from ramsis.synthesis.options import as_in_the_paper, knows
from ramsis.synthesis.settings import SynthesisSettings

__all__ = ["DEFAULT_LEVELS", "PolicyScheme", "policy_scheme"]

DEFAULT_LEVELS = 30
"""Load levels up to a trace's peak."""

_FORMER = {"worker": "round-robin or shortest-queue", "fleet": "central-queue"}
_PAPER = "paper"
_SAME = {("central-queue", "max_batch"): "max_queue"}  # the longest batch of a central queue
_WHOLE = {"max_queue": 1, "levels": 2}
_NUMBERS = {"violation_price": "a finite number >= 0", "max_violation": "a fraction in (0, 1]",
            "overhead_ms": "a finite number >= 0", "headroom": "a number in [0, 1)"}
_NOT_OF_SCHEMES = ("slo_ms", "workers", "slo_classes", "dispatch")
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+")
_SPREAD = 4.0  # standard deviations of the load monitor's reading that levels reach beyond
_WINDOW_S = WINDOW_MS / 1000.0


@dataclass(frozen=True)
class PolicyScheme:
    """Policies to generate.

    Attributes
    ----------
    name : str
        How requests reach the workers: one of :data:`ramsis.policy.DISPATCHES`.
    given : Mapping
        Settings that were given.
    levels : int
        Load levels for a trace, >= 2.
    """

    name: str
    given: Mapping[str, Any]
    levels: int = DEFAULT_LEVELS

    def settings(self, *, slo_ms: float, workers: int, service: str) -> SynthesisSettings:
        """The settings for some workers: by default made from their own service times.

        Where policies cannot be made from these, from their p95.
        """
        own = service if service in SERVICES and knows(self.name, "service", service) else "p95"
        return SynthesisSettings(**{"slo_ms": slo_ms, "workers": workers, "service": own,
                                    "dispatch": self.name, **self.given})

    @property
    def largest_batch(self) -> int:
        """What policies may run, where the settings given say so; else 1."""
        if "max_queue" not in self.given:
            return 1
        return self.settings(slo_ms=1.0, workers=1, service=SERVICES[0]).largest_batch

    def loads(self, trace: RateTrace) -> tuple[float, ...]:
        """Equally spaced loads that cover what the load monitor will read on a trace.

        Over its window of half a second a Poisson load λ is read with a standard deviation of
        √(2λ); levels go four of these below the lowest and above the highest rate. There are
        ``levels`` of them from 0 to the top, of which those below the range are left out.
        """
        busy = trace.rate_qps[trace.rate_qps > 0]
        return self.levels_between(float(busy.min()), float(busy.max()))

    def levels_between(self, low_qps: float, high_qps: float) -> tuple[float, ...]:
        """The same for a load between two ends."""
        top = high_qps + _SPREAD * math.sqrt(high_qps / _WINDOW_S)
        bottom = low_qps - _SPREAD * math.sqrt(low_qps / _WINDOW_S)
        step = top / self.levels
        return tuple(float(f"{step * i:.6g}") for i in range(1, self.levels + 1)
                     if step * (i + 1) > bottom)


def policy_scheme(text: str) -> PolicyScheme | SchemeSpec:
    """What a scheme's text stands for.

    >>> policy_scheme("round-robin:grid=fixed:10").given
    {'grid': 'fixed:10'}
    >>> policy_scheme("central-queue:violation_price=0,levels=8")
    PolicyScheme(name='central-queue', given={'violation_price': 0.0}, levels=8)

    Raises
    ------
    InvalidValueError
        An unknown name or parameter, or a value out of range.
    """
    name, _, rest = text.partition(":")
    if name in SCHEMES:
        return scheme(text)
    if name in _FORMER:
        raise InvalidValueError(describe("policies are called by how requests reach the workers",
                                         where="scheme", value=name, allowed=_FORMER[name]))
    if name not in DISPATCHES:
        raise InvalidValueError(describe("unknown scheme", where="scheme", value=name,
                                         allowed=", ".join((*DISPATCHES, *SCHEMES))))
    given: dict[str, Any] = {}
    paper = False
    known = ("levels", *sorted(item.name for item in fields(SynthesisSettings)
                               if item.name not in _NOT_OF_SCHEMES))
    # The commas before a parameter; others belong to a value, such as that of ``arrivals``.
    names = "|".join((*known, "max_batch"))
    for part in filter(None, re.split(rf",(?=(?:{names})=|{_PAPER}(?:,|$))", rest)):
        if part == _PAPER:
            paper = True
            continue
        key, equals, value = part.partition("=")
        key = _SAME.get((name, key), key)
        if not (equals and value) or key in given or key not in known:
            raise InvalidValueError(describe("not a parameter of the scheme", where=name,
                                             value=part, allowed=", ".join((*known, _PAPER))))
        given[key] = _value(name, key, value)
    levels = given.pop("levels", DEFAULT_LEVELS)
    if paper:
        given = as_in_the_paper(given)
    made = PolicyScheme(name, given, levels)
    made.settings(slo_ms=1.0, workers=1, service="p95")  # refuses unknown words
    return made


def _value(name: str, key: str, text: str) -> str | int | float:
    """A parameter's value; numbers are checked here, words where they are used."""
    if key in _WHOLE:
        allowed = f"a whole number >= {_WHOLE[key]}"
        if text.isdecimal() and int(text) >= _WHOLE[key]:
            return int(text)
    elif key in _NUMBERS:
        allowed = _NUMBERS[key]
        if _NUMBER.fullmatch(text) and math.isfinite(float(text)):
            return float(text)
    else:
        return text
    raise InvalidValueError(describe("not a value of the parameter", where=f"{name}: {key}",
                                     value=text, allowed=allowed))
