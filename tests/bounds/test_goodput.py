"""The bound on requests in time: against all schedules of tiny instances, and simulated ones."""

import json
from typing import Any

import numpy as np
import pytest

from ramsis.arrays import FloatArray
from ramsis.bounds import GoodputBound, ReleasedRequests, Servers, goodput_bound, scenario_bound
from ramsis.bounds import _kernels as kernels
from ramsis.bounds.goodput import _Priced
from ramsis.errors import InvalidValueError
from ramsis.scenario import Scenario, draw_requests, scenario_from_document
from ramsis.sim import Engine, measure, scheduler
from tests.reference.goodput import best_batches, most_in_time, most_with_loads

_STATED_GAP = 0.06  # of the requests, on average over the tiny instances


def bound(
    rows: list[tuple[float, float, int]], batch_ms: FloatArray, workers: list[int], **more: Any
) -> GoodputBound:
    """With a number of workers of each type."""
    release, deadline, model = (np.array(column) for column in zip(*rows, strict=True))
    return goodput_bound(ReleasedRequests(release.astype(float), deadline.astype(float), model),
                         Servers(batch_ms, np.array(workers, dtype=float), **more), rounds=60)


def tiny(rng: np.random.Generator, *, one_slo: bool, types: int, most: int = 6) -> tuple[
        list[tuple[float, float, int]], FloatArray, list[int]]:
    """A few requests of one or two models, short of time; the type of each worker last."""
    count, models, sizes = int(rng.integers(2, most)), int(rng.integers(1, 3)), 3
    release = np.sort(rng.uniform(0, 8, count))
    slack = np.full(count, 6.0) if one_slo else rng.choice([3.0, 5.0, 9.0], count)
    times = np.cumsum(rng.uniform(0.1, 2.0, (types, models, sizes)), axis=2) + 0.5
    workers = list(range(types)) * (1 if types > 1 else int(rng.integers(1, 3)))
    rows = list(zip(release.tolist(), (release + slack).tolist(),
                    rng.integers(0, models, count).tolist(), strict=True))
    return rows, times, workers


@pytest.mark.parametrize(("one_slo", "types"), [(True, 1), (True, 2), (False, 1), (False, 2)])
def test_no_schedule_of_a_tiny_instance_is_above_and_the_best_is_near(*, one_slo, types):
    rng = np.random.default_rng(5)
    lost = requests = 0
    for _ in range(10):
        rows, times, workers = tiny(rng, one_slo=one_slo, types=types)
        best = most_in_time(rows, times.tolist(), workers)
        found = bound(rows, times, np.bincount(workers, minlength=types).tolist()).in_time
        assert best <= found <= len(rows)
        lost, requests = lost + found - best, requests + len(rows)
    assert lost / requests < _STATED_GAP


def test_prices_say_what_one_worker_lacks():
    """Ten at once, a second each, due after 3.5 seconds."""
    rows = [(0.0, 3500.0, 0)] * 10
    found = bound(rows, np.array([[[1000.0]]]), [1])
    assert found.in_time == 3
    assert bound(rows, np.array([[[1000.0]]]), [2]).in_time in (6, 7)  # 7 s of work in 7 s
    assert found.price_per_ms.sum() * found.bin_ms > 1


def priced(rows: list[tuple[float, float, int]], times: FloatArray) -> _Priced:
    release, deadline, model = (np.array(column) for column in zip(*rows, strict=True))
    return _Priced(ReleasedRequests(release.astype(float), deadline.astype(float), model),
                   Servers(times, np.ones(len(times))))


def values(one: _Priced, price: FloatArray) -> tuple[float, float]:
    """With batches within others, and with runs alone."""
    runs = one._runs(one.groups, price, 1, np.zeros_like(price))
    nested, _ = kernels.best_nested(one.groups.release, one.groups.deadline, 0, one.duration,
                                 price, one.total(price), one.width)
    return float(nested), float(runs.sum())


def test_a_batch_may_lie_within_a_shorter_one():
    """Three take 5 ms, and the first and the last of five requests 3 ms meanwhile."""
    times = np.array([[[3.0, 3.0, 5.0]]])
    rows = [(at, at + 6.0, 0) for at in (0.0, 1.1, 1.2, 1.9, 2.5)]
    one = priced(rows, times)
    nested, runs = values(one, np.full_like(one.ms, 0.1))
    assert nested == pytest.approx(5 - 0.8)
    assert runs == pytest.approx(5 - 0.9)  # two, two and one
    assert most_in_time(rows, times.tolist(), [0, 0]) == 5


