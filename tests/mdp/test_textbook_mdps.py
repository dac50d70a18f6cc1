"""Discounted textbook problems with known values: frozen lakes and the cliff walk."""

from collections.abc import Callable
from functools import partial

import pytest

from ramsis.mdp import linear_program, modified_policy_iteration, policy_iteration, value_iteration
from ramsis.mdp.result import Solution
from ramsis.mdp.toolbox import ALGORITHMS, solve_with_pymdptoolbox
from tests.mdp.instances import CLIFF_START, cliff_walking, frozen_lake

DISCOUNT = 0.99
SOLVERS: dict[str, Callable[..., Solution]] = {
    "value-iteration": partial(value_iteration, tolerance=1e-10),
    "policy-iteration": policy_iteration,
    "modified-policy-iteration": partial(modified_policy_iteration, tolerance=1e-10),
    "linear-program": linear_program,
} | {
    f"pymdptoolbox {name}": partial(solve_with_pymdptoolbox, algorithm=name)
    for name in ALGORITHMS[:3]
}

# (problem, start, value of the start). The cliff value is that of 14 moves at -1: the 13 of the
# shortest path and the one decision in the goal that ends the episode.
KNOWN = {
    "frozen lake 4x4": (frozen_lake(4), 0, 0.5420259320004736),
    "frozen lake 8x8": (frozen_lake(8), 0, 0.4146403617999881),
    "cliff walk": (cliff_walking(-1.0), CLIFF_START, -13.12541872310217),
    "cliff walk, free goal": (cliff_walking(0.0), CLIFF_START, -(1 - DISCOUNT**13) / 0.01),
}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("problem", KNOWN)
def test_value_of_the_start(problem, solver):
    mdp, start, value = KNOWN[problem]
    solution = SOLVERS[solver](mdp, discount=DISCOUNT)
    certificate = solution.certificate
    assert solution.value[start] == pytest.approx(value, abs=1e-9)
    assert certificate.converged
    assert certificate.lower_bound <= value - solution.value[start] <= certificate.upper_bound
    assert certificate.gap <= 1e-9


def test_the_lake_policy_shuns_the_holes():
    solution = policy_iteration(frozen_lake(4), discount=DISCOUNT)
    assert solution.policy[[0, 8, 14]].tolist() == [0, 3, 1]
