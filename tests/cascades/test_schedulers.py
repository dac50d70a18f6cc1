"""Schedulers with a fixed threshold, CascadeServe's gears, and SuperServe's SlackFit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ramsis.cluster import Cluster, SloClass
from ramsis.errors import InvalidValueError
from ramsis.profiles import ProfileSet, load
from ramsis.sim import ConstantLoad, Fleet, SimulationSettings, scheduler, simulate
from ramsis.sim.result import SimulationResult
from ramsis.sim.schedulers import CascadeServe, FixedThreshold, SlackFit
from tests.cascades.samples import MODELS

SLO_MS, WORKERS = 60.0, 4


def fleet_of(profile: ProfileSet) -> Fleet:
    return Fleet.of(profile, workers=WORKERS, slo_ms=SLO_MS, service="p95")


def played(
    profile: ProfileSet, text: str, load_qps: float, seconds: float = 4.0, **settings: Any
) -> SimulationResult:
    return simulate(Cluster.of(profile, workers=WORKERS, slo_ms=SLO_MS), scheduler(text),
                    ConstantLoad(load_qps, 1000.0 * seconds),
                    SimulationSettings(service="p95", **settings))


def test_slackfit_takes_the_largest_batch_in_the_bucket_of_the_slack():
    fleet = fleet_of(load("digits-cpu"))
    latency_ms, accuracy = fleet.table.latency_ms, fleet.table.accuracy
    plan = SlackFit(buckets=10).prepare(fleet)
    run: Any = plan.start(_Engine(fleet))  # type: ignore[arg-type]
    within = latency_ms[latency_ms <= SLO_MS]
    edges = np.linspace(within.min(), within.max(), 11)
    for queued in (1, 3, 32):
        for slack_ms in (55.0, 31.0, 12.0):
            column = int((edges[1:] <= slack_ms).sum())
            while True:  # the highest bucket below the slack that has a pair
                low = edges[column - 1] if column > 1 else 0.0
                pairs = [(b, accuracy[m], m) for m in range(len(accuracy)) for b in range(1, 33)
                         if low < latency_ms[m, b - 1] <= edges[column] + 1e-9]
                if pairs:
                    break
                column -= 1
            b, _, m = max(pairs)
            assert run.choose(queued, slack_ms, 0.0) == (m, min(b, queued))
    fastest, size = run.choose(40, 0.01, 0.0)
    assert fastest == fleet.table.fastest
    assert size > 1


class _Engine:
    """What a scheduler of a central queue looks at before a run."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet


@pytest.mark.parametrize("load_qps", [4_000.0, 19_200.0, 60_000.0])
def test_slackfit_decides_alike_in_both_engines(load_qps):
    digits = load("digits-cpu")
    both = [played(digits, "slackfit", load_qps, 1.0, engine=engine)
            for engine in ("compiled", "plain")]
    assert both[0].effective_accuracy == both[1].effective_accuracy
    assert both[0].model_share() == both[1].model_share()
    assert both[0].violation_rate < 0.001 or load_qps > 50_000.0


def test_a_fixed_threshold_asks_the_share_of_requests_below_it(profile):
    first, second = MODELS[0], MODELS[-1]
    model = profile.confidences.model(first)
    text = f"fixed-threshold:first={first},second={second},threshold={model.thresholds[3]:.9g}"
    result = played(profile, text, 6_000.0)
    assert result.violation_rate == 0.0
    assert result.metrics[0].second_opinions == pytest.approx(sum(model.share[:4]), abs=0.01)
    gain = np.dot(model.share[:4], profile.confidences.increment(first, second)[:4])
    assert result.effective_accuracy == pytest.approx(
        profile.confidences.accuracy(first) + gain, abs=0.003)
    alone = played(profile, f"fixed:model={first}", 6_000.0)
    assert result.effective_accuracy > alone.effective_accuracy + 0.01


def test_gears_are_less_accurate_the_higher_the_load(profile):
    text = "cascade-serve:gears=4,most_qps=19200"
    results = [played(profile, text, load_qps) for load_qps in (4_800.0, 9_600.0, 19_200.0)]
    accuracies = [result.effective_accuracy for result in results]
    assert accuracies == sorted(accuracies, reverse=True)
    assert all(result.violation_rate < 0.01 for result in results)
    assert results[1].metrics[0].second_opinions is not None
    assert results[1].metrics[0].second_opinions > 0.02


def test_what_cannot_give_second_opinions_is_refused():
    plain = replace(load("digits-cpu"), confidences=None)
    for text in ("cascade-serve", f"fixed-threshold:first={MODELS[0]},second={MODELS[1]},"
                                  "threshold=0.5"):
        with pytest.raises(InvalidValueError, match=r"^scheduler [a-z-]+: the profile has no "
                                                    r"confidences.*profile import --confid"):
            played(plain, text, 6_000.0)
    digits = load("digits-cpu")
    fleet = fleet_of(digits)
    with pytest.raises(InvalidValueError, match="no such pair"):
        FixedThreshold(MODELS[1], MODELS[0], 0.5).prepare(fleet)
    with pytest.raises(InvalidValueError, match=r"^second: takes longer than the SLO"):
        FixedThreshold(MODELS[0], MODELS[-1], 0.5).prepare(
            Fleet.of(digits, workers=1, slo_ms=1.0, service="p95"))
    with pytest.raises(InvalidValueError, match="gears"):
        CascadeServe(gears=0)
    with pytest.raises(InvalidValueError, match=r"second opinions are simulated at a stated load"):
        played(digits, "cascade-serve:gears=1,most_qps=9600", 6_000.0, 1.0, monitor=True)
    two = replace(Cluster.of(digits, workers=WORKERS, slo_ms=SLO_MS),
                  classes=(SloClass(30.0, 0.5), SloClass(60.0, 0.5)))
    with pytest.raises(InvalidValueError, match=r"several SLO classes"):
        simulate(two, scheduler("cascade-serve:gears=1"), ConstantLoad(6_000.0, 1_000.0))
