"""The bound of sharing: against the best of all schedules of tiny instances, and against runs."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ramsis.studies.sharing import gpus_of, models_of, plan
from ramsis.studies.sharing._kernels import most_in_groups
from ramsis.studies.sharing.bound import goodput_bound_rps
from ramsis.studies.sharing.gpu.interference import NO_INTERFERENCE, THESIS, Interference
from ramsis.studies.sharing.gpu.profile import SharedBatch
from ramsis.studies.sharing.gpu.shared_gpu import NetworkTime, RouterSettings, SharedModel
from ramsis.studies.sharing.play import SharedCluster, measure_sharing, play

_VISION = ("alexnet", "densenet121", "efficientnet_b7", "resnet50", "vgg19")
_Rows = Sequence[tuple[int, float, float]]
_Batch = tuple[int, int, frozenset[int], float, int]
"""Model, size, requests, work left and GPU."""


def _model(name: str, slo_ms: float, rows: _Rows) -> SharedModel:
    """Batch, latency in ms and utilisation."""
    return SharedModel(name, 1.0, slo_ms, {"gpu": tuple(
        SharedBatch(name, "gpu", n, ms, 0.1, used, used, used) for n, ms, used in rows)})


def _bound(
    models: Sequence[SharedModel], gpus: int, beside: float, times: Sequence[Sequence[float]],
    network_ms: float = 0.0, exponent: float = 1.5,
) -> float:
    """Requests in time at most: a model's rate is its number of requests, over one second."""
    models = [SharedModel(model.name, len(mine), model.slo_ms, model.batches)
              for model, mine in zip(models, times, strict=True)]
    router = RouterSettings(network=NetworkTime(0.0, 0.0, 1.0, network_ms))
    return goodput_bound_rps(
        models, gpus_of(gpus), Interference(beside, share_exponent=exponent), duration_s=1.0,
        router=router, arrivals_ms=[np.array(mine, dtype=float) for mine in times])


class _Schedules:
    """The most requests in time of all schedules that start batches when something happens.

    Requests are (model, arrival); a batch that runs is (model, size, requests, work left, GPU).
    """

    def __init__(
        self, rows: Sequence[_Rows], slos: Sequence[float], gpus: int, beside: float,
        times: Sequence[Sequence[float]], network_ms: float,
    ) -> None:
        self.rows = [{n: (ms, used) for n, ms, used in there} for there in rows]
        self.slos, self.gpus, self.beside = slos, gpus, beside
        self.network_ms = network_ms
        self.requests = [(m, at) for m, mine in enumerate(times) for at in mine]

    def most(self, now: float = 0.0, used: frozenset[int] = frozenset(),
             running: tuple[_Batch, ...] = ()) -> int:
        """From now on; ``used`` are requests that were sent."""
        best = 0
        for starts in self._starts(now, used):
            here = (*running, *starts)
            gone = used.union(*(one[2] for one in starts))
            best = max(best, self._on(now, gone, here))
        return best

    def _starts(self, now: float, used: frozenset[int]) -> list[tuple[_Batch, ...]]:
        """All sets of batches that may start now, of requests that have been on the GPU's side."""
        free = [r for r, (m, at) in enumerate(self.requests) if r not in used
                and at + self.network_ms <= now + 1e-9 < at + self.slos[m]]
        found: list[tuple[_Batch, ...]] = [()]
        for r in free:
            more = []
            for chosen in found:
                if any(r in one[2] for one in chosen):
                    continue
                m = self.requests[r][0]
                rest = [q for q in free if q > r and self.requests[q][0] == m
                        and not any(q in one[2] for one in chosen)]
                for size, (ms, _) in self.rows[m].items():
                    for others in itertools.combinations(rest, size - 1):
                        for g in range(self.gpus):
                            batch = (m, size, frozenset((r, *others)), ms, g)
                            more.append((*chosen, batch))
            found += more
        return found

    def _on(self, now: float, used: frozenset[int], running: tuple[_Batch, ...]) -> int:
        """Until the next end or arrival."""
        slow = []
        for b, (m, size, _, _, g) in enumerate(running):
            shares = [self.rows[k][n][1] for c, (k, n, _, _, at) in enumerate(running)
                      if at == g and c != b]
            mine = self.rows[m][size][1]
            slow.append((1 + self.beside * sum(shares)) * max(1.0, sum(shares) + mine))
        ends = [now + one[3] * its for one, its in zip(running, slow, strict=True)]
        comes = [at + self.network_ms for r, (_, at) in enumerate(self.requests)
                 if r not in used and at + self.network_ms > now + 1e-9]
        then = min([*ends, *comes], default=math.inf)
        if then == math.inf:
            return 0
        right, left = 0, []
        for one, end, its in zip(running, ends, slow, strict=True):
            if end <= then + 1e-9:
                right += sum(then <= self.requests[r][1] + self.slos[one[0]] + 1e-6
                             for r in one[2])
            else:
                left.append((*one[:3], one[3] - (then - now) / its, one[4]))
        return right + self.most(then, used, tuple(left))


_GPU_ROWS = st.lists(st.tuples(st.floats(4, 20), st.floats(0.15, 1.0)), min_size=1, max_size=2)


