"""A fleet that starts, drains and stops workers."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

from ramsis.errors import InvalidValueError
from ramsis.policy import Policy
from ramsis.scaling import DecisionTables, FleetTerms, Observation, ScaledRun, play
from ramsis.scaling.fleet import DROPPED, LOST, NEVER_ANSWERED
from ramsis.scaling.levels import Forecast
from ramsis.scaling.rules import Hpa
from ramsis.sim import Policies
from ramsis.sim.compiled import replay
from ramsis.synthesis.generate import modelled_policy
from ramsis.synthesis.simulated import prepared_policy
from tests.central import samples as central
from tests.scaling.twin import Central, OwnQueues
from tests.sim.samples import tiny_policy, with_table
from tests.sim.test_central_queue_policies import any_table
from tests.slow import slow_after
from tests.synthesis.samples import settings, varying_profile

SETTING = {"slo_ms": 100.0, "startup_s": 0.7, "interval_s": 0.25, "least": 1, "most": 6,
           "start": 2, "duration_s": 3.0}


def terms(**changes: Any) -> FleetTerms:
    return FleetTerms(**{**SETTING, **changes})


class Script:
    """Wants what a list says, and keeps what it was shown."""

    def __init__(self, wanted: list[int]) -> None:
        self.left, self.seen = list(wanted), list[Observation]()

    def wanted(self, seen: Observation) -> int:
        self.seen.append(seen)
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


def arrivals(rng: np.random.Generator, count: int, duration_s: float) -> np.ndarray:
    """Instants that meet each other, decisions and the ends of batches."""
    return np.sort(rng.integers(0, int(2000 * duration_s), count) / 2.0)


def policies(dispatch: str, rng: np.random.Generator) -> dict[int, list[Policy]]:
    """With any tables, for some numbers of workers."""
    sizes = sorted(rng.choice([1, 2, 3, 5], int(rng.integers(1, 4)), replace=False).tolist())
    if dispatch == "central-queue":
        return {n: [any_table(qps, n, rng) for qps in (150.0, 900.0)] for n in sizes}
    drops = bool(rng.integers(2))
    own = tiny_policy(400.0)
    return {n: [with_table(dataclasses.replace(own, workers=n), qps, rng, variable=True,
                           drops=drops) for qps in (150.0, 400.0, 900.0)] for n in sizes}


def agree(run: ScaledRun, twin: Any, tables: DecisionTables) -> None:
    """Request by request, and what it cost."""
    words = {NEVER_ANSWERED: "never", DROPPED: "dropped", LOST: "lost"}
    assert [words.get(m, tables.models[m]) for m in run.model.tolist()] == twin.fate
    assert run.finish_ms.tolist() == twin.finish_ms
    assert run.wanted.tolist() == twin.wanted
    assert run.worker_s == pytest.approx(twin.worker_ms / 1000, abs=1e-6)


@pytest.mark.parametrize("dispatch", ["central-queue", "round-robin"])
@pytest.mark.parametrize("seed", slow_after(1, [114, *range(15)]))  # in 114 all workers fail
def test_a_slow_twin_gets_the_same(dispatch, seed):
    rng = np.random.default_rng(seed)
    known = policies(dispatch, rng)
    times = arrivals(rng, int(rng.integers(20, 900)), 3.0)
    setting = {**SETTING, "startup_s": float(rng.choice([0.0, 0.25, 0.4, 1.5])),
               "seed": seed, "start": int(rng.integers(1, 7)),
               "failures": rng.choice(np.arange(0.0, 4.0, 0.125), int(rng.integers(0, 4)))}
    script = [int(rng.integers(0, 9)) for _ in range(12)]
    tables, rule, other = DecisionTables.of(known), Script(script), Script(script)
    run = play(times, tables, rule, FleetTerms(**setting))
    kind = Central if dispatch == "central-queue" else OwnQueues
    twin = kind(times.tolist(), known, other, **setting).run()
    agree(run, twin, tables)
    for mine, its in zip(rule.seen, other.seen, strict=True):
        assert dataclasses.replace(mine, utilisation=0) == dataclasses.replace(its, utilisation=0)
        assert mine.utilisation == pytest.approx(its.utilisation, abs=1e-6)


@pytest.mark.parametrize("service", slow_after(1, ["distribution", "p95"]))
@pytest.mark.parametrize("dispatch", ["central-queue", "round-robin"])
def test_a_fixed_fleet_is_that_of_the_simulation_bit_for_bit(dispatch, service):
    rng = np.random.default_rng(5)
    profile = varying_profile()
    made = (central.settings if dispatch == "central-queue" else settings)(
        workers=4, service=service)
    levels = [modelled_policy(profile, qps, made) for qps in (300.0, 500.0, 900.0)]
    fleet, _ = prepared_policy(levels[0])
    assert fleet.draws == (service == "distribution")
    times = np.cumsum(rng.exponential(0.4, 20_000))
    compiled = Policies(levels).prepare(fleet).compiled
    requests = fleet.requests(times, rng=np.random.default_rng(3))
    plain = replay(fleet, compiled, requests, 1e5, None)
    run = play(times, DecisionTables.of({4: levels}), Script([4]),
               terms(seed=3, start=4, duration_s=None))
    assert run.finish_ms.tolist() == plain.answered_ms.tolist()
    answered = run.model >= 0
    assert run.model[answered].tolist() == plain.model_of[answered].tolist()
    assert run.violation_rate == np.count_nonzero(~plain.in_time) / len(times)
    assert run.effective_accuracy == pytest.approx(plain.reward.mean(), rel=1e-12)
    assert run.worker_s == pytest.approx(4 * len(run.time_s) * 0.25)
    assert 0 < run.violation_rate < 1


def two_workers() -> DecisionTables:
    """A central queue that never waits, for one worker and for two."""
    return DecisionTables.of({n: [central.policy(100.0, workers=n)] for n in (1, 2)})


def test_a_worker_costs_from_the_moment_when_it_is_wanted():
    run = play([5.0], two_workers(), Script([2, 2, 1]),
               terms(start=1, startup_s=0.3, duration_s=1.5))
    # From 0.25 s on two are paid, one of which starts until 0.55 s; at 0.75 s one leaves.
    assert run.wanted.tolist() == [1, 2, 2, 1, 1, 1]
    assert run.active.tolist() == [1, 1, 1, 1, 1, 1]
    assert run.starting.tolist() == [0, 1, 1, 0, 0, 0]
    assert run.worker_s == pytest.approx(1.5 + 0.5)


def test_those_that_start_are_given_up_first():
    run = play([5.0], two_workers(), Script([3, 2]),
               terms(start=1, startup_s=10.0, duration_s=1.0))
    assert run.starting.tolist() == [0, 2, 1, 1]
    assert run.worker_s == pytest.approx(1.0 + 0.25 * 2 + 0.5)


def test_a_batch_that_runs_is_ended_and_paid():
    """The next worker that ends a batch leaves; one with a queue of its own ends that first."""
    setting = terms(startup_s=0.0, start=2, duration_s=1.0)
    central_run = play([249.0] * 16, two_workers(), Script([1]), setting)
    own = DecisionTables.of({2: [tiny_policy(50.0, workers=2)]})
    own_run = play([249.0] * 3, own, Script([1]), setting)
    for run, leaves_ms in ((central_run, central_run.finish_ms.min()),
                           (own_run, own_run.finish_ms[1])):
        assert 250.0 < leaves_ms < 500.0
        assert run.worker_s == pytest.approx(1.0 + leaves_ms / 1000)


def test_a_worker_that_fails_loses_its_batch_and_is_replaced():
    run = play(
        [100.0, 600.0], DecisionTables.of({1: [central.policy(20.0, workers=1)]}), Script([1]),
        terms(failures=[0.101], start=1, startup_s=0.2, duration_s=1.0))
    assert (run.lost, run.dropped) == (1, 0)
    assert run.active.tolist() == [1, 0, 1, 1]
    assert run.starting.tolist() == [0, 1, 0, 0]
    assert run.violations.tolist() == [1, 0, 0, 0]
    assert np.isinf(run.finish_ms[0])
    assert run.worker_s == pytest.approx(0.101 + 0.75)


def test_without_an_active_worker_requests_wait_or_are_dropped():
    setting = terms(start=1, startup_s=0.1, duration_s=1.0, failures=[0.1])
    waits, dropped = (play([240.0], DecisionTables.of({1: [policy]}), Script([1]), setting)
                      for policy in (central.policy(20.0, workers=1),
                                     tiny_policy(20.0, workers=1)))
    assert waits.finish_ms[0] > 350.0 or waits.dropped == 1
    assert dropped.dropped == 1


def test_the_rule_is_told_the_forecast_beside_the_load():
    forecast = Forecast(np.array([0.5, 1.0, 2.0]), np.array([10.0, 30.0, 20.0]), 0.1)
    rule = Script([2])
    play([5.0], two_workers(), rule, FleetTerms(forecast=forecast, **SETTING))
    assert [seen.load_qps for seen in rule.seen] == [4.0, *[0.0] * 10]
    told = [(seen.forecast_qps, seen.ahead_qps) for seen in rule.seen]
    assert told[:2] == [(None, None), (10.0, 30.0 if SETTING["startup_s"] else 10.0)]
    assert told[-1] == (20.0, 20.0)


def test_series_add_up():
    rng = np.random.default_rng(8)
    times = np.sort(rng.random(3000)) * 2900.0
    run = play(times, two_workers(), Script([1, 2, 1, 2]), FleetTerms(**SETTING))
    assert run.load_qps.sum() * 0.25 == pytest.approx(3000)
    assert run.violations.sum() / 3000 == pytest.approx(run.violation_rate)
    in_time = run.load_qps * 0.25 - run.violations
    assert np.nansum(run.accuracy * in_time) / 3000 == pytest.approx(run.effective_accuracy)
    numbers = run.wanted.tolist()
    assert run.changes == sum(a != b for a, b in itertools.pairwise(numbers)) > 0
    assert run.starts == sum(max(b - a, 0) for a, b in itertools.pairwise(numbers)) > 0


@pytest.mark.parametrize(("duration_s", "interval_s", "begins_s"), [
    (2.1, 0.7, [0.0, 0.7, 1.4]), (2.0, 0.7, [0.0, 0.7, 1.4]), (0.5, 0.7, [0.0]),
    (None, 0.7, [0.0, 0.7]),
])
def test_intervals_fill_the_duration(duration_s, interval_s, begins_s):
    run = play(
        [5.0, 480.0] if duration_s else [5.0, 1400.0], two_workers(), Script([2]),
        terms(duration_s=duration_s, interval_s=interval_s))
    assert run.time_s == pytest.approx(begins_s)
    assert run.worker_s == pytest.approx(2 * (duration_s or 1.4))
    assert np.isfinite(run.load_qps).all()


def test_stabilisation_keeps_a_rule_from_turning_at_every_gust():
    """A load that alternates between what one worker carries and what two do."""
    rng = np.random.default_rng(8)
    load = np.tile([150.0, 40.0], 15)
    times = np.concatenate([250.0 * (at + np.sort(rng.random(rng.poisson(qps / 4))))
                            for at, qps in enumerate(load)])
    runs = [play(
        times, two_workers(),
        Hpa(target=1.0, rate_per_worker_qps=100.0, sync_s=0.25, scale_down_s=down_s),
        terms(startup_s=0.0, duration_s=7.5)) for down_s in (0.0, 0.6)]
    assert runs[0].reversals > 20
    assert runs[1].reversals <= 2
    assert runs[1].worker_s > runs[0].worker_s


@pytest.mark.parametrize(("change", "message"), [
    ({"least": 0}, "least"), ({"start": 7}, "least, start, most"), ({"interval_s": 0.0}, "inter"),
    ({"startup_s": -1.0}, "startup_s"), ({"slo_ms": float("nan")}, "slo_ms"),
    ({"failures": [-1.0]}, "failures"), ({"duration_s": 0.001}, "duration"),
    ({"arrival_ms": [5.0, 4.0]}, "arrival_ms"),
    ({"arrival_ms": [float("nan")], "duration_s": None}, "arrival_ms"),
    ({"arrival_ms": [-1.0]}, "arrival_ms"), ({"window_ms": 0.0}, "window_ms"),
])
def test_what_is_out_of_range_is_refused(change, message):
    change = {"arrival_ms": [5.0], **change}
    with pytest.raises(InvalidValueError, match=message):
        play(change.pop("arrival_ms"), two_workers(), Script([1]), terms(**change))


def test_tables_that_do_not_fit_are_refused():
    for known, message in (({}, "not numbers"), ({0: [tiny_policy(50.0)]}, "not numbers"),
                           ({1: []}, "at least one policy"),
                           ({4: [tiny_policy(50.0, dispatch="shortest-queue")]}, "dispatch"),
                           ({4: [tiny_policy(50.0)], 1: [central.policy(20.0, workers=1)]},
                            "dispatch")):
        with pytest.raises(InvalidValueError, match=message):
            DecisionTables.of(known)
