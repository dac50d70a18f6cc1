"""Slow spells: how they are drawn, what they do to batches, and that both engines agree."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from ramsis import profiles
from ramsis.cluster import Cluster
from ramsis.errors import InvalidValueError
from ramsis.sim import ConstantLoad, Policies, Run, SimulationSettings, SlowSpells, simulate
from ramsis.synthesis import SynthesisSettings
from ramsis.synthesis.generate import modelled_policy

SPELLS = SlowSpells(share=0.05, factor=3.0, length_ms=100.0)


def test_workers_are_slow_for_the_share_of_the_time_in_spells_of_the_length():
    drawn = SlowSpells(0.2, 2.0, 50.0).drawn(40, 100_000.0, np.random.default_rng(1))
    lengths, slow = [], []
    at = np.random.default_rng(2).uniform(0.0, 100_000.0, 500)
    for worker in range(40):
        own = drawn.edge_ms[drawn.first[worker] : drawn.first[worker + 1]]
        whole = own[1 if own[0] == 0.0 else 0 :]
        starts = own[0] == 0.0
        pairs = np.diff(whole)
        lengths.append(pairs[1::2] if starts else pairs[0::2])
        slow += [drawn.factor_at(worker, now) == 2.0 for now in at]
    spells = np.concatenate(lengths)
    assert spells.mean() == pytest.approx(50.0, rel=0.05)
    assert np.median(spells) == pytest.approx(50.0 * np.log(2.0), rel=0.07)  # exponential
    assert np.mean(slow) == pytest.approx(0.2, abs=0.01)


def test_the_share_holds_from_the_start():
    drawn = SlowSpells(0.3, 2.0, 50.0).drawn(4000, 10.0, np.random.default_rng(3))
    assert np.mean([drawn.factor_at(worker, 0.0) == 2.0 for worker in range(4000)]) == (
        pytest.approx(0.3, abs=0.03))


def _run(dispatch: str, spells: SlowSpells | None, **more: Any) -> Run:
    profile, load_qps, workers = profiles.load("digits-cpu"), 1500.0, 3
    policy = modelled_policy(profile, load_qps, SynthesisSettings(
        slo_ms=25.0, workers=workers, dispatch=dispatch, grid="fixed:20", max_queue=8,
        headroom=0.0))
    found = simulate(Cluster.of(profile, workers=workers, slo_ms=25.0), Policies((policy,)),
                     ConstantLoad(load_qps, 3000.0),
                     SimulationSettings(service="distribution", slow_spells=spells, **more),
                     keep_runs=True)
    return found.runs[0]


def test_compiled_loops_know_no_spells():
    with pytest.raises(InvalidValueError, match="compiled loops know no slow spells"):
        _run("round-robin", SPELLS, engine="compiled")


def test_a_batch_takes_longer_where_it_starts_in_a_spell():
    without, run = _run("round-robin", None), _run("round-robin", SPELLS)
    rng = np.random.default_rng(np.random.SeedSequence(0).spawn(5)[4])
    drawn = SPELLS.drawn(3, 3000.0, rng)
    factor = np.array([drawn.factor_at(worker, now) for worker, now
                       in zip(run.worker.tolist(), run.start_ms.tolist(), strict=True)])
    assert 0.01 < (factor > 1).mean() < 0.1  # slow batches are fewer in a time
    first = [np.flatnonzero(run.worker == worker)[0] for worker in range(3)]
    for batch in first:  # nothing differs before the first batch of a worker
        assert run.start_ms[batch] in without.start_ms
        usual = (without.finish_ms - without.start_ms)[
            np.flatnonzero(without.start_ms == run.start_ms[batch])[0]]
        assert run.finish_ms[batch] - run.start_ms[batch] == pytest.approx(usual * factor[batch])


@pytest.mark.parametrize(("text", "message"), [
    ("share=1.5,factor=3,length-ms=100", r"share: out of range: got 1\.5; allowed: a fraction"),
    ("share=0.05,factor=0.5,length-ms=100", r"factor: out of range"),
    ("share=0.05,factor=3,length-ms=0", r"length_ms: out of range"),
    ("share=0.05,factor=3", r"--slow-spells: not slow spells"),
    ("share=a,factor=3,length-ms=100", r"--slow-spells: not slow spells"),
])
def test_bad_spells_are_refused(text, message):
    with pytest.raises(InvalidValueError, match=message):
        SlowSpells.parse(text, "--slow-spells")


def test_spells_of_a_profile():
    recorded = {"slow_spells": {**asdict(SPELLS), "autocorrelation": 0.4}}
    assert SlowSpells.recorded(recorded) == SPELLS
    with pytest.raises(InvalidValueError, match="records no slow spells"):
        SlowSpells.recorded({})
