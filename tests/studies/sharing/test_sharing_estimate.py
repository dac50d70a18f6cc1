"""The queue-aware planner: its estimates against the engine, its plans against all plans."""

import itertools

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ramsis.errors import InputFileError
from ramsis.studies.sharing import Igniter, QueueAware, Usher, gpus_of, models_of, plan
from ramsis.studies.sharing.bound import goodput_bound_rps
from ramsis.studies.sharing.estimate import Estimator, Item
from ramsis.studies.sharing.gpu.interference import THESIS, Interference
from ramsis.studies.sharing.gpu.profile import SharedBatch
from ramsis.studies.sharing.gpu.shared_gpu import Gpu, Replica, RouterSettings, SharedModel
from ramsis.studies.sharing.play import SharedCluster, measure_sharing, play

_VISION = ("alexnet", "densenet121", "efficientnet_b7", "resnet50", "vgg19")


def _model(name: str, rate_rps: float, slo_ms: float, used: float) -> SharedModel:
    return SharedModel(name, rate_rps, slo_ms, {"gpu": tuple(
        SharedBatch(name, "gpu", n, 4 + 2.5 * n, 0.2, used, used, used * (0.5 + n / 16))
        for n in (2, 4, 8))})


@given(st.data())
@settings(max_examples=15, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_estimates_are_what_the_engine_does(data):
    """The same arrivals give the same requests in time, of each model."""
    models = tuple(_model(f"m{i}", data.draw(st.floats(50, 500)), data.draw(st.floats(20, 80)),
                          data.draw(st.floats(0.1, 0.6))) for i in range(3))
    gpus = tuple(Gpu(f"gpu-{i}") for i in range(2))
    items = data.draw(st.lists(st.tuples(
        st.integers(0, 1), st.integers(0, 2), st.sampled_from([1, 2, 3, 5, 8]),
        st.sampled_from([None, 0.15])), min_size=1, max_size=6))
    router = RouterSettings(data.draw(st.floats(3, 40)), lazy=data.draw(st.booleans()),
                            copy_ms=0.5, overlaps=data.draw(st.booleans()))
    interference = Interference(data.draw(st.floats(0, 0.6)), data.draw(st.booleans()), 1.5,
                                pairs={(("m0", 3), ("m1", 5)): 1.7})
    state = tuple(tuple(Item(m, b, s) for g, m, b, s in items if g == gpu) for gpu in range(2))
    replicas = [Replica(f"m{item.model}", f"gpu-{g}", item.batch, item.mps_share)
                for g, there in enumerate(state) for item in there]
    cluster = SharedCluster(models, gpus, router, interference, duration_s=0.7)
    run = play(cluster, replicas, data.draw(st.integers(0, 99))).run
    estimator = Estimator(models, gpus, router, interference, 700.0, [0])
    estimator.see([[run.arrival_ms[run.asked == m] for m in range(3)]])
    shares = estimator.served(state)
    for m in range(3):
        mine = run.asked == m
        assert shares[m] * mine.sum() == pytest.approx(run.in_time[mine].sum())


def test_the_planner_chooses_batches_that_are_in_time(v100):
    models = models_of(v100, {"efficientnet_b7": 430}, 200)
    found = plan("queue-aware", models, gpus_of(2))
    assert [(r.gpu, r.batch) for r in found.replicas] == [("gpu-0", 8), ("gpu-1", 8)]


@pytest.mark.slow
def test_the_planner_against_all_plans():
    """Two models on two GPUs; every plan with at most one replica of a model on a GPU."""
    models = (_model("a", 330, 60, 0.5), _model("b", 420, 45, 0.4))
    planner = QueueAware(duration_s=2, seeds=2)
    found = planner.served(models, gpus_of(2), planner(models, gpus_of(2)))
    best = 0.0
    for choice in itertools.product((0, 2, 4, 8), repeat=4):
        replicas = [Replica(name, gpu, batch) for (name, gpu), batch in zip(
            itertools.product("ab", ("gpu-0", "gpu-1")), choice, strict=True) if batch]
        best = max(best, sum(planner.served(models, gpus_of(2), replicas).values()))
    assert sum(found.values()) >= 0.998 * best


@pytest.mark.slow
def test_plans_keep_headroom_and_promise_what_long_runs_deliver(v100):
    """The mix of a plan that was busy all the time: 9 % of it was late in the second half."""
    models = models_of(v100, dict.fromkeys(
        ("densenet121", "inception_v3", "bert", "mobilenet_v2"), 350.0), 220)
    gpus, planner = gpus_of(5), QueueAware()
    replicas = planner(models, gpus)
    for factor in (1.0, 1.1):
        promised = sum(planner.served(models, gpus, replicas, factor).values())
        slower = tuple(model.slower(factor) for model in models)
        run = play(SharedCluster(slower, gpus, duration_s=60), replicas, 3)
        assert measure_sharing(run).goodput_rps == pytest.approx(promised, rel=0.005)
        assert promised >= 0.995 * 1400


@pytest.mark.slow
def test_the_search_leaves_plans_that_lack_a_model(v100):
    """From starts with one batch for each model it ends with 2535 of 3000 in time."""
    models, gpus = models_of(v100, dict.fromkeys(_VISION, 600.0), 350), gpus_of(4)
    planner = QueueAware()
    served = planner.served(models, gpus, planner(models, gpus))
    assert sum(served.values()) >= 0.99 * 3000


def test_longer_latencies_count_for_half():
    """Batches of 1 are in time sooner, but do not keep up when all takes half as long again."""
    model = SharedModel("a", 70, 80, {"gpu": tuple(
        SharedBatch("a", "gpu", n, ms, .1, 1, 1, 1) for n, ms in ((1, 10.0), (4, 28.0)))})
    for headroom, batch in ((0.0, 1), (0.5, 4)):
        planner = QueueAware(RouterSettings(waiting_ms=60), duration_s=30, headroom=headroom,
                             sheds=False, measured_batches=True)
        assert [r.batch for r in planner([model], gpus_of(1))] == [batch]
    with pytest.raises(InputFileError, match="not a headroom: got -1"):
        QueueAware(headroom=-1)


def test_fairness_serves_who_has_least():
    """One GPU: most requests are served by giving up the slow model, fairness keeps both."""
    fast = SharedModel("fast", 400, 60, {"gpu": (SharedBatch("fast", "gpu", 4, 8, .1, 1, 1, 1),)})
    slow = SharedModel("slow", 60, 60, {"gpu": (SharedBatch("slow", "gpu", 1, 15, .1, 1, 1, 1),)})
    one = gpus_of(1)
    served = {fair: (planner := QueueAware(duration_s=3, seeds=2, fair=fair)).served(
        [fast, slow], one, planner([fast, slow], one)) for fair in (False, True)}
    assert served[False]["slow"] == 0
    assert min(served[True]["fast"] / 400, served[True]["slow"] / 60) > 0.3
    assert sum(served[False].values()) > sum(served[True].values())


def test_what_is_too_much_is_shed():
    """Half as much again as one GPU can take: without shedding the queue takes nearly all."""
    model = SharedModel("a", 150, 100, {"gpu": (
        SharedBatch("a", "gpu", 1, 10, .1, 1, 1, 1), SharedBatch("a", "gpu", 8, 80, .1, 1, 1, 1))})
    one = gpus_of(1)
    served, runs = {}, {}
    for sheds in (False, True):
        planner = QueueAware(duration_s=10, seeds=2, sheds=sheds)
        replicas = planner([model], one)
        served[sheds] = planner.served([model], one, replicas)["a"]
        run = play(SharedCluster((model,), one, duration_s=20), replicas, 7)
        runs[sheds] = measure_sharing(run).goodput_rps
    assert served[False] < 40
    assert 70 < served[True] < 100
    assert runs[True] == pytest.approx(served[True], abs=5)


@pytest.mark.slow
def test_no_other_policy_serves_more_at_either_latencies(v100):
    """Three models of which the programs' plans serve more than plans with headroom did."""
    models, gpus = models_of(v100, dict.fromkeys(("bert", "gpt2", "t5"), 219.0), 230), gpus_of(6)
    planner = QueueAware()
    mine = planner(models, gpus)
    others = [plan(name, models, gpus).replicas
              for name in ("usher", "igniter", "ao-milp", "wsm-milp")]
    for factor in (1.0, 1.1):
        goodputs = [sum(planner.served(models, gpus, replicas, factor).values())
                    for replicas in (mine, *others)]
        assert goodputs[0] >= 0.995 * max(goodputs[1:])


def test_far_too_much_load_is_served_in_part():
    """Of 200,000 requests a second one GPU answers the first few in time; that is not nothing."""
    models = (_model("a", 200_000, 60, 0.5),)
    planner = QueueAware(duration_s=0.2, seeds=1)
    replicas = planner(models, gpus_of(1))
    each = [sum(planner.served(models, gpus_of(1), [Replica("a", "gpu-0", batch)]).values())
            for batch in (2, 4, 8)]
    assert 0 < max(each) < 5e-4 * 200_000
    assert sum(planner.served(models, gpus_of(1), replicas).values()) >= 0.999 * max(each)


def test_replicas_that_are_there_stay(v100):
    planner = QueueAware(seeds=2, duration_s=4)
    models = models_of(v100, {"resnet50": 400, "alexnet": 400}, 200)
    before = [Replica("alexnet", "gpu-2", 8), Replica("resnet50", "gpu-1", 8)]
    more = models_of(v100, {"resnet50": 400, "alexnet": 400, "vgg19": 200}, 200)
    kept = planner.again(before)(more, gpus_of(4))
    assert set(before) <= set(kept)
    assert {r.model for r in kept} == {"resnet50", "alexnet", "vgg19"}
    assert set(planner.again(before)(models, gpus_of(4))) == set(before)


def test_a_limit_on_utilisation_is_kept(v100):
    models = models_of(v100, {"resnet50": 500, "alexnet": 500, "vgg19": 300}, 200)
    planner = QueueAware(compute_limit=1.0, seeds=2, duration_s=2)
    replicas = planner(models, gpus_of(2))
    by_name = {model.name: model for model in models}
    for gpu in gpus_of(2):
        rows = [by_name[r.model].batch("gpu", r.batch) for r in replicas if r.gpu == gpu.name]
        assert sum(row.utilisation for row in rows if row) <= 1
    with pytest.raises(InputFileError, match="no arrivals to compare plans by"):
        QueueAware(seeds=0)


@pytest.mark.parametrize("policy", [QueueAware(), Usher(), Igniter()])
def test_nothing_to_plan_is_refused(policy):
    model = _model("a", 10, 100, 0.1)
    for models, gpus in (([], gpus_of(1)), ([model], [])):
        with pytest.raises(InputFileError, match="no models or no GPUs"):
            policy(models, gpus)
    with pytest.raises(InputFileError, match="no models or no GPUs"):
        QueueAware().served([], [], [])
    with pytest.raises(InputFileError, match="no models"):
        goodput_bound_rps([], gpus_of(1), THESIS, duration_s=1)


def test_arrivals_of_the_planner_are_its_own():
    models = (_model("a", 1000, 60, 0.5),)
    estimator = Estimator(models, gpus_of(1), RouterSettings(), THESIS, 10_000, [1, 2])
    first, second = (mine[0] for mine in estimator.arrivals)
    assert len(first) == pytest.approx(10_000, abs=400)
    assert not np.array_equal(first[:50], second[:50])
    with pytest.raises(ValueError, match="arrivals"):
        estimator.see([])


@pytest.mark.slow
def test_the_planner_serves_what_other_policies_overload(v100):
    """Two language models whose load no policy that counts batch / latency serves in time."""
    models = models_of(v100, dict.fromkeys(("resnet50", "mobilenet_v2", "bert", "gpt2"), 300.0),
                       300)
    gpus = gpus_of(3)
    goodput = {}
    for policy in ("usher", "wao-usher", "igniter", "wsm-milp", "queue-aware"):
        replicas = plan(policy, models, gpus).replicas
        cluster = SharedCluster(models, gpus, duration_s=6)
        goodput[policy] = measure_sharing(play(cluster, replicas, 5)).goodput_rps
    best = max(value for policy, value in goodput.items() if policy != "queue-aware")
    assert goodput["queue-aware"] > 1.2 * best
    assert goodput["queue-aware"] <= goodput_bound_rps(models, gpus, THESIS, duration_s=6)


def test_plans_of_other_policies_keep_to_the_limit_of_utilisations():
    """One of them has both models, whose shares add up to 0.8."""
    def model(name: str) -> SharedModel:
        return SharedModel(name, 300, 100, {"gpu": tuple(
            SharedBatch(name, "gpu", n, ms, 0.1, used, used, used)
            for n, ms, used in ((1, 5.0, 0.3), (4, 9.0, 0.4), (8, 15.0, 0.6)))})
    models, gpus = [model("a"), model("b")], gpus_of(1)
    planner = QueueAware(compute_limit=0.5, duration_s=2, checked_s=4, seeds=1, rounds=6)
    used = [0.0 if one is None else min(one.utilisation, r.mps_share or 1.0)
            for r in planner(models, gpus)
            for one in [models["ab".index(r.model)].batch("gpu", r.batch)]]
    assert 0 < sum(used) <= 0.5
