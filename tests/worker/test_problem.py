"""What a worker problem allows, earns and costs, and what it refuses."""

import math

import numpy as np
import pytest

from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.profiles import LatencyTable
from ramsis.worker.problem import Objective, WorkerProblem
from tests.arrivals.processes import Broken
from tests.worker.problems import TWO_MODELS, random_policy, small_problem


def starts(problem: WorkerProblem, queued: int) -> list[tuple[int, int, int]]:
    """Model, first bin and last bin of the choices with ``queued`` requests."""
    return sorted((c.model, c.first_bin, c.stop_bin - 1)
                  for c in problem.actions.by_queue[queued - 1])


def test_a_model_is_admissible_from_the_slack_that_equals_its_latency():
    """The grid 0, 4, 8, … holds 24 and 40, the latencies of (quick, 3) and (exact, 2)."""
    problem = small_problem()
    assert starts(problem, 3) == [(0, 0, 5), (0, 6, 10)]
    assert starts(problem, 2) == [(0, 0, 4), (0, 5, 10), (1, 10, 10)]


@pytest.mark.parametrize("slo_ms", [0.7, 47.3, 99.9, 115.103266])
def test_a_latency_equal_to_the_slo_is_in_time_at_full_slack(slo_ms):
    table = LatencyTable.measured(["only"], [0.9], [[slo_ms, 2 * slo_ms]])
    for grid in ("fixed:3", "fixed:6", "fixed:100", "model"):
        problem = small_problem(latency=table, slo_ms=slo_ms, grid=grid, max_queue=1)
        assert starts(problem, 1) == [(0, 0, problem.bins - 1), (0, problem.bins, problem.bins)]
        assert problem.in_time(problem.fastest_policy())[0].tolist()[-2:] == [False, True]


def test_choices_stand_fastest_first_and_leave_out_what_can_never_be_in_time():
    table = LatencyTable.measured(
        ["slow", "crossing", "quick"], [0.9, 0.7, 0.6],
        [[30.0, 41.0, 60.0], [15.0, 16.0, 17.0], [10.0, 20.0, 45.0]],
    )
    problem = small_problem(latency=table, max_queue=2)
    in_time = [[c.model for c in row if c.head_in_time.all()] for row in problem.actions.by_queue]
    assert in_time == [[2, 1, 0], [1, 2], []]


def test_nothing_is_in_time_without_slack_and_the_fastest_model_serves():
    problem = small_problem()
    policy = problem.fastest_policy()
    assert not problem.in_time(policy)[:, 0].any()
    assert (policy[:, 0] == problem.latency.fastest).all()
    assert all(c.first_bin >= 1 or c.head_in_time[0] == 0.0 for c in problem.actions.listed)


def test_the_fastest_policy_takes_the_least_latency_that_is_in_time():
    table = LatencyTable.measured(
        ["quick", "batcher"], [0.6, 0.5], [[10.0, 30.0, 50.0], [20.0, 21.0, 22.0]]
    )
    problem = small_problem(latency=table, max_queue=2)
    policy = problem.fastest_policy()
    assert policy[0].tolist() == [0] * 11
    assert policy[1].tolist() == [0] * 6 + [1] * 5  # late up to a slack of 20: the fastest
    assert problem.in_time(policy)[1].tolist() == [False] * 6 + [True] * 5


def test_late_batches_take_the_fastest_model_at_every_queue_length():
    problem = small_problem()
    late = [row[0] for row in problem.actions.by_queue]
    latencies = [problem.services.latency_ms[choice.service] for choice in late]
    assert latencies == [10.0, 17.0, 24.0, 30.0, 38.0]
    within = {10.0, 17.0, 24.0, 30.0, 22.0, 40.0}
    assert set(problem.services.latency_ms.tolist()) == within | {38.0}


@pytest.mark.parametrize(
    ("objective", "cost", "reward"), [("per-query", 3.0, 2.4), ("per-decision", 1.0, 0.8)]
)
def test_objectives_weigh_a_batch(objective, cost, reward):
    problem = small_problem(objective=objective)
    assert problem.objective is Objective(objective)
    assert problem.cost(3) == cost
    outcome = problem.outcome(problem.fastest_policy())
    earned, costs = problem.rewards_and_costs(outcome)
    assert earned[2, -1] == pytest.approx(0.75 * reward)
    assert (earned[2, 0], costs[2, 0], costs[2, -1]) == (0.0, cost, cost)


