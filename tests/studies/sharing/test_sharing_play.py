"""Models that share GPUs: the router, interference and figures against counting and theory."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.errors import InputFileError
from ramsis.scenario import draw_requests
from ramsis.sim import Running
from ramsis.studies.sharing import sharing_policy
from ramsis.studies.sharing.gpu.interference import (
    NO_INTERFERENCE,
    THESIS,
    THESIS_DRIVER_550,
    Interference,
    Load,
)
from ramsis.studies.sharing.gpu.profile import SharedBatch, SharingProfile
from ramsis.studies.sharing.gpu.shared_gpu import (
    Gpu,
    NetworkTime,
    Replica,
    RouterSettings,
    SharedModel,
)
from ramsis.studies.sharing.play import Played, SharedCluster, measure_sharing, play, replanned

_NO_NETWORK = RouterSettings(network=NetworkTime(0, 0, 0, 0))


def _model(
    name: str, rate_rps: float, slo_ms: float = 100, *, batch: int = 8, ms: float = 10,
    used: float = 0.5,
) -> SharedModel:
    """A model whose batch takes the same time at every size."""
    return SharedModel(name, rate_rps, slo_ms, {"gpu": tuple(
        SharedBatch(name, "gpu", n, ms, 0.1, used, used, used) for n in (1, batch))})


def _gpus(count: int) -> tuple[Gpu, ...]:
    return tuple(Gpu(f"gpu-{i}") for i in range(count))


def _measured(
    profile: SharingProfile, names: Sequence[str], rps: Sequence[float], slo_ms: float
) -> tuple[SharedModel, ...]:
    return tuple(SharedModel(name, rate, slo_ms, {"gpu": profile.batches(name, "gpu")})
                 for name, rate in zip(names, rps, strict=True))


def _even(rate_rps: float, count: int) -> tuple[float, ...]:
    return tuple(1000 * i / rate_rps for i in range(count))


def test_replicas_get_the_load_that_their_batches_say():
    model = _model("m", 100, batch=16)
    cluster = SharedCluster((model,), _gpus(4), _NO_NETWORK, times_ms={"m": _even(1000, 2400)})
    plan = [Replica("m", f"gpu-{i}", batch) for i, batch in enumerate((9, 5, 5, 5))]
    figures = measure_sharing(play(cluster, plan))
    assert [one.share_of_requests for one in figures.replicas] == [
        pytest.approx(part / 24) for part in (9, 5, 5, 5)]
    assert [one.full_share for one in figures.replicas] == [1.0] * 4


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(("rps", "full"), [(600, False), (1000, True)])
def test_a_batch_is_full_where_the_load_fills_it_within_the_limit(rps, full, lazy):
    model = _model("m", rps, 1000, batch=64)
    cluster = SharedCluster((model,), _gpus(1), replace(_NO_NETWORK, lazy=lazy),
                            times_ms={"m": _even(rps, 64 * 60)})
    played = play(cluster, [Replica("m", "gpu-0", 64)])
    sizes = played.run.size
    assert ((sizes == 64).all() if full else (sizes < 64).all())
    waited = [one.sent_ms - played.run.arrival_ms[played.run.batch_of == one.batch].min()
              for one in played.sent]
    if not full:
        # The timer rings at 100 ms; the next request after that comes at 101.7.
        assert max(waited[:-1]) == pytest.approx(101.667 if lazy else 100, abs=0.001)


def _arrivals_at_gpu(coroutines: int | None, lazy: bool = False) -> list[float]:
    """Three requests of one model and one of another; a batch is 10 ms on its way."""
    network = NetworkTime(a=0, c=10)
    models = (_model("a", 100), _model("b", 100))
    cluster = SharedCluster(
        models, _gpus(1), RouterSettings(20, lazy, network, coroutines=coroutines),
        interference=NO_INTERFERENCE, duration_s=1,
        times_ms={"a": (0.0, 1.0, 2.0), "b": (3.0,)})
    played = play(cluster, [Replica("a", "gpu-0", 1), Replica("b", "gpu-0", 8)])
    return [sent.at_gpu_ms for sent in sorted(played.sent, key=lambda sent: sent.at_gpu_ms)]


def test_the_router_stalls_while_all_its_coroutines_send():
    """By hand: b is not full, and due 20 ms after the router has taken it."""
    assert _arrivals_at_gpu(None) == [10, 11, 12, 33]
    assert _arrivals_at_gpu(2) == [10, 11, 20, 41]
    assert _arrivals_at_gpu(1) == [10, 20, 30, 60]
    assert _arrivals_at_gpu(1, lazy=True) == [10, 20, 30, 40]  # the last request sends all
    with pytest.raises(InputFileError, match="not a number of coroutines: got 0"):
        RouterSettings(coroutines=0)


def test_sizes_of_batches_have_their_own_network_times():
    network = NetworkTime(1000, 1e-3, 1, 5, ranges=((4000, 0, 1, 7), (8000, 1e-6, 2, 0)))
    assert [network.ms(n) for n in (1, 3, 4, 7, 8)] == pytest.approx([6, 8, 7, 7, 64])
    with pytest.raises(InputFileError, match="network: c: negative coefficient"):
        NetworkTime(ranges=((1, 0, 1, -1),))


def test_small_batches_serve_in_time_what_large_ones_do_not(v100):
    models = _measured(v100, ["efficientnet_b7"], [430], 200)
    cluster = SharedCluster(models, _gpus(2), duration_s=40)
    found = {}
    for batch in (8, 64):
        plan = [Replica("efficientnet_b7", f"gpu-{i}", batch) for i in range(2)]
        (found[batch],) = measure_sharing(play(cluster, plan, 3)).models
    assert found[8].throughput_rps == pytest.approx(found[64].throughput_rps, rel=0.03)
    assert found[8].goodput_rps > 1.5 * found[64].goodput_rps
    assert (found[64].router_to_node_p95_ms or 0) > 100 > (found[8].router_to_node_p95_ms or 0)


def test_a_measured_pair_sets_the_capacity(v100):
    models = _measured(v100, ["resnet50", "alexnet"], [700, 5000], 200)
    alone_ms = next(row.latency_ms for row in v100.batches("resnet50", "gpu") if row.batch == 4)
    pair = {(("resnet50", 4), ("alexnet", 4)): 8.0 / alone_ms}
    cluster = SharedCluster(models, _gpus(1), interference=Interference(pairs=pair), duration_s=4)
    plan = [Replica("resnet50", "gpu-0", 4), Replica("alexnet", "gpu-0", 4)]
    whole = next(one for one in measure_sharing(play(cluster, plan)).replicas
                 if one.model == "resnet50")
    assert whole.capacity_rps == pytest.approx(500, rel=2e-3)
    assert whole.headroom == pytest.approx(1 - 700 / 500, abs=0.05)
    # The fitted coefficient says the same of this pair.
    loads = [Load("resnet50", 4, 0.3626), Load("alexnet", 4, 0.4707)]
    assert alone_ms * THESIS.beside(loads)[0] == pytest.approx(8.0, abs=0.03)
    on_share = THESIS_DRIVER_550.on_share
    assert on_share("resnet50", 0.3626, 0.1755) == pytest.approx(4, abs=0.02)
    assert 34.1 * on_share("bert", 0.9682, 0.3183) == pytest.approx(180, abs=0.5)
    assert THESIS.on_share("bert", 0.9682, 0.3183) == pytest.approx(0.9682 / 0.3183)


def test_without_coefficients_batches_take_their_isolated_time():
    models = (_model("a", 400, used=0.9), _model("b", 400, used=0.9, ms=7))
    cluster = SharedCluster(models, _gpus(1), interference=NO_INTERFERENCE, duration_s=2)
    run = play(cluster, [Replica("a", "gpu-0", 8), Replica("b", "gpu-0", 8)]).run
    alone = np.where(run.model == 0, 10.0, 7.0)
    assert run.finish_ms - run.start_ms == pytest.approx(alone)
    function = replace(cluster, slowdown=lambda worker, running: [1 / len(running)] * len(running))
    run = play(function, [Replica("a", "gpu-0", 8), Replica("b", "gpu-0", 8)]).run
    assert (run.finish_ms - run.start_ms).max() > 11  # a function of one's own


@given(
    used=st.lists(st.floats(0.05, 1.0), min_size=2, max_size=4),
    coefficient=st.floats(0, 1), saturates=st.booleans(), seed=st.integers(0, 99),
    pair=st.floats(1, 3),
)
@settings(max_examples=15)
def test_no_work_is_lost_or_made_whatever_runs_together(used, coefficient, saturates, seed, pair):
    """The speeds over a batch's time, by a formula of this test, add up to its work."""
    names = [f"m{i}" for i in range(len(used))]
    models = tuple(_model(name, 150, ms=5 + 3 * i, used=u)
                   for i, (name, u) in enumerate(zip(names, used, strict=True)))
    interference = Interference(coefficient, saturates, pairs={(("m0", 3), ("m1", 3)): pair})
    cluster = SharedCluster(models, _gpus(1), interference=interference, duration_s=0.4)
    run = play(cluster, [Replica(name, "gpu-0", 3) for name in names], seed).run
    times = np.unique(np.concatenate([run.start_ms, run.finish_ms]))
    done = np.zeros(len(run.size))
    for begin, end in itertools.pairwise(times):
        on = np.flatnonzero((run.start_ms <= begin) & (run.finish_ms >= end))
        shared = max(1.0, sum(used[run.model[k]] for k in on)) if saturates else 1.0
        total = 0.0
        for k in on:
            others = 0.0
            for j in on:
                if j != k:
                    special = (run.model[k], run.model[j]) == (0, 1) and (
                        run.size[k] == run.size[j] == 3)
                    others += pair - 1 if special else coefficient * used[run.model[j]]
            speed = 1 / ((1 + others) * shared)
            done[k] += (end - begin) * speed
            total += speed * used[run.model[k]]
        assert not saturates or total <= 1 + 1e-9
    assert done == pytest.approx(5.0 + 3 * run.model, abs=1e-6)


