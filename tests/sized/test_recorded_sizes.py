"""A recorded trace as arrivals whose requests keep their sizes."""

from pathlib import Path

import numpy as np
import pytest

from ramsis.arrivals import Arrivals, SizeDistribution
from ramsis.arrivals.reading import read_any_trace
from ramsis.profiles import load
from ramsis.sim import ConstantLoad, Recorded
from ramsis.sized import SizedProblem, search, simulate_sized, upper_bound
from ramsis.sized.policy import SizedPolicy, generate_sized
from ramsis.sized.simulate import drawn

PROFILE = load("minilm-cpu")


@pytest.fixture
def trace(tmp_path):
    """20,000 requests, one in eight of them long, and these in bursts."""
    rng = np.random.default_rng(5)
    rows, at_s, busy = [], 0.0, False
    while len(rows) < 20_000:
        busy = not busy
        for _ in range(rng.poisson(150)):
            at_s += rng.exponential(1 / (140 if busy else 60))
            is_long = busy and rng.random() >= 0.75
            rows.append((at_s, int(rng.integers(100, 256) if is_long else
                                   rng.choice([8, 12, 20, 40]))))
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,size\n" + "".join(f"{at!r},{size}\n" for at, size in rows))
    return path


def problem_and_requests(trace: Path) -> tuple[SizedProblem, Recorded]:
    recorded = read_any_trace(trace, size="").workload
    assert isinstance(recorded, Recorded)
    assert recorded.sizes is not None
    return SizedProblem.of(PROFILE, SizeDistribution.of_sizes(recorded.sizes),
                           slo_ms=300.0), recorded


def test_simulation_and_bound_have_the_requests_of_the_trace(trace):
    problem, recorded = problem_and_requests(trace)
    apart = Arrivals.parse(f"trace:{trace}")
    own = apart.with_sizes_of(trace)
    times, sizes = drawn(problem, ConstantLoad(recorded.load_qps, recorded.duration_ms, own), 3)
    assert recorded.sizes is not None
    twice = np.concatenate([recorded.sizes, recorded.sizes])
    first = next(i for i in range(len(recorded.sizes))
                 if np.array_equal(twice[i:i + 60], sizes[:60]))
    np.testing.assert_array_equal(sizes, np.roll(recorded.sizes, -first)[:len(sizes)])
    np.testing.assert_allclose(np.diff(times)[:1000], np.diff(np.roll(recorded.times_ms, -first))[
        :1000] % recorded.duration_ms, atol=1e-6)
    # Long requests that come together are harder to answer than the same ones apart.
    bounds = [upper_bound(problem, arrivals.drawn(recorded.load_qps), rounds=0, stretches=12)
              for arrivals in (own, apart)]
    assert bounds[0].in_time + bounds[0].in_time_half_width < (
        bounds[1].in_time - bounds[1].in_time_half_width)


def test_the_search_plays_the_whole_trace(trace):
    problem, recorded = problem_and_requests(trace)
    own = Arrivals.parse(f"trace:{trace}").with_sizes_of(trace)
    for arrivals, requests in ((own, 20_000), (Arrivals.parse("poisson"), search.REQUESTS)):
        load = ConstantLoad(recorded.load_qps, 1000.0, arrivals)
        stream = search._Search(problem, load, 0, lambda: None)._checks[0]
        assert len(stream.size) == pytest.approx(requests, rel=0.03)
    # The same requests, from a random one of them on.
    played = search._Search(problem, ConstantLoad(recorded.load_qps, 1.0, own), 0,
                            lambda: None)._checks[0]
    assert recorded.sizes is not None
    assert np.bincount(played.size) == pytest.approx(np.bincount(recorded.sizes), abs=2)


@pytest.mark.slow
def test_the_promise_is_what_a_replay_of_the_trace_gives(trace):
    problem, recorded = problem_and_requests(trace)

    def policy_for(arrivals: Arrivals) -> SizedPolicy:
        return generate_sized(problem, PROFILE, recorded.load_qps, arrivals=arrivals)

    apart = Arrivals.parse(f"trace:{trace}")
    own = policy_for(apart.with_sizes_of(trace))
    expected = own.expectations
    played = simulate_sized(problem, own.scheduler, recorded).row()
    assert expected["violation_rate"] == pytest.approx(played["violation_rate"], abs=0.002)
    for promised, seen in zip(expected["by_class"], played["by_class"], strict=True):
        assert promised["in_time_rate"] == pytest.approx(seen["in_time_rate"], abs=0.01)
    assert policy_for(apart).expectations["violation_rate"] < played["violation_rate"] - 0.02


def test_the_command_says_that_requests_keep_their_sizes(run, trace, tmp_path):
    command = ["simulate", "--profiles", "minilm-cpu", "--slo-ms", 300, "--workers", 1, "--load",
               80, "--duration-s", 20, "--scheduler", "replanned-dp", "--arrivals",
               f"trace:{trace}", "--sizes"]
    (tmp_path / "sizes.csv").write_text(trace.read_text())
    own, apart = (run(*command, path) for path in (trace, tmp_path / "sizes.csv"))
    note = "its requests are replayed with their own sizes"
    assert note in own.err
    assert note not in apart.err
    assert own.code == apart.code == 0
    assert own.out != apart.out
