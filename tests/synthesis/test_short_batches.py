"""Queues of workers whose batches do not pay: parts of a queue are batches by default."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ramsis.cluster import Cluster, SloClass, WorkerType
from ramsis.policy import Policy, encoded, read
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet, load
from ramsis.runtime.table import AS_LAST_CODE
from ramsis.synthesis import SynthesisSettings, generate_set
from ramsis.synthesis.stations import ClusterProblem
from ramsis.verify import verify_policy
from ramsis.verify.replay import played

SLO_MS, WORKERS, LOAD_QPS = 22.0, 3, 255.0
FLOWER = ProfileSet("flower", (  # a batch takes as long as its requests one by one
    ModelProfile("flower", 0.95, (BatchProfile(1, p95_ms=10.0, mean_ms=10.0),)),))
CLUSTER = Cluster((WorkerType("cpu", FLOWER, WORKERS),), (SloClass(SLO_MS),))


def settings(**changes: Any) -> SynthesisSettings:
    return SynthesisSettings(**{"slo_ms": SLO_MS, "workers": WORKERS, **changes})


def greedy(policy: Policy) -> Policy:
    """The same queues, from which a worker takes what is in time for the first request."""
    latency_ms = np.array(policy.models[0].latency_ms)
    fits = (latency_ms <= policy.slack_ms[:, None]).sum(axis=1)
    batch = np.minimum(policy.queue_levels[1:, None], fits)
    actions, codes, _ = encoded(np.zeros_like(batch), batch, (0, 1))
    return replace(policy, actions=actions, codes=codes, longer_queue=AS_LAST_CODE)


@pytest.mark.parametrize("dispatch", ["round-robin", "shortest-queue"])
def test_a_policy_is_not_behind_greedy_on_the_same_queues(dispatch):
    policy = ClusterProblem(CLUSTER, settings(dispatch=dispatch)).level(
        LOAD_QPS).stations[0].policy
    assert policy.batching == "variable"
    assert policy.max_queue == 2
    own, simple = (played(one, queries=400_000, seed=17) for one in (policy, greedy(policy)))
    assert own["effective_accuracy"].mean > simple["effective_accuracy"].mean - 0.001
    assert own["violation_rate"].mean < 0.07  # batches of whole queues: 0.078


def test_such_sets_are_verified_and_extended(tmp_path):
    for load_qps in (150.0, LOAD_QPS):
        generate_set(CLUSTER, [load_qps], settings(), tmp_path)
    files = [file for file in tmp_path.iterdir() if file.name != "manifest.json"]
    assert len(files) == 2
    for file in files:
        assert read(file).inputs.options["batching"] == "variable"
        assert [check for check in verify_policy(file) if not check.holds] == []


def test_slowness_makes_no_difference():
    usual = settings().with_short_batches(FLOWER)
    for slow in settings(headroom=0.0).when_slow(1.0, 1.5):
        chosen = slow.with_short_batches(FLOWER)
        assert (chosen.batching, chosen.max_queue) == (usual.batching, usual.max_queue)


@pytest.mark.parametrize("changes", [
    {"batching": "variable"}, {"max_queue": 8}, {"late": "serve"}, {"solver": "value-iteration"},
    {"objective": "per-decision"}, {"dispatch": "central-queue"}, {"slo_ms": 200.0}])
def test_other_options_stay(changes):
    chosen = settings(**changes)
    assert chosen.with_short_batches(FLOWER) is chosen


def test_shipped_profiles_have_long_batches():
    for name, slo_ms in (("digits-cpu", 25.0), ("text-cpu", 95.0), ("image-cpu", 350.0)):
        chosen = settings(slo_ms=slo_ms)
        assert chosen.with_short_batches(load(name)) is chosen
