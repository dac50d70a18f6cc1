"""Policy iteration on the slack nodes against other solvers, other nodes and simulation."""

import csv
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.arrivals import Poisson
from ramsis.errors import InvalidValueError
from ramsis.mdp import linear_program, policy_iteration, value_iteration
from ramsis.mdp.result import Status
from ramsis.mdp.toolbox import solve_with_pymdptoolbox
from ramsis.profiles import LatencyTable
from ramsis.worker.explicit import build_explicit
from ramsis.worker.problem import Objective, WorkerProblem
from ramsis.worker.solve.policy_iteration import NodeSolution, solve_on_nodes
from ramsis.worker.structure import build_structured
from ramsis.worker.structure.evaluation import evaluate_on_nodes, state_frequency
from tests.arrivals.processes import Wrapped
from tests.reference.monte_carlo import Chain, estimate
from tests.worker.problems import linear, random_policy, small_problem, worker_problems

LINEAR = LatencyTable.measured(
    ["quick", "exact"], [0.6, 0.8], [linear(10.0, 5.0, 13), linear(22.0, 12.0, 13)]
)


def eight_workers(load_qps: float, **changes: Any) -> WorkerProblem:
    """K = 8, N = 12, D = 100; an SLO of 100 ms."""
    parts = {"latency": LINEAR, "slo_ms": 100.0, "workers": 8, "grid": "fixed:100",
             "max_queue": 12}
    return small_problem(load_qps, **(parts | changes))


def promise(
    problem: WorkerProblem, policy: np.ndarray, kind: str = "quadrature"
) -> dict[str, Any]:
    """Accuracy, violation rate and shares of the queue lengths, from the visits."""
    mdp = build_structured(problem, kind)  # type: ignore[arg-type]
    evaluation = evaluate_on_nodes(mdp, policy)
    visits, excess = state_frequency(mdp, evaluation)
    queued = np.arange(1, problem.max_queue + 2)[:, None]
    queries = visits * queued
    queries[-1, 0] += excess
    in_time = problem.in_time(policy)
    accuracy = problem.latency.accuracy[policy]
    return {
        "gain": evaluation.gain,
        "effective": (queries[:-1] * in_time * accuracy).sum() / queries.sum(),
        "in time": queries[:-1][in_time].sum() / queries.sum(),
        "decisions": visits[:-1][in_time].sum() / visits.sum(),
        "batch": queries.sum() / visits.sum(),
        "lengths": visits.sum(axis=1) / visits.sum(),
    }


def check_solved(problem: WorkerProblem, solution: NodeSolution) -> None:
    """Finite, admissible, converged, and within what accuracies allow."""
    certificate, evaluation = solution.certificate, solution.evaluation
    assert certificate.converged
    assert certificate.lower_bound <= solution.gain <= certificate.upper_bound
    assert evaluation.gain == pytest.approx(solution.gain, abs=1e-12)
    assert certificate.gap < 1e-8
    assert certificate.bellman_residual < 1e-8
    assert certificate.truncated_mass < 1e-10
    assert -1e-12 <= evaluation.gain <= problem.latency.accuracy.max() + 1e-12
    assert np.isfinite(evaluation.node_value).all()
    assert (evaluation.node_frequency >= 0).all()
    problem.check_policy(solution.policy)


# -- against the explicit MDP ------------------------------------------------------------------


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize(("load_qps", "slo_ms"), [(150.0, 40.0), (60.0, 40.0), (300.0, 14.0)])
def test_three_workers_four_requests_ten_bins(load_qps, slo_ms, objective):
    """Structured = explicit to 1e-9, with services longer than the SLO too."""
    problem = small_problem(load_qps, slo_ms=slo_ms, objective=objective)
    solution = solve_on_nodes(build_structured(problem, "exact"))
    explicit = build_explicit(problem)
    general = policy_iteration(explicit.mdp)
    assert solution.evaluation.gain == pytest.approx(general.gain, abs=1e-12)
    same = policy_iteration(explicit.mdp, initial=explicit.labels(solution.policy))
    assert same.certificate.iterations == 1
    quadrature = solve_on_nodes(build_structured(problem))
    assert quadrature.evaluation.gain == pytest.approx(general.gain, abs=1e-6)
    for solve in (value_iteration, solve_with_pymdptoolbox):
        assert solve(explicit.mdp).gain == pytest.approx(general.gain, abs=1e-7)


