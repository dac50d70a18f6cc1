"""Average-reward and semi-Markov problems whose optimum has a closed form."""

from collections.abc import Callable

import numpy as np
import pytest

from ramsis.mdp import linear_program, policy_iteration, value_iteration
from ramsis.mdp.evaluation import evaluate_policy
from ramsis.mdp.result import Solution
from ramsis.mdp.sparse import SparseMDP
from ramsis.mdp.toolbox import solve_with_pymdptoolbox
from tests.mdp.instances import machine

SOLVERS = [value_iteration, policy_iteration, linear_program, solve_with_pymdptoolbox]
Solver = Callable[[SparseMDP], Solution]

each_solver = pytest.mark.parametrize("solve", SOLVERS, ids=lambda solve: solve.__name__)


@each_solver
@pytest.mark.parametrize(("p", "q"), [(0.3, 0.6), (1.0, 1.0), (1e-3, 0.2)])
def test_two_state_chain(solve, p, q):
    """Gain (q r0 + p r1) / (p + q), relative values (r1 - r0) / (p + q) apart."""
    mdp = SparseMDP.from_pairs([(0, 0, {0: 1 - p, 1: p}, 2.0), (1, 0, {0: q, 1: 1 - q}, 5.0)])
    solution = solve(mdp)
    assert solution.gain == pytest.approx((q * 2.0 + p * 5.0) / (p + q), abs=1e-9)
    assert np.diff(solution.value)[0] == pytest.approx(3.0 / (p + q), rel=1e-6)


@each_solver
def test_machine_replacement_is_periodic_and_has_the_best_cycle(solve):
    """Replacing at age n earns (sum of n incomes - price) / (n + 1) per period."""
    life, income, decay, price = 12, 10.0, 0.7, 8.0
    cycles = [(sum(income - decay * k for k in range(n)) - price) / (n + 1)
              for n in range(1, life + 1)]
    solution = solve(machine(life, income, decay, price))
    best = int(np.argmax(cycles))
    assert solution.gain == pytest.approx(cycles[best], abs=1e-9)
    assert solution.policy[: best + 2].tolist() == [0] * (best + 1) + [1]


@each_solver
def test_renewal_reward_takes_the_best_ratio(solve):
    """One state: the gain is the best reward per unit of cost, not the best reward."""
    mdp = SparseMDP.from_pairs([
        (0, 0, {0: 1.0}, 9.0, 4.0), (0, 1, {0: 1.0}, 5.0, 2.0), (0, 2, {0: 1.0}, 1.0, 0.5)])
    solution = solve(mdp)
    assert solution.gain == pytest.approx(2.5, abs=1e-9)
    assert solution.policy.tolist() == [1]


@each_solver
def test_batch_server_whose_empty_epochs_cost_nothing(solve):
    """Queries answered per query: the empty state costs nothing and is passed through.

    One or two queries wait after an empty epoch (chances 1/2). Two are served well together, or
    badly; the gain is E[reward] / E[cost] over a cycle.
    """
    mdp = SparseMDP.from_pairs([
        (0, 0, {1: 0.5, 2: 0.5}, 0.0, 0.0),
        (1, 0, {0: 0.8, 1: 0.2}, 0.9, 1.0),
        (2, 0, {0: 1.0}, 2 * 0.7, 2.0),
        (2, 1, {0: 0.5, 1: 0.5}, 2 * 0.8, 2.0),
    ])
    per_visit_of_1 = 1 / 0.8
    ratios = [
        (0.5 * 0.9 * per_visit_of_1 + 0.5 * 1.4) / (0.5 * per_visit_of_1 + 0.5 * 2),
        (0.75 * 0.9 * per_visit_of_1 + 0.5 * 1.6) / (0.75 * per_visit_of_1 + 0.5 * 2),
    ]
    solution = solve(mdp)
    assert solution.gain == pytest.approx(max(ratios), abs=1e-9)
    assert solution.policy[2] == int(np.argmax(ratios))
    assert solution.certificate.bellman_residual < 1e-8


@each_solver
def test_gain_scales_with_the_unit_of_cost(solve):
    pairs = [(0, 0, {0: 0.1, 1: 0.9}, 1.0, 3.0), (0, 1, {1: 1.0}, 2.0, 5.0),
             (1, 0, {0: 0.7, 1: 0.3}, 4.0, 2.0)]
    small = SparseMDP.from_pairs(pairs)
    large = SparseMDP.from_pairs([(*pair[:4], 1000 * pair[4]) for pair in pairs])
    assert solve(large).gain == pytest.approx(solve(small).gain / 1000, rel=1e-6)


def test_absorbing_chain_evaluates_to_the_expected_sum():
    """Discounted geometric sum, and the gain of the state that absorbs."""
    mdp = SparseMDP.from_pairs([(0, 0, {0: 0.5, 1: 0.5}, 1.0), (1, 0, {1: 1.0}, 0.0)])
    assert evaluate_policy(mdp, [0, 0], 0.8).value[0] == pytest.approx(1 / (1 - 0.4))
    average = evaluate_policy(mdp, [0, 0])
    assert average.gain == 0.0
    assert average.value.tolist() == pytest.approx([2.0, 0.0])


def test_discount_zero_is_the_best_immediate_reward():
    mdp = SparseMDP.from_pairs([(0, 0, {0: 1.0}, 1.0), (0, 1, {0: 1.0}, 3.0)])
    for solve in (value_iteration, policy_iteration, linear_program):
        solution = solve(mdp, discount=0.0)
        assert solution.value[0] == pytest.approx(3.0, abs=1e-9)
        assert solution.policy.tolist() == [1]
