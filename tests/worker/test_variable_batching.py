"""Variable batching: the structured form is the explicit MDP, at the states that matter."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.arrivals import NegativeBinomial, Poisson
from ramsis.errors import InvalidValueError
from ramsis.mdp import value_iteration
from ramsis.profiles import LatencyTable
from ramsis.worker.explicit import build_explicit
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.problem.actions import Batching, LateRule
from ramsis.worker.problem.batch_arrivals import phase_distribution
from ramsis.worker.problem.partial_batch import (
    SERVICE_POINTS,
    bin_middles,
    service_points,
    waiting_in_partial_batch,
)
from ramsis.worker.problem.queue import RandomTimes
from ramsis.worker.solve import evaluate_table, policy_iteration, solve_worker
from ramsis.worker.solve.policy_iteration import evaluate_variable, solve_on_nodes, solve_variable
from ramsis.worker.structure import build_structured
from ramsis.worker.structure.evaluation import evaluate_on_nodes
from ramsis.worker.structure.variable_batching import build_variable
from tests.reference.partial_batch import at_least
from tests.worker.problems import TWO_MODELS, linear, small_problem, worker_problems

DRAWN = RandomTimes(TWO_MODELS.latency_ms[:, :, None] * np.linspace(0.7, 1.2, 6))
"""Drawn service times: the fixed ones, from 0.7 to 1.2 times as long."""
OUTLIERS = RandomTimes(TWO_MODELS.latency_ms[:, :, None] * np.array([0.9, 1.0, 1.1, 1.2, 4.0]))
"""One service in five takes four times as long: heads may be overdue when it ends."""
KINDS = [("serve", None), ("drop", None), ("serve", DRAWN), ("drop", OUTLIERS)]


def variable_problem(load_qps: float = 150.0, **changes: Any) -> WorkerProblem:
    return small_problem(load_qps, batching="variable", **changes)


@pytest.mark.parametrize(("late", "times"), KINDS)
@pytest.mark.parametrize(("load_qps", "gain"), [(60.0, 0.0), (500.0, 0.3)])
def test_a_backup_of_any_values_is_the_explicit_bellman_operator(load_qps, gain, late, times):
    problem = variable_problem(load_qps, late=late, times=times, violation_price=0.2)
    variable, explicit = build_variable(problem, "exact"), build_explicit(problem)
    value = np.random.default_rng(1).normal(size=len(variable.likely))
    backup = variable.backup(value, gain, problem.fastest_policy())
    every = value[variable.columns]
    flat = np.concatenate([[every[0, -1]], every[:-1].ravel(), every[-1, :1]])
    mdp = explicit.mdp
    best, rows = mdp.best(mdp.reward - gain * mdp.costs + mdp.transition @ flat)
    at = variable.whole.reached
    expected = explicit.by_queue_and_bin(best)
    np.testing.assert_allclose(backup.value[at], expected[at], rtol=0, atol=1e-9)
    listed = tuple(index[at[0] < problem.max_queue] for index in at)
    np.testing.assert_array_equal(backup.policy[listed], explicit.table(mdp.action[rows])[listed])


@pytest.mark.parametrize(("late", "times"), KINDS)
@pytest.mark.parametrize(("load_qps", "objective"), [(20.0, "per-query"), (400.0, "per-decision")])
def test_the_optimum_is_that_of_the_explicit_rows(load_qps, late, times, objective):
    problem = variable_problem(load_qps, late=late, times=times, objective=objective)
    solution = solve_variable(build_variable(problem, "exact"))
    assert solution.certificate.converged
    optimum = value_iteration(build_explicit(problem).mdp, tolerance=1e-10)
    assert solution.evaluation.gain == pytest.approx(optimum.gain, abs=2e-9)
    assert solution.certificate.upper_bound >= optimum.certificate.lower_bound - 2e-9
    problem.check_policy(solution.policy)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(problem=worker_problems(), late=st.sampled_from(list(LateRule)))
def test_variable_is_never_worse_than_maximal(problem, late):
    """Every policy of maximal batching is one of variable batching, of the same gain."""
    maximal = replace(problem, late=late)
    whole = solve_on_nodes(build_structured(maximal))
    mdp = build_variable(replace(maximal, batching=Batching.VARIABLE))
    same = evaluate_variable(mdp, whole.policy)
    assert same.gain == pytest.approx(whole.evaluation.gain, abs=1e-8)
    assert solve_variable(mdp).evaluation.gain >= whole.evaluation.gain - 1e-8


def test_whole_queues_are_met_as_often_as_with_maximal_batching():
    problem = variable_problem(300.0)
    maximal = replace(problem, batching=Batching.MAXIMAL)
    table = solve_on_nodes(build_structured(maximal)).policy
    visits, excess = evaluate_table(problem, table)
    other, beyond = evaluate_table(maximal, table)
    factor = other.sum() / visits.sum()
    np.testing.assert_allclose(visits * factor, other, rtol=0, atol=1e-10)
    assert excess * factor == pytest.approx(beyond, rel=1e-8)
    evaluation = evaluate_on_nodes(build_structured(maximal), table)
    assert evaluate_variable(build_variable(problem), table).gain == pytest.approx(
        evaluation.gain, abs=1e-10
    )


@pytest.mark.parametrize("workers", [1, 30])
def test_outliers_cost_the_same_with_either_batching(workers):
    """With many workers the chain is worked out over nodes, of which some are overdue."""
    problem = variable_problem(30.0 * workers, late="drop", times=OUTLIERS, workers=workers)
    maximal = replace(problem, batching=Batching.MAXIMAL)
    table = solve_on_nodes(build_structured(maximal)).policy
    variable = build_variable(problem)
    assert variable.whole.late is not None
    expected = evaluate_on_nodes(build_structured(maximal), table)
    assert evaluate_variable(variable, table).gain == pytest.approx(expected.gain, abs=1e-8)
    assert solve_variable(variable).evaluation.gain >= expected.gain - 1e-8


def test_parts_of_a_queue_bring_what_they_should():
    """One request of two in time with the better model is worth more than both with neither."""
    problem = variable_problem(100.0, grid="fixed:40")
    more = solve_worker(problem)
    less = solve_worker(replace(problem, batching=Batching.MAXIMAL))
    assert more.gain > less.gain + 0.001
    _, batch = problem.model_and_batch(more.policy)
    assert (batch < np.arange(1, 5)[:, None]).any()
    np.testing.assert_array_equal(
        problem.policy_of(*problem.model_and_batch(more.policy)), more.policy
    )


def test_drops_from_the_full_state_lead_to_states_that_nothing_else_leads_to():
    """More requests than the table has rows: dropping one by one ages the queue unevenly."""
    latency = LatencyTable.measured(["one"], [0.8], [linear(6.0, 3.0, 9)])
    problem = variable_problem(1600.0, latency=latency, slo_ms=100.0, workers=4, max_queue=8,
                               grid="fixed:20", late="drop")
    solution = solve_variable(build_variable(problem, "exact"))
    optimum = value_iteration(build_explicit(problem).mdp, tolerance=1e-10)
    assert solution.evaluation.gain == pytest.approx(optimum.gain, abs=1e-8)
    visits = solution.evaluation.frequency
    assert visits[-1, 0] > 1e-3 * visits.sum()


@pytest.mark.parametrize("load_qps", [40.0, 150.0, 400.0])
@pytest.mark.parametrize("late", ["serve", "drop"])
def test_values_without_a_matrix_lead_to_the_policy_of_exact_values(load_qps, late, monkeypatch):
    mdp = build_variable(variable_problem(load_qps, late=late))
    proven = solve_variable(mdp)
    exact = evaluate_variable(mdp, proven.policy)
    low, high = proven.certificate.lower_bound, proven.certificate.upper_bound
    assert low <= exact.gain <= high <= low + 4e-9
    other = solve_variable(mdp, initial=proven.policy)
    assert other.certificate.iterations == 1
    np.testing.assert_array_equal(other.policy, proven.policy)
    monkeypatch.setattr(policy_iteration, "_STEPS", 1)  # GMRES converges nowhere
    np.testing.assert_array_equal(solve_variable(mdp).policy, proven.policy)


def test_states_that_hardly_occur_are_decided_too():
    """A burst of requests at full slack is served in batches that are in time."""
    problem = variable_problem(20.0, workers=40)
    mdp = build_variable(problem)
    assert 3 * 11 + 9 not in mdp.likely
    policy = solve_variable(mdp).policy
    problem.check_policy(policy)
    assert (problem.in_time(policy)[3, 3:]).all()


def test_the_first_requests_of_a_longer_queue_stand_where_order_statistics_say():
    problem = variable_problem(150.0, grid="fixed:200")
    found = waiting_in_partial_batch(problem, phase_distribution(problem), 3)
    columns = problem.bins + 1
    for batch in (1, 2, 3):
        np.testing.assert_allclose(
            found[batch - 1][batch * columns : (problem.max_queue) * columns].sum(axis=1),
            batch - 1.0, rtol=0, atol=1e-12,
        )
    law = found[2][3 * columns : 4 * columns].toarray()
    slack, now = problem.slack_ms, bin_middles(problem)
    missing = phase_distribution(problem)[3]
    for j in (20, 60, 100):
        upto = [sum(weight * at_least(i * 3, 9 + phase, (edge - now[j]) / (40.0 - now[j]))
                    for phase, weight in enumerate(missing[j, ::-1].tolist()) for i in (1, 2))
                for edge in slack.tolist()]
        shared = (np.array(upto) + np.append(upto[1:], 2.0)) / 2.0
        np.testing.assert_allclose(np.cumsum(law[j])[1:-1], shared[1:-1], rtol=0, atol=1e-11)


def test_drawn_times_stand_as_quarters_of_the_same_mean():
    problem = variable_problem(times=DRAWN)
    latency_ms, weight = service_points(problem)
    assert latency_ms.shape == (len(problem.services.mean_ms), SERVICE_POINTS)
    np.testing.assert_allclose((latency_ms * weight).sum(axis=1), problem.services.mean_ms,
                               rtol=1e-9)
    assert (np.diff(latency_ms, axis=1) > 0.0).all()


@pytest.mark.parametrize("solver", ["value-iteration", "linear-program", "pymdptoolbox"])
def test_solvers_of_explicit_rows_find_the_same(solver):
    problem = variable_problem(200.0)
    assert solve_worker(problem, solver).gain == pytest.approx(
        solve_worker(problem).gain, abs=1e-6
    )


@pytest.mark.parametrize(("limit", "said"), [
    ("ramsis.worker.problem.partial_batch.MAX_ENTRIES", "batches of part of a queue"),
    ("ramsis.worker.structure.variable_batching.MAX_LIKELY", "likely states")
])
def test_problems_that_would_fill_the_memory_are_refused(limit, said, monkeypatch):
    monkeypatch.setattr(limit, 20)
    with pytest.raises(InvalidValueError, match=rf"too large for variable batching: .*{said}"):
        build_variable(variable_problem())


def test_other_arrivals_are_refused():
    with pytest.raises(InvalidValueError, match=r"^batching: .*Poisson arrivals only"):
        variable_problem(arrivals=NegativeBinomial(150.0, 4.0))
    assert variable_problem(arrivals=Poisson(150.0)).batching is Batching.VARIABLE
