"""Value iteration: its stopping rules, its damping, its kernel."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from ramsis.errors import InvalidValueError
from ramsis.mdp import policy_iteration, value_iteration
from ramsis.mdp._kernels import advantage_sweep
from ramsis.mdp.result import Status
from ramsis.mdp.sparse import SparseMDP
from tests.mdp.instances import dense_random, machine, small_mdps, two_sided


def sweeps(mdp: SparseMDP, damping: float | str, discount: float | None = None) -> int:
    certificate = value_iteration(mdp, damping=damping, discount=discount).certificate
    assert certificate.converged
    return certificate.iterations


@pytest.mark.parametrize("discount", [None, 0.999])
def test_adaptive_damping_is_fast_on_nearly_periodic_chains(discount):
    mdp = two_sided(10, leak=0.02, seed=1)
    undamped, damped = sweeps(mdp, 0.0, discount), sweeps(mdp, 0.5, discount)
    assert undamped > 5 * damped
    assert sweeps(mdp, "adaptive", discount) <= damped + 10


@pytest.mark.parametrize("discount", [None, 0.999])
def test_adaptive_damping_costs_nothing_on_fast_mixing_chains(discount):
    mdp = dense_random(30, 3, seed=1)
    undamped = sweeps(mdp, 0.0, discount)
    assert sweeps(mdp, 0.5, discount) > 1.5 * undamped
    assert sweeps(mdp, "adaptive", discount) == undamped


def test_adaptive_damping_loses_little_on_slowly_mixing_chains():
    """Damping only slows a chain that moves seldom; its trial must not last."""
    mdp = SparseMDP.from_pairs([(0, 0, {0: 0.97, 1: 0.03}, 0.0), (1, 0, {0: 0.02, 1: 0.98}, 1.0)])
    undamped = sweeps(mdp, 0.0)
    assert sweeps(mdp, 0.5) > 1.8 * undamped
    assert sweeps(mdp, "adaptive") <= undamped + 15


def test_a_periodic_chain_never_converges_undamped_and_does_so_adaptively():
    mdp = machine(8, 10.0, 0.7, 8.0)
    undamped = value_iteration(mdp, damping=0.0, max_iterations=2000)
    assert undamped.certificate.status is Status.MAX_ITERATIONS
    gain = policy_iteration(mdp).gain
    assert undamped.certificate.lower_bound <= gain <= undamped.certificate.upper_bound
    assert value_iteration(mdp).gain == pytest.approx(gain, abs=1e-9)


def test_values_are_within_the_tolerance_not_only_the_policy():
    mdp = dense_random(20, 3, seed=4)
    exact = policy_iteration(mdp, discount=0.95).value
    for tolerance in (1e-2, 1e-5):
        solution = value_iteration(mdp, discount=0.95, tolerance=tolerance)
        assert np.abs(solution.value - exact).max() <= tolerance
        error = exact - solution.value
        assert solution.certificate.lower_bound <= error.min()
        assert error.max() <= solution.certificate.upper_bound


def test_bounds_narrow_with_every_sweep_and_always_hold_the_gain():
    mdp = two_sided(5, leak=0.2, seed=2)
    gain = policy_iteration(mdp).gain
    gaps = []
    for count in range(1, 15):
        certificate = value_iteration(mdp, max_iterations=count).certificate
        assert certificate.lower_bound <= gain <= certificate.upper_bound
        gaps.append(certificate.gap)
    assert all(after <= before + 1e-12 for before, after in pairwise(gaps))


@pytest.mark.parametrize("discount", [None, 0.999, 0.999999])
def test_a_tolerance_below_rounding_ends_with_its_own_status(discount):
    solution = value_iteration(two_sided(10, 0.02, 1), discount=discount, tolerance=1e-18)
    assert solution.certificate.status is Status.PRECISION
    assert solution.certificate.iterations < 1000
    assert solution.certificate.gap < 1e-7


def test_values_stay_accurate_at_discounts_close_to_one():
    """The constant part of the values, gain / (1 - discount), must not eat their digits."""
    mdp = two_sided(10, 0.02, 1)
    discounted = value_iteration(mdp, discount=1 - 1e-6, tolerance=1e-7)
    average = value_iteration(mdp)
    assert discounted.certificate.converged
    assert discounted.value.mean() * 1e-6 == pytest.approx(average.gain, abs=1e-5)
    np.testing.assert_allclose(
        discounted.value - discounted.value[0], average.value - average.value[0], atol=1e-4)


def test_a_multichain_problem_ends_unconverged_with_bounds_over_all_states():
    mdp = SparseMDP.from_pairs([(0, 0, {0: 1.0}, 1.0), (1, 0, {1: 1.0}, 3.0)])
    certificate = value_iteration(mdp, max_iterations=50).certificate
    assert certificate.status is Status.MAX_ITERATIONS
    assert certificate.iterations == 50
    assert (certificate.lower_bound, certificate.upper_bound) == pytest.approx((1.0, 3.0))


@pytest.mark.parametrize("damping", [-0.1, 1.0, float("nan"), "none"])
def test_damping_out_of_range_is_refused(damping):
    with pytest.raises(InvalidValueError, match="damping is out of range"):
        value_iteration(dense_random(2, 1, 0), damping=damping)


@settings(max_examples=30, deadline=None)
@given(mdp=small_mdps(costs=True))
def test_the_kernel_equals_its_plain_twin(mdp):
    value = np.cos(np.arange(mdp.n_states))
    advantage, rows = np.empty(mdp.n_states), np.empty(mdp.n_states, dtype=np.uint64)
    matrix = mdp.transition
    advantage_sweep(
        mdp.first.astype(np.uint64),
        (matrix.indptr.astype(np.uint64), matrix.indices.astype(np.uint32), matrix.data),
        mdp.reward, mdp.costs, 0.9, value, advantage, rows,
    )
    for state in range(mdp.n_states):
        ratios = {
            pair: (mdp.reward[pair] + 0.9 * sum(matrix[pair, j] * value[j]
                                                for j in range(mdp.n_states)) - value[state])
            / mdp.costs[pair]
            for pair in range(mdp.n_pairs) if mdp.state[pair] == state
        }
        assert advantage[state] == pytest.approx(max(ratios.values()), abs=1e-12)
        assert ratios[int(rows[state])] == pytest.approx(max(ratios.values()), abs=1e-12)
