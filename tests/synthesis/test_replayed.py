"""When a promise stays the model's, when runs have settled, and what is refused aloud."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from ramsis.arrays import FloatArray
from ramsis.arrivals import Poisson
from ramsis.errors import InvalidValueError
from ramsis.plugins import trusting
from ramsis.policy import Policy, read
from ramsis.profiles import load
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.replayed import as_stated_by, replayed
from ramsis.synthesis.simulated import measured
from tests.arrivals.processes import Wrapped
from tests.synthesis.samples import settings, tiny_profile
from tests.verify.mutations import failures


@dataclass(frozen=True)
class Sampled(Wrapped):
    """Poisson arrivals that can be drawn."""

    def sample(self, duration_ms: float, rng: np.random.Generator) -> FloatArray:
        return Poisson(self.load_qps).sample(duration_ms, rng)


@dataclass(frozen=True)
class Failing(Wrapped):
    """A process whose draws fail."""

    def sample(self, duration_ms: float, rng: np.random.Generator) -> FloatArray:
        raise InvalidValueError("no such day", where="calendar")


def generated(process: str) -> Policy:
    name = f"{__name__}:{process}"
    with trusting([name]):
        return generate_policy(tiny_profile(), 50.0, settings(arrivals=name))


@pytest.mark.parametrize(("name", "measured"), [("Wrapped", False), ("Sampled", True)])
def test_arrivals_that_cannot_be_drawn_leave_the_promise_of_the_model(name, measured):
    policy = generated(name)
    assert (policy.replay is not None) == measured


def test_an_error_of_the_process_is_not_swallowed():
    with pytest.raises(InvalidValueError, match="calendar: no such day"):
        generated("Failing")


@pytest.fixture(scope="module")
def overloaded():
    """A central queue at 101 % of its capacity, where the fastest model answers all requests.

    The queue takes some 100 SLOs to fill.
    """
    return generate_policy(load("text-cpu"), 12_206.3, SynthesisSettings(
        slo_ms=134.5, workers=13, dispatch="central-queue", service="distribution",
        headroom=0.0))


def test_near_the_capacity_the_steady_state_is_stated(overloaded, tmp_path):
    expected, replay = overloaded.expectations, overloaded.replay
    assert replay is not None
    assert expected.capacity_qps is not None
    least = 1.0 - expected.capacity_qps / overloaded.load_qps
    assert least <= expected.violation_rate <= least + 0.001
    assert expected.accuracy == pytest.approx(0.832, abs=1e-6)
    assert expected.response_p99_ms == pytest.approx(126.0, abs=3.0)
    assert (replay.warm_up_slos or 0.0) > 40.0
    assert failures(overloaded, tmp_path) == []
    assert read(tmp_path / "policy.json").replay == replay


def test_figures_of_a_queue_that_still_fills_are_refused(overloaded, tmp_path):
    filling = as_stated_by(overloaded, *measured(
        overloaded, queries=200_000, runs=8, seed=overloaded.replay.seed))
    assert filling.expectations.response_p99_ms is not None
    assert filling.expectations.response_p99_ms < 110.0
    assert failures(filling, tmp_path) == ["warm-up of the replay (SLOs)"]


def test_what_has_not_settled_has_wide_intervals_and_no_response_times(
    overloaded, monkeypatch, tmp_path
):
    monkeypatch.setattr("ramsis.synthesis.replayed._MOST_WARM", 1.0)
    policy = replayed(replace(overloaded, replay=None))
    assert policy.replay.settled is False
    assert policy.expectations.response_p99_ms is None
    half_width = policy.replay.half_widths["queue_length.mean"]
    assert half_width > 50.0
    assert policy.expectations.queue_length.mean == pytest.approx(1250.0, abs=half_width)
    assert not [claim for claim in failures(policy, tmp_path)
                if "replay" in claim or "simulator" in claim]


def test_at_ordinary_loads_runs_start_from_idle_workers(tiny):
    for dispatch in ("central-queue", "round-robin"):
        policy = generate_policy(tiny, 1200.0, settings(dispatch=dispatch, grid=None))
        assert policy.replay.warm_up_slos is None
        assert policy.replay.settled is None
        assert "settled" not in policy.to_document()["replay"]


def test_two_runs_do_not_tell_whether_the_queue_has_settled(overloaded):
    _, found = measured(overloaded, queries=20_000, runs=2, seed=3, warm_up_slos=40.0)
    assert found.settled is None


def test_short_runs_under_bursts_state_the_mean_request_and_not_the_mean_run():
    """A run with more bursts has more requests, and more of them late."""
    policy = generate_policy(load("image-cpu"), 568.7, SynthesisSettings(
        slo_ms=169.1, workers=4, arrivals="mmpp:ratio=8,burst-ms=676.4,share=0.1"))
    in_short, _ = measured(policy, queries=64 * 60_000, runs=64, seed=1)
    in_long, _ = measured(policy, queries=8 * 1_000_000, runs=8, seed=500)
    for name in ("effective_accuracy", "violation_rate"):
        assert in_short[name] == pytest.approx(in_long[name], abs=0.002)
