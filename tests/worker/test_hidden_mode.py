"""Tables that do not see the mode: no single change improves them, none beats the bound."""

from __future__ import annotations

import numpy as np
import pytest

from ramsis.arrivals import MarkovModulated
from ramsis.errors import InvalidValueError
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.solve import SolverName, evaluate_table, solve_worker
from ramsis.worker.solve.hidden_mode import solve_hidden
from ramsis.worker.structure.evaluation import evaluate_on_nodes
from ramsis.worker.structure.modulated import build_modulated, repeat_modes
from tests.worker.problems import random_policy, small_problem

PROBLEMS = [
    small_problem(arrivals=MarkovModulated(110.0, 8.0, 100.0, 0.15)),
    small_problem(arrivals=MarkovModulated(60.0, 5.0, 20.0, 0.3), max_queue=3),
]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_no_single_change_of_the_table_gains(problem: WorkerProblem) -> None:
    solution = solve_worker(problem)
    mdp = build_modulated(problem, problem.arrivals)
    assert evaluate_on_nodes(mdp, repeat_modes(solution.policy)).gain == solution.gain
    for n, choices in enumerate(problem.actions.by_queue[:-1]):
        for choice in choices:
            for j in range(choice.first_bin, choice.stop_bin):
                other = solution.policy.copy()
                other[n, j] = choice.code
                assert evaluate_on_nodes(mdp, repeat_modes(other)).gain <= solution.gain + 1e-8


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_bounds_hold_for_every_table(problem: WorkerProblem) -> None:
    solution = solve_worker(problem)
    proof = solution.certificate
    assert proof.converged
    assert proof.lower_bound <= solution.gain <= proof.upper_bound
    mdp = build_modulated(problem, problem.arrivals)
    for seed in range(10):
        table = random_policy(problem, seed)
        assert evaluate_on_nodes(mdp, repeat_modes(table)).gain <= proof.upper_bound
        start = evaluate_on_nodes(mdp, repeat_modes(table)).gain
        assert solve_hidden(mdp, table).evaluation.gain >= start


def test_too_few_rounds_are_no_convergence() -> None:
    mdp = build_modulated(PROBLEMS[0], PROBLEMS[0].arrivals)
    found = solve_hidden(mdp, PROBLEMS[0].fastest_policy(), max_rounds=1)
    assert not found.certificate.converged


def test_visits_are_those_of_the_solution() -> None:
    solution = solve_worker(PROBLEMS[0])
    visits, excess = evaluate_table(PROBLEMS[0], solution.policy)
    np.testing.assert_allclose(visits, solution.frequency, atol=1e-12)
    assert excess == pytest.approx(solution.excess, abs=1e-12)


@pytest.mark.parametrize("solver", ["value-iteration", "linear-program", "pymdptoolbox"])
def test_other_solvers_know_no_hidden_mode(solver: SolverName) -> None:
    with pytest.raises(InvalidValueError, match=r"solver.*allowed: policy-iteration"):
        solve_worker(PROBLEMS[0], solver)
