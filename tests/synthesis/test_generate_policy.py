"""One policy: solvers agree, objectives are what they say, extremes have finite answers."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.errors import InfeasibleError, InvalidValueError, NotConvergedError
from ramsis.files import fingerprint
from ramsis.plugins import trusting
from ramsis.policy import Policy, policy_text
from ramsis.runtime.decisions import Drop
from ramsis.runtime.selector import Selector
from ramsis.runtime.table import DROP_CODE
from ramsis.synthesis import generate_policy
from ramsis.synthesis.generate import modelled_policy
from ramsis.synthesis.simulated import simulated
from ramsis.worker.problem import MAX_QUEUE
from ramsis.worker.problem.queue import MAX_DIVISIONS
from ramsis.worker.solve import SOLVERS
from ramsis.worker.solve import worker_model as worker
from tests.policy.samples import tables
from tests.slow import slow_after
from tests.synthesis import samples


@pytest.mark.parametrize(("objective", "load_qps"), [
    ("per-query", 20.0), ("per-decision", 500.0), ("per-query", 1200.0)])
def test_all_solvers_find_policies_of_the_same_gain(tiny, objective, load_qps):
    chosen = [
        samples.settings(grid="fixed:6", max_queue=4, objective=objective, solver=solver)
        for solver in SOLVERS
    ]
    found = [generate_policy(tiny, load_qps, one).certificate for one in chosen]
    assert [one.solver for one in found] == list(SOLVERS)
    # The first solves on slack nodes, the others the explicit rows: equal, and up to quadrature.
    for first, second, error in ((1, 2, 1e-7), (2, 3, 1e-7), (0, 2, 1e-4)):
        assert found[first].gain == pytest.approx(found[second].gain, abs=error)
    for one in found:
        assert one.converged
        assert one.gain_lower is not None
        assert one.gain_upper is not None
        assert one.gain_lower - 1e-9 <= one.gain <= one.gain_upper + 1e-9
        assert one.gain_upper - one.gain_lower < 1e-6


@settings(max_examples=15, deadline=None)
@given(profile=samples.linear_profiles(), workers=st.integers(1, 4),
       demand=st.floats(0.05, 1.5), slo=st.floats(1.0, 6.0))
def test_policies_of_either_objective_are_the_best_by_it_on_any_profile(
    profile, workers, demand, slo
):
    """In their model, which makes them; what is measured has its own errors."""
    fastest = float(profile.latency_table("p95", 1).latency_ms.min())
    by_query, by_decision = (
        modelled_policy(
            profile, demand * workers * 1000 / fastest,
            samples.settings(slo_ms=slo * fastest, workers=workers, grid="fixed:10",
                             max_queue=4, objective=objective, late="serve",
                             violation_price=0.0),
        ).expectations
        for objective in ("per-query", "per-decision")
    )
    assert by_query.effective_accuracy >= by_decision.effective_accuracy - 1e-9
    mine, other = by_query.per_decision, by_decision.per_decision
    assert (other.accuracy or 0.0) * (1 - other.violation_rate) >= (
        (mine.accuracy or 0.0) * (1 - mine.violation_rate) - 1e-9)


def _finite(policy: Policy) -> bool:
    """Whether every number of the policy is finite; its text has none that is not."""
    expected = policy.expectations
    assert "NaN" not in policy_text(policy)
    rates = [expected.violation_rate, expected.effective_accuracy, expected.utilisation,
             expected.full_queue_rate, expected.upper_bound or 0.0, expected.accuracy or 0.0]
    return all(0.0 <= rate <= 1.0 for rate in rates) and math.isfinite(policy.certificate.gain)


@pytest.mark.parametrize("workers", [1, 1000])
@pytest.mark.parametrize("per_worker_qps", [1e-9, 440.0, 1e3])
def test_one_and_a_thousand_workers_at_any_load(tiny, workers, per_worker_qps):
    """A worker serves 444 queries/s at most."""
    policy = generate_policy(tiny, per_worker_qps * workers, samples.settings(workers=workers))
    assert _finite(policy)
    expected = policy.expectations
    if per_worker_qps <= 0.1:
        assert expected.effective_accuracy == pytest.approx(0.9, abs=2e-4)
        assert not expected.overloaded
    if per_worker_qps >= 1e3:
        assert expected.overloaded
        assert expected.violation_rate > 0.5
        assert expected.utilisation > 0.95


@pytest.mark.parametrize("changes", [
    {"grid": "fixed:1"}, {"grid": "model"}, {"max_queue": 1}, {"slo_ms": 4.0}, {"slo_ms": 1e4},
    {"grid": "fixed:1", "max_queue": 1, "workers": 1, "slo_ms": 4.0}
], ids=str)
@pytest.mark.parametrize("load_qps", [1e-6, 3e4])
def test_smallest_tables_and_extreme_slos(tiny, changes, load_qps):
    policy = generate_policy(tiny, load_qps, samples.settings(**changes))
    assert _finite(policy)
    if load_qps < 1:
        best = 0.6 if changes.get("slo_ms") == 4.0 else 0.9
        assert policy.expectations.effective_accuracy == pytest.approx(best, abs=1e-3)
    if load_qps > 1e4:
        assert policy.expectations.overloaded


@pytest.mark.parametrize("load_qps", [1.0, 500.0, 5000.0])
def test_a_single_model_is_the_answer_everywhere(load_qps):
    profile = samples.linear_profile((0.7, 5.0, 2.0))
    policy = modelled_policy(profile, load_qps, samples.SETTINGS)
    assert (tables(policy)[0] == 0).all()
    assert policy.expectations.model_share == {"m0": pytest.approx(1.0)}
    assert policy.expectations.accuracy in (None, pytest.approx(0.7))


@pytest.mark.parametrize("solver", ["policy-iteration", "value-iteration"])
@pytest.mark.parametrize("load_qps", slow_after(1, [6000.0, 300_000.0]))
def test_iterations_settle_far_above_capacity(tiny, solver, load_qps):
    """Requests beyond the table are charged to the gain many times over there."""
    policy = generate_policy(tiny, load_qps, samples.settings(
        solver=solver, late="serve", grid="fixed:6", max_queue=4))
    assert policy.certificate.converged
    assert policy.expectations.effective_accuracy == pytest.approx(0.0, abs=1e-6)


def test_the_file_says_what_it_was_made_of(tiny):
    policy = generate_policy(tiny, 600.0, samples.SETTINGS)
    assert policy.inputs.profile == fingerprint(tiny.to_document())
    assert policy.inputs.profile_name == "tiny"
    assert [m.name for m in policy.models] == ["small", "medium", "large"]
    assert policy.models[0].latency_ms[:4] == (4.0, 6.0, 8.0, 10.0)
    assert policy.models[0].latency_origin == "mmimiiime"
    np.testing.assert_array_equal(tables(policy)[1][:, -1], np.arange(1, 9))
    assert (policy.slo_ms, policy.workers, policy.load_qps) == (100.0, 4, 600.0)
    assert policy.certificate.nodes_per_bin == 2


def test_dominated_models_are_left_out():
    profile = samples.linear_profile((0.6, 4.0, 2.0), (0.5, 5.0, 3.0), (0.9, 20.0, 15.0))
    policy = generate_policy(profile, 100.0, samples.SETTINGS)
    assert [m.name for m in policy.models] == ["m0", "m2"]


@pytest.mark.parametrize(("changes", "says"), [
    ({"service": "p42"}, "service: unknown service: got 'p42'; allowed: p95, p99, p90, p50, "),
    ({"slo_ms": 0.0}, "slo_ms: .*got 0.0; allowed: "),
    ({"workers": 2.5}, "SynthesisSettings: workers: .*got 2.5; allowed: a whole number"),
    ({"max_queue": MAX_QUEUE + 1}, f"max_queue: .*allowed: .*{MAX_QUEUE}"),
    ({"grid": "fixed:0"}, "grid: .*got 0; allowed: a whole number D from 1"),
    ({"grid": f"fixed:{MAX_DIVISIONS + 1}"}, f"grid: .*allowed: .*{MAX_DIVISIONS}"),
    ({"grid": "fine"}, "grid: .*got 'fine'; allowed: fixed:D"),
    ({"arrivals": "json:nothing"}, "arrivals: .*got 'json:nothing'; allowed: "),
])
def test_what_is_out_of_range_is_named(tiny, changes, says):
    with pytest.raises(InvalidValueError, match=f"^{says}"):
        generate_policy(tiny, 100.0, samples.settings(**changes))


def test_an_slo_below_every_latency_cannot_be_met(tiny):
    with pytest.raises(InfeasibleError, match=r"^slo_ms: .*got 3.9; allowed: at least 4 ms"):
        generate_policy(tiny, 100.0, samples.settings(slo_ms=3.9))


@pytest.mark.parametrize(("load_qps", "changes"), [
    (1e300, {}), (50.0, {"workers": 10**23}), (50.0, {"slo_ms": 1e300}),
    (1e4, {"grid": "fixed:2000", "max_queue": 2000})
], ids=str)
def test_a_problem_that_would_fill_the_memory_is_refused(tiny, load_qps, changes):
    with pytest.raises(InvalidValueError, match=r"too large: got .*; allowed: fewer workers"):
        generate_policy(tiny, load_qps, samples.settings(**changes))


def test_a_solver_that_does_not_settle_is_an_error(tiny, monkeypatch):
    from ramsis.worker.solve import policy_iteration

    solve = policy_iteration.solve_on_nodes
    monkeypatch.setattr(worker, "solve_on_nodes",
                        lambda mdp, initial=None: solve(mdp, max_rounds=1))
    with pytest.raises(NotConvergedError, match=r"^load 600 QPS: .*1 iterations"):
        generate_policy(tiny, 600.0, samples.SETTINGS)


@pytest.mark.parametrize("own", ["OwnPoisson", "by_the_minute"])
def test_arrivals_of_ones_own_give_what_poisson_gives(tiny, own):
    """With no closed forms at hand, only PF(k, T); by the name that it was made by.

    The class of what a factory returns may not be enough to make it again.
    """
    name = f"tests.synthesis.samples:{own}"
    with trusting([name]):
        policy = modelled_policy(tiny, 700.0, samples.settings(arrivals=name))
    known = modelled_policy(tiny, 700.0, samples.SETTINGS)
    assert policy.arrivals == {"process": name}
    for rate in ("effective_accuracy", "violation_rate"):
        assert getattr(policy.expectations, rate) == pytest.approx(
            getattr(known.expectations, rate), abs=1e-7)


def test_a_queue_longer_than_the_table_is_served_while_it_can_be_in_time(tiny):
    """It is treated as one of the last row; dropping what is beyond the table loses by it."""
    policy = generate_policy(tiny, 1500.0, samples.settings(late="drop", max_queue=6))
    ask = Selector(policy.decision_table())
    for slack_ms in (policy.slo_ms, 0.6 * policy.slo_ms, 0.3 * policy.slo_ms, -1.0):
        assert ask(7, slack_ms) == ask(1000, slack_ms) == ask(6, slack_ms)
    assert ask(1000, policy.slo_ms).batch == 6  # type: ignore[union-attr]
    assert isinstance(ask(1000, -1.0), Drop)
    dropping = dataclasses.replace(policy, longer_queue=DROP_CODE)
    late, more = (simulated(one, queries=50_000, runs=2, seed=5).violation_rate
                  for one in (policy, dropping))
    assert late < 0.0005 < 0.001 < more


@pytest.mark.parametrize("dispatch", ["round-robin", "central-queue"])
def test_numbers_of_any_type_make_the_file_of_those_numbers(dispatch, tiny):
    """Replays are seeded by the load and the SLO, which a file gives back as floats."""
    def made(number: Any, whole: Any) -> dict[str, Any]:
        return generate_policy(tiny, number(300), samples.settings(
            dispatch=dispatch, slo_ms=number(100), workers=whole(2), grid="fixed:4",
            max_queue=whole(4), headroom=0.01)).to_document()

    assert made(int, int) == made(float, int) == made(np.float64, np.int64)
