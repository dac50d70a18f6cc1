"""First passage against loops, closed forms and conservation of probability."""

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.special import gammainc
from scipy.stats import nbinom

from ramsis.arrivals import NegativeBinomial
from ramsis.profiles import LatencyTable
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.problem.batch_arrivals import busy_period_start
from ramsis.worker.structure.first_passage import Passage, first_passage, first_passages
from ramsis.worker.structure.slack_nodes import NodeSet, exact_nodes, quadrature_nodes
from tests.arrivals.processes import Wrapped
from tests.reference.four_intervals import poisson
from tests.worker.problems import small_problem, worker_problems


def passage_of(problem: WorkerProblem, nodes: NodeSet, latency: float) -> Passage:
    return first_passage(problem, nodes, latency, busy_period_start(problem))


def check_conserved(problem: WorkerProblem, tolerance: float = 1e-12) -> None:
    """Every passage reaches one node or none, and no node beyond the service."""
    for nodes in (quadrature_nodes(problem), exact_nodes(problem)):
        for latency in problem.services.latency_ms.tolist():
            passage = passage_of(problem, nodes, latency)
            assert passage.reach.shape[1] == passage.idle.shape[1] == problem.workers
            assert (passage.reach >= 0).all()
            assert (passage.idle >= 0).all()
            total = passage.reach.sum(axis=0) + passage.idle.sum(axis=0)
            np.testing.assert_allclose(total, 1.0, rtol=0, atol=tolerance)
            reached = len(passage.reach)
            if nodes.cells is None:
                assert (nodes.remaining_ms[reached:] >= latency).all()
            else:
                first = nodes.cells.first_node[nodes.cells.edge_ms[:-1] < latency]
                assert reached == first[-1] + nodes.cells.points[len(first) - 1]


@settings(max_examples=30, deadline=None)
@given(problem=worker_problems())
def test_probability_is_conserved(problem):
    check_conserved(problem)


@pytest.mark.parametrize("load_qps", [1e-6, 150.0, 1e6])
def test_probability_is_conserved_at_any_load(load_qps):
    if load_qps == 1e6:
        problem = small_problem(load_qps, slo_ms=10.0, max_queue=1)
    else:
        problem = small_problem(load_qps)
    check_conserved(problem)


def test_probability_is_conserved_with_a_thousand_workers():
    table = LatencyTable.measured(["only"], [0.9], [[10.0, 15.0, 20.0]])
    check_conserved(
        small_problem(load_qps=1e5, latency=table, workers=1000, max_queue=2), tolerance=5e-11
    )


@settings(max_examples=10, deadline=None)
@given(problem=worker_problems())
def test_no_request_is_the_tail_of_the_arrivals(problem):
    order, rate = np.arange(1, problem.workers + 1), problem.arrivals.rate_per_ms
    for nodes in (quadrature_nodes(problem), exact_nodes(problem)):
        for latency in problem.services.latency_ms.tolist():
            none = passage_of(problem, nodes, latency).idle[0]
            np.testing.assert_allclose(none, 1 - gammainc(order, rate * latency), atol=1e-12)


