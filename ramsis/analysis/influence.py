"""What each sample of service times does to a worker's violation rate.

The violation rate v of a table is a function of the laws F_i of the service times of its batches,
i being a batch size that is run on a model. Were a batch of group i to take l ms, it would have

    late_i(l) = Σ_s π(s)·E[requests of the batch with a slack below l | s]

late requests, and what follows would be worth w_i·h_l: π are the frequencies of the states per
request, w_i = Σ_s π(s)·phase(s), and h_l is made of the relative values of the policy's chain
where a late request counts 1 and every request costs v
(:mod:`ramsis.worker.structure.structured`). So

    J_i(l) = late_i(l) + w_i·h_l

less its mean under F_i is the *influence function* of v: the derivative of v when a part of F_i
moves to l. It has all that a long batch does: to its own requests, to those that wait for it, to
those that are dropped, and to what the table then decides. It takes one evaluation of the policy.

By the delta method, samples n_i that are drawn anew give v the variance Σ_i Var J_i / n_i. Batches
with the same law rest on the same samples; their J_i are added first. What samples
that were not seen would do is in :mod:`ramsis.analysis.sampled`. Beyond the longest time of any
batch J_i is taken to rise by the requests that are late then, and from the SLO on by what arrives
meanwhile and is late.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np

from ramsis.analysis.sampled import HARDLY, Effect, Evidence, evidence_of_effects
from ramsis.arrays import FloatArray, IntArray
from ramsis.profiles.sketch import hat_weights
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.problem.waiting_slack import waiting_by_slack
from ramsis.worker.structure import StructuredMDP, build_structured
from ramsis.worker.structure.evaluation import evaluate_on_nodes, state_frequency


def evidence_of(
    problem: WorkerProblem, policy: IntArray, structured: StructuredMDP | None = None
) -> Evidence | None:
    """Return the evidence behind a table's violation rate; None if sample sizes are unknown.

    Parameters
    ----------
    problem : WorkerProblem
        With random service times and maximal batching.
    policy : ndarray of int, shape (N, D+1)
    structured : StructuredMDP, optional
        Structured form of the problem, if already built.
    """
    assert problem.quantiles_ms is not None
    assert problem.samples is not None
    mdp = structured or build_structured(problem)
    mdp = replace(mdp, problem=mdp.problem.of_violations())
    evaluation = evaluate_on_nodes(mdp, policy)
    visits = state_frequency(mdp, evaluation).frequency
    outcome = mdp.problem.outcome(policy)
    grid = mdp.problem.services.latency_ms
    onward = mdp.passages.worth(evaluation.onward_value)
    times = np.unique(np.concatenate([grid, problem.slack_ms[problem.slack_ms > grid[-1]],
                                      [np.nextafter(problem.slo_ms, np.inf)]]))
    groups: dict[tuple[int, bytes], list[Effect]] = {}
    for n in range(problem.max_queue):
        for model in np.unique(outcome.model[n][outcome.service[n] >= 0]).tolist():
            starts = (outcome.service[n] >= 0) & (outcome.model[n] == model)
            runs = np.where(starts, visits[n], 0.0)
            if runs.sum() * (n + 1) <= HARDLY:
                continue
            if problem.samples[model, n] == 0:
                return None
            # J is the late requests of the batch itself, and those after it by relative values.
            later = -(onward @ (runs @ mdp.phase[n]))
            meanwhile = float(runs.sum()) * problem.arrivals.rate_per_ms / problem.workers
            quantiles_ms = problem.quantiles_ms[model, n]
            groups.setdefault((model, quantiles_ms.tobytes()), []).append(Effect(
                problem.latency.models[model], quantiles_ms,
                int(problem.samples[model, n]), times,
                _late(problem, n, runs, times) + np.interp(times, grid, later), meanwhile))
    weights = hat_weights(problem.quantile_levels)
    effects = [reduce(Effect.and_also, parts) for parts in groups.values()]
    return evidence_of_effects(-evaluation.gain, _variance(effects, weights), effects, weights,
                               problem.tails, problem.slo_ms)


def _variance(effects: list[Effect], weights: FloatArray) -> float:
    """Return the variance of the violation rate if all samples were drawn anew."""
    total = 0.0
    for effect in effects:
        late = effect.at(effect.quantiles_ms)
        total += float((late - float(late @ weights)) ** 2 @ weights) / effect.samples
    return total


def _late(
    problem: WorkerProblem, n: int, visits: FloatArray, times: FloatArray
) -> FloatArray:
    """Return the late requests of batches of n + 1, by each service time in ``times``, (G,)."""
    by_slack = visits.reshape(problem.bins + 1, -1).sum(axis=1)
    waiting = problem.once("waiting by slack", problem.max_queue,
                           lambda: waiting_by_slack(problem, problem.max_queue))
    requests = by_slack + by_slack @ waiting[n]
    below = np.searchsorted(problem.slack_ms, times, side="left")
    return np.append(0.0, np.cumsum(requests))[below]
