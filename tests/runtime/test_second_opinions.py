"""The dispatcher gives second opinions as the rule in plain Python does, and loses no request."""

from collections import Counter
from heapq import heappop, heappush
from math import inf
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from ramsis.errors import InvalidValueError
from ramsis.runtime import PolicySet, Selector, set_of_selectors
from ramsis.runtime.dispatcher import Dispatcher, DispatchSettings, Orders, Start
from ramsis.runtime.fronts import ThreadFront
from ramsis.verify.cascade import play
from tests.runtime.cascades import BATCH, SLO_MS, drawn_document, selector_of

OPINIONS = DispatchSettings(load_qps=50.0, second_opinions=True)


class Loop:
    """Workers and a clock around a dispatcher."""

    def __init__(self, dispatcher: Dispatcher[int], document: dict[str, Any],
                 confidence: np.ndarray[Any, Any]) -> None:
        self.dispatcher, self.confidence = dispatcher, confidence.tolist()
        self.times_ms = {model["name"]: model["latency_ms"] for model in document["models"]}
        self.ends: list[tuple[float, int, Start[int]]] = []
        self.started, self.now_ms = 0, 0.0
        self.first: set[int] = set()  # with a first answer that has not been sent
        self.answers: dict[int, tuple[float, bool]] = {}
        self.told = Counter[int]()
        self.drops: list[int] = []

    def obey(self, orders: Orders[int]) -> None:
        for ticket in orders.drops:
            self.drops.append(ticket.request)
            self.told[ticket.request] += 1
            self.first.discard(ticket.request)
        for ticket in orders.answers:
            self.first.remove(ticket.request)
            self.answer(ticket.request, second=False)
        for start in orders.starts:
            assert all(request in self.first for request in start.requests) == start.second
            end_ms = self.now_ms + self.times_ms[start.model][start.run_as - 1]
            heappush(self.ends, (end_ms, self.started, start))
            self.started += 1

    def answer(self, request: int, *, second: bool) -> None:
        self.answers[request] = self.now_ms, second
        self.told[request] += 1

    def end(self) -> None:
        """End the batch that is next."""
        self.now_ms, _, start = heappop(self.ends)
        unsure = self.dispatcher.unsure(
            self.now_ms, start, [self.confidence[request] for request in start.requests])
        numbers = {ticket.number for ticket in unsure}
        for ticket in start.tickets:
            if ticket.number in numbers:
                self.first.add(ticket.request)
            elif not start.second or ticket.request in self.first:
                self.first.discard(ticket.request)
                self.answer(ticket.request, second=start.second)
        self.obey(self.dispatcher.finished(self.now_ms, start.worker, unsure))

    def run(self, came_ms: list[float], until_ms: float = inf) -> None:
        """Let requests come, number 0 first, and play all events."""
        coming = 0
        while True:
            next_ms = came_ms[coming] if coming < len(came_ms) else inf
            end_ms = self.ends[0][0] if self.ends else inf
            wake_ms = self.dispatcher.wake_ms
            if min(next_ms, end_ms, wake_ms) > until_ms:
                return
            if wake_ms < min(next_ms, end_ms):
                self.now_ms = wake_ms
                self.obey(self.dispatcher.timer(wake_ms))
            elif end_ms <= next_ms and self.ends:
                self.end()
            elif coming < len(came_ms):
                self.now_ms = next_ms
                self.obey(self.dispatcher.arrive(next_ms, [coming], next_ms + SLO_MS, SLO_MS))
                coming += 1
            else:
                return


def policies(*selectors: Selector) -> PolicySet[Selector]:
    return set_of_selectors(selectors)


def plain(document: dict[str, Any], load_qps: float = 100.0) -> Selector:
    """The same policy without second opinions."""
    return Selector(selector_of(document, load_qps).table)


def loop_on(
    seed: int, count: int = 1500, workers: int = 2, dispatch: str = "central-queue",
    **changes: Any,
) -> tuple[Loop, list[float], dict[str, Any], np.random.Generator]:
    rng = np.random.default_rng(seed)
    document = drawn_document(rng, workers, dispatch)
    document["cascade"].update(changes)
    mean_ms = 1000.0 / rng.uniform(20.0, 90.0) / workers
    came_ms = np.cumsum(rng.exponential(mean_ms, count)).tolist()
    loop = Loop(Dispatcher(policies(selector_of(document)), OPINIONS), document, rng.random(count))
    return loop, came_ms, document, rng


