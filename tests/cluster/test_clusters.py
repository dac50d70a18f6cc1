"""Worker types, clusters, and what arrives at a station against simulated splits."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ramsis.arrivals import ArrivalProcess, MarkovModulated, NegativeBinomial, Poisson
from ramsis.cluster import Cluster, SloClass, WorkerType
from ramsis.cluster.cluster import numbered_alike
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
def test_counts_of_requests_sent_at_random_are_those_of_the_split_process(process):
    """Each request of a simulated run is sent by a coin of its own."""
    duration_ms, window_ms, share = 400_000.0, 10.0, 0.3
    rng = np.random.default_rng(3)
    times = process.sample(duration_ms, rng)
    seen = counted(times[rng.random(len(times)) < share], window_ms, duration_ms)
    mine = split(process, "central-queue", share=share)
    assert mine.exact
    assert mine.rate_per_ms == pytest.approx(share * process.rate_per_ms)
    most = int(seen.max()) + 1
    part: Any = mine.process
    if isinstance(part, MarkovModulated):
        joint = part.joint_pf(np.arange(most), np.array([window_ms]))[0]
        expected = np.einsum("z,zyk->k", part.stationary, joint)
    else:
        expected = np.exp(part.log_pf(np.arange(most), np.array([window_ms])))
    assert np.bincount(seen, minlength=most) / len(seen) == pytest.approx(expected, abs=0.008)


def test_by_turns_a_station_gets_every_kth_request():
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


def test_the_shortest_queue_is_said_to_be_an_approximation():
    assert not split(Poisson(100.0), "shortest-queue", stations=3).exact
    assert split(Poisson(100.0), "shortest-queue").exact


class Own:
    """Requests at fixed intervals."""

    rate_per_ms = 1.0

    def log_pf(self, count: NDArray[Any], interval_ms: NDArray[Any]) -> NDArray[np.float64]:
        raise NotImplementedError


def test_splits_that_are_not_known_are_refused():
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


def test_a_worker_type_of_twice_the_speed_takes_half_the_time():
    slow, fast = WorkerType("a", tiny_profile(), 2), WorkerType("b", tiny_profile(), 2, speed=2.0)
    one, other = slow.service_times("p95", 4), fast.service_times("p95", 4)
    assert other.mean_ms == pytest.approx(one.mean_ms / 2)
    assert numbered_alike([one, other, slow.service_times("p95", 4)]) == [0, 1, 0]
    with pytest.raises(InvalidValueError, match=r"^speed: not positive"):
        WorkerType("c", tiny_profile(), 1, speed=0.0)


@pytest.mark.parametrize(("types", "classes", "words"), [
    ([], CLASSES, "different names"),
    ([("a", 1), ("a", 2)], CLASSES, "different names"),
    ([("a", True)], CLASSES, r"^workers: a: not a number of workers: got True"),
    ([("a", None)], CLASSES, r"^workers: a: not a number of workers: got None"),
    ([("a", 1)], CLASSES[:1], "do not sum to 1"),
])
def test_clusters_that_do_not_fit_together_are_refused(types, classes, words):
    with pytest.raises(InvalidValueError, match=words):
        Cluster(tuple(WorkerType(name, tiny_profile(), count) for name, count in types), classes)
