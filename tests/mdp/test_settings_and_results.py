"""Settings that solvers refuse, certificates, the reductions, the bridge's own rules."""

import json

import numpy as np
import pytest
from hypothesis import given, settings

from ramsis.errors import InfeasibleError, InvalidValueError, NotConvergedError
from ramsis.mdp import linear_program, policy_iteration, value_iteration
from ramsis.mdp.evaluation import evaluate_policy
from ramsis.mdp.result import Certificate, Criterion, Status
from ramsis.mdp.semi_markov import eliminate_free_states, to_unit_costs
from ramsis.mdp.sparse import SparseMDP
from ramsis.mdp.toolbox import solve_with_pymdptoolbox
from tests.mdp.instances import dense_random, small_mdps

MDP = SparseMDP.from_pairs([
    (0, 0, {0: 0.5, 1: 0.5}, 1.0), (0, 1, {0: 1.0}, 1.5), (1, 0, {0: 1.0}, 4.0)])
SOLVERS = [value_iteration, policy_iteration, linear_program, solve_with_pymdptoolbox]


@pytest.mark.parametrize("solve", SOLVERS, ids=lambda solve: solve.__name__)
@pytest.mark.parametrize("discount", [-0.1, float("nan"), ])
def test_discounts_outside_zero_to_one_are_refused(solve, discount):
    with pytest.raises(InvalidValueError, match=r"discount is out of range: got .*0 <= discount"):
        solve(MDP, discount=discount)


@pytest.mark.parametrize("solve", SOLVERS, ids=lambda solve: solve.__name__)
def test_discount_one_points_to_average_reward(solve):
    with pytest.raises(InvalidValueError, match=r"use average reward: got 1.*None for average"):
        solve(MDP, discount=1)


def test_evaluation_refuses_the_same_discounts():
    with pytest.raises(InvalidValueError, match="discount is out of range"):
        evaluate_policy(MDP, [0, 0], 2.0)


@pytest.mark.parametrize("solve", [value_iteration, policy_iteration, solve_with_pymdptoolbox])
@pytest.mark.parametrize(
    "bad", [{"tolerance": 0.0}, {"tolerance": float("nan")},
            {"max_iterations": 0}, ],
)
def test_bad_stopping_settings_are_refused(solve, bad):
    with pytest.raises(InvalidValueError, match=next(iter(bad))):
        solve(MDP, **bad)


@pytest.mark.parametrize("solve", SOLVERS, ids=lambda solve: solve.__name__)
def test_settings_are_echoed(solve):
    solution = solve(MDP, discount=0.9)
    assert solution.settings["discount"] == 0.9
    assert isinstance(solution.settings["solver"], str)
    assert solution.gain is None
    assert solution.state_gain is None
    assert solution.certificate.criterion is Criterion.DISCOUNTED


def test_discounted_solutions_say_that_costs_play_no_part():
    priced = SparseMDP(MDP.state, MDP.action, MDP.transition, MDP.reward, cost=2 * MDP.costs)
    solution, plain = policy_iteration(priced, discount=0.9), policy_iteration(MDP, discount=0.9)
    assert solution.value == pytest.approx(plain.value)
    assert "costs" in solution.certificate.notes[0]
    assert plain.certificate.notes == ()


def test_a_certificate_becomes_plain_json():
    certificate = Certificate(Criterion.AVERAGE, Status.MAX_ITERATIONS, 7, 0.5, -np.inf, 2.0,
                              notes=("a note",))
    document = json.loads(json.dumps(certificate.as_dict(), allow_nan=False))
    assert document["status"] == "max-iterations"
    assert document["converged"] is False
    assert document["lower_bound"] is None
    assert document["upper_bound"] == 2.0
    assert document["notes"] == ["a note"]


def test_only_a_converged_certificate_satisfies_its_demand():
    policy_iteration(MDP).certificate.require_converged()
    short = value_iteration(MDP, max_iterations=1).certificate
    with pytest.raises(NotConvergedError, match=r"load 400: solver stopped after 1 iterations"):
        short.require_converged("load 400")


# Reductions of semi-Markov problems


@settings(max_examples=30, deadline=None)
@given(mdp=small_mdps(free_state=True))
def test_eliminated_states_leave_gain_and_values_unchanged(mdp):
    reduced = eliminate_free_states(mdp)
    assert reduced.free.tolist() == [mdp.n_states - 1]
    whole, small = policy_iteration(mdp), policy_iteration(reduced.mdp)
    assert small.gain == pytest.approx(whole.gain, abs=1e-9)
    assert np.ptp(reduced.expand_value(small.value) - whole.value) < 1e-8


@settings(max_examples=30, deadline=None)
@given(mdp=small_mdps(costs=True))
def test_unit_costs_keep_the_gain_and_scale_the_values(mdp):
    transformed, step = to_unit_costs(mdp, damping=0.25)
    whole, unit = policy_iteration(mdp), policy_iteration(transformed)
    assert unit.gain == pytest.approx(whole.gain, abs=1e-9)
    assert np.ptp(step * unit.value - whole.value) < 1e-7


def test_a_walk_through_free_states_is_passed_through_at_once():
    """From 0 through 1 and 2, which lead back and forth at no cost, to 0 or 3."""
    mdp = SparseMDP.from_pairs([
        (0, 0, {1: 1.0}, 1.0, 1.0),
        (1, 0, {2: 0.5, 0: 0.5}, 2.0, 0.0),
        (2, 0, {1: 0.5, 3: 0.5}, 4.0, 0.0),
        (3, 0, {0: 1.0}, 0.0, 1.0)])
    reduced = eliminate_free_states(mdp)
    np.testing.assert_allclose(reduced.mdp.transition.toarray(), [[2 / 3, 1 / 3], [1, 0]])
    assert reduced.mdp.reward == pytest.approx([1 + (2 + 0.5 * 4) / 0.75, 0.0])
    assert value_iteration(mdp).gain == pytest.approx(policy_iteration(mdp).gain, abs=1e-9)