@pytest.mark.parametrize("types", [1, 2])
def test_batches_within_others_against_all_sets_of_batches(types):
    rng = np.random.default_rng(2)
    above = 0
    for _ in range(60):
        count, sizes = int(rng.integers(5, 9)), 3
        release = np.sort(rng.uniform(0, 3, count))
        times = np.sort(rng.choice([3.0, 5.0, 5.2], (types, 1, sizes)), axis=2)
        rows = [(r, r + 6.0, 0) for r in release.tolist()]
        one = priced(rows, times)
        price = np.full_like(one.ms, 0.15) * rng.uniform(0.9, 1.1, one.ms.shape)
        total = one.total(price)
        cost = [[[min((kernels.cheapest(one.release[j], one.deadline[i] - length, length, price[t],
                                        total[t], one.width)
                       for t, length in enumerate(one.duration[:, 0, size].tolist())
                       if one.release[j] + length <= one.deadline[i]), default=np.inf)
                  for size in range(sizes)] for j in range(count)] for i in range(count)]
        nested, runs = values(one, price)
        assert nested == pytest.approx(best_batches(rows, cost, sizes), abs=1e-9)
        assert runs <= nested + 1e-9
        above += runs < nested - 1e-9
    assert above > 0


def test_the_cheapest_place_is_that_of_a_fine_search():
    rng = np.random.default_rng(4)
    for _ in range(200):
        width, bins = float(rng.uniform(0.3, 2)), 12
        price = rng.choice([0.0, 0.1, 1.0], (1, bins))
        total = np.concatenate([[0.0], np.cumsum(price[0] * width)])
        low, length = float(rng.uniform(0, 6 * width)), float(rng.uniform(0.1, 5 * width))
        high = low + float(rng.uniform(0, 3 * width))

        def upto(x: FloatArray, total: FloatArray = total, width: float = width) -> FloatArray:
            return np.interp(x, np.arange(len(total)) * width, total)

        edges = np.arange(bins + 1) * width
        starts = np.concatenate([np.linspace(low, high, 50), edges, edges - length])
        starts = starts[(starts >= low) & (starts <= high)]
        fine = float((upto(starts + length) - upto(starts)).min())
        found = kernels.cheapest(low, high, length, price[0], total, width)
        assert found == pytest.approx(fine, abs=1e-9)


def test_what_fits_to_the_last_bit_is_counted():
    rows = [(0.1 + 0.2 * k, 0.1 + 0.2 * k + 0.1 + 0.1, 0) for k in range(50)]
    assert bound(rows, np.array([[[0.2]]]), [1]).in_time == 50


def test_a_blocking_load_is_paid_and_waited_for():
    rows = [(0.0, 10.0, 0), (0.0, 10.0, 1), (20.0, 30.0, 1)]
    times = np.full((1, 2, 1), 6.0)
    held = np.array([[1.0, 0.0]])
    load = {"load_ms": np.full((1, 2), 5.0), "held": held}
    assert bound(rows, times, [2]).in_time == 3
    assert bound(rows, times, [2], **load).in_time == 2  # loaded at 5, answered at 11
    long = {"load_ms": np.full((1, 2), 22.0), "held": held, "blocking": np.array([True])}
    assert bound(rows, times, [1], **long).in_time <= 2


@pytest.mark.parametrize(("blocking", "machines", "requests"), [
    pytest.param(True, [[0]], 6, marks=pytest.mark.slow), (False, [[]], 6),
    (False, [[0], [1]], 5)])
def test_no_schedule_with_loads_is_above_and_the_best_is_near(*, blocking, machines, requests):
    """Workers hold one of three models. Most of what memory costs is in the bound."""
    rng = np.random.default_rng(8)
    lost = without = 0
    for shortest_load_ms in (3.0, 6.0) * 2:
        release = np.sort(rng.uniform(0, 20, requests))
        times = np.cumsum(rng.uniform(0.3, 1.0, (1, 3, 2)), axis=2)
        load_ms = rng.uniform(shortest_load_ms, 2 * shortest_load_ms, 3)
        rows = list(zip(release.tolist(), (release + rng.uniform(2, 5)).tolist(),
                        rng.integers(0, 3, requests).tolist(), strict=True))
        best = most_with_loads(rows, times[0].tolist(), load_ms.tolist(), machines, 1,
                               blocking=blocking)
        held = np.array([[sum(m in one for one in machines) for m in range(3)]], dtype=float)
        given = {"load_ms": load_ms[None], "held": held, "blocking": np.array([blocking])}
        free = bound(rows, times, [len(machines)], **given).in_time
        found = bound(rows, times, [len(machines)], **given, room=np.ones((1, 3))).in_time
        assert best <= found <= free
        lost, without = lost + found - best, without + free - best
    assert lost <= max(0.35 * without, 1)


@pytest.mark.parametrize(("room", "most"), [(0.4, 56), (0.6, 47), (1.0, 30)])
def test_a_change_that_takes_too_long_is_not_made(room, most):
    """A request for either of two models every 10 ms in turn, due after 20 ms; loads take 100 ms.

    Memory holds both, 1 / 0.6 of them for what prices can tell, or one.
    """
    rows = [(10.0 * i, 10.0 * i + 20.0, i % 2) for i in range(60)]
    found = bound(rows, np.full((1, 2, 1), 1.0), [1], load_ms=np.full((1, 2), 100.0),
                  held=np.array([[1.0, 0.0]]), room=np.full((1, 2), room))
    assert most - 1 <= found.in_time <= most + 1