@given(st.data())
@settings(max_examples=15, deadline=None,
          phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_no_schedule_of_a_tiny_instance_passes_the_bound(data):
    rows = [[(n + 1, ms * (1 + 0.4 * n), used)
             for n, (ms, used) in enumerate(data.draw(_GPU_ROWS))] for _ in range(2)]
    slos = [data.draw(st.floats(10, 60)) for _ in rows]
    times = [sorted(data.draw(st.lists(st.floats(0, 30), min_size=1, max_size=2))) for _ in rows]
    beside, network_ms = data.draw(st.floats(0, 0.8)), data.draw(st.floats(0, 3))
    best = _Schedules(rows, slos, 1, beside, times, network_ms).most()
    models = [_model(f"m{i}", slo, there) for i, (slo, there) in enumerate(
        zip(slos, rows, strict=True))]
    assert _bound(models, 1, beside, times, network_ms) >= best - 1e-6


@pytest.mark.parametrize(("rows", "beside", "together_ms", "together"), [
    ([(1, 10.0, 1.0)], 0.375, 10.0, 1),
    ([(1, 10.0, 0.5)], 0.375, 11.875, 2),
    ([(1, 10.0, 0.2)], 0.375, 13.0, 5),
    ([(1, 10.0, 0.7)], 0.0, 14.0, 2),
    ([(1, 10.0, 0.7)], 0.375, 17.675, 2),
    ([(2, 10.0, 0.5), (4, 12.0, 0.9)], 0.375, 11.875, 4),
])
def test_the_bound_is_what_the_best_schedule_does(rows, beside, together_ms, together):
    """Requests that have all come at once, run in rounds of the best configuration."""
    rounds = 3
    slo_ms = rounds * together_ms + 1e-9
    bound = _bound([_model("a", slo_ms, rows)], 2, beside, [[0.0] * (3 * rounds * together)])
    assert 2 * rounds * together - 1e-6 <= bound <= 1.015 * 2 * rounds * together
    once = _Schedules([rows], [together_ms], 1, beside, [[0.0] * (together + 1)], 0.0)
    assert once.most() == together


def test_shares_are_counted():
    """A batch on 0.6 and one held to 0.4, which uses 0.6 alone, fill the GPU."""
    rows = [(1, 10.0, 0.6)]
    rate = 1 / 10 / 1.15 + 0.4 / 0.6 / 10 / 1.225
    bound = _bound([_model("a", 100.0, rows)], 1, 0.375, [[0.0] * 40], exponent=1.0)
    assert rate * 100 - 1e-6 <= bound <= 1.06 * rate * 100
    alone = _bound([_model("a", 100.0, rows)], 1, 0.375, [[0.0] * 40], exponent=8.0)
    assert alone == pytest.approx(2 / 10 / (1.225 * 1.2) * 100, rel=0.01)


@given(st.lists(st.integers(0, 25), min_size=1, max_size=8), st.integers(1, 4),
       st.integers(0, 12))
def test_groups_are_the_largest(times, least, within):
    """Against all ways of dividing arrivals into groups, neighbours or not."""
    times = sorted(times)

    def most(left: tuple[int, ...]) -> int:
        if not left:
            return 0
        best = most(left[1:])
        for size in range(least, len(left) + 1):
            for others in itertools.combinations(left[1:], size - 1):
                if max((*others, left[0])) - left[0] <= within:
                    rest = list(left[1:])
                    for one in others:
                        rest.remove(one)
                    best = max(best, size + most(tuple(rest)))
        return best

    assert most_in_groups(np.array(times, dtype=float), least, float(within)) == most(tuple(times))


def test_batches_that_arrivals_do_not_fill_are_not_counted():
    """A request every 20 ms; a batch of two has to wait, and only half of the time for that."""
    rows = [(1, 10.0, 1.0), (2, 11.0, 1.0)]
    times = [[20.0 * i for i in range(50)] for _ in range(3)]

    def bound(slo_ms: float) -> float:
        return _bound([_model(name, slo_ms, rows) for name in "abc"], 1, 0.375, times)

    # With 30.9 ms there is no time for two, so that one takes 10 ms; with 31 there is.
    assert bound(30.9) == pytest.approx((49 * 20 + 30.9) / 10, rel=2e-3)
    assert bound(31.0) == pytest.approx(150)


@pytest.mark.slow
def test_no_plan_passes_the_bound(v100):
    models = models_of(v100, dict.fromkeys(_VISION, 1000.0), 250)
    gpus = gpus_of(4)
    bound = goodput_bound_rps(models, gpus, THESIS, duration_s=4)
    # By work alone, without interference: the models that take least go first.
    work = sorted(min(row.utilisation * row.latency_ms / n for n in range(1, 129)
                      if (row := model.batch("gpu", n)) and row.latency_ms <= 250)
                  for model in models)
    left, by_hand = 4 * 1000 * (1 + 250 / 4000), 0.0
    for one in work:
        taken = min(1000.0, left / one)
        by_hand, left = by_hand + taken, left - taken * one
    assert bound < by_hand < 5000
    for policy in ("usher", "igniter", "wsm-milp"):
        replicas = plan(policy, models, gpus).replicas
        played = play(SharedCluster(models, gpus, duration_s=4), replicas)
        run, goodput = played.run, measure_sharing(played).goodput_rps
        times = [run.arrival_ms[run.asked == m] for m in range(len(models))]
        nearer = goodput_bound_rps(models, gpus, THESIS, duration_s=4, arrivals_ms=times,
                                   router=RouterSettings())
        assert goodput <= min(bound, nearer)
    assert goodput_bound_rps(models, gpus, NO_INTERFERENCE, duration_s=4) == 5000
