"""Policy iteration and exact evaluation: ties, several classes, bad scaling."""

import numpy as np
import pytest

from ramsis.errors import InvalidValueError
from ramsis.mdp import linear_program, policy_iteration
from ramsis.mdp.evaluation import evaluate_policy
from ramsis.mdp.result import Status
from ramsis.mdp.sparse import SparseMDP
from tests.mdp.instances import dense_random, two_sided


def weakly_linked(link: float) -> SparseMDP:
    """Two pairs of states, gains 4/3 and 11/3 alone, joined by a small chance both ways."""
    return SparseMDP.from_pairs([
        (0, 0, {0: 0.5, 1: 0.5 - link, 2: link}, 1.0), (1, 0, {0: 1.0}, 2.0),
        (2, 0, {2: 0.5, 3: 0.5 - link, 0: link}, 3.0), (3, 0, {2: 1.0}, 5.0)])


def fork() -> SparseMDP:
    """State 0 chooses between two islands, with gains 2 and 3; state 3 is stuck at 1."""
    return SparseMDP.from_pairs([
        (0, 1, {1: 1.0}, 100.0), (0, 2, {2: 1.0}, 0.0),
        (1, 0, {1: 1.0}, 2.0), (2, 0, {2: 1.0}, 3.0), (3, 0, {3: 1.0}, 1.0)])


def test_a_multichain_problem_gets_the_best_gain_of_each_state():
    solution = policy_iteration(fork(), initial=[1, 0, 0, 0])
    assert solution.gain is None
    assert solution.state_gain.tolist() == [3.0, 2.0, 3.0, 1.0]
    assert solution.policy[0] == 2
    assert solution.certificate.converged
    assert any("starting state" in note for note in solution.certificate.notes)


def test_a_multichain_first_policy_of_a_unichain_optimum_is_left_behind():
    """Staying put everywhere has two classes; the optimum goes to the better one."""
    mdp = SparseMDP.from_pairs([
        (0, 0, {0: 1.0}, 1.0), (0, 1, {1: 1.0}, 0.0),
        (1, 0, {1: 1.0}, 2.0), (1, 1, {0: 1.0}, 0.0)])
    solution = policy_iteration(mdp, initial=[0, 0])
    assert solution.gain == 2.0
    assert solution.policy.tolist() == [1, 0]
    assert solution.certificate.gap < 1e-12


def test_classes_with_equal_gain_do_not_make_it_cycle():
    """Two islands with the best gain and bridges both ways, all ties."""
    mdp = SparseMDP.from_pairs([
        (s, a, {t: 1.0}, 1.0) for s in range(4) for a, t in enumerate({s, 3 - s, (s + 1) % 4})])
    solution = policy_iteration(mdp)
    assert solution.gain == 1.0
    assert solution.certificate.converged
    assert solution.certificate.iterations == 1


def test_ties_keep_the_incumbent():
    mdp = SparseMDP.from_pairs([(0, a, {0: 0.3, 1: 0.7}, 1.0) for a in range(3)]
                               + [(1, a, {0: 0.6, 1: 0.4}, 2.0) for a in range(3)])
    for discount in (None, 0.9):
        solution = policy_iteration(mdp, discount=discount, initial=[2, 1])
        assert solution.policy.tolist() == [2, 1]
        assert solution.certificate.iterations == 1


def test_a_policy_of_several_classes_is_evaluated_from_every_state():
    mdp = SparseMDP.from_pairs([
        (0, 0, {1: 0.25, 2: 0.75}, 7.0), (1, 0, {1: 1.0}, 2.0), (2, 0, {3: 1.0}, 0.0),
        (3, 0, {2: 1.0}, 4.0)])
    evaluation = evaluate_policy(mdp, [0, 0, 0, 0])
    assert evaluation.state_gain == pytest.approx([2.0, 2.0, 2.0, 2.0])
    assert evaluation.gain == pytest.approx(2.0)
    assert evaluation.value == pytest.approx([0.25 * 0 + 0.75 * -1 + 5, 0.0, -1.0, 1.0])
    assert (evaluate_policy(fork(), [1, 0, 0, 0]).state_gain == [2.0, 2.0, 3.0, 1.0]).all()


