"""A fleet's queue by deadline: both engines, and against one SLO."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ramsis.cluster.cluster import SloClass
from ramsis.errors import InputFileError
from ramsis.policy import Policy
from ramsis.sim import ConstantLoad, Fleet, FleetScheduler, Greedy, JellyfishPlus, Policies, Run
from ramsis.sim.schedulers.slack_fit import SlackFit
from ramsis.synthesis.generate import modelled_policy
from tests.central import samples
from tests.runs import run_plan
from tests.sim.samples import same
from tests.synthesis.samples import tiny_profile

CLASSES = (SloClass(60.0, 0.3), SloClass(100.0, 0.7))


@cache
def policy(load_qps: float) -> Policy:
    chosen = samples.settings(workers=6, slo_classes=CLASSES)
    return modelled_policy(tiny_profile(), load_qps, chosen)


def run(load_qps: float, engine: str, scheduler: FleetScheduler | None = None,
        duration_ms: float = 4000.0) -> Run:
    fleet = replace(Fleet.of(tiny_profile(), workers=6, slo_ms=100.0), classes=CLASSES)
    plan = (scheduler or Policies((policy(load_qps),))).prepare(fleet)
    return run_plan(fleet, plan, ConstantLoad(load_qps, duration_ms), seed=3, engine=engine)


@pytest.mark.parametrize("scheduler", [None, Greedy("drop"), JellyfishPlus(), SlackFit(4)])
@pytest.mark.parametrize("load_qps", [300.0, 1500.0, 6000.0])
def test_compiled_and_plain_runs_agree(load_qps, scheduler):
    same(*(run(load_qps, engine, scheduler, duration_ms=1000.0)
           for engine in ("plain", "compiled")))


def test_classes_come_in_their_shares_and_change_no_arrivals():
    found = run(1500.0, "auto")
    share = float((found.slo_ms == 60.0).mean())
    assert abs(share - 0.3) < 5 * np.sqrt(0.21 / found.requests)
    one = ConstantLoad(1500.0, 4000.0).arrivals_ms(
        np.random.default_rng(np.random.SeedSequence(3).spawn(2)[0]))
    assert np.array_equal(found.arrival_ms, one)


def test_a_policy_for_other_classes_is_refused():
    with pytest.raises(InputFileError, match="made for other SLO classes"):
        Policies((policy(300.0),)).prepare(Fleet.of(tiny_profile(), workers=6, slo_ms=100.0))