@pytest.mark.parametrize("dispatch", ["central-queue", "round-robin"])
@pytest.mark.parametrize("seed", range(12))
def test_answers_are_those_of_the_rule_in_plain_python(seed, dispatch):
    """Where batches end as they start: the simulator has unsure requests in that order."""
    workers = 1 + seed % 3
    loop, came_ms, document, rng = loop_on(seed, workers=workers, dispatch=dispatch)
    if workers > 1 and dispatch == "central-queue":
        for model in document["models"][:-1]:
            loop.times_ms[model["name"]] = model["latency_ms"] = [float(workers)] * BATCH
    loop.run(came_ms)
    expected = play(document, np.array(came_ms), rng, np.array(loop.confidence))
    # A first answer is sent when it is due. With all workers busy the simulator keeps it in the
    # queue, which has no part in a rule that is any good.
    overdue = [answer.answered_ms for come_ms, answer in zip(came_ms, expected, strict=True)
               if not answer.second and come_ms + SLO_MS < answer.answered_ms < inf]
    same = [request for request, answer in enumerate(expected)
            if answer.answered_ms < min(overdue, default=inf)]
    assert len(same) > 400
    assert [loop.answers[request][1] for request in same] == [
        expected[request].second for request in same]
    np.testing.assert_allclose([loop.answers[request][0] for request in same],
                               [expected[request].answered_ms for request in same],
                               rtol=0, atol=1e-9)
    assert sorted(loop.told.elements()) == list(range(len(came_ms)))
    assert sum(expected[request].second for request in same) > 20


@pytest.mark.parametrize("dispatch", ["central-queue", "round-robin"])
@pytest.mark.parametrize("seed", range(20))
def test_no_request_is_lost_whatever_happens(seed, dispatch):
    loop, _, document, rng = loop_on(seed, 600, workers=3, dispatch=dispatch)
    other = drawn_document(rng, 3, dispatch)
    other["models"] = document["models"]
    sets = [policies(selector_of(document)), policies(plain(document)),
            policies(selector_of(other))]
    dispatcher = loop.dispatcher
    for part in range(30):
        now_ms = loop.now_ms = 20.0 * part + 1e-3
        first, last = 20 * part, 20 * part + 20
        loop.obey(dispatcher.arrive(now_ms, list(range(first, first + 4)), now_ms + SLO_MS))
        for request in range(first + 4, last):
            loop.run([], until_ms=loop.now_ms + 1.0)
            loop.now_ms += 1.0
            loop.obey(dispatcher.arrive(loop.now_ms, [request],
                                        loop.now_ms + float(rng.choice([5.0, SLO_MS, 300.0]))))
        worker, event = int(rng.integers(0, 3)), int(rng.integers(0, 6))
        if event == 0:
            loop.obey(dispatcher.swap(loop.now_ms, sets[int(rng.integers(0, 3))]))
        elif event == 1:
            leaving = rng.choice(last, 10, replace=False).tolist()
            loop.obey(dispatcher.leave(loop.now_ms, leaving))
        elif event == 2:
            lost = [start for _, _, start in loop.ends if start.worker == worker]
            loop.ends = sorted(entry for entry in loop.ends if entry[2].worker != worker)
            loop.obey(dispatcher.down(loop.now_ms, worker, *lost))
        elif event == 3:
            loop.obey(dispatcher.up(loop.now_ms, worker))
        elif event == 4:
            loop.obey(dispatcher.make_room(loop.now_ms, 3, loop.now_ms + 1.0))
        else:
            loop.obey(dispatcher.take_slowness(loop.now_ms, float(rng.uniform(1.0, 2.0))))
    loop.run([], until_ms=loop.now_ms + 10.0)
    loop.obey(dispatcher.abandon())
    running = {request for _, _, start in loop.ends for request in start.requests}
    assert not loop.first  # all first answers are sent, also those whose second opinion runs
    assert set(loop.told.values()) == {1}
    assert set(loop.told) | running == set(range(600))
    assert len(loop.answers) > 100


def waiting_for_opinions(count: int = 3, **changes: Any) -> Loop:
    """A dispatcher of two workers after the first answers of so many unsure requests."""
    loop, _, _, _ = loop_on(0, count, **{
        "unsure_bins": [[8, 8, 0]], "gather": [6], "least": [7], "index": [[0] * 8],
        "rows": [[0, 0]], "last_call_ms": 0.0, **changes})
    for request in range(count):
        loop.now_ms = float(10 * request)
        loop.obey(loop.dispatcher.arrive(loop.now_ms, [request], loop.now_ms + SLO_MS))
        loop.end()
    assert loop.first == set(range(count))
    assert loop.dispatcher.queued + len(loop.ends) == count
    return loop


