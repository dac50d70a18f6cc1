"""What each sample of service times does to a worker's violation rate.

The violation rate v of a table is a function of the laws F_i of the service times of its batches,
i being a batch size that is run on a model. Were a batch of group i to take l ms, it would have

    late_i(l) = Σ_s π(s)·E[requests of the batch with a slack below l | s]

late requests, and what follows would be worth w_i·h_l: π are the frequencies of the states per
request, w_i = Σ_s π(s)·phase(s), and h_l is made of the relative values of the policy's chain
where a late request counts 1 and every request costs v (:mod:`ramsis.worker.structured`). So

    J_i(l) = late_i(l) + w_i·h_l

less its mean under F_i is the *influence function* of v: the derivative of v when a part of F_i
moves to l. It has all that a long batch does: to its own requests, to those that wait for it, to
those that are dropped, and to what the table then decides. It takes one evaluation of the policy.

By the delta method, samples n_i that are drawn anew give v the variance Σ_i Var J_i / n_i. Batches
that are run as the same size rest on the same samples; their J_i are added first. One more sample
that is longer than those seen moves v by (J_i(l) − E J_i)/n_i: l is taken half as long again as
the SLO at least, and as the longest sample of any batch is against its mean. Beyond the longest
that was seen, and the SLO, J_i rises at least by what arrives meanwhile and is late.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.analysis.sampled import Evidence
from ramsis.profiles.sketch import hat_weights
from ramsis.worker.evaluation import evaluate_on_nodes, state_frequency
from ramsis.worker.modes import is_modulated
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.structured import StructuredMDP, build_structured
from ramsis.worker.waiting_slack import waiting_by_slack

__all__ = ["evidence_of"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_HARDLY = 1e-9  # of all queries: what serves fewer does not count
_BEYOND = 1.5  # SLOs that a sample which was not seen takes at least


class _Effect(NamedTuple):
    """What batches of n + 1 on a model do to the rate of late requests.

    Attributes
    ----------
    n : int
    by_time : ndarray, shape (G,)
        J by how long they take.
    all_late : float
        J where they are late for all, and else like the longest of these times.
    per_ms : float
        What arrives during them.
    """

    n: int
    by_time: FloatArray
    all_late: float
    per_ms: float

    def __add__(self, other: object) -> _Effect:
        """Of both, with the times of the first."""
        assert isinstance(other, _Effect)
        return _Effect(self.n, self.by_time + other.by_time, self.all_late + other.all_late,
                       self.per_ms + other.per_ms)

    def at(self, time_ms: float, grid: FloatArray, slo_ms: float) -> float:
        """J of a time that may be longer than the grid, and is longer than the SLO."""
        last = float(grid[-1])
        found = self.all_late if last < slo_ms else float(np.interp(time_ms, grid, self.by_time))
        return found + self.per_ms * max(time_ms - max(last, slo_ms), 0.0)


def evidence_of(
    problem: WorkerProblem, policy: IntArray, structured: StructuredMDP | None = None
) -> Evidence | None:
    """What a table's violation rate rests on; None where the number of samples is not known.

    Parameters
    ----------
    problem : WorkerProblem
        With random service times and maximal batching.
    policy : ndarray of int, shape (N, D+1)
    structured : StructuredMDP, optional
        Of the problem, where it is at hand.
    """
    assert problem.quantiles_ms is not None
    assert problem.samples is not None
    mdp, table = _structure(problem, policy, structured)
    mdp = replace(mdp, problem=mdp.problem.of_violations())
    found = evaluate_on_nodes(mdp, table)
    visits = state_frequency(mdp, found).frequency
    outcome = mdp.problem.outcome(table)
    grid = mdp.problem.services.latency_ms
    onward = mdp.passages.worth(found.onward_value)
    groups: dict[tuple[int, int], list[_Effect]] = {}
    for n in range(problem.max_queue):
        for model in np.unique(outcome.model[n][outcome.service[n] >= 0]).tolist():
            own = np.where((outcome.service[n] >= 0) & (outcome.model[n] == model), visits[n], 0.0)
            if own.sum() * (n + 1) <= _HARDLY:
                continue
            if problem.samples[model, n] == 0:
                return None
            late, all_late = _late(problem, n, own, grid)
            later = -(onward @ (own @ mdp.phase[n]))
            size = int(problem.latency.run_as[model, n])
            meanwhile = float(own.sum()) * problem.arrivals.rate_per_ms / problem.workers
            groups.setdefault((model, size), []).append(_Effect(
                n, late + later, all_late + float(later[-1]), meanwhile))
    return _of_groups(problem, groups, grid, -found.gain)


def _structure(
    problem: WorkerProblem, policy: IntArray, structured: StructuredMDP | None
) -> tuple[StructuredMDP, IntArray]:
    """The structured form and the table in its terms."""
    if not is_modulated(problem.arrivals):
        return structured or build_structured(problem), policy
    from ramsis.worker.modulated import build_modulated, repeat_modes

    return structured or build_modulated(problem, problem.arrivals), repeat_modes(policy)


def _late(
    problem: WorkerProblem, n: int, visits: FloatArray, grid: FloatArray
) -> tuple[FloatArray, float]:
    """Late requests of batches of n + 1 by how long these take, (G,), and all of them."""
    by_slack = visits.reshape(problem.bins + 1, -1).sum(axis=1)
    waiting = problem.once("waiting by slack", problem.max_queue,
                           lambda: waiting_by_slack(problem, problem.max_queue))
    requests = by_slack + by_slack @ waiting[n]
    below = np.searchsorted(problem.slack_ms, grid, side="left")
    upto = np.append(0.0, np.cumsum(requests))
    return upto[below], float(upto[-1])


def _of_groups(
    problem: WorkerProblem, groups: dict[tuple[int, int], list[_Effect]], grid: FloatArray,
    rate: float,
) -> Evidence | None:
    """Variance and the weight of one more sample, of all groups together."""
    assert problem.quantiles_ms is not None
    assert problem.samples is not None
    weights, variance, weight = hat_weights(problem.quantile_levels), 0.0, 0.0
    listed = [(model, reduce(add, parts)) for (model, _), parts in groups.items()]
    times = [problem.quantiles_ms[model, effect.n] for model, effect in listed]
    longest = max((float(own[-1] / (own @ weights)) for own in times), default=1.0)
    for (model, effect), own in zip(listed, times, strict=True):
        samples = int(problem.samples[model, effect.n])
        each = np.interp(own, grid, effect.by_time)
        mean = float(each @ weights)
        variance += float((each - mean) ** 2 @ weights) / samples
        far = max(longest * float(own @ weights), _BEYOND * problem.slo_ms)
        weight = max(weight, (effect.at(far, grid, problem.slo_ms) - mean) / samples)
    return Evidence.of(rate, variance, weight) if listed else None
