"""Queues of workers whose batches do not pay: a central queue of one, parts of a queue as batches.

A single worker's queue is a central queue, whatever the dispatch rule. Where no long batch is in
time, parts of a worker's queue are batches by default.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ramsis.cluster import Cluster, SloClass, WorkerType
from ramsis.policy import Policy, encoded, read
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet, load
from ramsis.runtime.table import AS_LAST_CODE
from ramsis.sim import ConstantLoad, Fleet, Greedy
from ramsis.synthesis import SynthesisSettings, generate_set
from ramsis.synthesis.stations import ClusterProblem
from ramsis.verify import verify_policy
from ramsis.verify.replay import played
from tests.runs import run_plan

SLO_MS, WORKERS, LOAD_QPS = 22.0, 3, 255.0


def flower(latency_ms: float) -> ProfileSet:
    """A batch takes as long as its requests one by one."""
    return ProfileSet("flower", (ModelProfile(
        "flower", 0.95, (BatchProfile(1, p95_ms=latency_ms, mean_ms=latency_ms),)),))


FLOWER = flower(10.0)
CLUSTER = Cluster((WorkerType("cpu", FLOWER, WORKERS),), (SloClass(SLO_MS),))


def settings(**changes: Any) -> SynthesisSettings:
    return SynthesisSettings(**{"slo_ms": SLO_MS, "workers": WORKERS, **changes})


def of_one_worker(dispatch: str) -> Policy:
    cluster = Cluster((WorkerType("cpu", flower(14.0), 1),), (SloClass(200.0),))
    chosen = SynthesisSettings(slo_ms=200.0, workers=1, dispatch=dispatch, max_queue=8)
    return ClusterProblem(cluster, chosen).level(60.0).stations[0].policy


def test_one_worker_runs_no_batches_that_do_not_pay():
    """Against greedy by the deadline, which drops what is late."""
    found = of_one_worker("round-robin")
    fleet = Fleet.of(flower(14.0), workers=1, slo_ms=200.0, service="p95", max_batch=1)
    run = run_plan(fleet, Greedy(late="drop").prepare(fleet), ConstantLoad(60.0, 5e6), seed=3)
    greedy = float(run.reward[run.arrival_ms > 1e4].mean())
    simulated = played(found, queries=400_000, seed=17)["effective_accuracy"]
    assert simulated.mean > greedy - 0.001
    assert found.expectations.violation_rate < 0.002


def test_for_one_worker_all_dispatch_rules_agree():
    first, *others = map(of_one_worker, ("central-queue", "round-robin", "shortest-queue"))
    for other in others:
        assert other.dispatch == first.dispatch == "central-queue"
        assert np.array_equal(other.codes, first.codes)
        assert other.expectations == first.expectations
        assert other.inputs == first.inputs


@pytest.mark.parametrize("options", [
    {"grid": "fixed:20"}, {"batching": "variable"}, {"late": "serve"},
    {"objective": "per-decision"}, {"solver": "value-iteration"}, {"workers": 2}])
def test_options_that_a_central_queue_has_not_keep_the_rule(options):
    assert settings(workers=1).with_one_queue().dispatch == "central-queue"
    chosen = settings(**{"workers": 1, **options})
    assert chosen.with_one_queue() is chosen


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