def test_without_the_setting_the_table_serves_alone():
    document = drawn_document(np.random.default_rng(0), 1)
    document["cascade"]["unsure_bins"] = [[8] * 3] * len(document["cascade"]["gather"])
    starts = []
    for selector in (selector_of(document), plain(document)):
        dispatcher: Dispatcher[int] = Dispatcher(policies(selector))
        (start,) = dispatcher.arrive(0.0, [0], SLO_MS).starts
        assert dispatcher.unsure(1.0, start, [0.0]) == []
        starts.append(start[:1] + start[2:])
    assert starts[0] == starts[1]


def test_first_answers_are_sent_once_no_worker_is_up():
    loop = waiting_for_opinions()
    loop.obey(loop.dispatcher.down(25.0, 0))
    assert not loop.answers
    loop.obey(loop.dispatcher.down(25.0, 1))
    assert set(loop.answers) == {0, 1, 2}


def test_a_second_opinion_waits_for_the_worker_of_the_first_answer():
    """With queues of their own, another worker that is idle does not take it."""
    loop = waiting_for_opinions(2, dispatch="round-robin", gather=[1], least=[1], index=[[0] * 8],
                                levels_per_fresh=0.0, levels_per_unsure=0.0)
    assert [start.worker for _, _, start in sorted(loop.ends)] == [0, 1]
    assert all(start.second for _, _, start in loop.ends)


def test_a_failed_worker_leaves_its_unsure_requests_with_their_first_answers():
    loop = waiting_for_opinions(3, dispatch="round-robin")
    loop.obey(loop.dispatcher.down(loop.now_ms, 0))
    assert set(loop.answers) == {0, 2}
    assert loop.dispatcher.queued == 1


def test_unsure_requests_keep_waiting_if_the_new_policy_gives_second_opinions():
    document = drawn_document(np.random.default_rng(0), 2)
    loop = waiting_for_opinions()
    patient = {**document["cascade"], "gather": [6], "least": [7], "last_call_ms": 0.0,
               "unsure_bins": [[8, 8, 0]], "index": [[0] * 8], "rows": [[0, 0]]}
    loop.obey(loop.dispatcher.swap(loop.now_ms, policies(
        selector_of({**document, "cascade": patient}))))
    assert loop.dispatcher.queued == 3
    loop.obey(loop.dispatcher.swap(loop.now_ms, policies(plain(document))))
    assert set(loop.answers) == {0, 1, 2}
    assert loop.dispatcher.queued == 0


def test_a_first_answer_is_sent_at_its_deadline_while_its_second_opinion_runs():
    loop = waiting_for_opinions(1)
    loop.run([], until_ms=50.0)  # the last call: the batch is planned to end at the deadline
    ((_, number, start),) = loop.ends
    assert start.second
    loop.ends = [(1000.0, number, start)]  # but it takes longer
    loop.run([], until_ms=100.0)
    assert loop.answers == {0: (pytest.approx(SLO_MS), False)}
    loop.end()
    assert loop.told == {0: 1}


def test_first_answers_make_room_and_leave_when_clients_do():
    loop = waiting_for_opinions()
    loop.obey(loop.dispatcher.make_room(loop.now_ms, 1, loop.now_ms + 1000.0))
    assert set(loop.answers) == {2}  # of the latest deadline
    loop.obey(loop.dispatcher.make_room(loop.now_ms, 3, loop.now_ms + 1000.0))
    assert set(loop.answers) == {2}  # two are too few
    loop.obey(loop.dispatcher.leave(loop.now_ms, [1]))
    assert loop.drops == [1]
    assert loop.dispatcher.queued == 1


def test_a_front_needs_a_way_to_send_first_answers():
    selector = selector_of(drawn_document(np.random.default_rng(0), 1))
    with pytest.raises(InvalidValueError, match="without a way to send first answers"):
        ThreadFront(Dispatcher(policies(selector), OPINIONS), print, print)


def test_threads_can_drive_second_opinions():
    document = drawn_document(np.random.default_rng(0), 1)
    document["cascade"].update(
        unsure_bins=[[8, 8, 0]], gather=[1], least=[1], index=[[0] * 8], rows=[[0, 0]],
        levels_per_fresh=0.0, levels_per_unsure=0.0, last_call_ms=0.0)
    batches: SimpleQueue[Start[str]] = SimpleQueue()
    front = ThreadFront(Dispatcher(policies(selector_of(document)), OPINIONS),
                        batches.put, print, answer=print)
    with front:
        front.arrive(["a"], slo_ms=10_000.0)
        start = batches.get(timeout=60.0)
        assert not start.second
        front.finished(start.worker, front.unsure(start, [0.1]))
        again = batches.get(timeout=60.0)
        assert again.second
        assert again.requests == ["a"]
        front.finished(again.worker)
    assert front.dispatcher.queued == 0
