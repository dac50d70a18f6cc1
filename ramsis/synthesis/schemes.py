"""Policies as a scheme that is made for each fleet: ``worker`` and ``fleet``, with settings.

The settings of :class:`~ramsis.synthesis.SynthesisSettings` or
:class:`~ramsis.synthesis.FleetSettings` follow a colon:
``worker:grid=fixed:10,objective=per-decision``, ``fleet:violation_price=0``. Everything else is a
scheme of :mod:`ramsis.sim`, as ``ramsis simulate --scheme`` takes it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ramsis.errors import InvalidValueError, describe
from ramsis.policy import FleetPolicy, Policy, WorkerPolicy
from ramsis.profiles import STATISTICS
from ramsis.sim import FleetPolicies, RateTrace, SchemeSpec, WorkerPolicies, scheme
from ramsis.synthesis.fleet import FleetSettings
from ramsis.synthesis.settings import SynthesisSettings

__all__ = ["DEFAULT_LEVELS", "FLEET", "POLICY_KINDS", "WORKER", "PolicyScheme", "policy_scheme"]

WORKER, FLEET = "worker", "fleet"
POLICY_KINDS: Mapping[str, type[Any]] = {WORKER: SynthesisSettings, FLEET: FleetSettings}
"""Kinds of policies, with what each is made for."""
DEFAULT_LEVELS = 30
"""Load levels up to a trace's peak."""

_SPREAD = 4.0  # standard deviations of the load monitor's reading that levels reach beyond
_WINDOW_S = 0.5


@dataclass(frozen=True)
class PolicyScheme:
    """Policies to generate.

    Attributes
    ----------
    given : Mapping
        Settings of the kind's class that were given.
    levels : int
        Load levels for a trace, >= 2.
    kind : str
        ``worker`` or ``fleet``.
    """

    given: Mapping[str, Any]
    levels: int = DEFAULT_LEVELS
    kind: str = WORKER

    def settings(
        self, *, slo_ms: float, workers: int, service: str
    ) -> SynthesisSettings | FleetSettings:
        """The settings for a fleet.

        Service times are those that the fleet is simulated with by default; worker policies, which
        need a statistic, take p95 where times are drawn.
        """
        if self.kind == WORKER and service not in STATISTICS:
            service = "p95"
        made: SynthesisSettings | FleetSettings = POLICY_KINDS[self.kind](
            slo_ms=slo_ms, workers=workers, **{"service": service, **self.given})
        return made

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

    def replay(self, policies: Sequence[Policy], source: str) -> WorkerPolicies | FleetPolicies:
        """What a simulation runs of the policies; ``source`` names them in messages."""
        if self.kind == FLEET:
            return FleetPolicies(tuple(p for p in policies if isinstance(p, FleetPolicy)), source)
        return WorkerPolicies(tuple(p for p in policies if isinstance(p, WorkerPolicy)), source)


def policy_scheme(text: str) -> PolicyScheme | SchemeSpec:
    """What a scheme's text stands for.

    >>> policy_scheme("worker:grid=fixed:10").given
    {'grid': 'fixed:10'}

    Raises
    ------
    InvalidValueError
        An unknown name or parameter, or a value out of range.
    """
    name, _, rest = text.partition(":")
    if name not in POLICY_KINDS:
        return scheme(text)
    makers = _makers(name)
    # Only commas before a parameter: others belong to a value, such as that of ``arrivals``.
    between = re.compile(rf",(?=(?:{'|'.join(makers)})=)")
    given: dict[str, Any] = {}
    for part in filter(None, between.split(rest)):
        key, equals, value = part.partition("=")
        if not (equals and value) or key in given or key not in makers:
            raise InvalidValueError(describe("not a parameter of the scheme", where=name,
                                             value=part, allowed=", ".join(makers)))
        given[key] = makers[key](f"{name}: {key}", value)
    levels = given.pop("levels", DEFAULT_LEVELS)
    made = PolicyScheme(given, levels, name)
    made.settings(slo_ms=1.0, workers=1, service="p95")  # refuses unknown words
    return made


def _makers(kind: str) -> dict[str, Callable[[str, str], Any]]:
    """Parameters of a kind of policies, with what reads a value: ``(where, text) -> value``."""
    made: dict[str, Callable[[str, str], Any]] = {"levels": _whole(2)}
    for item in sorted(fields(POLICY_KINDS[kind]), key=lambda item: item.name):
        if item.name not in ("slo_ms", "workers"):
            kinds = str(item.type).split(" | ")
            made[item.name] = (_whole(1) if "int" in kinds else
                               _number if "float" in kinds else lambda _, value: value)
    return made


def _whole(least: int) -> Callable[[str, str], int]:
    def read(where: str, value: str) -> int:
        if not value.isdecimal() or int(value) < least:
            raise InvalidValueError(describe("not a value of the parameter", where=where,
                                             value=value, allowed=f"a whole number >= {least}"))
        return int(value)

    return read


def _number(where: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InvalidValueError(describe("not a value of the parameter", where=where,
                                         value=value, allowed="a number")) from None
