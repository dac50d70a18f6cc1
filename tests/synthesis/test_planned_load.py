"""Policies for arrivals that are not Poisson: planned for Poisson, promised under their own."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ramsis.errors import InputFileError
from ramsis.policy import Policy, read
from ramsis.profiles import load as load_profile
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.verify.replay import played
from tests.slow import slow_after
from tests.synthesis import samples
from tests.verify.mutations import failures

MMPP = "mmpp:ratio=4,burst-ms=200,share=0.2"


def made(arrivals: str, dispatch: str = "round-robin", load_qps: float = 700.0,
         **changes: Any) -> Policy:
    return generate_policy(samples.tiny_profile(), load_qps, samples.settings(
        **{"dispatch": dispatch, "arrivals": arrivals, "max_queue": 6, "batching": None,
           "grid": "fixed:8", **changes}))


@pytest.fixture
def trace(tmp_path):
    """Requests in pairs of clumps, one row each."""
    rng = np.random.default_rng(3)
    times = np.cumsum(rng.gamma(0.25, 40.0, 5000))
    path = tmp_path / "trace.csv"
    path.write_text("time_ms\n" + "\n".join(f"{t:.3f}" for t in times) + "\n")
    return path


@pytest.mark.parametrize(("dispatch", "arrivals"), slow_after(2, [
    ("central-queue", MMPP), ("round-robin", "renewal:2"), ("round-robin", "negative-binomial:4"),
    ("central-queue", "fixed-rate")]))
def test_the_promise_is_what_another_simulator_measures_under_the_process(dispatch, arrivals):
    policy = made(arrivals, dispatch)
    assert policy.load_factor is not None
    assert policy.load_factor >= 1.0
    assert policy.replay is not None
    again = played(policy, seed=77)
    for name in ("violation_rate", "effective_accuracy"):
        width = policy.replay.half_widths[name] + (again[name].half_width or 0.0)
        assert getattr(policy.expectations, name) == pytest.approx(
            again[name].mean, abs=1.5 * width + 1e-5)


@pytest.mark.parametrize("dispatch", slow_after(
    2, ["round-robin", "central-queue", "shortest-queue"]))
def test_a_recorded_trace_is_an_arrival_process(dispatch, trace, tmp_path):
    policy = made(f"trace:{trace}", dispatch)
    assert policy.arrivals["process"] == "trace"
    assert policy.arrivals["requests"] == 5000
    assert failures(policy, tmp_path) == []
    assert read(tmp_path / "policy.json").to_document() == policy.to_document()
    trace.write_text(trace.read_text() + "99999999\n")
    with pytest.raises(InputFileError, match="not the trace that is named"):
        failures(policy, tmp_path)


def test_bursts_are_planned_for_at_a_higher_load_where_that_earns_more():
    bursty, poisson = (generate_policy(load_profile("text-cpu"), 2467.0, SynthesisSettings(
        slo_ms=60.0, workers=7, arrivals=arrivals, service="p95", headroom=0.0, max_queue=16))
        for arrivals in ("mmpp:ratio=6,burst-ms=100,share=0.1", "poisson"))
    assert bursty.load_factor is not None
    assert bursty.load_factor > 1.0
    seen, other = (played(replace(one, arrivals=bursty.arrivals)) for one in (bursty, poisson))
    assert seen["violation_rate"].mean < other["violation_rate"].mean - 0.01


@pytest.mark.parametrize("dispatch", ["round-robin", "central-queue"])
def test_a_budget_is_met_under_the_process(dispatch):
    policy = made(MMPP, dispatch, max_violation=0.01, load_qps=500.0)
    assert policy.budget is not None
    assert played(policy)["violation_rate"].mean < 0.012


def test_every_claim_of_a_central_queue_with_bursts_holds(tmp_path):
    policy = made(MMPP, "central-queue", headroom=0.003)
    assert failures(policy, tmp_path) == []
    assert failures(replace(policy, load_factor=policy.load_factor * 1.5), tmp_path)


def test_poisson_policies_state_no_factor():
    assert "load_factor" not in made("poisson").to_document()
