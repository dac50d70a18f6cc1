"""Expectations of a worker policy under its stationary distribution (EuroSys '24, §5.1).

With π(s) the stationary frequency of decisions in state s = (n, T_j), model m(s), q(s) the
requests that are served or dropped there (in the full state all that it holds), and t(s) the
expected number of them that are in time,

    violation rate      = Σ π·(q − t) / Σ π·q             per request,
    accuracy            = Σ π·t·accuracy(m) / Σ π·t,
    effective accuracy  = accuracy·(1 − violation rate),

and the same with q = 1 per decision, as the paper weighs. A decision is in time when the earliest
deadline is met at the rounded slack. Where service times are fixed and the late rule is ``serve``,
a batch that is late for its first request counts every request as late.

What is exact and what is not: these are exact expectations of the decision problem. The problem
rounds slack down, and may count a batch as late with its first request, which makes the promise
pessimistic: by 0.0003 to 0.001 of effective accuracy at D = 100 well below capacity, by much more
near it, where a little slack decides. Above capacity the promise may be optimistic, since the full
state serves all its requests at once. These differences are biases, which no number of samples
removes.

The violation rate v of a table is a function of the laws F_i of the service times of its batches,
where i is a batch size on a model. If all its batches took l ms, then, per request,

    late_i(l) = Σ_s π(s)·E[requests of the batch with a slack below l | s]

of the requests in such batches would be late, and what follows the batches would be worth w_i·h_l.
Here π are the frequencies per request of the states in which they run, w_i = Σ_s π(s)·phase(s)
weighs the phases of arrivals, and h_l has the relative values, after l ms, of the policy's chain
in which a late request counts 1 and every request costs v
(:mod:`ramsis.worker.structure.structured`). So

    J_i(l) = late_i(l) + w_i·h_l

less its mean under F_i is the *influence function* of v: the derivative of v when a part of F_i
moves to l. It contains all effects of a long batch: on its own requests, on those that wait for it
or are dropped, and on the later decisions of the table. It takes one evaluation of the policy.

By the delta method, v has the variance Σ_i Var J_i / n_i if the n_i samples of each F_i are drawn
anew. Batches with the same law rest on the same samples; their J_i are added first. The effect of
samples that were not seen is in :mod:`ramsis.analysis.sampled`. Beyond the longest time of any
batch, J_i is taken to rise by the requests of the batch that become late, and from the SLO on also
by those that arrive meanwhile and are late.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import numpy as np

from ramsis.analysis.sampled import (
    HARDLY,
    Effect,
    Evidence,
    Started,
    accuracy_error,
    at_confidence,
    evidence_of_effects,
    evidence_of_groups,
)
from ramsis.arrays import FloatArray, IntArray, fraction, ratio
from ramsis.cluster.service_times import DISTRIBUTION, ServiceTimes
from ramsis.policy import Expectations, PerDecision, Spread
from ramsis.profiles.sketch import hat_weights
from ramsis.reprs import dataclass
from ramsis.worker.problem import Objective, WorkerProblem
from ramsis.worker.problem.actions import Outcome
from ramsis.worker.problem.waiting_slack import waiting_by_slack
from ramsis.worker.solve.rounds import evaluate_policy
from ramsis.worker.structure import StructuredMDP, build_structured
from ramsis.worker.structure.evaluation import state_frequency

if TYPE_CHECKING:
    import pandas as pd

OVERLOAD_VIOLATION_RATE = 0.1
"""A policy whose violation rate passes this is called overloaded."""


@dataclass(frozen=True, eq=False)
class WorkerAnalysis:
    """Stationary behaviour of a worker policy."""

    problem: WorkerProblem
    policy: IntArray  # shape (N, D+1)
    # Shares of the decisions taken, and of the requests served, in each state, each adding up to
    # 1; shape (N+1, D+1). The last row is the full state, at bin 0.
    decisions: FloatArray
    queries: FloatArray
    queries_per_decision: float
    structured: StructuredMDP | None = None  # form of the problem, where it is at hand

    @cached_property
    def _outcome(self) -> Outcome:
        """Return the outcome of the policy in each state."""
        return self.problem.outcome(self.policy)

    @cached_property
    def _in_time(self) -> FloatArray:
        """Share of each state's requests that is in time; shape (N+1, D+1)."""
        share: FloatArray = self._outcome.in_time / self._outcome.batch
        return share

    @cached_property
    def _accuracy(self) -> FloatArray:
        """Accuracy of the model of each state; shape (N+1, D+1)."""
        accuracy: FloatArray = self.problem.latency.accuracy[self._outcome.model]
        return accuracy

    @property
    def violation_rate(self) -> float:
        """Share of the requests that are late or dropped, in [0, 1]."""
        return fraction((self.queries * (1.0 - self._in_time)).sum())

    @property
    def effective_accuracy(self) -> float:
        """Accuracy summed over the requests in time, over all requests."""
        return fraction((self.queries * self._in_time * self._accuracy).sum())

    @property
    def accuracy(self) -> float | None:
        """Mean accuracy of the requests in time; None when there is none."""
        return ratio(self.effective_accuracy, float((self.queries * self._in_time).sum()))

    @property
    def per_decision(self) -> PerDecision:
        """Figures per decision (the paper's): each counts once, whatever its batch size."""
        met = self.decisions * self._outcome.head_in_time
        in_time = float(met.sum())
        earned = float((met * self._accuracy).sum())
        return PerDecision(ratio(earned, in_time), fraction(self.decisions.sum() - in_time))

    @property
    def gain(self) -> float:
        """Return the gain of the objective: reward less the costs of violations and delays."""
        price = self.problem.violation_price
        if self.problem.objective is Objective.PER_QUERY:
            delay_cost = float((self.decisions * self.problem.delay_cost(self._outcome)).sum())
            return (self.effective_accuracy - price * self.violation_rate
                    - delay_cost / self.queries_per_decision)
        found = self.per_decision
        earned = (found.accuracy or 0.0) * (1.0 - found.violation_rate)
        return earned - price * found.violation_rate

    @property
    def model_share(self) -> dict[str, float]:
        """Each model's share of the served requests; models that serve none are left out."""
        served = self._outcome.service >= 0
        share = np.bincount(
            self._outcome.model[served], weights=self.queries[served],
            minlength=len(self.problem.latency.models),
        )
        if not served.all():
            share = share / share.sum()
        names = self.problem.latency.models
        return {m: fraction(s) for m, s in zip(names, share, strict=True) if s > 0}

    @property
    def utilisation(self) -> float:
        """Share of the time that a worker is busy, at the latencies of the profile."""
        service_ms = np.append(self.problem.services.mean_ms, 0.0)  # the last of drops
        busy_ms = float((self.decisions * service_ms[self._outcome.service]).sum())
        cycle_ms = self.queries_per_decision * self.problem.workers
        return fraction(busy_ms * self.problem.arrivals.rate_per_ms / cycle_ms)

    @property
    def full_queue_rate(self) -> float:
        """Share of the decisions that are taken in the full state."""
        return fraction(self.decisions[-1].sum())

    def distributions(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Return values and probabilities of the batch size, queue length and slack.

        The batch size is that of a query's batch (per request); queue length and slack in ms are
        those found at a decision (per decision; a drop is one). The full state counts as N + 1.
        """
        queued = np.arange(1.0, self.problem.max_queue + 2)
        served = self._outcome.service >= 0
        by_size = np.bincount(self._outcome.batch[served] - 1, weights=self.queries[served],
                              minlength=len(queued))
        return {
            "batch_size": (queued, by_size / by_size.sum()),
            "queue_length": (queued, self.decisions.sum(axis=1)),
            "slack_ms": (self.problem.slack_ms, self.decisions.sum(axis=0)),
        }

    def to_frame(self) -> pd.DataFrame:
        """Return distributions and model shares in long form: quantity, value, probability."""
        import pandas as pd

        rows = [
            (name, value, probability)
            for name, (values, probabilities) in self.distributions().items()
            for value, probability in zip(values.tolist(), probabilities.tolist(), strict=True)
        ]
        rows += [("model", name, share) for name, share in self.model_share.items()]
        return pd.DataFrame(rows, columns=["quantity", "value", "probability"])

    def evidence(self) -> Evidence | None:
        """Return the evidence behind the promise; None if sample sizes are unknown."""
        if self.problem.batching.partial:
            return self._evidence_of_groups()
        return evidence_of(self.problem, self.policy, self.structured)

    def _evidence_of_groups(self) -> Evidence | None:
        """Return the evidence by groups of samples, where batches may leave some of the queue.

        A group is the samples of one model and batch size. A batch that takes longer than the SLO
        also makes requests late that arrive meanwhile. A late request whose slack is below the SLO
        has waited for an earlier batch, and is late by the time of that batch as much as by that
        of its own. The earlier batch is taken to be of the same group: the error of its samples
        then enters twice with full correlation, hence four times the variance.
        """
        problem, outcome = self.problem, self._outcome
        if problem.quantiles_ms is None or problem.samples is None:
            return None
        n, j = np.nonzero(outcome.service >= 0)
        model, batch = outcome.model[n, j], outcome.batch[n, j]
        by_slack = np.zeros((*problem.samples.shape, problem.bins + 1))
        late, waited = np.zeros((2, *problem.samples.shape))
        is_late = (self.queries * (1.0 - self._in_time))[n, j]
        np.add.at(by_slack, (model, batch - 1, j), self.queries[n, j])
        np.add.at(late, (model, batch - 1), is_late)
        np.add.at(waited, (model, batch - 1), is_late * (j < problem.bins))
        per_query = problem.arrivals.rate_per_ms / problem.workers
        # The factor on the variance: 4 if all late requests of a group waited, 1 if none did.
        variance_factor = (1.0 + _shares(waited, late)) ** 2
        started = [
            Started(model=problem.latency.models[m], quantiles_ms=problem.quantiles_ms[m, b],
                    samples=int(problem.samples[m, b]), queries=by_slack[m, b],
                    late=float(late[m, b]),
                    per_ms=per_query * float(by_slack[m, b].sum()) / (b + 1.0),
                    more=float(variance_factor[m, b]))
            for m, b in np.argwhere(by_slack.sum(axis=2) > 0.0).tolist()]
        return _with_accuracy_error(problem, evidence_of_groups(
            started, problem.slack_ms, hat_weights(problem.quantile_levels), problem.tails,
            problem.slo_ms))

    def expectations(
        self, *, capacity_qps: float | None = None, upper_bound: float | None = None
    ) -> Expectations:
        """Return the expectations for a policy file."""
        rate_per_ms = self.problem.arrivals.rate_per_ms
        above = capacity_qps is not None and rate_per_ms > capacity_qps / 1000.0
        violation_rate = self.violation_rate
        spread = {name: _spread(*law) for name, law in self.distributions().items()}
        expected = Expectations(
            accuracy=self.accuracy,
            violation_rate=violation_rate,
            effective_accuracy=self.effective_accuracy,
            per_decision=self.per_decision,
            batch_size=spread["batch_size"],
            queue_length=spread["queue_length"],
            slack_ms=spread["slack_ms"],
            model_share=self.model_share,
            utilisation=self.utilisation,
            full_queue_rate=self.full_queue_rate,
            overloaded=above or violation_rate > OVERLOAD_VIOLATION_RATE,
            capacity_qps=capacity_qps,
            upper_bound=upper_bound,
        )
        return at_confidence(expected, self.evidence())


def analyse_worker(
    problem: WorkerProblem, policy: IntArray, visits: FloatArray, excess: float,
    structured: StructuredMDP | None = None,
) -> WorkerAnalysis:
    """Analyse the stationary behaviour of a policy.

    Parameters
    ----------
    policy : ndarray of int, shape (N, D+1)
    visits : ndarray, shape (N+1, D+1)
        Stationary frequency of each state up to a common factor; the full state last, at bin 0.
    excess : float
        Requests of the full state beyond N + 1, at the same factor.
    structured : StructuredMDP, optional
        Structured form of the problem, if already built: the evidence needs it.
    """
    served = visits * problem.outcome(policy).batch
    served[-1, 0] += excess
    return WorkerAnalysis(
        problem=problem,
        policy=policy,
        decisions=visits / visits.sum(),
        queries=served / served.sum(),
        queries_per_decision=float(served.sum() / visits.sum()),
        structured=structured,
    )


def _shares(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Return part / whole, 0 where the whole is 0."""
    return np.asarray(np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0))


