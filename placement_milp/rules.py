"""Objective, limits on every placement, and co-location rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ramsis.errors import ABOVE_ZERO, INNER, at_least
from ramsis.runtime.fields import Fields
from ramsis.runtime.records import NonNegative, Record, Whole, record_of

KINDS = ("effective-accuracy", "cheapest", "fewest-workers", "lexicographic", "max-min", "pareto")
"""Kinds of objective."""
METRICS = ("served", "effective-accuracy", "worst-family", "cost", "workers", "moving")
"""What a lexicographic objective can order: three to maximise, three to minimise."""
COLOCATIONS = ("apart", "alone", "only-on", "slow-down")
"""Kinds of co-location rules."""


@dataclass(frozen=True, slots=True)
class PlacementObjective(Record):
    """The objective of a placement problem.

    Attributes
    ----------
    kind
        One of :data:`KINDS`.
    unserved_penalty
        Price of a query that is not answered in time, in accuracy.
    moving_price
        Price of a second of loading variants that workers do not hold now, and of making and
        destroying instances.
    cost_price
        Price of one unit of cost per hour, in accuracy (``effective-accuracy`` only).
    order
        For ``lexicographic``: :data:`METRICS`, the most important first.
    points
        For ``pareto``: points on the front.
    """

    kind: Annotated[str, KINDS] = "effective-accuracy"
    unserved_penalty: NonNegative = 0.0
    moving_price: NonNegative = 0.0
    cost_price: NonNegative = 0.0
    order: tuple[str, ...] = ()
    points: Annotated[int, Whole(2, 1000)] = 10

    @classmethod
    def from_fields(cls, item: Fields) -> PlacementObjective:
        """The object ``objective``, with the parameters that its kind knows."""
        known = {"effective-accuracy": ("unserved_penalty", "cost_price"), "cheapest": (),
                 "fewest-workers": (),
                 "lexicographic": ("unserved_penalty", "order"),
                 "max-min": ("unserved_penalty",), "pareto": ("unserved_penalty", "points")}
        item.only(("kind", "moving_price", *known[item.text("kind", KINDS)]))
        return record_of(cls, item)

    def check(self, item: Fields) -> None:
        """Refuse an order of metrics that is missing, or not of metrics."""
        if self.kind == "lexicographic":
            item.value("order")
        for i, metric in enumerate(self.order):
            if metric not in METRICS:
                raise item.refusal(f"order[{i}]", "unknown or repeated metric", value=metric,
                                   allowed="each once of " + ", ".join(METRICS))


@dataclass(frozen=True, slots=True)
class Rules(Record):
    """Limits that every placement keeps.

    Attributes
    ----------
    latency_share_of_slo
        A batch may take this share of the SLO; 0.5 leaves as much time for gathering it.
    variants_per_worker
        Maximum number of variants that share a worker, 1 or 2.
    interference
        Factor >= 1 on the latencies of variants that share a worker.
    max_workers
        Maximum number of workers in use.
    max_cost_per_hour
        Maximum of their cost per hour.
    in_time_quantile
        Quantile of the response times, in (0, 1), that has to be within the SLO under Poisson
        arrivals, instead of ``latency_share_of_slo``; ``None`` leaves queueing out.
    headroom
        With ``in_time_quantile``: share by which latencies may be longer than listed.
    """

    latency_share_of_slo: Annotated[float, ABOVE_ZERO] = 0.5
    variants_per_worker: Annotated[int, Whole(1, 2)] = 1
    interference: Annotated[float, at_least(1)] = 1.0
    max_workers: int | None = None
    max_cost_per_hour: NonNegative | None = None
    in_time_quantile: Annotated[float, INNER] | None = None
    headroom: NonNegative = 0.05


@dataclass(frozen=True, slots=True)
class Colocation(Record):
    """A rule about what may share a worker, or where a family may run.

    Attributes
    ----------
    kind
        ``apart``: no two of ``members`` on one worker. ``alone``: members share a worker
        with no other variant.
        ``only-on``: members only on ``worker_types``. ``slow-down``: where any two of the
        members share a worker, their latencies grow by ``factor`` instead of
        ``rules.interference``.
    members
        Names of families or variants; a family stands for all its variants.
    worker_types
        For ``only-on``.
    factor
        For ``slow-down``, >= 1.
    """

    kind: Annotated[str, COLOCATIONS]
    members: tuple[str, ...]
    worker_types: tuple[str, ...] = ()
    factor: Annotated[float, at_least(1)] = 1.0

    @classmethod
    def from_fields(cls, item: Fields) -> Colocation:
        """The rule in an entry of ``colocation``, with what its kind needs."""
        more = {"only-on": ("worker_types",), "slow-down": ("factor",)}.get(
            item.text("kind", COLOCATIONS), ())
        item.only(("kind", "members", *more))
        rule = record_of(cls, item)
        for key in more:
            item.value(key)
        return rule

    def check(self, item: Fields) -> None:
        """Refuse a rule about two members that names one."""
        if self.kind in ("apart", "slow-down") and len(self.members) < 2:
            raise item.refusal("members", "too few members", value=list(self.members),
                               allowed="two or more")