@settings(max_examples=10, deadline=None)
@given(problem=worker_problems())
def test_exact_passage_is_the_sum_over_arrivals_before_and_in_the_bin(problem):
    nodes, slo, rate = exact_nodes(problem), problem.slo_ms, problem.arrivals.rate_per_ms
    slack, workers = problem.slack_ms.tolist(), problem.workers
    for latency in problem.services.latency_ms.tolist()[::3]:
        reach = passage_of(problem, nodes, latency).reach
        for i in range(0, len(reach), max(1, len(reach) // 25)):
            j, c = int(nodes.bin[i]), int(nodes.offset[i])
            end = latency - (slo - slack[j + 1])
            start = max(0.0, latency - (slo - slack[j])) if j else 0.0
            before = poisson(workers, rate * start)
            within = poisson(workers + c + 1, rate * (end - start))
            for r in range(1, workers + 1):
                brute = sum(before[a] * within[r + c - a] for a in range(r))
                assert reach[i, r - 1] == pytest.approx(brute, abs=1e-13)


@pytest.mark.parametrize("overdue", [False, True])
def test_exact_passages_of_batch_arrivals_are_such_sums_too(overdue):
    """All services at once, against single terms; negative binomial counts from SciPy."""
    load_qps, dispersion = 150.0, 2.0
    problem = small_problem(arrivals=NegativeBinomial(load_qps, dispersion))
    nodes, slo = exact_nodes(problem, overdue=overdue), problem.slo_ms
    slack, lowest = problem.slack_ms.tolist(), -1 if overdue else 0
    found = first_passages(problem, nodes, problem.services.latency_ms, busy_period_start(problem))

    def chance(count: int, interval_ms: float) -> float:
        if interval_ms == 0.0:
            return float(count == 0)
        size = load_qps / 1000.0 * interval_ms / (dispersion - 1.0)
        return float(nbinom.pmf(count, size, 1.0 / dispersion))

    for latency, passage in found.items():
        assert passage.first == 0
        for i in range(0, len(passage.reach), max(1, len(passage.reach) // 20)):
            j, c = int(nodes.bin[i]), int(nodes.offset[i])
            end = latency - (slo - slack[j + 1])
            start = max(0.0, latency - (slo - slack[j])) if j > lowest else 0.0
            for r in range(1, problem.workers + 1):
                brute = sum(chance(a, start) * chance(r + c - a, end - start) for a in range(r))
                assert passage.reach[i, r - 1] == pytest.approx(brute, abs=1e-13)


def cell_moments(
    problem: WorkerProblem, edge: np.ndarray, latency: float
) -> tuple[np.ndarray, np.ndarray]:
    """P(x in cell) and E[x; x in cell], x = latency − U_r, for each cell and r (gamma law)."""
    rate, order = problem.arrivals.rate_per_ms, np.arange(1, problem.workers + 1)
    instant = rate * np.maximum(latency - edge, 0.0)[:, None]
    mass = -np.diff(gammainc(order, instant), axis=0)
    moment = -np.diff(order / rate * gammainc(order + 1, instant), axis=0)
    return mass, latency * mass - moment


@pytest.mark.parametrize("wrapped", [False, True])
@settings(max_examples=15, deadline=None)
@given(problem=worker_problems())
def test_quadrature_keeps_the_mass_and_the_mean_of_each_cell(wrapped, problem):
    """The mean as far as the two nodes reach; also without a closed form for the mean."""
    nodes, error = quadrature_nodes(problem), 1e-10
    if wrapped:
        problem = WorkerProblem(
            problem.latency, problem.slo_ms, problem.workers,
            Wrapped(problem.arrivals.rate_per_ms * 1000), problem.slack_ms, problem.max_queue,
            problem.objective,
        )
        error = 1e-5
    cells = nodes.cells
    assert cells is not None
    for latency in problem.services.latency_ms.tolist()[::2]:
        reach = passage_of(problem, nodes, latency).reach
        mass, mean = cell_moments(problem, cells.edge_ms, latency)
        for i in range(int(np.searchsorted(cells.edge_ms, latency))):
            mine = slice(cells.first_node[i], cells.first_node[i] + cells.points[i])
            np.testing.assert_allclose(reach[mine].sum(axis=0), mass[i], rtol=0, atol=1e-12)
            if cells.points[i] == 2:
                x = nodes.remaining_ms[mine]
                between = np.clip(mean[i], x[0] * mass[i], x[1] * mass[i])
                np.testing.assert_allclose(x @ reach[mine], between, rtol=0, atol=error)


@settings(max_examples=10, deadline=None)
@given(problem=worker_problems())
def test_compiled_passages_are_those_of_any_process(problem):
    nodes, latencies = quadrature_nodes(problem), problem.services.latency_ms
    starts = busy_period_start(problem)
    compiled = first_passages(problem, nodes, latencies, starts)
    for latency in latencies.tolist():
        one, known = compiled[latency], first_passage(problem, nodes, latency, starts)
        np.testing.assert_allclose(one.idle, known.idle, rtol=0, atol=1e-13)
        assert known.reach[: one.first].max(initial=0.0) < 1e-14
        assert one.nodes.stop == len(known.reach)
        np.testing.assert_allclose(one.reach, known.reach[one.first :], rtol=0, atol=1e-11)