@pytest.mark.parametrize("load_qps", [2.0, 150.0, 600.0, 2000.0])
def test_the_linear_program_finds_the_same_gain(load_qps):
    """Also where probabilities below HiGHS's least coefficient are dropped."""
    problem = small_problem(load_qps)
    program = linear_program(build_explicit(problem).mdp)
    assert program.certificate.converged
    gain = solve_on_nodes(build_structured(problem, "exact")).evaluation.gain
    assert program.gain == pytest.approx(gain, abs=1e-9)


@settings(max_examples=15, deadline=None)
@given(problem=worker_problems(), seed=st.integers(0, 2**16))
def test_any_policy_has_the_gain_and_values_of_the_explicit_chain(problem, seed):
    policy = random_policy(problem, seed)
    mdp, explicit = build_structured(problem, "exact"), build_explicit(problem)
    evaluation = evaluate_on_nodes(mdp, policy)
    only = policy_iteration(explicit.mdp, initial=explicit.labels(policy), max_iterations=1)
    assert evaluation.gain == pytest.approx(only.gain, abs=1e-9)
    value = mdp.greedy(evaluation.node_value, evaluation.gain, policy).kept
    truth = explicit.by_queue_and_bin(only.value)
    difference = np.append((value - truth)[:-1].ravel(), (value - truth)[-1, 0])
    assert np.ptp(difference) < 1e-7 * (1 + np.ptp(truth))


@settings(max_examples=15, deadline=None)
@given(problem=worker_problems(), seed=st.integers(0, 2**16))
def test_bounds_of_a_policy_that_is_not_optimal_hold_the_optimum(problem, seed):
    mdp = build_structured(problem, "exact")
    first = solve_on_nodes(mdp, initial=random_policy(problem, seed), max_rounds=1)
    best = solve_on_nodes(mdp)
    assert first.certificate.lower_bound <= best.evaluation.gain + 1e-12
    assert best.evaluation.gain <= first.certificate.upper_bound
    if first.certificate.converged:
        assert first.evaluation.gain == pytest.approx(best.evaluation.gain, abs=1e-9)
    else:
        assert first.certificate.status is Status.MAX_ITERATIONS
        assert first.certificate.upper_bound > first.evaluation.gain


# -- the quadrature ----------------------------------------------------------------------------


@pytest.mark.parametrize("load_qps", [200.0, 700.0, 2000.0])
def test_two_nodes_per_bin_change_the_gain_by_less_than_1e_4(load_qps):
    """Light load to overload; at D = 100 it is in fact a few millionths."""
    problem = eight_workers(load_qps)
    quadrature = solve_on_nodes(build_structured(problem))
    exact = evaluate_on_nodes(build_structured(problem, "exact"), quadrature.policy)
    assert quadrature.evaluation.gain == pytest.approx(exact.gain, abs=1e-5)


@pytest.mark.parametrize(("load_qps", "slo_ms"), [(700.0, 50.0), (1300.0, 50.0), (1500.0, 30.0)])
def test_a_finer_quadrature_converges_to_the_exact_gain(load_qps, slo_ms):
    """Also where services are longer than the SLO."""
    problem = eight_workers(load_qps, slo_ms=slo_ms, grid="fixed:10")
    policy = solve_on_nodes(build_structured(problem)).policy
    exact = evaluate_on_nodes(build_structured(problem, "exact"), policy).gain
    errors = [
        abs(evaluate_on_nodes(build_structured(problem, cells_per_slo=cells), policy).gain - exact)
        for cells in (25, 100, 800)
    ]
    assert errors[0] < 1e-3
    assert errors[1] < 1e-5
    assert errors[2] < 1e-8


