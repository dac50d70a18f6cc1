"""Other schedulers as tables that a server follows: they do what the schedulers do."""


import numpy as np
import pytest
from live.baselines import as_policy, with_fixed_threshold

from ramsis.cluster import Cluster
from ramsis.policy import policy_text
from ramsis.policy.policy_set import set_of
from ramsis.runtime import Selector
from ramsis.sim import (
    ConstantLoad,
    Fleet,
    JellyfishPlus,
    ModelSwitching,
    Policies,
    SimulationSettings,
    scheduler,
    simulate,
)
from ramsis.synthesis import SynthesisSettings, generate_policy
from tests.cascades.samples import profile_with_confidences
from tests.slow import slow_after
from tests.synthesis.samples import tiny_profile


@pytest.mark.parametrize("slo_ms", [15.0, 40.0])  # two models are in time, or three
@pytest.mark.parametrize("load_qps", slow_after(1, [30.0, 150.0, 600.0]))
@pytest.mark.parametrize("spec", [JellyfishPlus(), ModelSwitching(profile_s=1.0)],
                         ids=lambda spec: spec.name)
def test_a_scheme_and_its_table_run_the_same_batches(spec, load_qps, slo_ms):
    profile = tiny_profile()
    like = generate_policy(profile, load_qps, SynthesisSettings(
        slo_ms=slo_ms, workers=2, dispatch="central-queue", max_queue=16, service="p95",
        grid="fixed:10", headroom=0.0))
    fleet = Fleet.of(profile, workers=2, slo_ms=slo_ms)
    policy = as_policy(spec, fleet, like)
    Selector(policy.decision_table())  # a server can look things up in it
    policy_text(policy)  # and read it from a file
    cluster = Cluster.of(profile, workers=2, slo_ms=slo_ms)
    workload = ConstantLoad(load_qps, 4000.0)
    settings = SimulationSettings(seeds=(3,))
    scheduler, table = (simulate(cluster, one, workload, settings, keep_runs=True).runs[0]
                     for one in (spec, Policies(set_of([policy]), "table")))
    assert len(scheduler.size) > 50
    for name in ("start_ms", "finish_ms", "size"):
        first, second = (np.sort(getattr(run, name)) for run in (scheduler, table))
        assert np.allclose(first, second)


@pytest.mark.slow
def test_a_fixed_threshold_delivers_what_it_promises() -> None:
    """The threshold of a policy does what the scheduler of that name does; others do no better."""
    profile = profile_with_confidences().subset(["svm-poly-1600", "svm-poly-12000"])
    alone = generate_policy(profile, 9600.0, SynthesisSettings(
        slo_ms=60.0, workers=4, dispatch="central-queue", service="p95"))
    assert profile.confidences is not None
    policy = with_fixed_threshold(alone, profile.confidences)
    policy_text(policy)  # a server can read it from a file
    assert policy.cascade is not None
    assert policy.cascade.levels == 1
    (bins,) = policy.cascade.unsure_bins[:, 0]
    edges = profile.confidences.model("svm-poly-1600").thresholds
    cluster, workload = Cluster.of(profile, workers=4, slo_ms=60.0), ConstantLoad(9600.0, 8000.0)
    settings = SimulationSettings(seeds=range(3), service="p95", monitor=False)
    best, *others = (simulate(cluster, scheduler(
        f"fixed-threshold:first=svm-poly-1600,second=svm-poly-12000,threshold={edges[at]!r}"),
        workload, settings).effective_accuracy for at in (bins - 1, bins + 2, bins - 4))
    promise = policy.cascade.promise
    assert promise.effective_accuracy == pytest.approx(best, abs=0.002)
    assert promise.effective_accuracy > max(others) - 0.002
    assert promise.effective_accuracy > alone.expectations.effective_accuracy
    assert promise.second_opinions > 0.05
