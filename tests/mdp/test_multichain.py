"""Average reward where the gain depends on the starting state, or is told from others with effort.

The problem of fifteen states and its values are those of a test of the model checker Storm.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.errors import RamsisError
from ramsis.mdp import policy_iteration, value_iteration
from ramsis.mdp.components import end_components
from ramsis.mdp.result import Solution, Status
from ramsis.mdp.solvers import SOLVERS, solve_average
from ramsis.mdp.sparse import SparseMDP
from tests.mdp.instances import small_mdps
from tests.reference.dense_mdp import best_gain

MOVES: list[list[dict[int, float]]] = [
    [{1: 1}], [{0: 1}, {2: 1}, {4: 0.7, 6: 0.3}], [{0: 1}], [{4: 1}, {5: 0.8, 9: 0.2}],
    [{3: 1}, {5: 1}], [{3: 1}], [{7: 1}], [{6: 1}, {8: 1}], [{6: 1}], [{10: 1}],
    [{9: 1}, {11: 1}], [{9: 1}], [{5: 0.4, 8: 0.3, 11: 0.3}], [{7: 0.7, 12: 0.3}],
    [{12: 0.1, 13: 0.9}, {12: 1}]]
REWARDED = {1, 4, 5, 7, 11, 13, 14}
LARGEST = {0: 37 / 60, 3: 2 / 3, 6: 1 / 2, 9: 1 / 3, 12: 31 / 60, 13: 101 / 200, 14: 31 / 60}
SMALLEST = {0: 0.1, 3: 0.0, 6: 1 / 3, 9: 0.0, 12: 0.1, 13: 79 / 300, 14: 0.1}


def fifteen(sign: float) -> SparseMDP:
    return SparseMDP.from_pairs([(state, action, chances, sign * (state in REWARDED))
                                 for state, actions in enumerate(MOVES)
                                 for action, chances in enumerate(actions)])


def check(solution: Solution, best: dict[int, float]) -> None:
    """Gains are these, bounds hold them, from each state and over all of them."""
    assert solution.certificate.status is Status.OPTIMAL
    assert solution.state_gain is not None
    assert solution.state_lower is not None
    assert solution.state_upper is not None
    for state, gain in best.items():
        assert solution.state_gain[state] == pytest.approx(gain, abs=1e-9)
        assert solution.state_lower[state] - 1e-12 <= gain <= solution.state_upper[state] + 1e-12
    assert (solution.state_upper - solution.state_lower).max() < 1e-7
    lower, upper = solution.certificate.lower_bound, solution.certificate.upper_bound
    assert lower == pytest.approx(min(solution.state_gain), abs=1e-7)
    assert upper == pytest.approx(max(solution.state_gain), abs=1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
def test_fifteen_states_of_a_model_checker(solver):
    check(solve_average(fifteen(1.0), solver), LARGEST)
    check(solve_average(fifteen(-1.0), solver), {s: -gain for s, gain in SMALLEST.items()})


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_state_that_may_stay_at_a_loss_goes_where_the_gain_is(solver):
    mdp = SparseMDP.from_pairs([(0, 0, {1: 1.0}, 0.0), (0, 1, {0: 1.0}, 0.5),
                                (1, 0, {0: 0.5, 1: 0.5}, 0.0), (1, 1, {1: 1.0}, 0.0)])
    check(solve_average(mdp, solver), {0: 0.5, 1: 0.5})


@settings(max_examples=40, deadline=None)
@given(mdp=st.one_of(small_mdps(unichain=False), small_mdps(unichain=False, costs=True)))
def test_every_solver_finds_the_best_gain_of_every_state(mdp):
    best = dict(enumerate(best_gain(mdp)))
    for solver in SOLVERS:
        found = solve_average(mdp, solver)
        check(found, best)
        assert (found.gain is None) == (np.ptp(list(best.values())) > 1e-8)


@settings(max_examples=40, deadline=None)
@given(mdp=small_mdps(unichain=False, costs=True), seed=st.integers(0, 2**16))
def test_bounds_of_each_state_hold_for_any_policy(mdp, seed):
    rng = np.random.default_rng(seed)
    initial = mdp.action[rng.integers(mdp.first[:-1], mdp.first[1:])]
    found, best = policy_iteration(mdp, initial=initial, max_iterations=1), best_gain(mdp)
    assert found.state_gain is not None
    assert found.state_lower is not None
    assert found.state_upper is not None
    assert (found.state_lower <= found.state_gain + 1e-9).all()
    assert (best <= found.state_upper + 1e-9).all()
    assert best.max() <= found.certificate.upper_bound + 1e-9


def ring(size: int, skipped: int) -> SparseMDP:
    """A way around, which earns 1 once; a shortcut passes over some states."""
    pairs = [(s, 0, {(s + 1) % size: 1.0}, float(s == 0)) for s in range(size)]
    return SparseMDP.from_pairs([*pairs, (1, 1, {skipped + 2: 1.0}, 0.0)])


@pytest.mark.parametrize("solver", SOLVERS[:3])
def test_a_long_ring_has_its_exact_gain(solver):
    """Damped value iteration needs as many sweeps as the square of its length."""
    found = solve_average(ring(1000, 499), solver)
    assert found.certificate.status is Status.OPTIMAL
    assert found.gain == pytest.approx(1 / 501, rel=1e-9)


def test_plain_value_iteration_on_a_ring_says_that_it_did_not_end():
    found = value_iteration(ring(100, 49), damping=0.5, max_iterations=500)
    certificate = found.certificate
    assert certificate.status is Status.MAX_ITERATIONS
    assert certificate.lower_bound <= 1 / 51 <= certificate.upper_bound
    assert certificate.gap > 1e-3


def walk(size: int, down: float, sign: float) -> SparseMDP:
    """From each state a gambler goes on at his own pace: two games, both against him."""
    pairs = [(0, 0, {0: 1.0}, 0.0), (size, 0, {size: 1.0}, sign)]
    for s in range(1, size):
        pairs += [(s, a, {s - 1: lose, s + 1: 1.0 - lose}, 0.0)
                  for a, lose in enumerate((down, down * (1 - 1e-4 * (s % 3))))]
    return SparseMDP.from_pairs(pairs)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_chance_of_1e_minus_40_has_ten_digits(sign):
    size, down = 20, 0.99
    found = solve_average(walk(size, down, sign))
    # The chance h to win from 1 follows from h(s+1) - h(s) = (lose / win) (h(s) - h(s-1)).
    lose = [Fraction(down if sign < 0 or s % 3 == 0 else down * (1 - 1e-4 * (s % 3)))
            for s in range(size)]
    step = total = Fraction(1)
    for s in range(1, size):
        step *= lose[s] / (1 - lose[s])
        total += step
    assert total > 10**37
    assert sign * found.state_gain[1] == pytest.approx(float(1 / total), rel=1e-10)


def test_nothing_gained_is_exactly_nothing():
    """Whoever can keep away for ever has a chance of 0, not of rounding."""
    mdp = SparseMDP.from_pairs([
        (0, 0, {0: 0.1, 1: 0.9}, 0.0), (1, 0, {0: 0.3, 2: 0.7}, 0.0), (2, 0, {2: 1.0}, 0.0),
        (3, 0, {2: 0.5, 4: 0.5}, 0.0), (3, 1, {1: 1.0}, 0.0), (4, 0, {4: 1.0}, -1.0)])
    found = solve_average(mdp)
    assert found.state_gain.tolist() == [0.0, 0.0, 0.0, 0.0, -1.0]


def errand(loop_reward: float) -> SparseMDP:
    """Reward until the start is reached again, where alone there is a cost: a total per errand.

    In state 1 one may tarry for ever at no cost.
    """
    return SparseMDP.from_pairs([
        (0, 0, {1: 1.0}, 0.0, 1.0), (1, 0, {1: 1.0}, loop_reward, 0.0),
        (1, 1, {2: 1.0}, -2.0, 0.0), (2, 0, {0: 0.5, 1: 0.5}, -3.0, 0.0)])


@pytest.mark.parametrize("loop_reward", [-1.0, 0.0])
def test_a_total_until_the_end_avoids_what_never_ends(loop_reward):
    found = solve_average(errand(loop_reward))
    assert found.certificate.status is Status.OPTIMAL
    assert found.gain == pytest.approx(-10.0)
    assert found.policy.tolist() == [0, 1, 0]


@pytest.mark.parametrize("solver", ["policy-iteration", "linear-program"])
def test_reward_for_ever_at_no_cost_is_refused(solver):
    with pytest.raises(RamsisError, match=r"no cost|not defined"):
        solve_average(errand(1.0), solver)


def test_end_components_of_nested_cycles():
    mdp = SparseMDP.from_pairs([
        (0, 0, {1: 1.0}, 0.0), (1, 0, {0: 1.0}, 0.0), (1, 1, {0: 0.5, 2: 0.5}, 0.0),
        (2, 0, {3: 1.0}, 0.0), (3, 0, {2: 0.9, 4: 0.1}, 0.0), (3, 1, {2: 1.0}, 0.0),
        (4, 0, {4: 1.0}, 0.0), (5, 0, {0: 0.5, 4: 0.5}, 0.0)])
    found = end_components(mdp)
    assert found.label.tolist() == [0, 0, 1, 1, 2, -1]
    assert found.inside.tolist() == [True, True, False, True, False, True, True, False]


@pytest.mark.parametrize("seldom", [1e-3, 1e-9, 1e-14])
def test_what_seldom_happens_is_told_from_what_matters_little(seldom):
    """The longest wait leads to the better end; and is the cheaper errand in the end."""
    def wait(first: float, second: float) -> dict[int, float]:
        return {0: 1.0 - seldom * (first + second), 1: seldom * first, 2: seldom * second}

    ends = SparseMDP.from_pairs([
        (0, 0, {1: 0.5000001, 2: 0.4999999}, 0.0), (0, 1, wait(0.5, 0.5), 0.0),
        (0, 2, wait(0.5, 0.50001), 0.0), (1, 0, {1: 1.0}, 1.0), (2, 0, {2: 1.0}, 2.0)])
    found = solve_average(ends)
    assert found.certificate.status is Status.OPTIMAL
    assert found.policy.tolist() == [2, 0, 0]
    assert found.state_gain[0] == pytest.approx((0.5 + 2 * 0.50001) / 1.00001, rel=1e-12)
    errands = SparseMDP.from_pairs([
        (0, 0, {1: 1.0}, -1.00001, 0.0), (0, 1, {0: 1.0 - seldom, 1: seldom}, -seldom, 0.0),
        (1, 0, {0: 1.0}, 0.0, 1.0)])
    found = solve_average(errands)
    assert found.certificate.status is Status.OPTIMAL
    assert found.policy.tolist() == [1, 0]
    assert found.gain == pytest.approx(-1.0, rel=1e-12)


def test_an_end_that_takes_1e30_steps_has_all_its_digits():
    """States that lead to each other, and out with chances of 1e-16 that go to a trap first."""
    seldom = 1e-16
    mdp = SparseMDP.from_pairs([
        (0, 0, {1: 1.0 - seldom, 2: seldom}, 0.0), (1, 0, {0: 1.0}, 0.0),
        (2, 0, {0: 1.0 - 3 * seldom, 3: seldom, 4: 2 * seldom}, 0.0),
        (3, 0, {3: 1.0}, 0.0), (4, 0, {4: 1.0}, 1.0)])
    found = solve_average(mdp)
    assert found.state_gain[:3] == pytest.approx([2 / 3, 2 / 3, 2 / 3], rel=1e-14)
