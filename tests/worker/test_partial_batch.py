"""Batches of part of the queue: what they leave behind."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.arrivals import Poisson
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.problem.batch_arrivals import phase_distribution
from ramsis.worker.problem.partial_batch import (
    PartialBatches,
    PartialBatchTransitions,
    bin_middles,
    partial_batch_transitions,
)
from ramsis.worker.structure.variable_batching import likely_states
from tests.reference.four_intervals import fold
from tests.reference.partial_batch import partial_row, sample
from tests.worker.problems import small_problem, worker_problems


def every_batch(problem: WorkerProblem, latencies: list[float]) -> PartialBatches:
    """All (n, j, b, l) with b < n."""
    rows = [
        (n, j, b, latency)
        for n in range(2, problem.max_queue + 2)
        for j in range(problem.bins)
        for b in range(1, n)
        for latency in latencies
    ]
    n, j, b, latency = zip(*rows, strict=True)
    return PartialBatches(np.array(n), np.array(j), np.array(b), np.array(latency))


def own_columns(problem: WorkerProblem) -> np.ndarray:
    """A column for each state, that of the full one at bin 0."""
    shape = (problem.max_queue + 1, problem.bins + 1)
    columns = np.arange(shape[0] * shape[1]).reshape(shape)
    columns[-1] = columns[-1, 0]
    return columns


def transitions(problem: WorkerProblem, batches: PartialBatches) -> PartialBatchTransitions:
    phase = phase_distribution(problem)
    return partial_batch_transitions(problem, phase, own_columns(problem), batches)


@pytest.mark.slow
@pytest.mark.parametrize("load_qps", [20.0, 150.0, 900.0])
def test_rows_are_the_brute_force(load_qps):
    problem = small_problem(load_qps)
    batches = every_batch(problem, [0.0, 7.0, 10.0, 31.0, 90.0])
    found = transitions(problem, batches)
    law = found.transition.toarray()
    law = np.pad(law, [(0, 0), (0, problem.bins)]).reshape(len(law), problem.max_queue + 1, -1)
    now = bin_middles(problem)
    for i, (n, j, b, latency) in enumerate(zip(*batches, strict=True)):
        row = partial_row(
            int(n), int(j), int(b), float(latency), now=float(now[j]),
            slack=problem.slack_ms.tolist(), rate=load_qps / 1000.0, workers=problem.workers,
            most=300,
        )
        folded, excess = fold(row, problem.max_queue)
        expected = np.zeros(law.shape[1:])
        for key, probability in folded.items():
            n_next, j_next = (problem.max_queue + 1, 0) if isinstance(key, str) else key
            expected[n_next - 1, j_next] += probability
        np.testing.assert_allclose(law[i], expected, rtol=0, atol=1e-11)
        assert found.excess[i] == pytest.approx(excess, abs=1e-11)


def test_rows_are_the_law_of_a_poisson_stream():
    """Drawn from exponential gaps, at a slack that stands for its bin, given n alone."""
    problem = small_problem(150.0, grid="fixed:400")
    rng, j = random.Random(5), 120
    now = float(bin_middles(problem)[j])
    batches = PartialBatches(*(np.array([x]) for x in (3, j, 2)), np.array([10.0]))
    found = transitions(problem, batches)
    row = np.pad(found.transition.toarray()[0], (0, problem.bins))
    law = row.reshape(problem.max_queue + 1, -1)
    drawn = [
        sample(rng, 3, 2, 10.0, now=now, slack=problem.slack_ms.tolist(), rate=0.15, workers=3)
        for _ in range(40_000)
    ]
    seen = Counter(x for x in drawn if x is not None)
    total = sum(seen.values())
    assert total > 5_000
    for upto in range(20, 360, 20):
        for n in (1, 2):
            p = float(law[n - 1, :upto].sum())
            share = sum(c for (m, k), c in seen.items() if m == n and k < upto) / total
            assert abs(share - p) <= 4.5 * np.sqrt(p * (1 - p) / total) + 2e-3


@settings(max_examples=30, deadline=None)
@given(problem=worker_problems(), latency=st.sampled_from([0.0, 3.0, 40.0, 400.0]))
def test_probability_is_conserved(problem, latency):
    if problem.max_queue < 2:
        return
    batches = every_batch(problem, [latency])
    found = transitions(problem, batches)
    np.testing.assert_allclose(found.transition.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert found.transition.data.min() > 0.0
    assert (found.excess >= 0.0).all()


@pytest.mark.parametrize("workers", [8, 60, 1500])
def test_many_workers_neither_overflow_nor_vanish(workers):
    """The mean of the slack left is that of the order statistic, whatever the number of workers.

    Given n = 4 and slack, k_A is near its mean; the 2K-th of k_A uniform instants has the mean
    T·2K/(k_A + 1).
    """
    rate = 3.4 * workers / 75.0
    problem = small_problem(1000.0 * rate, slo_ms=100.0, workers=workers, grid="fixed:500")
    j, latency = 125, 20.0
    batches = PartialBatches(*(np.array([x]) for x in (4, j, 2)), np.array([latency]))
    missing = phase_distribution(problem)
    found = partial_batch_transitions(problem, missing, own_columns(problem), batches)
    row = np.pad(found.transition.toarray()[0], (0, problem.bins))
    law = row.reshape(problem.max_queue + 1, -1)
    now = bin_middles(problem)
    count = 3 * workers + np.arange(workers)
    instant = (100.0 - now[j]) * float(missing[3, j, ::-1] @ (2 * workers / (count + 1)))
    mean = float(law.sum(axis=0) @ now)
    assert mean == pytest.approx(now[j] + instant - latency, abs=0.15)


def test_likely_states_hold_all_that_poisson_arrivals_bring():
    """Below the edge of what is listed nothing weighs more than rounding."""
    problem = small_problem(400.0)
    likely = likely_states(problem)
    for j in range(1, problem.bins):
        longest = problem.slo_ms - problem.slack_ms[j]
        count = np.arange(problem.workers * problem.max_queue)
        law = np.exp(Poisson(400.0).log_pf(count, np.array([longest])))
        by_queue = law.reshape(problem.max_queue, -1).sum(axis=1)
        assert by_queue[~likely[:-1, j]].sum() < 1e-13
    assert likely[-1].tolist() == [True] + [False] * problem.bins
    assert likely[0, -1]
