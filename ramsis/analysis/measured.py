"""Replacement of a promise's figures by measured ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ramsis.analysis.sampled import Evidence, at_confidence
from ramsis.analysis.worker import OVERLOAD_VIOLATION_RATE
from ramsis.arrays import ratio
from ramsis.policy import Expectations, PerDecision, Spread
from ramsis.policy.records import Simulated


def as_measured(
    expected: Expectations, figures: Mapping[str, float], load_qps: float, simulated: Simulated
) -> Expectations:
    """Return a promise with measured figures and their interval.

    Parameters
    ----------
    expected : Expectations
        Its capacity, bound and evidence stay. A simulation can pass the bound by chance,
        and have fewer violations than the load is beyond the capacity; neither is stated.
    figures : mapping of str to float
        All of :func:`ramsis.sim.stationary.in_steady_state`, except those without observations
        where no request is answered. Those that grow without end are infinite.
    simulated : Simulated
        The simulation, whose half-widths are in the interval.
    """
    violations, capacity_qps = figures["violation_rate"], expected.capacity_qps
    effective = figures["effective_accuracy"]
    if capacity_qps is not None and violations < 1.0 - capacity_qps / load_qps:
        violations = 1.0 - capacity_qps / load_qps
        effective = figures.get("accuracy", 0.0) * (1.0 - violations)
    in_time = 1.0 - violations
    effective = min(effective, in_time)
    if expected.upper_bound is not None:
        effective = min(effective, expected.upper_bound)
    above = capacity_qps is not None and load_qps > capacity_qps
    grows = math.isinf(figures.get("queue_length.mean", 0.0))
    measured = replace(
        expected,
        accuracy=ratio(effective, in_time),
        violation_rate=violations,
        effective_accuracy=effective,
        per_decision=PerDecision(figures.get("per_decision.accuracy"),
                                 figures.get("per_decision.violation_rate", violations)),
        batch_size=_spread(figures, "batch_size") or expected.batch_size,
        queue_length=(None if grows else
                      _spread(figures, "queue_length") or expected.queue_length),
        slack_ms=None if grows else _spread(figures, "slack_ms") or expected.slack_ms,
        model_share=_shares(figures) or expected.model_share,
        utilisation=figures["utilisation"],
        full_queue_rate=figures.get("full_queue_rate", 0.0),
        overloaded=above or violations > OVERLOAD_VIOLATION_RATE,
        response_mean_ms=figures.get("response_mean_ms"),
        response_p50_ms=figures.get("response_p50_ms"),
        response_p95_ms=figures.get("response_p95_ms"),
        response_p99_ms=figures.get("response_p99_ms"))
    interval = expected.interval
    if interval is None:
        return measured
    evidence = Evidence.behind(interval)._replace(
        violation_error=simulated.violation_half_width,
        effective_error=simulated.effective_half_width)
    return at_confidence(measured, evidence, interval.confidence)


def _spread(figures: Mapping[str, float], name: str) -> Spread | None:
    """Return measured mean, median and 99th percentile of a figure, if there are any."""
    if f"{name}.mean" not in figures:
        return None
    return Spread(*(figures[f"{name}.{part}"] for part in ("mean", "p50", "p99")))


def _shares(figures: Mapping[str, float]) -> dict[str, float]:
    """Return the shares of the models that serve any request; they sum to 1."""
    prefix = "model_share."
    served = {name.removeprefix(prefix): share for name, share in figures.items()
              if name.startswith(prefix) and share > 0.0}
    total = sum(served.values())
    return {name: min(share / total, 1.0) for name, share in served.items()}