def _spread(values: FloatArray, probabilities: FloatArray) -> Spread:
    """Return mean, median and 99th percentile of a discrete distribution."""
    upto = np.cumsum(probabilities)
    last = len(values) - 1
    p50, p99 = (
        float(values[min(last, int(np.searchsorted(upto, q * upto[-1] - 1e-12)))])
        for q in (0.5, 0.99)
    )
    return Spread(float(values @ probabilities / upto[-1]), p50, p99)


def evidence_of(
    problem: WorkerProblem, policy: IntArray, structured: StructuredMDP | None = None
) -> Evidence | None:
    """Return the evidence behind a table's violation rate; None if sample sizes are unknown.

    The problem has maximal batching; ``structured`` is its structured form, if already built.
    """
    if problem.quantiles_ms is None or problem.samples is None:
        return None
    # With late requests as the only cost, the gain is -v, and relative values count late requests.
    mdp = structured or build_structured(problem)
    mdp = replace(mdp, problem=mdp.problem.of_violations())
    evaluation = evaluate_policy(mdp, policy)
    visits = state_frequency(mdp, evaluation).frequency
    outcome = mdp.problem.outcome(policy)
    grid = mdp.problem.services.latency_ms
    onward = mdp.passages.worth(evaluation.onward_value)  # -h_l, by l on the grid and phase
    # Points between which J is linear: service times, longer slacks, and just beyond the SLO.
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
    return _with_accuracy_error(problem, evidence_of_effects(
        -evaluation.gain, _variance(effects, weights), effects, weights, problem.tails,
        problem.slo_ms))


