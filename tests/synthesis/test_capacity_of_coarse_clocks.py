"""Workers for a trace of a coarse clock: those for the exact times, and what is not certain."""

import numpy as np
import pytest

from ramsis.arrivals.reading import read_any_trace
from ramsis.arrivals.trace import Recorded
from ramsis.bounds import Targets
from ramsis.profiles import ProfileSet, save
from ramsis.synthesis.capacity import Capacity, fewest_workers
from tests.profiles.samples import model

ONE_MODEL = ProfileSet("m", (model("m", 0.9, {1: 30.2}),))


def found(workload: Recorded) -> Capacity:
    return fewest_workers(ONE_MODEL, workload, Targets(0.001, None, None), slo_ms=100.0,
                          scheduler="greedy:late=drop", seeds=(0, 1))


@pytest.mark.parametrize(("tick_ms", "certain"), [(1.0, True), (10.0, True), (1000.0, False)])
def test_workers_are_those_of_the_exact_times(tmp_path, tick_ms, certain):
    exact = np.cumsum(np.random.default_rng(5).exponential(1000.0 / 15.0, 900))
    path = tmp_path / "trace.csv"
    path.write_text("arrival_ms\n" + "".join(f"{tick_ms * (t // tick_ms):.0f}\n" for t in exact))
    read = read_any_trace(path).workload
    assert isinstance(read, Recorded)
    answer = found(read)
    assert answer.workers == found(Recorded(exact)).workers == 2
    assert answer.clear is certain
    assert (answer.row().get("violation_rate_at_ticks", 0.0) <= 0.001) is certain


def test_the_command_says_what_the_clock_hides(run, tmp_path):
    path, profile = tmp_path / "trace.csv", tmp_path / "one.json"
    save(ONE_MODEL, profile)
    exact = np.cumsum(np.random.default_rng(5).exponential(1000.0 / 15.0, 900))
    path.write_text("arrival_s\n" + "".join(f"{t // 1000.0:.0f}\n" for t in exact))
    ran = run("capacity", "--profiles", profile, "--slo-ms", 100, "--trace", path,
              "--scheduler", "greedy:late=drop", "--seeds", 2)
    assert ran.code == 0, ran.err
    assert "whole seconds: 900 requests spread within their second" in ran.err
    assert "not certain, as the clock of the trace hides bursts" in ran.err
