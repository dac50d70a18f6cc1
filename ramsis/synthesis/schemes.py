"""Policies as a scheme that is made for each fleet: ``worker`` and ``fleet``, with settings.

The settings of ``ramsis generate`` follow a colon, as in ``worker:grid=fixed:10,max_queue=16`` and
``fleet:violation_price=0``. Everything else is a scheme of :mod:`ramsis.sim`, as ``ramsis simulate
--scheme`` takes it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ramsis.errors import InvalidValueError, describe
from ramsis.policy import SERVICES
from ramsis.runtime.monitor import WINDOW_MS
from ramsis.sim import RateTrace, SchemeSpec, scheme
from ramsis.sim.schemes import SCHEMES
from ramsis.synthesis.settings import SynthesisSettings

__all__ = ["DEFAULT_LEVELS", "POLICY_KINDS", "PolicyScheme", "policy_scheme"]

DEFAULT_LEVELS = 30
"""Load levels up to a trace's peak."""

POLICY_KINDS: Mapping[str, str] = {"worker": "round-robin", "fleet": "central-queue"}
"""Kinds of policies, with their dispatch rule."""
_WHOLE = {"max_queue": 1, "levels": 2}
_NUMBERS = {"violation_price": "a finite number >= 0", "max_violation": "a fraction in (0, 1]"}
_OF_THE_CELL = ("slo_ms", "workers", "slo_classes")
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+")
_SPREAD = 4.0  # standard deviations of the load monitor's reading that levels reach beyond
_WINDOW_S = WINDOW_MS / 1000.0


@dataclass(frozen=True)
class PolicyScheme:
    """Policies to generate.

    Attributes
    ----------
    name : str
        ``worker`` or ``fleet``.
    given : Mapping
        Settings of :class:`~ramsis.synthesis.SynthesisSettings` that were given.
    levels : int
        Load levels for a trace, >= 2.
    """

    name: str
    given: Mapping[str, Any]
    levels: int = DEFAULT_LEVELS

    def settings(self, *, slo_ms: float, workers: int, service: str) -> SynthesisSettings:
        """The settings for a cell: by default made from its own service times.

        Where policies of the kind cannot be made from these, from their p95.
        """
        own = service if service in SERVICES else "p95"
        given = {"slo_ms": slo_ms, "workers": workers, "service": own,
                 "dispatch": POLICY_KINDS[self.name], **self.given}
        return SynthesisSettings(**given)

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

    >>> policy_scheme("worker:grid=fixed:10").given
    {'grid': 'fixed:10'}
    >>> policy_scheme("fleet:violation_price=0,levels=8")
    PolicyScheme(name='fleet', given={'violation_price': 0.0}, levels=8)

    Raises
    ------
    InvalidValueError
        An unknown name or parameter, or a value out of range.
    """
    name, _, rest = text.partition(":")
    if name in SCHEMES:
        return scheme(text)
    if name not in POLICY_KINDS:
        raise InvalidValueError(describe("unknown scheme", where="scheme", value=name,
                                         allowed=", ".join((*POLICY_KINDS, *SCHEMES))))
    given: dict[str, Any] = {}
    known = ("levels", *sorted(item.name for item in fields(SynthesisSettings)
                               if item.name not in _OF_THE_CELL))
    # The commas before a parameter; others belong to a value, such as that of ``arrivals``.
    for part in filter(None, re.split(rf",(?=(?:{'|'.join(known)})=)", rest)):
        key, equals, value = part.partition("=")
        if not (equals and value) or key in given or key not in known:
            raise InvalidValueError(describe("not a parameter of the scheme", where=name,
                                             value=part, allowed=", ".join(known)))
        given[key] = _value(name, key, value)
    levels = given.pop("levels", DEFAULT_LEVELS)
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
