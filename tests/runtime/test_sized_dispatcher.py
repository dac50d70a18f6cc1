"""The dispatcher of requests with a size: who is served, dropped and when."""

import random
from math import inf
from typing import NamedTuple

import pytest

from ramsis.errors import InvalidValueError
from ramsis.runtime.dispatcher import DispatchSettings
from ramsis.runtime.sized import SizedQueue, SizedRule, SizedTables
from ramsis.runtime.sized_dispatcher import SizedDispatcher
from ramsis.runtime.station_queues import Orders
from tests.work import calls_of

SLO_MS = 100.0
TABLES = SizedTables(
    models=("small",), slo_ms=SLO_MS, workers=2, law="padded", edges=(4, 16), mean_size=(2.0, 9.0),
    work_us=(1000, 5000), level_us=10**9, bins=4, reward=((10**6, 10**6),),
    values=(((0,) * 4, (0,) * 4),), aging=(((0,) * 4, (0,) * 4),), price=(0.001,), sizes=(4, 16),
    times_ms=(((10.0, 11.0, 12.0, 13.0), (20.0, 30.0, 40.0, 50.0)),))


class Asked(NamedTuple):
    name: str
    size: int


def dispatcher(workers: int = 1, **settings: float) -> SizedDispatcher[Asked]:
    return SizedDispatcher(TABLES._replace(workers=workers), lambda asked: asked.size,
                           DispatchSettings(**settings))


def arrive(
    served: SizedDispatcher[Asked], now_ms: float, *asked: tuple[str, int],
    deadline_ms: float | None = None,
) -> Orders[Asked]:
    due_ms = now_ms + SLO_MS if deadline_ms is None else deadline_ms
    return served.arrive(now_ms, [Asked(*item) for item in asked], due_ms)


def names(orders: Orders[Asked]) -> list[list[str]]:
    return [[asked.name for asked in start.requests] for start in orders.starts]


def test_an_idle_worker_takes_what_comes_and_others_wait():
    served = dispatcher()
    assert names(arrive(served, 0.0, ("a", 2))) == [["a"]]
    assert names(arrive(served, 1.0, ("b", 2))) == []
    assert names(arrive(served, 2.0, ("c", 2))) == []
    assert served.queued == 2
    orders = served.finished(10.0, 0)
    assert names(orders) == [["b", "c"]]
    (start,) = orders.starts
    assert (start.worker, start.model, start.run_as, start.queued) == (0, "small", 2, 2)
    assert served.queued == 0


def test_the_worker_that_is_idle_longest_is_first():
    served = dispatcher(workers=2)
    assert arrive(served, 0.0, ("a", 2)).starts[0].worker == 0
    assert arrive(served, 1.0, ("b", 2)).starts[0].worker == 1
    served.finished(5.0, 1)
    served.finished(6.0, 0)
    assert arrive(served, 7.0, ("c", 2)).starts[0].worker == 1


def test_what_cannot_be_in_time_is_dropped():
    served = dispatcher()
    arrive(served, 0.0, ("a", 2))
    arrive(served, 1.0, ("long", 16))
    orders = served.finished(90.0, 0)
    assert [ticket.request.name for ticket in orders.drops] == ["long"]
    assert served.queued == 0
    assert names(arrive(served, 91.0, ("b", 2))) == [["b"]]


def test_overhead_is_taken_from_the_slack():
    served = dispatcher(overhead_ms=15.0)
    arrive(served, 0.0, ("a", 2))
    arrive(served, 1.0, ("long", 16))
    assert [ticket.request.name for ticket in served.finished(70.0, 0).drops] == ["long"]
    assert served.overhead_ms == 15.0
    served.take_overhead(80.0, 1.0)
    assert served.overhead_ms == 1.0


def test_slow_service_counts_as_less_slack():
    served = dispatcher()
    served.take_slowness(0.0, 2.0)
    arrive(served, 0.0, ("a", 2))
    arrive(served, 1.0, ("long", 16), ("b", 2))
    orders = served.finished(65.0, 0)  # alone it takes 20 ms, now 40
    assert [ticket.request.name for ticket in orders.drops] == ["long"]
    assert names(orders) == [["b"]]
    served.take_slowness(66.0, 0.5)  # not faster than profiled
    arrive(served, 67.0, ("c", 16))
    served.take_slowness(68.0, 1.0)
    assert names(served.finished(147.0, 0)) == [["c"]]
    with pytest.raises(InvalidValueError, match="slowness"):
        served.take_slowness(148.0, 0.0)


def test_a_later_deadline_counts_as_the_slo():
    served = dispatcher()
    arrive(served, 0.0, ("a", 2))
    arrive(served, 1.0, ("later", 16), ("infinite", 2), deadline_ms=inf)
    arrive(served, 2.0, ("b", 2))
    orders = served.finished(10.0, 0)
    batches = [names(orders)]
    while served.queued:
        batches.append(names(served.finished(60.0, 0)))
    assert sorted(name for batch in batches for start in batch for name in start) == [
        "b", "infinite", "later"]


