"""Worker types, stations, clusters, and what arrives at a station against simulated splits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ramsis.arrivals import ArrivalProcess, MarkovModulated, NegativeBinomial, Poisson
from ramsis.cluster import Cluster, SloClass, Station, Variant, WorkerType
from ramsis.cluster.checks import numbered_alike
from ramsis.cluster.routing import split
from ramsis.errors import InvalidValueError
from tests.synthesis.samples import tiny_profile

CLASSES = (SloClass(60.0, 0.25), SloClass(100.0, 0.75))


def counted(times_ms: NDArray[np.float64], window_ms: float, duration_ms: float
            ) -> NDArray[np.int64]:
    """Arrivals in each window."""
    return np.histogram(times_ms, np.arange(0.0, duration_ms + window_ms / 2, window_ms))[0]


@pytest.mark.parametrize("process", [
    Poisson(800.0), NegativeBinomial(800.0, 3.0),
    MarkovModulated(800.0, ratio=3.0, burst_ms=40.0, share=0.3),
])
def test_counts_of_requests_sent_at_random_are_those_of_the_split_process(
    process: Any
) -> None:
    """Each request of a simulated run is sent by a coin of its own."""
    duration_ms, window_ms, share = 400_000.0, 10.0, 0.3
    rng = np.random.default_rng(3)
    times = process.sample(duration_ms, rng)
    seen = counted(times[rng.random(len(times)) < share], window_ms, duration_ms)
    mine = split(process, "central-queue", share=share)
    assert mine.exact
    assert mine.rate_per_ms == pytest.approx(share * process.rate_per_ms)
    most = int(seen.max()) + 1
    expected = np.exp(mine.process.log_pf(np.arange(most), np.array([window_ms])))
    assert np.bincount(seen, minlength=most) / len(seen) == pytest.approx(expected, abs=0.008)


def test_by_turns_a_station_gets_every_kth_request() -> None:
    """It gets none in a window in which the whole gets k < 4, by the turn that it starts at."""
    duration_ms, window_ms, stations = 400_000.0, 20.0, 4
    process = Poisson(600.0)
    mine = split(process, "round-robin", stations=stations)
    assert (mine.every, mine.exact, mine.process) == (4, True, process)
    times = process.sample(duration_ms, np.random.default_rng(5))
    seen = counted(times[::stations], window_ms, duration_ms)
    assert seen.mean() == pytest.approx(mine.rate_per_ms * window_ms, rel=0.01)
    whole = np.exp(mine.process.log_pf(np.arange(80), np.array([window_ms])))
    none = sum(whole[k] * max(0, mine.every - k) / mine.every for k in range(mine.every))
    assert (seen == 0).mean() == pytest.approx(none, abs=0.01)


def test_the_shortest_queue_is_said_to_be_an_approximation() -> None:
    assert not split(Poisson(100.0), "shortest-queue", stations=3).exact
    assert split(Poisson(100.0), "shortest-queue").exact


class Own:
    """Requests at fixed intervals."""

    rate_per_ms = 1.0

    def log_pf(self, count: NDArray[Any], interval_ms: NDArray[Any]) -> NDArray[np.float64]:
        raise NotImplementedError


def test_splits_that_are_not_known_are_refused() -> None:
    own: ArrivalProcess = Own()
    assert split(own, "round-robin", stations=2).process is own
    with pytest.raises(InvalidValueError, match="not split at random"):
        split(own, "round-robin", share=0.5)
    with pytest.raises(InvalidValueError, match=r"^share: .*got 0"):
        split(own, "round-robin", share=0.0)
    with pytest.raises(InvalidValueError, match="unknown dispatch"):
        split(own, "by-chance")
    with pytest.raises(InvalidValueError, match="several queues"):
        split(own, "central-queue", stations=2)
    with pytest.raises(InvalidValueError, match=r"^stations: not a number of stations"):
        split(own, "round-robin", stations=0)


def test_a_worker_type_of_twice_the_speed_takes_half_the_time() -> None:
    slow, fast = WorkerType("a", tiny_profile(), 2), WorkerType("b", tiny_profile(), 2, speed=2.0)
    one, other = slow.service_times("p95", 4), fast.service_times("p95", 4)
    assert other.mean_ms == pytest.approx(one.mean_ms / 2)
    assert numbered_alike([one, other, slow.service_times("p95", 4)]) == [0, 1, 0]
    with pytest.raises(InvalidValueError, match=r"^speed: not positive"):
        WorkerType("c", tiny_profile(), 1, speed=0.0)
    with pytest.raises(InvalidValueError, match=r"^memory_mb: not positive"):
        WorkerType("c", tiny_profile(), 1, memory_mb=-1.0)


def test_variants_have_service_times_where_they_run() -> None:
    variants = [Variant("small", "vision", 0.6, 100.0, times_ms={"gpu": [[2.0], [3.0]]}),
                Variant("large", "vision", 0.9, 400.0, 50.0, {"gpu": [[9.0]], "cpu": [[90.0]]})]
    times = Variant.service_times(variants, "gpu", "p95")
    assert times.models == ("small", "large")
    assert times.quantiles_ms[:, :, 0].tolist() == [[2.0, 3.0], [9.0, np.inf]]
    assert Variant.service_times(variants, "cpu", "p95").models == ("large",)
    with pytest.raises(InvalidValueError, match="no variant runs"):
        Variant.service_times(variants, "tpu", "p95")


def test_a_station_knows_its_classes_and_its_share_of_the_queries() -> None:
    some = Station("some", ("a",), 1, {60.0: 1.0, 100.0: 1 / 3}, multiplicity=4)
    rest = Station("rest", ("a",), 6, {100.0: 2 / 3})
    assert some.query_share(CLASSES) == pytest.approx(0.5)
    assert some.own_classes(CLASSES) == (SloClass(60.0, 0.5), SloClass(100.0, 0.5))
    assert rest.own_classes(CLASSES) == (SloClass(100.0),)
    assert (some.all_workers, rest.all_workers) == (4, 6)
    cluster = Cluster((WorkerType("a", tiny_profile(), 10),), CLASSES, (some, rest))
    assert (cluster.workers, cluster.slo_ms) == (10, 100.0)


@pytest.mark.parametrize(("changes", "words"), [
    ({"workers": 0}, r"^station s: not a number of workers: got 0"),
    ({"multiplicity": 1.5}, r"^Station: multiplicity: wrong type \(float\): got 1\.5"),
    ({"share": {}}, "no queries come here"),
    ({"share": {100.0: 1.5}}, "not a share of the queries"),
    ({"share": {-1.0: 0.5}}, r"^slo_ms: not positive"),
])
def test_numbers_of_a_station_out_of_range_are_refused(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidValueError, match=words):
        Station(**{"name": "s", "worker_types": ("a",), "workers": 1, "share": {100.0: 1.0},
                   **changes})


@pytest.mark.parametrize(("types", "classes", "stations", "words"), [
    ([], CLASSES, (), "different names"),
    ([("a", 1), ("a", 2)], CLASSES, (), "different names"),
    ([("a", True)], CLASSES, (), r"^type a: not a number of workers: got True"),
    ([("a", None)], CLASSES, (), r"^type a: not a number of workers: got None"),
    ([("a", 1)], CLASSES[:1], (), "do not sum to 1"),
    ([("a", 1)], CLASSES, [("a", {60.0: 1.0})], r"^class of 100ms: .*got 0\.0"),
    ([("a", 1)], CLASSES, [("b", {60.0: 1.0, 100.0: 1.0})], "unknown worker type: got 'b'"),
])
def test_clusters_that_do_not_fit_together_are_refused(
    types: Any, classes: Any, stations: Any, words: str
) -> None:
    with pytest.raises(InvalidValueError, match=words):
        Cluster(tuple(WorkerType(name, tiny_profile(), count) for name, count in types), classes,
                tuple(Station("s", (of,), 1, share) for of, share in stations))
