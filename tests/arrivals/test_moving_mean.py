"""A mean that moves is told from bursts, on traces of which either is known."""

import json

import numpy as np
import pytest

from ramsis.arrivals.fitting import LEVEL_STEP, moving_mean
from ramsis.arrivals.modulated import MarkovModulated
from ramsis.arrivals.process import ArrivalProcess
from ramsis.arrivals.renewal import Poisson
from ramsis.arrivals.trace import RateTrace

SECONDS = 600
DAY = 100.0 * (1.0 + 0.6 * np.sin(np.arange(SECONDS) * 2.0 * np.pi / SECONDS))


def drawn(process: ArrivalProcess, rng: np.random.Generator) -> np.ndarray:
    return process.sample(1000.0 * SECONDS, rng)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("kind", "moves", "bursts"), [
    ("poisson", False, False), ("bursts", False, True), ("day", True, False),
    ("bursty day", True, True)])
def test_motion_and_bursts_are_told_apart(kind, moves, bursts, seed):
    rng = np.random.default_rng(seed)
    times = {
        "poisson": lambda: drawn(Poisson(100.0), rng),
        "bursts": lambda: drawn(MarkovModulated(100.0, 5.0, 300.0, 0.2), rng),
        "day": lambda: RateTrace(1000.0 * np.arange(SECONDS), DAY).arrivals_ms(rng),
        "bursty day": lambda: RateTrace(
            1000.0 * np.arange(SECONDS), DAY,
            arrivals="mmpp:ratio=5,burst-ms=30,share=0.2").arrivals_ms(rng),
    }[kind]()
    found = moving_mean(times)
    assert (found.moves, found.bursts) == (moves, bursts), found
    levels = np.array(found.levels_qps)
    if moves:
        assert 150 < levels[-1] < 190
        assert np.allclose(levels[1:] / levels[:-1], 1.0 + LEVEL_STEP)
        assert levels[0] <= found.rate_qps.min() * (1.0 + 1e-9)
    else:
        assert levels == pytest.approx([100.0], rel=0.1)


def bursts_then_quiet_hours() -> np.ndarray:
    times = np.sort(np.random.default_rng(5).uniform(0.0, 78_000.0, 6000))
    times[3500:] += 9_000_000.0
    return times


def test_hours_without_requests_in_between_leave_no_figure_undefined():
    times = bursts_then_quiet_hours()
    found = moving_mean(times)
    assert np.isfinite(found.correlation)
    if not found.moves:
        mean_qps = 1000.0 * (len(times) - 1) / (times[-1] - times[0])
        assert found.levels_qps == pytest.approx([mean_qps])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_steady_mean_is_that_of_the_whole_trace(seed):
    times = drawn(MarkovModulated(100.0, 9.0, 500.0, 0.2), np.random.default_rng(seed))
    found = moving_mean(times)
    assert not found.moves
    mean_qps = 1000.0 * (len(times) - 1) / (times[-1] - times[0])
    assert found.levels_qps == pytest.approx([mean_qps])


def test_a_load_that_only_the_end_has_is_the_highest():
    rates = np.where(np.arange(SECONDS) < 555, DAY, 300.0)
    times = RateTrace(1000.0 * np.arange(SECONDS), rates).arrivals_ms(np.random.default_rng(6))
    found = moving_mean(times)
    assert found.moves
    assert found.levels_qps[-1] > 250.0
    assert found.stretch_ms * len(found.rate_qps) == pytest.approx(times[-1] - times[0])


def test_a_short_trace_tells_nothing():
    assert moving_mean(np.arange(1000.0)) is None


def test_the_command_proposes_levels_beside_a_process(run, tmp_path):
    times = RateTrace(1000.0 * np.arange(SECONDS), 0.4 * DAY).arrivals_ms(np.random.default_rng(4))
    (tmp_path / "trace.csv").write_text("arrival_ms\n" + "".join(f"{t:.4f}\n" for t in times))
    said = run("arrivals", "fit", tmp_path / "trace.csv")
    assert "mean: moves from" in said.out
    assert "best: --arrivals poisson" in said.out
    assert "policies: --load " in " ".join(said.out.split())
    document = json.loads(run("arrivals", "fit", tmp_path / "trace.csv", "--json").out)
    assert document["moving_mean"] is True
    assert document["best"] == "poisson"
    assert document["load_levels_qps"][-1] == pytest.approx(document["highest_mean_qps"])