@pytest.mark.parametrize("solve", [value_iteration, solve_with_pymdptoolbox])
def test_free_pairs_that_cannot_be_eliminated_are_refused(solve):
    choice = [(0, 0, {0: 1.0}, 1.0, 1.0), (0, 1, {0: 1.0}, 0.0, 0.0)]
    with pytest.raises(InvalidValueError, match=r"state 0, action 1: the pair costs nothing"):
        solve(SparseMDP.from_pairs(choice))
    trap = [(0, 0, {1: 1.0}, 1.0, 1.0), (1, 0, {2: 1.0}, 0.0, 0.0), (2, 0, {1: 1.0}, 0.0, 0.0)]
    with pytest.raises(InvalidValueError, match=r"state 1: the state costs nothing and leads"):
        solve(SparseMDP.from_pairs(trap))
    with pytest.raises(InvalidValueError, match="every pair costs nothing"):
        solve(SparseMDP.from_pairs([(0, 0, {0: 1.0}, 1.0, 0.0)]))


# Linear program


def test_rewards_for_ever_at_no_cost_are_infeasible():
    free = [(0, 0, {0: 1.0}, 1.0, 0.0), (0, 1, {0: 1.0}, 1.0, 1.0)]
    with pytest.raises(InfeasibleError, match="average reward is not defined"):
        linear_program(SparseMDP.from_pairs(free))
    with pytest.raises(InfeasibleError, match="average reward is not defined"):
        linear_program(SparseMDP.from_pairs([(0, 0, {0: 1.0}, 1.0, 0.0)]))


def test_states_that_are_never_visited_are_completed_and_noted():
    """State 1 is left at once and for ever; the better of its two ways is known."""
    mdp = SparseMDP.from_pairs([
        (0, 0, {0: 1.0}, 1.0), (1, 0, {1: 0.5, 0: 0.5}, 0.0), (1, 1, {0: 1.0}, 0.5)])
    solution = linear_program(mdp)
    assert solution.gain == pytest.approx(1.0)
    assert solution.certificate.gap < 1e-9
    assert "never visited" in solution.certificate.notes[-1]


@pytest.mark.parametrize("unit", [1e-12, 1e-6, 1e6, 1e9, 1e12])
def test_a_linear_program_is_solved_in_any_unit_of_the_costs(unit):
    pairs = [(0, 0, {0: 0.5, 1: 0.5}, 1.0, 2.0 * unit), (0, 1, {0: 1.0}, 1.5, unit),
             (1, 0, {0: 1.0}, 4.0, unit), (2, 0, {2: 0.5, 0: 0.5}, 0.0, unit)]
    solution = linear_program(SparseMDP.from_pairs(pairs))
    assert solution.gain * unit == pytest.approx(1.5)
    assert solution.policy.tolist() == [1, 0, 0]
    assert solution.certificate.gap * unit < 1e-9


def test_a_linear_program_ends_where_only_dear_states_are_visited():
    """Visits to state 0 are a billionth as frequent as cheap ones would be."""
    dear = [(0, 0, {0: 1.0}, 1.0, 3e9), *((s, 0, {0: 1.0}, 0.0, 1.0) for s in (1, 2, 3))]
    solution = linear_program(SparseMDP.from_pairs(dear))
    assert solution.gain == pytest.approx(1.0 / 3e9)


# Bridge to pymdptoolbox


def test_the_bridge_refuses_algorithms_that_do_not_fit():
    with pytest.raises(InvalidValueError, match=r"unknown algorithm.*got 'q-learning'"):
        solve_with_pymdptoolbox(MDP, "q-learning", discount=0.9)
    with pytest.raises(InvalidValueError, match="does not fit the discount"):
        solve_with_pymdptoolbox(MDP, "value-iteration")
    with pytest.raises(InvalidValueError, match="does not fit the discount"):
        solve_with_pymdptoolbox(MDP, "relative-value-iteration", discount=0.9)
    with pytest.raises(InvalidValueError, match="no discount of 0"):
        solve_with_pymdptoolbox(MDP, discount=0.0)


@pytest.mark.parametrize(("algorithm", "discount"), [
    ("value-iteration", 0.999), ("modified-policy-iteration", 0.999),
    ("policy-iteration", 0.999), ("relative-value-iteration", None)
])
def test_the_bridge_reports_a_limit_that_was_reached(algorithm, discount):
    mdp = SparseMDP.from_pairs([
        (0, 0, {0: 1.0}, 1.0), (0, 1, {1: 1.0}, 0.0), (1, 0, {0: 0.1, 1: 0.9}, 2.0)])
    short = solve_with_pymdptoolbox(mdp, algorithm, discount=discount, max_iterations=1)
    assert short.certificate.status is Status.MAX_ITERATIONS
    assert solve_with_pymdptoolbox(mdp, algorithm, discount=discount).certificate.converged


def test_the_bridge_corrects_the_values_that_are_off_by_a_constant():
    mdp = dense_random(6, 3, 8)
    exact = policy_iteration(mdp, discount=0.9).value
    for algorithm in ("value-iteration", "modified-policy-iteration"):
        bridged = solve_with_pymdptoolbox(mdp, algorithm, discount=0.9, tolerance=1e-4)
        assert bridged.value == pytest.approx(exact, abs=1e-9)