def test_the_network_takes_what_the_anchor_says():
    assert NetworkTime().ms(16) == pytest.approx(8.7)
    quadratic = NetworkTime(10, 0.5, 2, 1)
    assert quadratic.ms(3) == pytest.approx(0.5 * 30**2 + 1)
    played = play(SharedCluster((_model("m", 100),), _gpus(1), duration_s=1),
                  [Replica("m", "gpu-0", 8)])
    for one in played.sent:
        size = int(played.run.size[one.batch])
        assert one.at_gpu_ms - one.sent_ms == pytest.approx(NetworkTime().ms(size))
        assert played.run.start_ms[one.batch] >= one.at_gpu_ms


def test_workers_run_batches_in_the_order_in_which_they_come():
    cluster = SharedCluster((_model("m", 1200),), _gpus(1), _NO_NETWORK, duration_s=1)
    played = play(cluster, [Replica("m", "gpu-0", 8)])
    came = [one.at_gpu_ms for one in played.sent]
    assert came == sorted(came)
    busy = played.run.finish_ms[:-1] <= played.run.start_ms[1:] + 1e-9
    assert busy.all()  # one at a time, though the replica is overloaded
    assert (played.run.size <= 8).all()


def test_copies_run_beside_the_batch_before():
    model = _model("m", 100, 1000, batch=4, ms=10)
    times = {"m": tuple(float(i // 4) for i in range(40))}  # a batch each ms
    apart = SharedCluster((model,), _gpus(1), replace(_NO_NETWORK, copy_ms=1), times_ms=times)
    beside = replace(apart, router=replace(apart.router, overlaps=True))
    plan = [Replica("m", "gpu-0", 4)]
    assert play(apart, plan).run.finish_ms.max() == pytest.approx(100)
    assert play(beside, plan).run.finish_ms.max() == pytest.approx(4 + 10 * 6)
    with pytest.raises(InputFileError, match="copies take longer"):
        play(replace(beside, router=replace(beside.router, copy_ms=3)), plan)


def _batches(played: Played, model: int) -> list[tuple[float, float, int]]:
    run = played.run
    mine = run.model == model
    return list(zip(run.start_ms[mine].tolist(), run.finish_ms[mine].tolist(),
                    run.size[mine].tolist(), strict=True))


def test_a_model_that_is_added_leaves_the_queues_of_others():
    """The first model is overloaded, so that its queues are long when the second comes."""
    models = (_model("a", 1500), _model("b", 200))
    before = [Replica("a", "gpu-0", 8), Replica("a", "gpu-1", 8)]
    cluster = SharedCluster(models, _gpus(3), duration_s=2, interference=NO_INTERFERENCE)
    alone = play(cluster, before, 1)
    more = play(cluster, before, 1, changes=[(1000.0, [*before, Replica("b", "gpu-1", 8)])])
    assert _batches(more, 0) == _batches(alone, 0)
    assert len(_batches(alone, 1)) == 0
    starts = [start for start, _, _ in _batches(more, 1)]
    assert min(starts) >= 1000
    dropped = more.run.drop_ms
    assert (dropped < 1000).all()
    fewer = play(cluster, before, 1, changes=[(1000.0, before[:1])])
    sent_after = [one for one in fewer.sent if one.sent_ms > 1000 and one.replica.worker == 1]
    assert not sent_after
    assert fewer.run.answered[fewer.run.asked == 0].all()  # what was queued is finished


def test_a_batch_is_divided_when_the_plan_changes_to_smaller_ones():
    """Five requests of a batch of eight wait when batches of two begin."""
    cluster = SharedCluster(
        (_model("m", 1),), _gpus(1), replace(_NO_NETWORK, waiting_ms=20),
        interference=NO_INTERFERENCE, times_ms={"m": (0.0, 1.0, 2.0, 3.0, 4.0)})
    played = play(cluster, [Replica("m", "gpu-0", 8)],
                  changes=[(10.0, [Replica("m", "gpu-0", 2)])])
    assert _batches(played, 0) == [(20, 30, 2), (30, 40, 2), (40, 50, 1)]


def test_a_policy_that_runs_every_two_seconds_follows_the_load(v100):
    """Two of five models are wanted most, and then the other three."""
    rng = np.random.default_rng(1)
    names, times_ms = ("alexnet", "densenet121", "efficientnet_b7", "resnet50", "vgg19"), {}
    rates = [(433.0, 80.0) if number < 2 else (80.0, 433.0) for number in range(len(names))]
    for name, of_halves in zip(names, rates, strict=True):
        times_ms[name] = tuple(np.concatenate([
            start_ms + np.sort(rng.uniform(0, 4000, rng.poisson(4 * rate)))
            for start_ms, rate in zip((0, 4000), of_halves, strict=True)]))
    models = _measured(v100, names, [first for first, _ in rates], 200)
    cluster = SharedCluster(models, _gpus(3), duration_s=8, times_ms=times_ms)
    requests = draw_requests(cluster.scenario(), 0)
    policy = sharing_policy("wsm-milp")
    plan = policy(models, cluster.gpus)
    changes = replanned(cluster, policy, 2000, requests)
    assert [at_ms for at_ms, _ in changes] == [2000, 4000, 6000]
    fixed, followed = (measure_sharing(play(cluster, plan, changes=some, requests=requests))
                       for some in ((), changes))
    assert followed.goodput_rps > 1.04 * fixed.goodput_rps
    with pytest.raises(InputFileError, match="period_ms"):
        replanned(cluster, policy, 0, requests)


def test_figures_add_up():
    models = (_model("a", 300), _model("b", 300), _model("c", 300))
    plan = [Replica("a", "gpu-0", 8), Replica("b", "gpu-0", 8)]
    figures = measure_sharing(play(SharedCluster(models, _gpus(1), duration_s=4), plan))
    a, b, c = figures.models
    assert c.in_time == 0
    assert c.response_p95_ms is None
    assert figures.goodput_rps == pytest.approx(a.goodput_rps + b.goodput_rps)
    assert figures.smallest_share == 0
    assert figures.fairness == pytest.approx(2 / 3, abs=0.01)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Interference(-0.1), "interference: per_utilisation: negative coefficient"),
    (lambda: Interference(pairs={(("a", 1), ("b", 1)): 0.9}), "negative coefficient"),
    (lambda: NetworkTime(a=-1), "network: a: negative coefficient"),
    (lambda: RouterSettings(waiting_ms=0), "waiting_ms: not positive"),
    (lambda: play(SharedCluster((_model("m", 1),), _gpus(1)), [Replica("m", "gpu-5", 1)]),
     "replica of what does not exist"),
    (lambda: play(SharedCluster((_model("m", 1),), _gpus(1)), [Replica("m", "gpu-0", 99)]),
     "batch does not fit the GPU"),
])
def test_bad_input_is_refused_in_a_line(make, message):
    with pytest.raises(InputFileError) as caught:
        make()  # type: ignore[operator]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_running_is_what_slow_downs_see():
    seen: list[int] = []

    def slow(worker: int, running: Sequence[Running]) -> list[float]:
        seen.append(len(running))
        return [1.0] * len(running)

    models = (_model("a", 300), _model("b", 300))
    play(SharedCluster(models, _gpus(1), slowdown=slow, duration_s=1),
         [Replica("a", "gpu-0", 4), Replica("b", "gpu-0", 4)])
    assert set(seen) == {1, 2}
