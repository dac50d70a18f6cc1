"""Objective, limits on every placement, and co-location rules."""

from __future__ import annotations

from dataclasses import dataclass

from ramsis.runtime.fields import NON_NEGATIVE, Fields, Rule
from ramsis.runtime.records import default, names, texts

__all__ = ["COLOCATIONS", "KINDS", "METRICS", "Colocation", "PlacementObjective", "Rules"]

KINDS = ("effective-accuracy", "cheapest", "fewest-workers", "lexicographic", "max-min", "pareto")
"""Kinds of objective."""
METRICS = ("served", "effective-accuracy", "worst-family", "cost", "workers", "moving")
"""What a lexicographic objective can order: three to maximise, three to minimise."""
COLOCATIONS = ("apart", "alone", "only-on", "slow-down")
"""Kinds of co-location rules."""

_SHARE = Rule("a fraction in (0, 1]", lambda value: 0 < value <= 1)
_QUANTILE = Rule("a fraction in (0, 1)", lambda value: 0 < value < 1)
_FACTOR = Rule("a finite number >= 1", lambda value: value >= 1)


@dataclass(frozen=True, slots=True)
class PlacementObjective:
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

    kind: str = "effective-accuracy"
    unserved_penalty: float = 0.0
    moving_price: float = 0.0
    cost_price: float = 0.0
    order: tuple[str, ...] = ()
    points: int = 10

    @classmethod
    def from_fields(cls, item: Fields) -> PlacementObjective:
        """The object ``objective``, with the parameters that its kind knows."""
        kind = item.text("kind", KINDS)
        known = {"effective-accuracy": ("unserved_penalty", "cost_price"), "cheapest": (),
                 "fewest-workers": (),
                 "lexicographic": ("unserved_penalty", "order"),
                 "max-min": ("unserved_penalty",), "pareto": ("unserved_penalty", "points")}
        item.only(("kind", "moving_price", *known[kind]))
        order = texts(item, "order") if kind == "lexicographic" else ()
        for i, metric in enumerate(order):
            if metric not in METRICS or metric in order[:i]:
                raise item.refusal(f"order[{i}]", "unknown or repeated metric", value=metric,
                                   allowed="each once of " + ", ".join(METRICS))
        penalty, moving, cost = (default(item.number_or_none(name, NON_NEGATIVE), 0.0)
                                 for name in ("unserved_penalty", "moving_price", "cost_price"))
        points = item.whole("points", 2, 1000) if "points" in item else 10
        return cls(kind, penalty, moving, cost, order, points)


@dataclass(frozen=True, slots=True)
class Rules:
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

    latency_share_of_slo: float = 0.5
    variants_per_worker: int = 1
    interference: float = 1.0
    max_workers: int | None = None
    max_cost_per_hour: float | None = None
    in_time_quantile: float | None = None
    headroom: float = 0.05

    @classmethod
    def from_fields(cls, item: Fields) -> Rules:
        """The object ``rules``."""
        item.only(names(cls))
        several = "variants_per_worker" in item
        return cls(
            default(item.number_or_none("latency_share_of_slo", _SHARE), 0.5),
            item.whole("variants_per_worker", 1, 2) if several else 1,
            default(item.number_or_none("interference", _FACTOR), 1.0),
            item.whole_or_none("max_workers", 0),
            item.number_or_none("max_cost_per_hour", NON_NEGATIVE),
            item.number_or_none("in_time_quantile", _QUANTILE),
            default(item.number_or_none("headroom", NON_NEGATIVE), 0.05),
        )


@dataclass(frozen=True, slots=True)
class Colocation:
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

    kind: str
    members: tuple[str, ...]
    worker_types: tuple[str, ...] = ()
    factor: float = 1.0

    @classmethod
    def from_fields(cls, item: Fields) -> Colocation:
        """The rule in an entry of ``colocation``."""
        kind = item.text("kind", COLOCATIONS)
        more = {"only-on": ("worker_types",), "slow-down": ("factor",)}.get(kind, ())
        item.only(("kind", "members", *more))
        members = texts(item, "members")
        if kind in ("apart", "slow-down") and len(members) < 2:
            raise item.refusal("members", "too few members", value=list(members),
                               allowed="two or more")
        return cls(kind, members, texts(item, "worker_types") if kind == "only-on" else (),
                   item.number("factor", _FACTOR) if kind == "slow-down" else 1.0)