@pytest.mark.parametrize("slo_ms", [20.7, 47.3, 99.9])
def test_the_slo_may_round_as_it_likes(slo_ms):
    """SLO·D/D is not always the SLO; neither form may see a negative waiting time."""
    problem = small_problem(200.0, slo_ms=slo_ms, grid="fixed:3")
    quadrature = solve_on_nodes(build_structured(problem)).evaluation.gain
    general = policy_iteration(build_explicit(problem).mdp).gain
    assert quadrature == pytest.approx(general, abs=1e-5)


def test_services_far_shorter_than_the_slo_are_resolved():
    """0.2 ms against 1000 ms, with 100 bins that none of them leaves."""
    table = LatencyTable.measured(
        ["quick", "exact"], [0.6, 0.8], [linear(0.2, 0.05, 9), linear(0.5, 0.1, 9)]
    )
    problem = small_problem(10_000.0, latency=table, slo_ms=1000.0, workers=1, max_queue=8,
                            grid=np.array([0.0, 990.0, 1000.0]))
    quadrature = solve_on_nodes(build_structured(problem))
    check_solved(problem, quadrature)
    general = policy_iteration(build_explicit(problem).mdp).gain
    assert 0.3 < quadrature.evaluation.gain < 0.79
    assert quadrature.evaluation.gain == pytest.approx(general, abs=1e-5)


# -- properties of the solution ----------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(problem=worker_problems(), seed=st.integers(0, 2**16))
def test_the_first_policy_does_not_matter(problem, seed):
    mdp = build_structured(problem)
    usual, other = solve_on_nodes(mdp), solve_on_nodes(mdp, initial=random_policy(problem, seed))
    check_solved(problem, usual)
    check_solved(problem, other)
    assert usual.evaluation.gain == pytest.approx(other.evaluation.gain, abs=1e-9)


def test_the_same_problem_gives_the_same_bits():
    first, second = (solve_on_nodes(build_structured(eight_workers(700.0))) for _ in range(2))
    assert first.policy.tobytes() == second.policy.tobytes()
    assert first.evaluation.gain == second.evaluation.gain
    assert first.evaluation.node_frequency.tobytes() == second.evaluation.node_frequency.tobytes()
    assert first.certificate == second.certificate


@settings(max_examples=15, deadline=None)
@given(problem=worker_problems(), seed=st.integers(0, 2**16))
def test_any_reference_gives_the_same_evaluation(problem, seed):
    mdp, policy = build_structured(problem), random_policy(problem, seed)
    first = evaluate_on_nodes(mdp, policy)
    again = evaluate_on_nodes(mdp, policy, first.reference)
    assert again.gain == pytest.approx(first.gain, abs=1e-10)
    np.testing.assert_allclose(again.node_frequency, first.node_frequency, rtol=0, atol=1e-10)
    assert first.residual < 1e-12


@settings(max_examples=15, deadline=None)
@given(problem=worker_problems())
def test_per_query_policies_have_the_greater_effective_accuracy(problem):
    by_objective = {
        objective: WorkerProblem.create(
            problem.latency, slo_ms=problem.slo_ms, workers=problem.workers,
            arrivals=problem.arrivals, grid=problem.slack_ms, max_queue=problem.max_queue,
            objective=objective,
        )
        for objective in Objective
    }
    per_query = by_objective[Objective.PER_QUERY]
    mdp = build_structured(per_query)
    best = solve_on_nodes(mdp).evaluation.gain
    other = solve_on_nodes(build_structured(by_objective[Objective.PER_DECISION])).policy
    assert evaluate_on_nodes(mdp, other).gain <= best + 1e-11


def test_visits_are_per_unit_of_cost_and_carry_the_gain():
    problem = eight_workers(1200.0)
    policy = solve_on_nodes(build_structured(problem)).policy
    expected = promise(problem, policy)
    assert expected["gain"] == pytest.approx(expected["effective"], abs=1e-12)
    assert expected["lengths"][-1] > 0
    mdp = build_structured(problem)
    evaluation = evaluate_on_nodes(mdp, policy)
    visits, excess = state_frequency(mdp, evaluation)
    queued = np.arange(1, problem.max_queue + 2)
    assert visits.sum(axis=1) @ queued + excess == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("load_qps", [300.0, 700.0])
