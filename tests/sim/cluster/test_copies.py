"""How many copies of which model where: memory, what stays, and the gap against brute force."""

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from ramsis.sim.schedulers.loading.copies import (
    CopyLoad,
    CopyProblem,
    bound_on_served,
    choose_copies,
    gap_of,
    place_copies,
)

WINDOW_MS = 100.0


def cluster(rng: np.random.Generator, workers: int, models: int) -> CopyProblem:
    return CopyProblem(rng.uniform(1.0, 5.0, models), rng.uniform(4.0, 9.0, workers),
                   np.full(workers, float(models)), np.ones((workers, models), dtype=bool),
                   rng.uniform(5.0, 20.0, models), 1.0)


def calm(rate: NDArray[np.float64], work: NDArray[np.float64]) -> CopyLoad:
    """Load of which no copy is short."""
    nothing = np.zeros(len(rate))
    return CopyLoad(rate, work, nothing, nothing + 1e9, nothing + 1.0)


def most_served(
    held: NDArray[np.bool_], counts: NDArray[np.float64], cost_ms: NDArray[np.float64]
) -> float:
    """By a linear programme for each window: requests of each model on each worker."""
    workers, models = held.shape
    total = 0.0
    for window in counts:
        of_model = np.tile(np.eye(models), workers)
        of_worker = np.kron(np.eye(workers), cost_ms[None, :])
        found = linprog(-np.ones(workers * models), np.vstack([of_model, of_worker]),
                        np.concatenate([window, np.full(workers, WINDOW_MS)]),
                        bounds=[(0.0, None if one else 0.0) for one in held.ravel()])
        total -= found.fun
    return total


@pytest.mark.parametrize("seed", range(4))
def test_no_placement_beats_the_bound_and_the_stated_gap_is_no_smaller_than_the_true_one(seed):
    rng = np.random.default_rng(seed)
    one = cluster(rng, 2, 3)
    counts, cost_ms = rng.integers(0, 60, (2, 3)).astype(float), rng.uniform(1.0, 4.0, 3)
    best = 0.0
    for bits in product((False, True), repeat=6):
        held = np.array(bits).reshape(2, 3)
        if (held @ one.memory_mb <= one.room_mb).all():
            best = max(best, most_served(held, counts, cost_ms))
    bound = bound_on_served(one, counts, cost_ms, WINDOW_MS)
    assert best <= bound * (1 + 1e-9)
    work = counts.max(axis=0) * cost_ms / WINDOW_MS
    none = np.zeros((2, 3), dtype=bool)
    copies = choose_copies(one, calm(counts.mean(axis=0) / WINDOW_MS, work), none, 0.005)
    target = place_copies(one, copies, work, none)
    true_gap = 1.0 - most_served(target, counts, cost_ms) / best
    assert true_gap <= gap_of(one, target, counts, cost_ms, WINDOW_MS) + 1e-9


def test_memory_and_places_hold_and_what_is_there_stays():
    rng = np.random.default_rng(7)
    one = cluster(rng, 4, 6)
    work = rng.uniform(0.1, 0.9, 6)
    held = np.zeros((4, 6), dtype=bool)
    held[np.arange(4), np.arange(4)] = one.memory_mb[:4] <= one.room_mb
    copies = choose_copies(one, calm(work / 2.0, work), held, 0.005)
    target = place_copies(one, copies, work, held)
    assert (target @ one.memory_mb <= one.room_mb + 1e-9).all()
    assert (target.sum(axis=0) <= copies).all()
    stays = held & (copies > 0)
    assert (target >= stays).all()


def test_what_is_asked_most_gets_more_copies_and_the_gap_is_nothing_where_all_fits():
    one = CopyProblem(np.ones(3), np.full(3, 10.0), np.full(3, 10.0), np.ones((3, 3), dtype=bool),
                  np.full(3, 10.0), 1.0)
    work = np.array([2.0, 0.4, 0.0])
    none = np.zeros((3, 3), dtype=bool)
    copies = choose_copies(one, calm(work / 2.0, work), none, 0.1)
    assert copies.tolist() == [3, 2, 0]
    target = place_copies(one, copies, work, none)
    counts = work[None, :] * WINDOW_MS / 2.0
    assert gap_of(one, target, counts, np.full(3, 2.0), WINDOW_MS) == pytest.approx(0.0)
