"""The slack nodes: where they lie, and what follows from each."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.special import gammainc

from ramsis.profiles import LatencyTable
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.structure.slack_nodes import (
    CELLS_PER_SLO,
    NodeSet,
    continuation_weights,
    exact_nodes,
    quadrature_nodes,
)
from tests.reference.four_intervals import poisson
from tests.worker.problems import linear, small_problem, worker_problems

HUGE_SLO = LatencyTable.measured(["quick"], [0.6], [linear(0.2, 0.05, 9)])


def check_cells(problem: WorkerProblem, nodes: NodeSet, cells_per_slo: int) -> None:
    cells, longest = nodes.cells, float(problem.services.latency_ms[-1])
    edge, width = cells.edge_ms, np.diff(cells.edge_ms)
    assert edge[0] == 0.0
    assert edge[-1] == longest
    assert (width > 0).all()
    assert (width[edge[:-1] < problem.slo_ms] <= problem.slo_ms / cells_per_slo * 1.001).all()
    bin_ends = problem.slo_ms - problem.slack_ms
    assert np.isin(bin_ends[bin_ends < longest], edge).all()
    middle = (edge[:-1] + edge[1:]) / 2
    low = problem.slack_ms[cells.bin]
    high = np.append(problem.slack_ms, math.inf)[cells.bin + 1]
    slack = problem.slo_ms - middle
    assert ((low <= slack) | (cells.bin == 0)).all()
    assert (slack < high).all()
    assert (np.diff(cells.bin) <= 0).all()


def check_points(nodes: NodeSet) -> None:
    """Two nodes have the mean and the variance of their cell, a single one has its mean."""
    cells = nodes.cells
    assert len(nodes) == cells.points.sum()
    assert (nodes.offset == 0).all()
    np.testing.assert_array_equal(nodes.bin, np.repeat(cells.bin, cells.points))
    for i, first in enumerate(cells.first_node):
        x = nodes.remaining_ms[first : first + cells.points[i]]
        low, high = cells.edge_ms[i : i + 2]
        assert ((low < x) & (x < high)).all()
        assert x.mean() == pytest.approx((low + high) / 2, rel=1e-12)
        if cells.points[i] == 2:
            assert x.var() == pytest.approx((high - low) ** 2 / 12, rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(problem=worker_problems())
def test_cells_cover_every_service_and_stay_within_a_bin(problem):
    for cells_per_slo in (CELLS_PER_SLO, 250):
        nodes = quadrature_nodes(problem, cells_per_slo)
        check_cells(problem, nodes, cells_per_slo)
        check_points(nodes)


@pytest.mark.parametrize("grid", ["fixed:1", "fixed:10", "fixed:700", "model"])
def test_cells_are_sound_for_any_grid(grid):
    problem = small_problem(grid=grid)
    nodes = quadrature_nodes(problem)
    check_cells(problem, nodes, CELLS_PER_SLO)
    check_points(nodes)


def test_cells_are_sound_where_the_slo_is_thousands_of_latencies():
    """They stop at the longest latency, and resolve the shortest."""
    problem = small_problem(latency=HUGE_SLO, slo_ms=1000.0, grid="fixed:100", max_queue=8)
    nodes = quadrature_nodes(problem)
    check_cells(problem, nodes, CELLS_PER_SLO)
    check_points(nodes)
    assert np.diff(nodes.cells.edge_ms).max() <= 0.2 / 8 * 3
    assert (nodes.cells.points == 2).mean() > 0.8


def test_cells_are_cut_at_every_latency_below_and_above_the_slo():
    """Else a cell would be reached in part; pieces of an eighth of a cell are let go."""
    table = LatencyTable.measured(["only"], [0.9], [[11.13, 17.21, 45.0, 61.0, 61.01, 90.0]])
    problem = small_problem(latency=table, max_queue=5)
    nodes = quadrature_nodes(problem)
    assert np.isin([11.13, 17.21, 45.0, 61.01, 90.0], nodes.cells.edge_ms).sum() >= 4
    for latency in problem.services.latency_ms:
        nearest = np.abs(nodes.cells.edge_ms - latency).min()
        assert nearest <= (0.4 if latency < 40.0 else latency / 16) / 8


def test_a_narrow_cell_has_one_node():
    fine = quadrature_nodes(small_problem(grid="fixed:500"))
    below = fine.cells.edge_ms[1:] <= 40.0
    assert (fine.cells.points[below] == 1).mean() > 0.9
    coarse = quadrature_nodes(small_problem())
    assert (coarse.cells.points == 2).all()


@settings(max_examples=30, deadline=None)
@given(problem=worker_problems())
def test_exact_nodes_count_all_arrivals_in_every_bin_that_a_service_reaches(problem):
    nodes = exact_nodes(problem)
    assert nodes.cells is None
    longest = float(problem.services.latency_ms[-1])
    for j in range(problem.bins):
        mine = nodes.bin == j
        start = problem.slo_ms - problem.slack_ms[j + 1]
        assert mine.any() == (start < longest)
        if not mine.any():
            continue
        assert (nodes.remaining_ms[mine] == start).all()
        np.testing.assert_array_equal(nodes.offset[mine], np.arange(mine.sum()))
        end = min(longest, problem.slo_ms - problem.slack_ms[j]) if j else longest
        assert gammainc(mine.sum(), problem.arrivals.rate_per_ms * (end - start)) < 1e-15
    assert (np.diff(nodes.remaining_ms) >= 0).all()


@settings(max_examples=20, deadline=None)
@given(problem=worker_problems())
def test_continuation_is_the_direct_sum_over_arrivals(problem):
    rate, top, workers = problem.arrivals.rate_per_ms, problem.max_queue, problem.workers
    for nodes in (exact_nodes(problem), quadrature_nodes(problem)):
        weights, excess = continuation_weights(problem, nodes)
        assert weights.shape == (len(nodes), top + 1)
        assert (weights >= 0).all()
        np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=0, atol=1e-12)
        for i in range(0, len(nodes), max(1, len(nodes) // 12)):
            mean = rate * float(nodes.remaining_ms[i])
            law, beyond = np.zeros(top + 1), 0.0
            for k, p in enumerate(poisson(60 + int(3 * mean), mean)):
                queued = 1 + (int(nodes.offset[i]) + k) // workers
                law[min(queued, top + 1) - 1] += p
                beyond += p * max(0, queued - top - 1)
            np.testing.assert_allclose(weights[i], law, rtol=0, atol=1e-11)
            assert excess[i] == pytest.approx(beyond, rel=1e-10, abs=1e-11)


def test_continuation_of_a_thousand_workers_adds_up():
    table = LatencyTable.measured(["only"], [0.9], [[10.0, 15.0, 20.0]])
    problem = small_problem(load_qps=1e5, latency=table, workers=1000, max_queue=2)
    weights, excess = continuation_weights(problem, quadrature_nodes(problem))
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert (weights >= 0).all()
    assert (excess >= 0).all()
    # 2 ms after the first request, 200 of the 1000 arrivals to the next one have come.
    assert (weights[quadrature_nodes(problem).remaining_ms < 2.0, 0] > 1 - 1e-12).all()


def test_far_above_capacity_almost_all_requests_are_beyond_the_table():
    problem = small_problem(load_qps=1e6)
    nodes = quadrature_nodes(problem)
    weights, excess = continuation_weights(problem, nodes)
    late = nodes.remaining_ms > 5.0
    assert (weights[late, -1] > 1 - 1e-12).all()
    expected = 1 + 1000.0 * nodes.remaining_ms / 3 - 1 / 3 - 5  # E⌊k/3⌋ ≈ (E k − 1) / 3
    np.testing.assert_allclose(excess[late], expected[late], rtol=0, atol=1e-9)
