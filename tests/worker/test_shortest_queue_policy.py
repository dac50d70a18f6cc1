"""Policies under shortest-queue dispatch, and the arrival rates that they bring about."""

from __future__ import annotations

import numpy as np
import pytest

from ramsis.analysis import analyse_worker
from ramsis.errors import InvalidValueError
from ramsis.mdp.evaluation import evaluate_policy
from ramsis.worker.policy_iteration import solve_on_nodes
from ramsis.worker.shortest_queue import arrival_rates, build_shortest_queue
from ramsis.worker.shortest_queue_policy import solve_shortest_queue
from ramsis.worker.shortest_queue_rates import equilibrium_rates
from ramsis.worker.solve import SOLVERS, evaluate_table, solve_worker
from ramsis.worker.structured import build_structured
from tests.worker.problems import random_policy, small_problem


@pytest.mark.parametrize("objective", ["per-query", "per-decision"])
@pytest.mark.parametrize("grid", ["fixed:40", "model"])
def test_for_one_worker_both_ways_of_dispatch_are_the_same(grid: str, objective: str) -> None:
    problem = small_problem(40.0, workers=1, grid=grid, objective=objective)
    one, other = solve_shortest_queue(problem), solve_worker(problem)
    assert one.gain == pytest.approx(other.gain, abs=2e-5)
    assert one.policy.tolist() == other.policy.tolist()
    mine, theirs = (analyse_worker(problem, s.policy, s.frequency, s.excess) for s in (one, other))
    assert mine.decisions == pytest.approx(theirs.decisions, abs=2e-4)
    assert mine.queries_per_decision == pytest.approx(theirs.queries_per_decision, abs=1e-4)
    assert one.certificate.gap < 1e-9


@pytest.mark.parametrize("load_qps", [1.0, 100.0, 240.0, 300.0])
def test_settled_rates_are_those_that_the_stay_brings_about(load_qps: float) -> None:
    problem = small_problem(load_qps, workers=4)
    settled = equilibrium_rates(problem, random_policy(problem, 1))
    rates, stay = settled.model.rates_per_ms, settled.occupancy
    assert arrival_rates(problem, stay) == pytest.approx(rates, rel=1e-5)
    assert stay @ rates == pytest.approx(load_qps / 4000.0, rel=1e-5)
    served = settled.frequency.sum(axis=1) @ np.arange(1, 6) + settled.excess
    time_ms = (settled.service_frequency @ settled.model.sojourn_ms).sum()
    turned_away = rates[-1] * stay[-1]
    assert served / time_ms == pytest.approx(load_qps / 4000.0 - turned_away, rel=1e-5)


@pytest.mark.parametrize("load_qps", [60.0, 200.0, 300.0])
def test_no_policy_of_one_worker_beats_the_upper_bound(load_qps: float) -> None:
    problem = small_problem(load_qps, workers=4)
    found = solve_shortest_queue(problem)
    settled = equilibrium_rates(problem, found.policy)
    assert settled.gain == pytest.approx(found.gain, abs=1e-9)
    others = [random_policy(problem, seed) for seed in range(20)]
    for table in [found.policy, problem.fastest_policy(), *others]:
        model = build_shortest_queue(problem, settled.model.rates_per_ms, table, full=True)
        gain = evaluate_policy(model.mdp, model.labels(table)).gain
        assert gain is not None
        assert gain <= found.certificate.upper_bound + 1e-7
        if table is found.policy:
            assert gain == pytest.approx(found.gain, abs=1e-9)


@pytest.mark.parametrize("load_qps", [60.0, 200.0, 300.0])
def test_the_policy_is_no_worse_than_that_for_round_robin(load_qps: float) -> None:
    problem = small_problem(load_qps, workers=4)
    in_turn = solve_on_nodes(build_structured(problem)).policy
    assert solve_shortest_queue(problem).gain >= equilibrium_rates(problem, in_turn).gain - 1e-9


def test_every_solver_finds_the_same() -> None:
    problem = small_problem(100.0, grid="fixed:4", max_queue=3)
    gains = [solve_shortest_queue(problem, solver).gain for solver in SOLVERS]
    assert gains == pytest.approx([gains[0]] * len(gains), abs=1e-7)


def test_overload_is_answered_too() -> None:
    problem = small_problem(5000.0)
    found = solve_shortest_queue(problem)
    analysis = analyse_worker(problem, found.policy, found.frequency, found.excess)
    assert analysis.violation_rate > 0.99
    assert found.certificate.truncated_mass > 0.1


def test_a_table_is_evaluated_by_its_dispatch() -> None:
    problem = small_problem(200.0)
    table = random_policy(problem, 3)
    for dispatch in ("round-robin", "shortest-queue"):
        visits, excess = evaluate_table(problem, table, dispatch)
        assert visits.shape == (5, 11)
        assert excess >= 0.0
    with pytest.raises(InvalidValueError, match="not admissible"):
        equilibrium_rates(problem, np.ones_like(table))