def test_slack_values_of_ones_own_are_taken_as_they_are():
    grid = np.array([0.0, 1.0, 39.5, 40.0])
    problem = small_problem(grid=grid)
    grid[1] = 2.0
    assert problem.slack_ms.tolist() == [0.0, 1.0, 39.5, 40.0]
    assert problem.bins == 3


@pytest.mark.parametrize("grid", [
    [0.0, 39.0], [0.0, 20.0, 20.0, 40.0], [1.0, 40.0], [0.0, 50.0, 40.0], [40.0], [],
    [0.0, math.nan, 40.0], [[0.0, 40.0]]
])
def test_slack_values_that_are_no_grid_are_refused(grid):
    with pytest.raises(InvalidValueError, match=r"^grid: not a slack grid"):
        small_problem(grid=np.array(grid))


@pytest.mark.parametrize("slo_ms", [math.nan, math.inf, 0.0, -40.0])
def test_no_grid_fits_an_slo_that_is_not_positive(slo_ms):
    for grid in ("fixed:10", np.array([0.0, slo_ms])):
        with pytest.raises(InvalidValueError):
            small_problem(slo_ms=slo_ms, grid=grid)


@pytest.mark.parametrize("name", ["workers", "max_queue"])
@pytest.mark.parametrize("value", [0, -1, 2.0, math.nan, True, "3", None])
def test_counts_must_be_positive_whole_numbers(name, value):
    says = rf"^(WorkerProblem\.create: )?{name}: .*whole number"
    with pytest.raises(InvalidValueError, match=says):
        small_problem(**{name: value})


def test_numpy_integers_are_whole_numbers():
    assert small_problem(workers=np.int64(2), max_queue=np.int32(3)).max_queue == 3


def test_the_table_must_reach_the_batch_of_the_full_state():
    small_problem(max_queue=TWO_MODELS.max_batch - 1)
    with pytest.raises(InvalidValueError, match=r"^latency: .*too short: got 5; .*= 6"):
        small_problem(max_queue=TWO_MODELS.max_batch)


def test_an_slo_below_every_latency_is_refused():
    assert starts(small_problem(slo_ms=10.0), 1) == [(0, 0, 9), (0, 10, 10)]
    with pytest.raises(InfeasibleError, match=r"^slo_ms: .*got 9.99; allowed: at least 10 ms"):
        small_problem(slo_ms=9.99)


def test_an_unknown_objective_is_refused():
    with pytest.raises(InvalidValueError, match=r"^objective: .*per-query or per-decision"):
        small_problem(objective="accuracy")


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_a_process_without_a_rate_is_refused(rate):
    with pytest.raises(InvalidValueError, match=r"^arrivals.rate_per_ms: "):
        small_problem(arrivals=Broken(0.0, rate_per_ms=rate))


def test_admissible_tables_pass():
    problem = small_problem()
    problem.check_policy(problem.fastest_policy())
    for seed in range(5):
        problem.check_policy(random_policy(problem, seed))


@pytest.mark.parametrize(("n", "j", "model"), [
    pytest.param(1, 2, 1, id="late, where all are, but not the fastest"),
    pytest.param(1, 4, 1, id="late, where the fastest is in time"),
    pytest.param(4, 10, 1, id="never in time"),
    pytest.param(2, 5, 2, id="beyond the models"),
    pytest.param(2, 5, -1, id="negative")
])
def test_a_table_with_an_inadmissible_entry_is_refused(n, j, model):
    problem = small_problem()
    policy = problem.fastest_policy()
    policy[n - 1, j] = model
    with pytest.raises(InvalidValueError, match=f"^policy, {n} queued, slack bin {j}: .*{model}"):
        problem.check_policy(policy)


def test_a_table_of_the_wrong_shape_is_refused():
    problem = small_problem()
    with pytest.raises(InvalidValueError, match=r"wrong shape: got \(4, 10\).*\(4, 11\)"):
        problem.check_policy(problem.fastest_policy()[:, 1:])
