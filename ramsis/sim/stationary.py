"""Figures of a run while it is in its steady state, by the names of a policy's promise.

The figures are of a time window of the run: of the requests that arrive in it, of the batches and
drops in it, and of the busy time of workers in it. Means and quantiles are those of
:class:`ramsis.policy.Expectations`: of the batch size over the requests served, of queue length
and slack over the decisions (each batch and each drop is one), and of the response time over the
requests answered, late ones included.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ramsis.arrays import FloatArray, IntArray, fraction
from ramsis.compiling import uniform
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.sim import _window
from ramsis.sim.run import Run

_LEVELS = np.array([0.5, 0.95, 0.99])


def in_steady_state(
    run: Run, since_ms: float, until_ms: float, longest_queue: int
) -> Mapping[str, float]:
    """Return a run's figures in a time window; figures without observations are left out.

    The run is one of a compiled kernel, which records the queue at each decision. Queues longer
    than ``longest_queue``, the longest in the policy's table, count in ``full_queue_rate``. Of the
    names, ``batch_size.mean`` is the mean of ``batch_size``, ``model_share.NAME`` the share of a
    model, and so on.
    """
    counted = _window.count(*_terms(run, since_ms, until_ms))
    violations, effective = _rates(counted)
    figures = {"violation_rate": violations, "effective_accuracy": effective}
    if counted.in_time:
        figures["accuracy"] = fraction(counted.reward / counted.in_time)
    if counted.answered:
        p50, p95, p99 = _window.quantiles(counted.response, _LEVELS).tolist()
        figures |= {"response_mean_ms": counted.response_ms / counted.answered,
                    "response_p50_ms": p50, "response_p95_ms": p95, "response_p99_ms": p99}
    busy = counted.busy_ms / ((until_ms - since_ms) * run.workers)
    figures["utilisation"] = fraction(busy)
    if counted.sizes.any():
        sizes = np.arange(len(counted.sizes))
        figures |= _spread("batch_size", sizes, sizes * counted.sizes)
        served = counted.by_model / counted.by_model.sum()
        figures |= {f"model_share.{name}": share
                    for name, share in zip(run.models, served.tolist(), strict=True)}
    if decisions := int(counted.queues.sum()):
        figures |= _spread("queue_length", np.arange(len(counted.queues)), counted.queues)
        figures["full_queue_rate"] = float(counted.queues[longest_queue + 1:].sum() / decisions)
        p50, _, p99 = _window.quantiles(counted.slack, _LEVELS).tolist()
        figures |= {"slack_ms.mean": counted.slack_ms / decisions, "slack_ms.p50": p50,
                    "slack_ms.p99": p99}
        figures["per_decision.violation_rate"] = 1.0 - counted.met / decisions
        if counted.met:
            figures["per_decision.accuracy"] = fraction(counted.met_accuracy / counted.met)
    return figures


def rates(run: Run, since_ms: float, until_ms: float) -> tuple[float, float]:
    """Return violation rate and effective accuracy of a run in a time window."""
    return _rates(_window.count(*_terms(run, since_ms, until_ms)))


def earned(run: Run) -> FloatArray:
    """Return each request's accuracy if answered in time, else 0, as :attr:`Run.reward`."""
    return np.asarray(_window.earned(*_terms(run, -np.inf, np.inf)))


def _rates(counted: _window.Counted) -> tuple[float, float]:
    arrived = max(counted.arrived, 1)
    return 1.0 - counted.in_time / arrived, counted.reward / arrived


def _terms(
    run: Run, since_ms: float, until_ms: float
) -> tuple[_window.Decisions, _window.Window]:
    """Return a run and a window as the compiled loops take them."""
    assert run.queued is not None
    assert run.drop_queued is not None
    return (
        uniform(_window.Decisions(
            run.arrival_ms, run.batch_of, run.start_ms, run.finish_ms, run.model, run.size,
            run.queued, run.drop_request, run.drop_ms, run.drop_queued)),
        uniform(_window.Window(since_ms, until_ms, run.slo_ms, 2.0 * SLACK_TOLERANCE_MS,
                               run.accuracy)))


def _spread(name: str, values: IntArray, weight: IntArray) -> dict[str, float]:
    """Return mean, median and 99th percentile of weighted integers."""
    upto = np.cumsum(weight)
    p50, p99 = (float(values[np.searchsorted(upto, level * upto[-1])]) for level in (0.5, 0.99))
    return {f"{name}.mean": float(values @ weight / upto[-1]), f"{name}.p50": p50,
            f"{name}.p99": p99}