def _with_accuracy_error(problem: WorkerProblem, evidence: Evidence | None) -> Evidence | None:
    """Return evidence with the error of effective accuracy by errors of mean service times."""
    if evidence is None:
        return None
    assert problem.quantiles_ms is not None
    assert problem.samples is not None
    batches = problem.max_queue
    times = ServiceTimes(
        problem.latency.models, problem.latency.accuracy, problem.quantiles_ms[:, :batches],
        DISTRIBUTION, problem.quantile_levels, problem.samples[:, :batches])
    return evidence._replace(accuracy_error=accuracy_error(
        times, slo_ms=problem.slo_ms, workers=problem.workers,
        load_qps=1000.0 * problem.arrivals.rate_per_ms))


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
    """Return how many requests of batches of n + 1 are late if they take ``times`` ms, (G,).

    That is late_i, per request served: ``visits`` are the frequencies of the batches' states.
    """
    by_slack = visits.reshape(problem.bins + 1, -1).sum(axis=1)
    waiting = problem.once("waiting by slack", problem.max_queue,
                           lambda: waiting_by_slack(problem, problem.max_queue))
    requests = by_slack + by_slack @ waiting[n]
    below = np.searchsorted(problem.slack_ms, times, side="left")
    return np.append(0.0, np.cumsum(requests))[below]