def test_a_process_of_ones_own_that_is_poisson_gives_the_poisson_policy(load_qps):
    own = solve_on_nodes(build_structured(eight_workers(arrivals=Wrapped(load_qps), load_qps=1.0)))
    poisson = solve_on_nodes(build_structured(eight_workers(load_qps)))
    np.testing.assert_array_equal(own.policy, poisson.policy)
    assert own.evaluation.gain == pytest.approx(poisson.evaluation.gain, abs=1e-9)


def test_an_inadmissible_policy_is_refused():
    problem = small_problem()
    with pytest.raises(InvalidValueError, match=r"^policy, 1 queued, slack bin 0"):
        evaluate_on_nodes(
            build_structured(problem), np.ones((problem.max_queue, problem.bins + 1), dtype=int)
        )


@pytest.mark.parametrize(("load_qps", "slowest_ms"), [(1000.0, 200.0), (400.0, 500.0)])
def test_two_regimes_that_hardly_meet_are_seen_from_the_empty_state(load_qps, slowest_ms):
    """Batches of three keep up; one of four takes so long that the queue stays full for ever.

    Which gain a worker sees depends on where it starts. Against the explicit rows with the same
    rare restart from the empty state, solved densely.
    """
    table = LatencyTable.measured(["only"], [0.8], [[5.0, 8.0, 30.0, slowest_ms]])
    problem = small_problem(load_qps, latency=table, workers=20, max_queue=3, grid="fixed:20")
    explicit = build_explicit(problem)
    solution = solve_on_nodes(build_structured(problem, "exact"))
    assert solution.certificate.converged
    restart = solution.evaluation.restart
    assert 0.0 < restart <= 1e-6
    assert solution.certificate.notes
    rows = explicit.mdp.pairs_of(explicit.labels(solution.policy))
    kernel = (1.0 - restart) * explicit.mdp.transition[rows].toarray()
    kernel[:, 0] += restart
    system = np.vstack([kernel.T - np.eye(len(kernel)), np.ones(len(kernel))])
    law = np.linalg.lstsq(system, np.append(np.zeros(len(kernel)), 1.0), rcond=None)[0]
    gain = law @ explicit.mdp.reward[rows] / (law @ explicit.mdp.costs[rows])
    assert solution.evaluation.gain == pytest.approx(gain, abs=1e-4)


def test_a_chain_that_mixes_is_never_restarted():
    solution = solve_on_nodes(build_structured(eight_workers(600.0)))
    assert solution.evaluation.restart == 0.0
    assert solution.certificate.notes == ()


# -- edges -------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("load_qps", [1e-6, 1e-3, 1.0, 5000.0, 1e6])
@pytest.mark.parametrize("workers", [1, 3])
def test_loads_near_zero_and_far_above_capacity(workers, load_qps, objective):
    problem = small_problem(load_qps, workers=workers, objective=objective, slo_ms=60.0)
    solution = solve_on_nodes(build_structured(problem))
    check_solved(problem, solution)
    if load_qps <= 1.0:
        assert solution.policy[0, -1] == 1
        assert solution.evaluation.gain == pytest.approx(0.8, abs=1e-4)
    else:
        assert solution.evaluation.gain == pytest.approx(0.0, abs=1e-9)


def test_in_overload_every_request_is_charged():
    """A full queue is served in 38 ms, in which 760 requests come for the three workers."""
    problem = small_problem(2e4)
    policy = problem.fastest_policy()
    exact = promise(problem, policy, "exact")
    assert exact["in time"] == pytest.approx(0.0, abs=1e-12)
    assert exact["lengths"][-1] == pytest.approx(1.0, abs=1e-9)
    assert exact["batch"] == pytest.approx(760 / 3, abs=0.5)
    assert promise(problem, policy)["batch"] == pytest.approx(exact["batch"], rel=0.01)


