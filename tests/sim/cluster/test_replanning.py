"""Loads in balance against a linear programme, and the best change against all of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from ramsis.sim.schedulers.loading import _kernels
from ramsis.sim.schedulers.loading.replanning import Demand, FleetHoldings, next_change


def holding(held: np.ndarray, work: np.ndarray, places: int = 2) -> FleetHoldings:
    workers, models = held.shape
    return FleetHoldings(held.copy(), held.copy(), work, np.ones(held.shape), np.ones(models),
                   np.full(workers, np.inf), np.full(workers, float(places)),
                   np.ones(workers, dtype=bool))


def loads_in_balance(held: np.ndarray, work: np.ndarray) -> np.ndarray:
    loads = np.zeros(len(held))
    _kernels.balanced(held, work, loads)
    return loads


def lowest_largest_load(held: np.ndarray, work: np.ndarray) -> float:
    """min t: Σ_w f_wm = 1, Σ_m work_wm f_wm <= t, f = 0 where not held."""
    workers, models = held.shape
    size = workers * models
    loads = np.zeros((workers, size + 1))
    parts = np.zeros((models, size + 1))
    for w in range(workers):
        for m in range(models):
            loads[w, w * models + m] = work[w, m]
            parts[m, w * models + m] = 1.0
    loads[:, -1] = -1.0
    upper = [(0.0, 1.0 if one else 0.0) for one in held.ravel()] + [(0.0, None)]
    found = linprog(np.append(np.zeros(size), 1.0), loads, np.zeros(workers), parts,
                    np.ones(models), upper)
    return float(found.fun)


@pytest.mark.parametrize("seed", range(20))
def test_balanced_loads_carry_all_work_and_are_nearly_as_even_as_can_be(seed: int) -> None:
    rng = np.random.default_rng(seed)
    workers, models = 6, 4
    held = rng.random((workers, models)) < 0.5
    held[rng.integers(workers, size=models), range(models)] = True
    demand = rng.uniform(0.05, 0.9, models)
    work = np.tile(demand, (workers, 1))
    loads = loads_in_balance(held, work)
    assert loads.sum() == pytest.approx(demand.sum())
    assert (loads[~held.any(axis=1)] == 0).all()
    best = lowest_largest_load(held, work)
    assert best - 1e-9 <= loads.max() <= 1.1 * best


def test_work_of_unlike_workers_is_split_by_their_speed() -> None:
    held = np.ones((2, 1), dtype=bool)
    loads = loads_in_balance(held, np.array([[0.6], [1.2]]))
    assert loads == pytest.approx([0.4, 0.4])


def test_nothing_changes_where_there_is_little_to_do() -> None:
    held = np.eye(4, dtype=bool)
    work = np.full((4, 4), 0.1)
    assert next_change(holding(held, work), np.ones(4, dtype=bool), 10.0) is None


def test_an_overloaded_model_takes_the_place_of_what_has_copies_to_spare() -> None:
    held = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]], dtype=bool)
    work = np.tile([1.6, 0.2, 0.2], (4, 1))
    change = next_change(holding(held, work, places=1), np.array([True, False, False]), 10.0)
    assert change is not None
    assert (change.model, change.given_up) == (0, (1,))
    assert change.worker in (1, 2)


def test_the_only_copy_of_a_model_that_is_asked_for_stays() -> None:
    held = np.eye(2, dtype=bool)
    work = np.tile([3.0, 0.1], (2, 1))
    assert next_change(holding(held, work, places=1), np.ones(2, dtype=bool), 10.0) is None


def test_a_rate_is_that_of_the_past_and_follows_a_rise() -> None:
    demand = Demand(1)
    for at_ms in np.arange(0, 60_000, 100.0):
        demand.seen(0, at_ms)
    assert demand.per_ms(0, 60_000.0) == pytest.approx(0.01, rel=0.01)
    for at_ms in np.arange(60_000, 61_000, 10.0):
        demand.seen(0, at_ms)
    assert demand.per_ms(0, 61_000.0) > 0.05
    assert Demand(1).per_ms(0, 5.0) == 0.0
