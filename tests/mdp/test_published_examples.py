"""The documented examples of QuantEcon and pymdptoolbox, and Howard's taxi, at default settings.

Sources: QuantEcon, documentation of ``DiscreteDP`` (version 0.11) and the lecture "Discrete State
Dynamic Programming" (growth model: 16 stocks, storage of 5, shocks 0 to 10, square root utility,
discount 0.9); pymdptoolbox 4.0-b3, documentation of its solvers (forest management with three
ages, and the problem of two states); R. A. Howard, Dynamic Programming and Markov Processes
(1960), chapter 4 (three towns). The problems are written from the printed numbers.
"""

import numpy as np
import pytest
from numpy.typing import NDArray

from ramsis.mdp.result import Solution
from ramsis.mdp.solvers import DISCOUNTED_SOLVERS, SOLVERS, solve_average, solve_discounted
from ramsis.mdp.sparse import SparseMDP
from ramsis.mdp.stationary import stationary_distribution

# P[action][state], R[state][action]
FOREST = SparseMDP.from_dense(
    [[[0.1, 0.9, 0], [0.1, 0, 0.9], [0.1, 0, 0.9]], [[1, 0, 0], [1, 0, 0], [1, 0, 0]]],
    [[0, 0], [0, 1], [4, 2]])
SMALL = SparseMDP.from_dense([[[0.5, 0.5], [0.8, 0.2]], [[0, 1], [0.1, 0.9]]], [[5, 10], [-1, 2]])
TWO_STATES = SparseMDP.from_pairs([(0, 0, {0: 0.5, 1: 0.5}, 5.0), (0, 1, {1: 1.0}, 10.0),
                                   (1, 0, {1: 1.0}, -1.0)])


def policy_of(solution: Solution) -> list[int]:
    return [int(action) for action in solution.policy]


@pytest.mark.parametrize("solver", DISCOUNTED_SOLVERS)
def test_quantecon_two_states(solver):
    found = solve_discounted(TWO_STATES, 0.95, solver)
    assert found.certificate.converged
    assert policy_of(found) == [0, 0]
    assert found.value == pytest.approx([-8.57142857, -20.0], abs=1e-5)


@pytest.mark.parametrize("solver", DISCOUNTED_SOLVERS)
def test_pymdptoolbox_forest(solver):
    found = solve_discounted(FOREST, 0.9, solver)
    assert found.certificate.converged
    assert policy_of(found) == [0, 0, 0]
    assert found.value == pytest.approx([26.244, 29.484, 33.484], abs=1e-5)
    assert policy_of(solve_discounted(FOREST, 0.96, solver)) == [0, 0, 0]


@pytest.mark.parametrize("solver", DISCOUNTED_SOLVERS)
def test_pymdptoolbox_two_states(solver):
    """Its value iteration, which stops early, prints (40.05, 33.65); the exact values follow."""
    found = solve_discounted(SMALL, 0.9, solver)
    assert policy_of(found) == [1, 0]
    second = 6.2 / 0.172  # v1 = -1 + 0.9 (0.8 v0 + 0.2 v1), v0 = 10 + 0.9 v1
    assert found.value == pytest.approx([10 + 0.9 * second, second], abs=1e-5)


@pytest.mark.parametrize("solver", SOLVERS)
def test_pymdptoolbox_average_rewards(solver):
    forest, small = solve_average(FOREST, solver), solve_average(SMALL, solver)
    assert forest.certificate.converged
    assert small.certificate.converged
    assert forest.gain == pytest.approx(3.24, abs=1e-6)
    assert small.gain == pytest.approx(3.8852352464118312, abs=0.01)  # printed after 29 sweeps
    assert small.gain == pytest.approx(35 / 9, abs=1e-6)  # 10 in 4 of 9 decisions, else -1
    assert policy_of(forest) == [0, 0, 0]
    assert policy_of(small) == [1, 0]


def growth() -> SparseMDP:
    """Of a stock, at most 5 may be stored; the rest is eaten; a shock of 0 to 10 is added."""
    pairs = []
    for stock in range(16):
        for stored in range(min(stock, 5) + 1):
            chances = {stored + shock: 1 / 11 for shock in range(11)}
            pairs.append((stock, stored, chances, float(stock - stored) ** 0.5))
    return SparseMDP.from_pairs(pairs)


PRINTED: NDArray[np.float64] = np.array([
    19.01740222, 20.01740222, 20.43161578, 20.74945302, 21.04078099, 21.30873018, 21.54479816,
    21.76928181, 21.98270358, 22.18824323, 22.3845048, 22.57807736, 22.76109127, 22.94376708,
    23.11533996, 23.27761762])


@pytest.mark.parametrize("solver", DISCOUNTED_SOLVERS)
def test_quantecon_growth_model(solver):
    found = solve_discounted(growth(), 0.9, solver)
    assert found.certificate.converged
    assert found.value == pytest.approx(PRINTED, abs=1e-5)
    assert policy_of(found) == [0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 5, 5, 5]
    chances = np.zeros((16, 16))
    for stock, stored in enumerate(policy_of(found)):
        chances[stock, stored:stored + 11] = 1 / 11
    law = stationary_distribution(chances).distribution
    assert law[:3] == pytest.approx([0.01732187, 0.04121063, 0.05773956], abs=1e-7)


# Town, fare: chances of the next town, and what each trip earns.
TAXI = {
    (0, 0): ([1 / 2, 1 / 4, 1 / 4], [10, 4, 8]),
    (0, 1): ([1 / 16, 3 / 4, 3 / 16], [8, 2, 4]),
    (0, 2): ([1 / 4, 1 / 8, 5 / 8], [4, 6, 4]),
    (1, 0): ([1 / 2, 0, 1 / 2], [14, 0, 18]),
    (1, 1): ([1 / 16, 7 / 8, 1 / 16], [8, 16, 8]),
    (2, 0): ([1 / 4, 1 / 4, 1 / 2], [10, 2, 8]),
    (2, 1): ([1 / 8, 3 / 4, 1 / 8], [6, 4, 2]),
    (2, 2): ([3 / 4, 1 / 16, 3 / 16], [4, 0, 8]),
}


@pytest.mark.parametrize("solver", SOLVERS)
def test_howards_taxi(solver):
    """He waits at the stand in the second town and drives there from the others: 13.34 a trip."""
    found = solve_average(SparseMDP.from_pairs([
        (town, way, {j: p for j, p in enumerate(chances) if p}, float(np.dot(chances, fares)))
        for (town, way), (chances, fares) in TAXI.items()]), solver)
    assert found.certificate.converged
    assert policy_of(found) == [1, 1, 1]
    assert found.gain == pytest.approx(13.34, abs=0.005)
    assert found.value - found.value[2] == pytest.approx([-1.18, 12.66, 0.0], abs=0.005)