@pytest.mark.parametrize("slo_ms", [20.0, 80.0])
def test_batches_in_gaps_of_others_do_not_stretch_what_is_held(slo_ms):
    """As above with batches of two: nothing is gained by a change, however long requests wait."""
    rows = [(2.0 * i, 2.0 * i + slo_ms, i % 2) for i in range(300)]
    found = bound(rows, np.array([[[1.0, 1.5]] * 2]), [1], load_ms=np.full((1, 2), 100.0),
                  held=np.array([[1.0, 0.0]]), room=np.ones((1, 2)))
    assert found.in_time == 150


def cluster(seed: int, **changes: Any) -> Scenario:
    rng = np.random.default_rng(seed)
    models = [{"name": f"m{i}", "memory_mb": 100, "load_ms": float(rng.uniform(1, 200)),
               "latency": [{"worker_type": name, "batch": b, "latency_ms": ms * b**0.6}
                           for name in ("a", "b") for b in (1, 2, 4)
                           for ms in [float(rng.uniform(2, 20))]]}
              for i in range(3)]
    streams = [{"name": f"s{i}{slo}", "model": f"m{i}", "slo_ms": slo,
                "workload": {"load_qps": float(rng.uniform(5, 60))}}
               for i in range(3) for slo in ((40, 90) if seed % 2 else (40,))]
    return scenario_from_document({
        "format": "ramsis.scenario/1", "name": "drawn", "duration_s": 1,
        "worker_types": [{"name": "a", "count": 1, "memory_mb": 200,
                          "loading": "blocking" if seed % 3 else "beside"},
                         {"name": "b", "count": 1, "memory_mb": 250, "lanes": 1 + seed % 2}],
        "models": models, "streams": streams,
        "start": [{"worker": "a", "models": ["m0"]}], **changes})


@pytest.mark.parametrize(("seed", "name"), [
    (0, "random"), (1, "lru"), (3, "random"), (4, "lru"), (5, "random")])
def test_no_simulated_schedule_is_above(name, seed):
    scenario = cluster(seed)
    found = scenario_bound(scenario, draw_requests(scenario, seed))
    run = Engine.of_scenario(scenario, seed).serve(scheduler(name))
    figures = measure(run)
    assert figures.in_time <= found.in_time


def test_streams_that_depend_on_answers_have_none():
    streams = [{"name": "s", "model": "m0", "slo_ms": 40, "workload": {"users": 2, "think_ms": 1}}]
    scenario = cluster(0, streams=streams)
    assert scenario_bound(scenario, draw_requests(scenario, 0)) is None


def test_nothing_to_answer():
    empty = ReleasedRequests(np.array([]), np.array([]), np.array([], dtype=np.int64))
    assert goodput_bound(empty, Servers(np.array([[[1.0]]]), np.array([1.0]))).in_time == 0
    assert bound([(0.0, 0.5, 0)], np.array([[[1.0]]]), [1]).in_time == 0


@pytest.mark.parametrize(("rows", "times", "named"), [
    ([(0.0, 1.0, 2)], np.array([[[1.0]]]), "no such model"),
    ([(0.0, np.inf, 0)], np.array([[[1.0]]]), "not a number"),
    ([(0.0, 1.0, 0)], np.array([[[0.0]]]), "out of range"),
    ([(0.0, 1.0, 0)], np.array([[1.0]]), "do not fit"),
])
def test_what_does_not_fit_is_refused(rows, times, named):
    with pytest.raises(InvalidValueError, match=named):
        bound(rows, times, [1])


@pytest.mark.slow
@pytest.mark.parametrize(("load_qps", "models", "slo_ms", "most"), [
    (2400, 12, 6.0, 0.977), (3000, 48, 12.0, 0.880), (3000, 48, 24.0, 0.991)])
def test_low_slos_on_six_gpus(load_qps, models, slo_ms, most, reference_dir):
    """No higher than another program's bounds for the same load."""
    data = json.loads((reference_dir / "cluster" / "clockwork.json").read_text())
    listed = {int(batch): ms for batch, ms in data["batch_ms"].items()}
    scale = data["scale_to_batch_1_ms"] / listed[1]
    row = [scale * min(ms for batch, ms in listed.items() if batch >= b) for b in range(1, 17)]
    rng = np.random.default_rng(1)
    arrival = np.sort(rng.uniform(0, 24e6 / load_qps, 24_000))
    found = goodput_bound(
        ReleasedRequests(arrival, arrival + slo_ms, rng.integers(0, models, len(arrival))),
        Servers(np.tile(row, (1, models, 1)), np.array([6.0])))
    assert found.share <= most