@pytest.mark.parametrize("load_qps", [2e4, 6.6e4, 1.2e5])
def test_a_thousand_workers(load_qps):
    problem = small_problem(
        load_qps, latency=LINEAR, slo_ms=60.0, workers=1000, max_queue=4, grid="fixed:50"
    )
    mdp = build_structured(problem)
    solution = solve_on_nodes(mdp)
    check_solved(problem, solution)
    gain = solution.evaluation.gain
    if load_qps == 2e4:  # one request every 50 ms: alone, and in time with the better model
        assert gain == pytest.approx(0.8, abs=1e-6)
    finer = evaluate_on_nodes(build_structured(problem, cells_per_slo=300), solution.policy)
    assert gain == pytest.approx(finer.gain, abs=1e-4)


@pytest.mark.parametrize("load_qps", [1.0, 50.0, 200.0])
def test_one_model_one_request_one_slack_value_one_worker(load_qps):
    """Closed form: in time only after an idle moment, as any waiting rounds the slack to 0.

    A batch of one meets its deadline with chance exp(-10 λ) = P(no arrival in 10 ms); from the
    full state (12 ms) the same with 12 ms. The rest is a two-state chain.
    """
    table = LatencyTable.measured(["only"], [0.75], [[10.0, 12.0]])
    problem = small_problem(
        load_qps, latency=table, slo_ms=40.0, workers=1, max_queue=1, grid="fixed:1"
    )
    solution = solve_on_nodes(build_structured(problem))
    check_solved(problem, solution)
    rate = load_qps / 1000
    # Queries per idle period: each service brings λ·l new ones, served in one or in batches.
    one, several = 10 * rate * math.exp(-10 * rate), 1 - math.exp(-10 * rate) * (1 + 10 * rate)
    one_full = 12 * rate * math.exp(-12 * rate)
    several_full = 1 - math.exp(-12 * rate) * (1 + 12 * rate)
    # Expected queries served before the worker idles again, after a service of 10 and 12 ms.
    system = np.array([[1 - one, -several], [-one_full, 1 - several_full]])
    after_one, after_full = np.linalg.solve(system, [10 * rate, 12 * rate])
    assert after_full >= after_one
    assert solution.evaluation.gain == pytest.approx(0.75 / (1 + after_one), abs=1e-6)
    exact = solve_on_nodes(build_structured(problem, "exact"))
    assert exact.evaluation.gain == pytest.approx(0.75 / (1 + after_one), abs=1e-12)


def test_a_grid_finer_than_the_cells():
    """Rounding bites less and less: a finer grid promises more."""
    gains = [
        solve_on_nodes(build_structured(small_problem(grid=f"fixed:{bins}"))).evaluation.gain
        for bins in (50, 100, 500)
    ]
    assert gains[0] < gains[1] < gains[2]
    assert gains[2] - gains[1] < 0.01


@pytest.mark.parametrize("load_qps", [60.0, 300.0])
def test_slack_values_apart_by_a_rounding(load_qps):
    """Bins of no width once they are taken from the SLO; latencies may well differ so little."""
    twenty = [np.nextafter(20.0, 0.0), 20.0, np.nextafter(20.0, 40.0)]
    grid = np.array([0.0, 10.0, *twenty, 30.0, np.nextafter(40.0, 0.0), 40.0])
    problem = small_problem(load_qps, grid=grid)
    general = policy_iteration(build_explicit(problem).mdp).gain
    exact = solve_on_nodes(build_structured(problem, "exact"))
    assert exact.evaluation.gain == pytest.approx(general, abs=1e-12)
    quadrature = solve_on_nodes(build_structured(problem))
    assert quadrature.evaluation.gain == pytest.approx(general, abs=1e-7)


def test_the_model_grid_solves_as_the_explicit_mdp_does():
    problem = small_problem(grid="model")
    solution = solve_on_nodes(build_structured(problem))
    check_solved(problem, solution)
    general = policy_iteration(build_explicit(problem).mdp).gain
    assert solution.evaluation.gain == pytest.approx(general, abs=1e-6)


# -- against simulation ------------------------------------------------------------------------


