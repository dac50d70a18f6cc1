"""Slow: wrapper of a scheduler as a single process whose decisions take time.

New requests and ended loads reach the process at its next poll, and are handled one after the
other. A request takes

    decision_ms + per_waiting_us · (requests that wait),

and is then passed to the scheduler ``of``; an ended load takes no time, but waits for its turn. So
the process is a single-server queue in front of the scheduler: above 1000 / ``decision_ms``
requests per second it is overloaded, however many workers there are. Until an ended load is
handled, the scheduler sees an idle worker, and may unload its model unused. Ends of batches take
effect at once, as a worker takes its next request itself.

What the process has seen is handled in order of arrival. With ``order=deadline`` the request that
is due first comes first, and those that cannot be in time any more come last.

Source: the Warsaw thesis (see :mod:`~ramsis.studies.warsaw.phases`), sections 5.1 and 6.2. Its
scheduler is a process beside a simulator that runs in real time, since its decisions may take
noticeable time. Neither that time nor the interval of its polls is printed.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import NamedTuple

from ramsis.errors import InputFileError, check_known
from ramsis.sim.engine import Engine, Scheduler
from ramsis.sim.engine.scheduler import check_at_least
from ramsis.sim.registry import SchedulerSpec, scheduler

_LEAST_POLL_MS = 1e-3  # with far shorter intervals, rounding prevents the counting of polls
_ORDERS = ("arrival", "deadline")
_CONSIDERED = object()  # token of the timers of the process


class Slow(Scheduler[Engine]):
    """Wrapper of a scheduler as a single process whose decisions take time.

    Parameters
    ----------
    of : str
        Wrapped scheduler, as for ``--scheduler``, with ``+`` between parameters:
        ``round-robin:variant=d+quantum_ms=30000``.
    decision_ms : float
        Time of each decision, >= 0.
    per_waiting_us : float
        Further time for each request that waits, >= 0.
    poll_ms : float
        Interval of polls for requests, >= 0.001; 0: requests are handled on arrival.
    order : str
        ``arrival`` or ``deadline``.
    """

    def __init__(
        self, engine: Engine, of: str = "modified-baseline", decision_ms: float = 0.0,
        per_waiting_us: float = 0.0, poll_ms: float = 0.0, order: str = "arrival",
    ) -> None:
        super().__init__(engine)
        check_known("unknown order", order, _ORDERS, "order")
        check_at_least(0.0, "scheduler slow", decision_ms=decision_ms,
                       per_waiting_us=per_waiting_us, poll_ms=poll_ms)
        if 0.0 < poll_ms < _LEAST_POLL_MS:
            raise InputFileError("parameter out of range", where="scheduler slow: poll_ms",
                                 value=poll_ms, allowed=f"0, or at least {_LEAST_POLL_MS:g}")
        self.decision_ms, self.per_waiting_us = decision_ms, per_waiting_us
        self.poll_ms, self.by_deadline = poll_ms, order == "deadline"
        self.inbox: deque[_News] = deque()  # until the next poll
        self.seen: list[tuple[float, int, _News]] = []  # heap of what can be handled
        self.late: deque[_News] = deque()
        self.handled: _News | None = None
        self.count, self.idle = 0, True
        times, types = engine.times, set(engine.workers.type)
        self.least_ms = [decision_ms + min(times.rows[kind][model][0] for kind in types)
                         for model in range(len(engine.site.models))]
        self.inner = inner = self._scheduler(of)(engine)
        self.on_start, self.on_end = inner.on_start, inner.on_end  # type: ignore[method-assign]
        self.on_ready, self.on_processed = (  # type: ignore[method-assign]
            inner.on_ready, inner.on_processed)
        self.on_scaled, self.figures = inner.on_scaled, inner.figures  # type: ignore[method-assign]

    def on_arrival(self, request: int) -> None:
        """Queue a request for the scheduler's process, which handles events one by one."""
        self._queue(_News(self.engine.now_ms, request))

    def on_loaded(self, worker: int, model: int) -> None:
        """Queue the end of a load for the process."""
        self._queue(_News(self.engine.now_ms, model, worker))

    def on_timer(self, token: object) -> None:
        """Pass the handled item to the scheduler, and begin with the next one."""
        if token is not _CONSIDERED:
            self.inner.on_timer(token)
            return
        news = self.handled
        if news is not None:  # else this is a poll
            if news.worker is None:
                self.inner.on_arrival(news.what)
            elif news.what in self.engine.workers.loaded[news.worker]:
                self.inner.on_loaded(news.worker, news.what)
        self._begin()

    @staticmethod
    def _scheduler(of: str) -> SchedulerSpec:
        """Parse the wrapped scheduler; refuse unsuitable ones."""
        if of.partition(":")[0] == "slow":
            raise InputFileError("cannot wrap itself", where="scheduler slow: of", value=of,
                                 allowed="another scheduler")
        spec = scheduler(of.replace("+", ","))
        if spec.of_fleets is not spec:
            raise InputFileError("not a scheduler that decides about a cluster",
                                 where="scheduler slow: of", value=of,
                                 allowed="clockwork, planned, round-robin and the like")
        return spec

    def _queue(self, news: _News) -> None:
        """Queue an item, and begin to handle items if the process is idle."""
        self.inbox.append(news)
        if self.idle:
            self._begin()

    def _begin(self) -> None:
        """Set a timer for the end of the next item's time, or for the next poll."""
        now_ms = self.engine.now_ms
        while self.inbox and self._seen_ms(self.inbox[0]) <= now_ms:
            self.count += 1
            item = self.inbox.popleft()
            heappush(self.seen, (self._due_ms(item), self.count, item))
        self.handled = news = self._next()
        self.idle = news is None and not self.inbox
        if news is not None:
            ready_ms = now_ms
            if news.worker is None:
                waiting = self.engine.waiting_count
                ready_ms += self.decision_ms + self.per_waiting_us * waiting / 1000.0
            self.engine.wake_at(ready_ms, _CONSIDERED)
        elif self.inbox:
            self.engine.wake_at(self._seen_ms(self.inbox[0]), _CONSIDERED)

    def _next(self) -> _News | None:
        """Return the next of the seen items to handle; None if no item was seen."""
        while self.seen:
            due_ms, _, news = heappop(self.seen)
            if news.worker is not None or not self.by_deadline:
                return news
            model = self.engine.requests.model[news.what]
            if due_ms >= self.engine.now_ms + self.least_ms[model]:
                return news
            self.late.append(news)
        return self.late.popleft() if self.late else None

    def _due_ms(self, news: _News) -> float:
        """Return the time by which the process orders its waiting events."""
        if self.by_deadline and news.worker is None:
            return self.engine.requests.deadline_ms[news.what]
        return news.at_ms

    def _seen_ms(self, news: _News) -> float:
        """Return the time of the poll that sees an item."""
        if not self.poll_ms:
            return news.at_ms
        return -(-news.at_ms // self.poll_ms) * self.poll_ms


class _News(NamedTuple):
    """Item for the process: a new request, or a loaded model."""

    at_ms: float
    what: int  # the request, or the model
    worker: int | None = None  # worker that has loaded the model