@pytest.mark.parametrize("link", [1e-20, 1e-300])
def test_a_numerically_singular_policy_is_evaluated_without_its_weak_links(link):
    evaluation = evaluate_policy(weakly_linked(link), [0, 0, 0, 0])
    assert evaluation.gain is None
    assert evaluation.state_gain == pytest.approx([4 / 3, 4 / 3, 11 / 3, 11 / 3])
    assert "singular" in evaluation.notes[0]
    assert "singular" in policy_iteration(weakly_linked(link)).certificate.notes[0]


@pytest.mark.parametrize("link", [1e-3, 1e-6, 1e-9, 1e-12, 1e-14])
def test_bad_scaling_widens_the_bounds_instead_of_hiding(link):
    """The gain is (7.5 - 7 link) / (3 - 2 link): both halves are as likely for any link."""
    solution = policy_iteration(weakly_linked(link))
    certificate = solution.certificate
    exact = (7.5 - 7 * link) / (3 - 2 * link)
    assert certificate.lower_bound <= exact <= certificate.upper_bound
    assert certificate.lower_bound <= solution.gain <= certificate.upper_bound
    assert certificate.converged == (certificate.gap <= 1e-9 * (1 + solution.gain))


def test_a_rarely_visited_first_state_costs_no_digits():
    """The values relative to an almost never visited state would be astronomically large."""
    size = 60
    pairs = [(s, 0, {max(s - 1, 0): 0.02, min(s + 1, size - 1): 0.98}, float(s % 3))
             for s in range(size)]
    solution = policy_iteration(SparseMDP.from_pairs(pairs))
    weight = 49.0 ** np.arange(-size + 1, 1)
    exact = (weight * (np.arange(size) % 3)).sum() / weight.sum()
    assert solution.gain == pytest.approx(exact, abs=1e-13)
    assert solution.certificate.gap < 1e-9


def test_zero_costs_are_fine_while_no_class_is_free():
    """A state with a choice between free and paid actions, which cannot be eliminated."""
    mdp = SparseMDP.from_pairs([
        (0, 0, {1: 1.0}, 0.0, 0.0), (0, 1, {1: 1.0}, 3.0, 1.0), (1, 0, {0: 1.0}, 2.0, 1.0)])
    for solve in (policy_iteration, linear_program):
        solution = solve(mdp)
        assert solution.gain == pytest.approx(2.5)
        assert solution.policy.tolist() == [1, 0]
        assert solution.certificate.gap < 1e-9


def test_a_class_that_costs_nothing_is_refused_naming_its_state():
    mdp = SparseMDP.from_pairs(
        [(0, 0, {1: 1.0}, 1.0, 1.0), (1, 0, {1: 1.0}, 0.0, 0.0)], state_names=("a", "b"))
    with pytest.raises(InvalidValueError, match=r"state 1 \(b\): .*for ever at no cost"):
        policy_iteration(mdp)


def test_too_few_rounds_end_with_the_last_policy_evaluated():
    mdp = SparseMDP.from_pairs([
        (0, 0, {0: 1.0}, 1.0), (0, 1, {1: 1.0}, 0.0), (1, 0, {1: 1.0}, 2.0)])
    solution = policy_iteration(mdp, discount=0.9, initial=[0, 0], max_iterations=1)
    assert solution.certificate.status is Status.MAX_ITERATIONS
    assert solution.policy.tolist() == [0, 0]
    assert solution.value == pytest.approx([10.0, 20.0])
    assert solution.certificate.upper_bound >= 18 - 10  # the optimum of state 0


@pytest.mark.parametrize("discount", [None, 0.95])
def test_few_rounds_suffice_on_larger_problems(discount):
    for mdp in (two_sided(150, 0.05, 3), dense_random(200, 6, 5)):
        certificate = policy_iteration(mdp, discount=discount).certificate
        assert certificate.converged
        assert certificate.iterations <= 10
