"""Fronts that drive a dispatcher in real time, by an event loop or by threads.

A front reads the clock, passes events to the :class:`~ramsis.runtime.dispatcher.Dispatcher`,
carries out its orders by two functions, and sets its timer. The functions start a batch on a
worker, and report that a request is dropped; they must return at once and may not raise. Call
``finished`` at the end of a batch. Times are in ms on the front's monotonic clock. Standard
library only.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Generic, Self, TypeVar

from ramsis.errors import InvalidValueError
from ramsis.runtime.dispatcher import Dispatcher
from ramsis.runtime.policy_set import PolicySet
from ramsis.runtime.selector import Selector
from ramsis.runtime.sized_dispatcher import SizedDispatcher
from ramsis.runtime.station_queues import Orders, Start, Ticket

R = TypeVar("R")

_TURN_MS = 2.0


class Front(Generic[R]):
    """Base of fronts: passes events to a dispatcher and carries out orders, without the timer.

    ``start`` is called to start a batch on its worker, ``drop`` with each dropped request, and
    ``answer``, which second opinions require, to send a final first answer. ``clock_s`` is a
    monotonic clock in seconds.
    """

    _asks = True  # whether each event is dispatched at once

    def __init__(
        self, dispatcher: Dispatcher[R] | SizedDispatcher[R],
        start: Callable[[Start[R]], object],
        drop: Callable[[Ticket[R]], object], clock_s: Callable[[], float] = time.monotonic,
        answer: Callable[[Ticket[R]], object] | None = None,
    ) -> None:
        if answer is None and dispatcher.settings.second_opinions:
            raise InvalidValueError("second opinions without a way to send first answers",
                                    where="answer", value=answer, allowed="a function")
        self.dispatcher, self._clock_s = dispatcher, clock_s
        self._start, self._drop, self._answer = start, drop, answer

    def now_ms(self) -> float:
        """Return the present time on the front's clock."""
        return 1000.0 * self._clock_s()

    def arrive(
        self, requests: Sequence[R], slo_ms: float, *, arrival_ms: float | None = None
    ) -> None:
        """Route requests, to be answered within ``slo_ms`` of their arrival, by default now."""
        arrival_ms = self.now_ms() if arrival_ms is None else arrival_ms
        self._event(partial(self.dispatcher.arrive, ask=self._asks), requests,
                    arrival_ms + slo_ms, self.dispatcher.slo_class(slo_ms))

    def leave(self, requests: Sequence[R]) -> None:
        """Drop requests whose clients have cancelled them, if they still wait."""
        self._event(self.dispatcher.leave, requests)

    def make_room(self, count: int, deadline_ms: float) -> None:
        """Drop requests in favour of earlier deadlines; see :meth:`Dispatcher.make_room`."""
        self._event(self.dispatcher.make_room, count, deadline_ms)

    def unsure(self, start: Start[R], confidences: Sequence[float]) -> list[Ticket[R]]:
        """Return which first answers are unsure; see :meth:`Dispatcher.unsure`."""
        return self.dispatcher.unsure(self.now_ms(), start, confidences)

    def finished(self, worker: int, unsure: Sequence[Ticket[R]] = ()) -> None:
        """Record that a worker has finished its batch; see :meth:`Dispatcher.finished`."""
        self._event(partial(self.dispatcher.finished, ask=self._asks), worker, unsure)

    def down(self, worker: int, again: Start[R] | None = None) -> None:
        """Record that a worker has failed; see :meth:`Dispatcher.down`."""
        self._event(self.dispatcher.down, worker, again)

    def up(self, worker: int) -> None:
        """Record that a failed worker serves again."""
        self._event(self.dispatcher.up, worker)

    def swap(self, policies: PolicySet[Selector], slowness: float | None = None) -> None:
        """Exchange the policy set; see :meth:`Dispatcher.swap`."""
        self._event(self.dispatcher.swap, policies, slowness)

    def take_overhead(self, overhead_ms: float) -> None:
        """Set the time subtracted from every slack; see :meth:`Dispatcher.take_overhead`."""
        self._event(self.dispatcher.take_overhead, overhead_ms)

    def take_slowness(self, slowness: float) -> None:
        """Set the factor on service times; see :meth:`Dispatcher.take_slowness`."""
        self._event(self.dispatcher.take_slowness, slowness)

    def _event(self, event: Callable[..., Orders[R]], *arguments: object) -> None:
        """Pass an event with the current time to the dispatcher, and carry out its orders."""
        raise NotImplementedError

    def _obey(self, orders: Orders[R]) -> None:
        for ticket in orders.drops:
            self._drop(ticket)
        if self._answer is not None:
            for ticket in orders.answers:
                self._answer(ticket)
        for start in orders.starts:
            self._start(start)


