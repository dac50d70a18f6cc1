"""Late rules and drawn service times: structured = explicit, and positions = order statistics."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betainc

from ramsis.arrivals import NegativeBinomial, Poisson
from ramsis.errors import InvalidValueError
from ramsis.mdp import policy_iteration
from ramsis.mdp.stationary import stationary_distribution
from ramsis.worker.explicit import build_explicit
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.problem.actions import DROP, LateRule
from ramsis.worker.problem.batch_arrivals import phase_distribution
from ramsis.worker.problem.waiting_slack import second_slack_distribution, waiting_by_slack
from ramsis.worker.solve import solve_worker
from ramsis.worker.solve.policy_iteration import solve_on_nodes
from ramsis.worker.structure import build_structured
from ramsis.worker.structure.evaluation import evaluate_on_nodes, state_frequency
from tests.slow import slow_after
from tests.worker.problems import random_policy, small_problem, worker_problems


def drawn(problem: WorkerProblem, spread: float = 0.5, count: int = 5) -> WorkerProblem:
    """The same with service times drawn around the latencies, the fastest model's below them."""
    factor = 1.0 + spread * (np.arange(count) - count // 2) / count
    quantiles = problem.latency.latency_ms[:, :, None] * factor
    return replace(problem, quantiles_ms=quantiles[:, : problem.max_queue + 1])


@st.composite
def generalised(draw: st.DrawFn) -> WorkerProblem:
    """Any small problem with any late rule, service times fixed or drawn, and any price."""
    problem = replace(draw(worker_problems()), late=draw(st.sampled_from(list(LateRule))),
                      violation_price=draw(st.sampled_from([0.0, 0.5])))
    return drawn(problem) if draw(st.booleans()) else problem


@settings(max_examples=20, deadline=None)
@given(problem=generalised(), seed=st.integers(0, 2**16))
def test_structured_gain_and_visits_are_those_of_the_explicit_chain(problem, seed):
    explicit, mdp = build_explicit(problem), build_structured(problem, "exact")
    policy = random_policy(problem, seed)
    found = evaluate_on_nodes(mdp, policy, restart=0.0)
    rows = explicit.mdp.pairs_of(explicit.labels(policy))
    empty = np.zeros(explicit.mdp.n_states)
    empty[0] = 1.0
    law = stationary_distribution(explicit.mdp.transition[rows], start=empty).distribution
    gain = float(law @ explicit.mdp.reward[rows]) / float(law @ explicit.mdp.costs[rows])
    assert found.gain == pytest.approx(gain, abs=1e-9)
    visits, excess = state_frequency(mdp, found)
    expected = explicit.visits(law, rows)
    np.testing.assert_allclose(visits / visits.sum(), expected / expected.sum(), atol=1e-9)
    beyond = float(law @ explicit.excess[rows]) / expected.sum()
    assert excess / visits.sum() == pytest.approx(beyond, abs=1e-9)


@settings(max_examples=15, deadline=None)
@given(problem=generalised())
def test_structured_finds_the_gain_that_the_general_solver_finds(problem):
    solution = solve_on_nodes(build_structured(problem, "exact"))
    problem.check_policy(solution.policy)
    best = policy_iteration(build_explicit(problem).mdp)
    assert solution.evaluation.gain == pytest.approx(best.gain, abs=1e-9)
    certificate = solution.certificate
    assert certificate.converged
    assert certificate.lower_bound - 1e-9 <= best.gain <= certificate.upper_bound + 1e-9


@settings(max_examples=15, deadline=None)
@given(problem=generalised())
def test_gauss_nodes_come_close_to_the_exact_ones(problem):
    policy = problem.fastest_policy()
    exact, fast = (evaluate_on_nodes(build_structured(problem, kind), policy).gain
                   for kind in ("exact", "quadrature"))  # type: ignore[arg-type]
    assert fast == pytest.approx(exact, abs=3e-4)


def test_one_quantile_repeated_is_a_fixed_time():
    """A latency on the grid of drawn times; counted one by one a batch in time is all in time."""
    fixed = small_problem(slo_ms=40.0)
    latency = fixed.latency
    rounded = replace(latency, latency_ms=np.round(latency.latency_ms / 0.2) * 0.2)
    fixed = small_problem(latency=rounded)
    twice = replace(fixed, quantiles_ms=np.repeat(rounded.latency_ms[:, :5, None], 2, axis=2))
    policy = random_policy(fixed, 3)
    one, two = (build_structured(p, "exact") for p in (fixed, twice))
    for n in range(4):
        law = [mdp.passage(mdp.problem.services.row[0, n + 1]) for mdp in (one, two)]
        np.testing.assert_allclose(law[0].idle, law[1].idle, atol=1e-12)
    good, all_good = (p.outcome(policy).in_time for p in (fixed, twice))
    in_time = fixed.in_time(policy)
    np.testing.assert_allclose(good[:-1][in_time], all_good[:-1][in_time], atol=1e-9)
    assert (all_good >= good - 1e-9).all()


@pytest.mark.parametrize("workers", [1, 3, 40])
def test_positions_are_order_statistics_of_poisson_arrivals(workers):
    """Given k arrivals the iK-th falls at a Beta(iK, k − iK + 1) share of the time."""
    problem = small_problem(workers=workers, load_qps=60.0 * workers)
    missing, slack = phase_distribution(problem), problem.slack_ms
    second = second_slack_distribution(problem, 4)
    later = waiting_by_slack(problem, 4)
    np.testing.assert_allclose(second.sum(axis=2)[1:], 1.0, atol=1e-9)
    np.testing.assert_allclose(later.sum(axis=2), np.arange(4.0)[:, None] * np.ones(11), atol=1e-8)
    for n, j in [(2, 0), (2, 5), (3, 2), (4, 0)]:
        count = np.arange((n - 1) * workers, n * workers)
        weight = missing[n - 1, j, ::-1]
        share = (slack[j:] - slack[j]) / (40.0 - slack[j])
        upto = [weight @ betainc(i * workers, count[:, None] - i * workers + 1.0, share)
                for i in range(1, n)]
        np.testing.assert_allclose(second[n - 1, j, j:-1], np.diff(upto[0]), atol=1e-9)
        between = np.diff(np.sum(upto, axis=0))
        np.testing.assert_allclose(later[n - 1, j, j], between[0] / 2, atol=1e-9)
        np.testing.assert_allclose(later[n - 1, j, -1], between[-1] / 2, atol=1e-9)


def test_positions_are_those_of_drawn_arrivals():
    problem = small_problem(400.0)
    rng, rounds, n, j = np.random.default_rng(5), 60_000, 3, 1
    waited = 40.0 - problem.slack_ms[j]
    count = rng.poisson(0.4 * waited, rounds)
    count = count[(count >= 6) & (count <= 8)]
    third = np.array([np.sort(rng.uniform(0.0, waited, k))[2] for k in count])
    bins = np.searchsorted(problem.slack_ms, problem.slack_ms[j] + third, side="right") - 1
    seen = np.bincount(bins, minlength=11) / len(bins)
    law = second_slack_distribution(problem, 4)[n - 1, j]
    error = np.sqrt(law * (1 - law) / len(bins))
    assert (np.abs(seen - law) <= 5 * error + 1e-4).all()


def test_in_clumps_some_come_with_the_earliest_request():
    problem = small_problem(arrivals=NegativeBinomial(300.0, 3.0))
    at = np.arange(9)  # before a slack of 36, where all that is left of the SLO is one bin
    together, alone = (second_slack_distribution(replace(problem, arrivals=process), 4)[1:]
                       for process in (problem.arrivals, Poisson(300.0)))
    np.testing.assert_allclose(together.sum(axis=2), 1.0, atol=1e-9)
    assert (together[0, at, at] > alone[0, at, at]).all()
    later = waiting_by_slack(problem, 4)
    np.testing.assert_allclose(later.sum(axis=2)[:, 0], np.arange(4.0), atol=1e-8)


def test_in_a_late_state_only_drops_are_left():
    problem = small_problem(late="drop")
    late = small_problem()
    policy = problem.fastest_policy()
    np.testing.assert_array_equal(policy == DROP, ~late.in_time(late.fastest_policy()))
    assert (problem.with_full_state(policy)[-1] == DROP).all()
    model, batch = problem.model_and_batch(policy)
    assert ((batch == 0) == (policy == DROP)).all()
    np.testing.assert_array_equal(problem.policy_of(model, batch), policy)


def test_a_price_lowers_the_gain_by_the_violations():
    for objective in ("per-query", "per-decision"):
        free = small_problem(400.0, objective=objective)
        priced = replace(free, violation_price=0.5)
        policy = random_policy(free, 1)
        cost = [evaluate_on_nodes(build_structured(p), policy) for p in (free, priced)]
        in_time = replace(free, latency=replace(free.latency, accuracy=np.ones(2)))
        good = evaluate_on_nodes(build_structured(in_time), policy).gain
        assert cost[0].gain - cost[1].gain == pytest.approx(0.5 * (1.0 - good), abs=1e-9)


@pytest.mark.parametrize(("load_qps", "price", "objective"), slow_after(2, [
    (20.0, 8.0, "per-query"), (600.0, 0.0, "per-decision"), (150.0, 8.0, "per-decision"),
    (2000.0, 0.0, "per-query"), (2000.0, 8.0, "per-query")]))
def test_value_iteration_on_explicit_rows_finds_the_same_with_drops(load_qps, price, objective):
    """But for the error of two quadrature nodes in a bin, which explicit rows do not have."""
    for workers in (1, 3):
        problem = small_problem(load_qps, late="drop", objective=objective, workers=workers,
                                violation_price=price, grid="fixed:3")
        by_nodes, by_rows = solve_worker(problem), solve_worker(problem, "value-iteration")
        assert by_rows.certificate.converged
        assert by_rows.gain == pytest.approx(by_nodes.gain, rel=1e-6, abs=1e-6)


def test_what_is_not_known_is_refused():
    with pytest.raises(InvalidValueError, match=r"^late: unknown late: got 'lose'"):
        small_problem(late="lose")
    for name in ("violation_price", "delay_price"):
        for price in (-1.0, math.nan, math.inf):
            with pytest.raises(InvalidValueError, match=f"^{name}: not a price"):
                small_problem(**{name: price})
