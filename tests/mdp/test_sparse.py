"""The sparse decision problem: what it accepts, what it refuses, what it exports."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from ramsis.errors import InvalidValueError, RamsisError
from ramsis.mdp import policy_iteration
from ramsis.mdp.sparse import SparseMDP
from ramsis.mdp.toolbox import to_pymdptoolbox, to_quantecon


def arrays(**changes: Any) -> dict[str, Any]:
    """Three states, five pairs, as the constructor takes them."""
    given: dict[str, Any] = {
        "state": np.array([0, 0, 1, 1, 2]),
        "action": np.array([4, 7, 4, 9, 7]),
        "transition": np.array([[0.5, 0.5, 0], [0, 0, 1], [0.2, 0.3, 0.5], [0, 1, 0], [1, 0, 0]]),
        "reward": np.arange(5.0),
        "cost": np.array([1.0, 0.0, 2.0, 3.0, 4.0]),
    }
    return given | changes


def changed(name: str, index: Any, value: float) -> dict[str, Any]:
    """The arrays with one entry changed."""
    array = arrays()[name].copy()
    array[index] = value
    return arrays(**{name: array})


def test_pairs_in_any_order_are_sorted_and_all_arrays_follow():
    given, order = arrays(), np.array([3, 0, 4, 2, 1])
    sorted_, shuffled = SparseMDP(**given), SparseMDP(**{k: v[order] for k, v in given.items()})
    for name in ("state", "action", "reward", "cost"):
        np.testing.assert_array_equal(getattr(shuffled, name), given[name])
    np.testing.assert_array_equal(shuffled.transition.toarray(), sorted_.transition.toarray())
    assert shuffled.first.tolist() == [0, 2, 4, 5]


def test_duplicate_entries_add_up_and_stored_zeros_vanish_without_touching_the_input():
    matrix = sparse.csr_array(
        (np.array([0.25, 0.0, 0.75, 1.0]), np.array([1, 0, 1, 0]), np.array([0, 3, 4])),
        shape=(2, 2),
    )
    mdp = SparseMDP(np.array([0, 1]), np.array([0, 0]), matrix, np.zeros(2))
    assert mdp.transition.nnz == 2
    assert mdp.transition[0, 1] == 1.0
    assert matrix.nnz == 4


def test_rows_off_by_rounding_are_rescaled_and_rows_further_off_are_refused():
    near = SparseMDP(**changed("transition", (1, 2), 1 - 5e-10))
    assert near.transition.sum(axis=1) == pytest.approx(np.ones(5), abs=1e-15)
    with pytest.raises(InvalidValueError, match=r"state 0, action 7: .*add up to 1: got 0\.99999"):
        SparseMDP(**changed("transition", (1, 2), 1 - 2e-9))


@pytest.mark.parametrize(("bad", "message"), [
    (changed("transition", (2, 0), -0.2), r"state 1, action 4: .*to state 0.*got -0\.2"),
    (changed("transition", (2, 1), np.nan), r"state 1, action 4: .*to state 1.*got nan"),
    (changed("transition", (3, 1), np.inf), r"state 1, action 9: .*to state 1.*got inf"),
    (changed("transition", (3, 1), 0.9), r"state 1, action 9: .*add up to 1: got 0\.9;"),
    (changed("transition", (3, 1), 0.0), r"state 1, action 9: .*add up to 1: got 0\.0;"),
    (changed("reward", 4, np.nan), r"state 2, action 7: reward is not allowed: got nan"),
    (changed("reward", 0, np.inf), r"state 0, action 4: reward is not allowed: got inf"),
    (changed("cost", 2, -1.0), r"state 1, action 4: cost.*got -1\.0; allowed: a finite.*>= 0"),
    (changed("cost", 2, np.nan), r"state 1, action 4: cost is not allowed: got nan"),
    (changed("action", 1, 4), r"state 0, action 4: the pair is given twice"),
    (changed("state", 4, 1), r"state 2: state has no action"),
    (changed("state", 4, 3), r"state 3, action 7: state index out of range: got 3.*0 … 2"),
    (changed("state", 0, -1), r"state -1, action 4: state index out of range: got -1"),
    (arrays(state=np.zeros(5)), r"state is not an array of integers: got 'float64'"),
    (arrays(reward=np.zeros(4)), r"reward has the wrong shape: got \(4,\); allowed: \(5,\)"),
    (arrays(transition=np.zeros(5)), r"transition is not a matrix of numbers"),
    (arrays(transition=np.zeros((5, 0))), r"transition is not a matrix of numbers"),
    (arrays(state_names=("a", "b")), r"state_names has the wrong length: got 2; allowed: 3"),
])
def test_bad_arrays_are_refused_naming_the_place(bad, message):
    with pytest.raises(InvalidValueError, match=message):
        SparseMDP(**bad)


def test_the_first_of_several_bad_pairs_is_named():
    rows = arrays()["transition"].copy()
    rows[[1, 3]] *= 2
    with pytest.raises(InvalidValueError, match="state 0, action 7"):
        SparseMDP(**arrays(transition=rows))


def test_a_negative_entry_is_not_hidden_by_a_duplicate_that_makes_up_for_it():
    matrix = sparse.csr_array(
        (np.array([1.5, -0.5]), np.array([0, 0]), np.array([0, 2])), shape=(1, 1)
    )
    with pytest.raises(InvalidValueError, match=r"state 0, action 0: .*got -0\.5"):
        SparseMDP(np.array([0]), np.array([0]), matrix, np.zeros(1))


def test_a_next_state_out_of_range_is_refused():
    matrix = sparse.csr_array(np.eye(2))
    matrix.indices[1] = 5
    with pytest.raises(InvalidValueError, match=r"state 1, action 0: next state out of .*got 5"):
        SparseMDP(np.array([0, 1]), np.array([0, 0]), matrix, np.zeros(2))
    with pytest.raises(InvalidValueError):
        SparseMDP.from_pairs([(0, 0, {3: 1.0}, 0.0)], n_states=1)


def test_names_of_states_appear_in_messages():
    with pytest.raises(InvalidValueError, match=r"state 1 \(busy\), action 4"):
        SparseMDP(**changed("cost", 2, -1.0), state_names=("empty", "busy", "full"))


def test_dense_arrays_and_lists_of_pairs_give_the_same_problem():
    transition = np.array([[[0.5, 0.5], [0, 1]], [[1, 0], [0.25, 0.75]]])
    numbers = [[1, 2], [3, 4]]
    dense = SparseMDP.from_dense(transition, numbers, allowed=[[True, True], [False, True]],
                                 cost=numbers)
    listed = SparseMDP.from_pairs([
        (1, 1, {0: 0.25, 1: 0.75}, 4, 4), (0, 0, {0: 0.5, 1: 0.5}, 1, 1), (0, 1, {0: 1.0}, 2, 2)])
    for name in ("state", "action", "reward", "cost"):
        np.testing.assert_array_equal(getattr(dense, name), getattr(listed, name))
    np.testing.assert_array_equal(dense.transition.toarray(), listed.transition.toarray())


def test_dense_arrays_of_unfitting_shapes_are_refused():
    with pytest.raises(InvalidValueError, match="shapes of transition and reward"):
        SparseMDP.from_dense(np.ones((2, 1, 1)), np.zeros((1, 3)))
    with pytest.raises(InvalidValueError, match="cost has the wrong shape"):
        SparseMDP.from_dense(np.ones((2, 1, 1)), np.zeros((1, 2)), cost=np.ones(2))
    with pytest.raises(InvalidValueError, match="wrong lengths"):
        SparseMDP.from_pairs([(0, 0, {0: 1.0}, 1.0), (0, 1, {0: 1.0}, 1.0, 1.0)])


def test_a_policy_that_takes_a_missing_action_is_refused():
    mdp = SparseMDP(**arrays())
    assert mdp.pairs_of([7, 4, 7]).tolist() == [1, 2, 4]
    with pytest.raises(InvalidValueError, match=r"state 1: .*got 7; allowed: 4, 9"):
        mdp.pairs_of([7, 7, 7])
    with pytest.raises(InvalidValueError, match="one action label per state"):
        mdp.pairs_of([7, 4])


def test_best_takes_the_first_of_equal_pairs():
    largest, rows = SparseMDP(**arrays()).best(np.array([1.0, 1.0, -2.0, 3.0, -5.0]))
    assert largest.tolist() == [1.0, 3.0, -5.0]
    assert rows.tolist() == [0, 3, 4]


def test_export_to_pymdptoolbox_fills_missing_actions_with_dominated_copies():
    mdp = SparseMDP(**arrays())
    probability, reward = to_pymdptoolbox(mdp)
    assert mdp.labels.tolist() == [4, 7, 9]
    assert reward.shape == (3, 3)
    np.testing.assert_array_equal(probability[1].toarray()[1], mdp.transition.toarray()[2])
    assert reward[1, 1] == mdp.reward[2] - (1 + np.ptp(mdp.reward))
    assert (reward[0, 0], reward[0, 1], reward[1, 2], reward[2, 1]) == (0, 1, 3, 4)


def test_exported_rows_pass_the_strict_check_of_pymdptoolbox():
    util = pytest.importorskip("mdptoolbox.util")
    rows = np.random.default_rng(3).random((400, 400)) ** 8
    rows /= rows.sum(axis=1, keepdims=True) * (1 + 5e-13)
    mdp = SparseMDP(np.arange(400), np.zeros(400, dtype=int), rows, np.zeros(400))
    assert not util.isStochastic(mdp.transition)
    assert util.isStochastic(to_pymdptoolbox(mdp)[0][0].toarray())


def test_export_to_quantecon_solves_to_the_same_values():
    markov = pytest.importorskip("quantecon.markov")
    mdp = SparseMDP(**arrays(cost=None))
    reward, transition, state, action = to_quantecon(mdp)
    found = markov.DiscreteDP(reward, transition, 0.9, state, action).solve("policy_iteration")
    np.testing.assert_allclose(policy_iteration(mdp, discount=0.9).value, found.v, atol=1e-12)


TOOLBOX_P = np.array([[[0.5, 0.5], [0.8, 0.2]], [[0.0, 1.0], [0.1, 0.9]]])
TOOLBOX_R = np.array([[5.0, 10.0], [-1.0, 2.0]])


@pytest.mark.parametrize("transition", [
    TOOLBOX_P, TOOLBOX_P.tolist(), [sparse.csr_matrix(matrix) for matrix in TOOLBOX_P],
    tuple(sparse.coo_array(matrix) for matrix in TOOLBOX_P),
    np.array([sparse.csr_matrix(matrix) for matrix in TOOLBOX_P] + [None], dtype=object)[:2],
])
def test_matrices_by_action_may_be_dense_or_sparse(transition):
    problem = SparseMDP.from_dense(transition, TOOLBOX_R)
    assert problem.transition.toarray() == pytest.approx(
        TOOLBOX_P.transpose(1, 0, 2).reshape(4, 2))
    assert problem.reward.tolist() == [5.0, 10.0, -1.0, 2.0]


def test_rewards_of_transitions_are_weighted_by_their_probabilities():
    """As pymdptoolbox does: R[s, a] = sum over s' of P[a, s, s'] R[a, s, s']."""
    of_transitions = np.arange(8.0).reshape(2, 2, 2)
    expected = [sum(TOOLBOX_P[a, s, j] * of_transitions[a, s, j] for j in range(2))
                for s in range(2) for a in range(2)]
    for reward in (of_transitions, of_transitions.tolist(),
                   [sparse.csr_matrix(matrix) for matrix in of_transitions]):
        for transition in (TOOLBOX_P, [sparse.csr_matrix(matrix) for matrix in TOOLBOX_P]):
            assert SparseMDP.from_dense(transition, reward).reward == pytest.approx(expected)
    assert SparseMDP.from_dense(TOOLBOX_P, [3.0, 4.0]).reward.tolist() == [3.0, 3.0, 4.0, 4.0]


@pytest.mark.parametrize(("transition", "reward", "words"), [
    (TOOLBOX_P, np.zeros((3, 2, 2)), "shapes of transition and reward do not fit"),
    (TOOLBOX_P, 3.0, "shapes of transition and reward do not fit"),
    (TOOLBOX_P, "abc", "reward is not an array of numbers.*allowed: "),
    (["a", "b"], TOOLBOX_R, "transition is not an array of numbers.*allowed: "),
    ([np.eye(2), np.eye(3)], TOOLBOX_R, "not one square matrix per action"),
    ([], TOOLBOX_R, "not one square matrix per action"),
])
def test_other_forms_of_arrays_are_refused_in_a_line(transition, reward, words):
    with pytest.raises(RamsisError, match=words):
        SparseMDP.from_dense(transition, reward)


def test_names_of_states_are_refused_with_the_way_to_number_them():
    names = ["well", "ill"]
    pairs = [("well", 0, {"well": 0.9, "ill": 0.1}, 1.0), ("ill", 0, {"well": 1.0}, 0.0)]
    with pytest.raises(InvalidValueError, match=r"got 'well'.*names\.index\(state\)"):
        SparseMDP.from_pairs(pairs)
    numbered = [
        (names.index(state), action, {names.index(j): p for j, p in chances.items()}, reward)
        for state, action, chances, reward in pairs]
    assert SparseMDP.from_pairs(numbered, state_names=names).name(1) == "state 1 (ill)"
