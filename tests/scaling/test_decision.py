"""The decisions of workers one by one against a decision process over all of them at once."""

from itertools import pairwise, product

import numpy as np
import pytest

from ramsis.mdp.solvers import solve_average
from ramsis.mdp.sparse import SparseMDP
from ramsis.runtime.scaling_table import stages_of
from ramsis.scaling.synthesis import concave_gains, solve_workers


def _instance(seed: int, states: int, workers: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    gains = -np.sort(-rng.uniform(0.0, 3.0, (states, workers)), axis=1)
    return gains, rng.dirichlet(np.full(states, 0.7), states)


def _all_at_once(gains, transition, cost, stages, partial):
    """States are the load and the ages of all workers; actions the number wanted."""
    states, workers = gains.shape
    ages = [one for one in product(range(stages + 1), repeat=workers)
            if all(a >= b for a, b in pairwise(one))]
    number = {state: i for i, state in enumerate(product(range(states), ages))}
    share = [0.0] * stages + [1.0]
    if stages:
        share[-2] = partial
    pairs = []
    for (load, row), i in number.items():
        for wanted in range(workers + 1):
            reward = sum(share[row[k]] * gains[load, k] - cost for k in range(wanted))
            after = tuple(min(age + 1, stages) if k < wanted else 0 for k, age in enumerate(row))
            pairs.append((i, wanted, {number[s, after]: transition[load, s]
                                      for s in range(states)}, reward))
    return solve_average(SparseMDP.from_pairs(pairs))


@pytest.mark.parametrize(("seed", "states", "workers", "stages", "partial"), [
    (1, 3, 3, 0, 0.0), (2, 3, 3, 1, 0.0), (3, 2, 3, 1, 0.4), (4, 3, 2, 3, 0.25),
    (5, 4, 2, 2, 0.0)])
def test_workers_one_by_one_are_as_good_as_all_at_once(seed, states, workers, stages, partial):
    gains, transition = _instance(seed, states, workers)
    found = solve_workers(gains, transition, cost=1.0, stages=stages, partial=partial,
                          tolerance=1e-8)
    best = _all_at_once(gains, transition, 1.0, stages, partial)
    assert found.average == pytest.approx(best.gain, abs=1e-6)
    assert found.span <= 1e-8 * workers


def test_thresholds_do_not_fall_with_age():
    gains, transition = _instance(8, 5, 6)
    transition = 0.9 * np.eye(5) + 0.1 * transition  # loads that stay make it worth to follow
    thresholds = solve_workers(gains, transition, cost=1.0, stages=3, partial=0.1).thresholds
    assert (np.diff(thresholds, axis=1) >= 0).all()
    assert (thresholds[:, -1] > thresholds[:, 0]).any()
    assert len(set(thresholds[:, 0].tolist())) > 1


def test_values_to_begin_with_change_nothing():
    gains, transition = _instance(9, 4, 3)
    first = solve_workers(gains, transition, cost=1.0, stages=2, partial=0.0, tolerance=1e-7)
    again = solve_workers(gains, transition, cost=1.0, stages=2, partial=0.0, tolerance=1e-7,
                          initial=first.values)
    assert again.sweeps < first.sweeps
    assert (again.thresholds == first.thresholds).all()


def test_gains_of_concave_values_stay_and_others_are_shared():
    concave = np.array([[0.0, 5.0, 8.0, 9.0]])
    assert concave_gains(concave).tolist() == [[5.0, 3.0, 1.0]]
    late = np.array([[0.0, 0.0, 0.0, 9.0, 10.0, 12.0]])
    assert concave_gains(late) == pytest.approx(np.array([[3.0, 3.0, 3.0, 1.5, 1.5]]))


def test_a_start_up_is_a_number_of_intervals_and_a_part():
    assert stages_of(103.0, 15.0) == (7, pytest.approx(7 - 103 / 15))
    assert stages_of(300.0, 15.0) == (20, 0.0)