class AsyncFront(Front[R]):
    """Front in an asyncio event loop; call its methods in the loop's thread.

    Events of one turn of the loop are dispatched together, at the turn's end: otherwise the first
    of a dozen requests would be dispatched as if it were alone, with the others still in their
    sockets. A turn of more than 2 ms is dispatched every 2 ms, so that no idle worker waits for
    its end.

    Timers of event loops have a resolution of a millisecond, so a timer is rounded down: a wait
    ends up to a millisecond early rather than late. Set ``timer_ms`` of the dispatcher to 1.
    """

    _asks = False
    _noted_ms: float | None = None  # time of the first event that has not been dispatched
    _handle: asyncio.TimerHandle | None = None
    _rings_ms = inf

    def _event(self, event: Callable[..., Orders[R]], *arguments: object) -> None:
        now_ms = self.now_ms()
        self._obey(event(now_ms, *arguments))
        if self.dispatcher.unasked:
            if self._noted_ms is None:
                self._noted_ms = now_ms
                asyncio.get_running_loop().call_soon(self._ask)
            if now_ms - self._noted_ms < _TURN_MS:
                return
            self._noted_ms = now_ms
            self._obey(self.dispatcher.ask(now_ms))
        wake_ms = self.dispatcher.wake_ms
        if wake_ms < self._rings_ms:  # a timer that fires too early does no harm
            self.close()
            self._rings_ms = wake_ms
            whole_ms = max(int(wake_ms - self.now_ms()), 0)
            self._handle = asyncio.get_running_loop().call_later(whole_ms / 1000.0, self._ring)

    def _ask(self) -> None:
        self._noted_ms = None
        self._event(self.dispatcher.ask)

    def _ring(self) -> None:
        self._handle, self._rings_ms = None, inf
        self._event(self.dispatcher.timer)

    def close(self) -> None:
        """Cancel the timer that would wake the dispatcher."""
        if self._handle is not None:
            self._handle.cancel()


class ThreadFront(Front[R]):
    """Thread-safe front of a dispatcher, with a timer thread.

    ``start`` and ``drop`` run in the thread that passed the event, or in the timer thread, one at
    a time. Use the front as a context, which stops the timer thread at its end.

    Examples
    --------
    >>> from queue import SimpleQueue
    >>> batches = SimpleQueue()
    >>> front = ThreadFront(dispatcher, start=batches.put, drop=print)     # doctest: +SKIP
    >>> with front:                                                        # doctest: +SKIP
    ...     front.arrive(["a request"], slo_ms=100.0)
    ...     start = batches.get()
    ...     front.finished(start.worker)
    """

    def __init__(
        self, dispatcher: Dispatcher[R] | SizedDispatcher[R],
        start: Callable[[Start[R]], object],
        drop: Callable[[Ticket[R]], object], clock_s: Callable[[], float] = time.monotonic,
        answer: Callable[[Ticket[R]], object] | None = None,
    ) -> None:
        super().__init__(dispatcher, start, drop, clock_s, answer)
        self._changed = threading.Condition(threading.RLock())
        self._closed = False
        self._thread = threading.Thread(target=self._ring, name="ramsis-timer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def unsure(self, start: Start[R], confidences: Sequence[float]) -> list[Ticket[R]]:
        """Return which first answers are unsure; see :meth:`Dispatcher.unsure`."""
        with self._changed:
            return super().unsure(start, confidences)

    def _event(self, event: Callable[..., Orders[R]], *arguments: object) -> None:
        with self._changed:
            self._obey(event(self.now_ms(), *arguments))
            self._changed.notify_all()

    def _ring(self) -> None:
        with self._changed:
            while not self._closed:
                wait_ms = self.dispatcher.wake_ms - self.now_ms()
                if wait_ms <= 0:
                    self._obey(self.dispatcher.timer(self.now_ms()))
                else:
                    self._changed.wait(None if wait_ms == inf else wait_ms / 1000.0)
