"""Requests that are overdue at the end of a service are dropped, and what is left is counted."""

from dataclasses import replace

import numpy as np
import pytest

from ramsis.arrivals import NegativeBinomial, Poisson
from ramsis.mdp.stationary import stationary_distribution
from ramsis.worker.explicit import build_explicit
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.structure import build_structured
from ramsis.worker.structure.evaluation import evaluate_on_nodes, state_frequency
from tests.worker.problems import random_policy, small_problem


def with_outliers(late: str = "drop", **changes: object) -> WorkerProblem:
    """One service in five takes four times as long: up to 152 ms on the quick one, SLO 40 ms."""
    problem = small_problem(late=late, **changes)
    factor = np.append(np.linspace(0.9, 1.1, 80), np.full(20, 4.0))
    quantiles = problem.latency.latency_ms[:, :5, None] * factor
    return replace(problem, quantiles_ms=quantiles)


@pytest.mark.parametrize("nodes", ["quadrature", "exact"])
@pytest.mark.parametrize("workers", [1, 3])
def test_as_many_are_dropped_as_came_too_early(nodes, workers):
    problem = with_outliers(workers=workers)
    mdp = build_structured(problem, nodes)  # type: ignore[arg-type]
    late = np.flatnonzero(mdp.nodes.overdue)
    assert len(late)
    assert (mdp.nodes.remaining_ms[late] >= problem.slo_ms).all()
    count = np.arange(400)
    for i in late.tolist():
        lost = np.array([mdp.nodes.remaining_ms[i] - problem.slo_ms])
        chance = np.exp(problem.arrivals.log_pf(count, lost[:, None]))[0]
        dropped = 1 + (count + mdp.nodes.offset[i]) // workers
        assert mdp.overdue[i].sum() == pytest.approx(chance @ dropped, rel=1e-6)
    assert not mdp.overdue[: late[0]].any()
    np.testing.assert_allclose(mdp.onward(np.ones(len(mdp.reached[0]))), 1.0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["per-query", "per-decision"])
@pytest.mark.parametrize("arrivals", [Poisson(150.0), Poisson(60.0), NegativeBinomial(150.0, 3.0)],
                         ids=["busy", "calm", "in clumps"])
def test_the_chain_is_that_of_the_rows_written_out(arrivals, objective):
    problem = with_outliers(arrivals=arrivals, objective=objective, violation_price=0.5)
    explicit, mdp = build_explicit(problem), build_structured(problem, "exact")
    policy = random_policy(problem, 3)
    found = evaluate_on_nodes(mdp, policy, restart=0.0)
    pairs = explicit.mdp.pairs_of(explicit.labels(policy))
    law = stationary_distribution(explicit.mdp.transition[pairs]).distribution
    assert found.gain == pytest.approx(
        law @ explicit.mdp.reward[pairs] / (law @ explicit.mdp.costs[pairs]), abs=1e-9)
    visits, excess = state_frequency(mdp, found)
    expected = explicit.visits(law, pairs)
    np.testing.assert_allclose(visits / visits.sum(), expected / expected.sum(), atol=1e-9)
    assert excess / visits.sum() == pytest.approx(
        law @ explicit.excess[pairs] / expected.sum(), abs=1e-9)


def test_nothing_is_overdue_where_all_are_served():
    mdp = build_structured(with_outliers("serve"))
    assert mdp.overdue is None
    assert not mdp.nodes.overdue.any()


def simulated_share(problem: WorkerProblem, rounds: int, seed: int) -> float:
    """Share of the requests that are late or dropped, one worker, the quick model for all.

    A plain loop over services: the head is served with all that wait, unless it is overdue.
    """
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1.0 / problem.arrivals.rate_per_ms, rounds))
    quantiles, slo = problem.quantiles_ms[0], problem.slo_ms
    shortest, step = quantiles[:, 0], problem.slo_ms / problem.bins
    head, now, late = 0, 0.0, 0
    while head < rounds:
        now = max(now, arrival[head])
        queued = int(np.searchsorted(arrival, now, side="right")) - head
        rounded = np.floor((arrival[head] + slo - now) / step + 1e-9) * step
        if queued > problem.max_queue or rounded < shortest[queued - 1]:
            late, head = late + 1, head + 1
            continue
        end = now + rng.choice(quantiles[queued - 1])
        late += int((end > arrival[head : head + queued] + slo).sum())
        head, now = head + queued, end
    return late / rounds


def test_a_worker_that_is_simulated_drops_as_many():
    problem = with_outliers(workers=1, load_qps=40.0, grid="fixed:80")
    mdp = build_structured(problem)
    found = evaluate_on_nodes(mdp, problem.fastest_policy())
    visits = state_frequency(mdp, found).frequency
    outcome = problem.outcome(problem.fastest_policy())
    late = float((visits * (outcome.batch - outcome.in_time)).sum()
                 / (visits * outcome.batch).sum())
    assert late == pytest.approx(simulated_share(problem, 30_000, 5), abs=0.01)