@pytest.mark.parametrize(("problem", "seed"), [
    pytest.param(small_problem(250.0), 1, id="three workers"),
    pytest.param(small_problem(330.0), 2, id="three workers, near capacity"),
    pytest.param(small_problem(70.0, workers=1), 3, id="one worker"),
    pytest.param(small_problem(450.0, slo_ms=14.0), 4, id="services longer than the SLO"),
    pytest.param(eight_workers(700.0, max_queue=5, grid="model"), 5, id="eight workers"),
])
def test_promises_hold_in_a_simulation_of_the_chain(problem, seed):
    """Within five standard errors: rates per query and per decision, accuracy, queue lengths."""
    policy = solve_on_nodes(build_structured(problem)).policy
    chain = Chain(
        problem.latency.latency_ms.tolist(), problem.latency.accuracy.tolist(),
        problem.slack_ms.tolist(), problem.arrivals.rate_per_ms, problem.workers,
        policy.tolist(), problem.latency.fastest,
    )
    tallies = chain.simulate(stretches=40, decisions=2500, seed=seed)
    rates = {
        "effective": estimate(tallies, lambda t: t.accuracy, lambda t: t.queries),
        "in time": estimate(tallies, lambda t: t.queries_in_time, lambda t: t.queries),
        "decisions": estimate(tallies, lambda t: t.decisions_in_time, lambda t: t.decisions),
        "batch": estimate(tallies, lambda t: t.queries, lambda t: t.decisions),
    }
    lengths = [
        estimate(tallies, lambda t, n=n: t.decisions_by_queue[n], lambda t: t.decisions)
        for n in range(problem.max_queue + 1)
    ]
    assert max(error for _, error in rates.values()) < 0.05
    assert all(share > 0 for share, _ in lengths)
    for kind in ("quadrature", "exact"):
        expected = promise(problem, policy, kind)
        for name, (mean, error) in rates.items():
            assert abs(expected[name] - mean) <= 5 * error, (kind, name)
        for n, (mean, error) in enumerate(lengths):
            share = float(expected["lengths"][n])
            rare = math.sqrt(share * (1 - share) / 1e5)  # where hardly any have been seen
            assert abs(share - mean) <= 5 * max(error, rare), (kind, n)


# -- the image profiles ------------------------------------------------------------------------

PARETO = ("shufflenet_v2_x0_5", "mobilenet_v3_large", "efficientnet_b0", "efficientnet_b2",
          "efficientnet_b3", "efficientnet_b4", "efficientnet_v2_s", "efficientnet_v2_m",
          "efficientnet_v2_l")


def image_table(folder: Path, batches: int) -> LatencyTable:
    """p95 latencies of the nine Pareto models, on straight lines through the first and last."""
    measured: dict[str, dict[int, float]] = defaultdict(dict)
    accuracy = {}
    with (folder / "ramsis_image_profiles.csv").open() as file:
        for row in csv.DictReader(file):
            measured[row["model"]][int(row["batch"])] = 1000 * float(row["p95_s"])
            accuracy[row["model"]] = float(row["accuracy"]) / 100
    latency = []
    for name in PARETO:
        points = measured[name]
        last = max(points)
        step = (points[last] - points[1]) / (last - 1)
        latency.append(linear(points[1], step, batches))
    return LatencyTable.measured(PARETO, [accuracy[name] for name in PARETO], latency)


@pytest.mark.parametrize("load_qps", [2000.0, 3600.0])
def test_sixty_workers_on_image_profiles(reference_dir, load_qps):
    """K = 60, N = 32, D = 100: two nodes per bin against the exact nodes."""
    problem = WorkerProblem.create(
        image_table(reference_dir, 33), slo_ms=150.0, workers=60, arrivals=Poisson(load_qps)
    )
    quadrature = solve_on_nodes(build_structured(problem))
    check_solved(problem, quadrature)
    exact = build_structured(problem, "exact")
    evaluation = evaluate_on_nodes(exact, quadrature.policy)
    assert quadrature.evaluation.gain == pytest.approx(evaluation.gain, abs=1e-5)
    backup = exact.greedy(evaluation.node_value, evaluation.gain, quadrature.policy)
    assert ((backup.value - backup.kept) / exact.costs[:, None]).max() < 1e-4
