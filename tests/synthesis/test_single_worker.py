"""A single worker's queue is a central queue, whatever the dispatch rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ramsis.cluster import Cluster, SloClass, WorkerType
from ramsis.policy import Policy
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.sim import ConstantLoad, Fleet, Greedy
from ramsis.synthesis import SynthesisSettings
from ramsis.synthesis.stations import ClusterProblem
from ramsis.verify.replay import played
from tests.runs import run_plan

SLO_MS, LOAD_QPS = 200.0, 60.0
FLOWER = ProfileSet("flower", (  # a batch takes as long as its requests one by one
    ModelProfile("flower", 0.9, (BatchProfile(1, p95_ms=14.0, mean_ms=14.0),)),))


def policy(dispatch: str, workers: int = 1, **options: Any) -> Policy:
    cluster = Cluster((WorkerType("cpu", FLOWER, workers),), (SloClass(SLO_MS),))
    settings = SynthesisSettings(slo_ms=SLO_MS, workers=workers, dispatch=dispatch, max_queue=8,
                                 **options)
    return ClusterProblem(cluster, settings).level(LOAD_QPS * workers).stations[0].policy


def greedy() -> float:
    """Effective accuracy of greedy by the deadline, which drops what is late."""
    fleet = Fleet.of(FLOWER, workers=1, slo_ms=SLO_MS, service="p95", max_batch=1)
    run = run_plan(fleet, Greedy(late="drop").prepare(fleet), ConstantLoad(LOAD_QPS, 5e6), seed=3)
    return float(run.reward[run.arrival_ms > 1e4].mean())


def test_no_batches_are_run_that_do_not_pay():
    found = policy("round-robin")
    simulated = played(found, queries=400_000, seed=17)["effective_accuracy"]
    assert simulated.mean > greedy() - 0.001
    assert found.expectations.violation_rate < 0.002


def test_all_dispatch_rules_agree():
    first, *others = (policy(name) for name in ("central-queue", "round-robin", "shortest-queue"))
    for other in others:
        assert other.dispatch == first.dispatch == "central-queue"
        assert np.array_equal(other.codes, first.codes)
        assert other.expectations == first.expectations
        assert other.inputs == first.inputs


@pytest.mark.parametrize("options", [
    {"grid": "fixed:20"}, {"batching": "variable"}, {"late": "serve"},
    {"objective": "per-decision"}, {"solver": "value-iteration"}])
def test_options_that_a_central_queue_has_not_keep_the_rule(options):
    settings = SynthesisSettings(slo_ms=SLO_MS, workers=1, **options)
    assert settings.with_one_queue() is settings


def test_several_workers_keep_the_rule():
    settings = SynthesisSettings(slo_ms=SLO_MS, workers=1)
    assert settings.with_one_queue().dispatch == "central-queue"
    assert replace(settings, workers=2).with_one_queue().dispatch == "round-robin"