def test_a_request_due_after_the_slo_is_dropped_at_its_own_deadline():
    served = dispatcher()
    arrive(served, 0.0, ("a", 2))
    arrive(served, 1.0, ("later", 16), deadline_ms=500.0)
    assert names(served.finished(150.0, 0)) == [["later"]]
    arrive(served, 151.0, ("too late", 16), deadline_ms=500.0)
    orders = served.finished(490.0, 0)
    assert [ticket.request.name for ticket in orders.drops] == ["too late"]
    served.take_slowness(500.0, 6.0)  # longer than the SLO, for which the tables end
    orders = arrive(served, 501.0, ("never", 16), deadline_ms=inf)
    assert [ticket.request.name for ticket in orders.drops] == ["never"]


def test_rounding_keeps_no_request_between_hope_and_none():
    """Its time alone is the SLO, and the clock is too far on to tell them apart."""
    times_ms = (tuple(SLO_MS + 0.05 + i for i in range(4)),) * 2
    served = SizedDispatcher[Asked](TABLES._replace(
        workers=1, slo_ms=SLO_MS + 0.05, times_ms=(times_ms,)), lambda asked: asked.size)
    now_ms = 3e10
    orders = served.arrive(now_ms, [Asked("late", 2)], now_ms + 500.0)
    assert len(orders.starts) + len(orders.drops) == 1


def test_a_request_that_leaves_is_in_no_batch():
    served = dispatcher()
    arrive(served, 0.0, ("a", 2))
    gone, stays = Asked("b", 2), Asked("c", 2)
    served.arrive(1.0, [gone, stays], 101.0)
    assert [ticket.request for ticket in served.leave(2.0, [gone]).drops] == [gone]
    assert served.queued == 1
    assert names(served.finished(10.0, 0)) == [["c"]]


def test_room_is_made_by_those_that_are_due_last():
    served = dispatcher()
    arrive(served, 0.0, ("a", 2))
    arrive(served, 1.0, ("b", 2))
    arrive(served, 2.0, ("c", 2))
    assert not served.make_room(3.0, 2, 101.5).drops
    assert [ticket.request.name for ticket in served.make_room(3.0, 1, 50.0).drops] == ["c"]


def test_a_worker_that_is_lost_and_back():
    served = dispatcher()
    (start,) = arrive(served, 0.0, ("a", 2)).starts
    assert names(served.down(5.0, 0, again=start)) == []
    assert (served.workers_up, served.queued) == (0, 1)
    assert served.wake_ms == SLO_MS
    assert names(served.up(6.0, 0)) == [["a"]]
    served.down(7.0, 0)
    arrive(served, 8.0, ("b", 2))
    assert [ticket.request.name for ticket in served.timer(served.wake_ms).drops] == ["b"]
    assert served.wake_ms == inf


def test_the_end_of_no_batch_is_refused():
    with pytest.raises(InvalidValueError, match="the end of a batch that was not started"):
        dispatcher().finished(0.0, 0)


def test_policies_are_not_exchanged():
    with pytest.raises(InvalidValueError, match="not exchanged while they serve"):
        dispatcher().swap(0.0, None)


def test_nothing_is_lost_and_each_batch_keeps_to_the_tables():
    rng, served = random.Random(0), dispatcher(workers=2)
    now_ms, number, ends = 0.0, 0, dict[int, float]()
    answered, dropped = list[str](), list[str]()

    def obey(orders: Orders[Asked]) -> None:
        dropped.extend(ticket.request.name for ticket in orders.drops)
        for start in orders.starts:
            assert start.worker not in ends
            longest = max(asked.size for asked in start.requests)
            row = TABLES.times_ms[0][0 if longest <= 4 else 1]
            ends[start.worker] = now_ms + row[len(start.tickets) - 1]
            assert all(ticket.deadline_ms >= ends[start.worker] - 1e-6 for ticket in start.tickets)
            answered.extend(asked.name for asked in start.requests)

    while number < 3000 or ends:
        if number < 3000 and (not ends or rng.random() < 0.75):
            now_ms += rng.expovariate(0.35)
            while ends and min(ends.values()) <= now_ms:
                worker = min(ends, key=lambda worker: ends[worker])
                at_ms = ends.pop(worker)
                now_ms, later_ms = at_ms, now_ms
                obey(served.finished(at_ms, worker))
                now_ms = later_ms
            obey(arrive(served, now_ms, (str(number), rng.choice([1, 3, 4, 9, 16]))))
            number += 1
        else:
            worker = min(ends, key=lambda worker: ends[worker])
            now_ms = max(now_ms, ends.pop(worker))
            obey(served.finished(now_ms, worker))
    assert sorted(answered + dropped) == sorted(map(str, range(3000)))
    assert dropped
    assert len(answered) > 1500


def test_hopeless_requests_among_thousands_leave_in_one_pass():
    tables = TABLES._replace(edges=(16,), mean_size=(9.0,), work_us=(5000,), reward=((10**6,),),
                             values=(((0,) * 4,),), aging=(((0,) * 4,),))
    queue = SizedQueue[int](SizedRule(tables))
    for request in range(30_000):
        queue.add(request, 16 if request % 2 else 4, 0.0)  # which take 20 and 10 ms
    batches = []
    # A call for each request or two; a decision for each that is dropped takes ten times as many.
    assert calls_of(lambda: batches.append(queue.decide(85.0))) < 60_000
    (batch,) = batches
    assert batch.dropped == list(range(1, 30_000, 2))
    assert batch.members == [0]
    assert queue.decide(85.0).members == [2]
