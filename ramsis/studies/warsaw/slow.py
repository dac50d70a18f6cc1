"""Slow: wrapper of a scheduler as a single process whose decisions take time.

New requests and ended loads reach the process at its next poll, and are handled one after the
other. A request takes

    decision_ms + per_waiting_us · (requests that wait),

and is then passed to the scheduler ``of``; an ended load takes no time, but waits for its turn. So
the process is a single-server queue in front of the scheduler: above 1000 / ``decision_ms``
requests per second it is overloaded, however many workers there are. Until an ended load is
handled, the scheduler sees an idle worker, and may unload its model unused. Ends of batches take
effect at once, as a worker takes its next request itself.

Source: the Warsaw thesis (see :mod:`~ramsis.studies.warsaw.phases`), sections 5.1 and 6.2. Its
scheduler is a process beside a simulator that runs in real time, since its decisions may take
noticeable time. Neither that time nor the interval of its polls is printed.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ramsis.errors import InputFileError
from ramsis.sim.engine import Engine, Scheduler
from ramsis.sim.engine.scheduler import check_at_least
from ramsis.sim.registry import SchedulerSpec, scheduler

_LEAST_POLL_MS = 1e-3  # with far shorter intervals, rounding prevents the counting of polls
_CONSIDERED = object()  # token of the timer for the end of a decision


class Slow(Scheduler[Engine]):
    """Scheduler process whose decisions take time; see the module.

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
    """

    def __init__(
        self, engine: Engine, of: str = "modified-baseline", decision_ms: float = 0.0,
        per_waiting_us: float = 0.0, poll_ms: float = 0.0,
    ) -> None:
        super().__init__(engine)
        check_at_least(0.0, "scheduler slow", decision_ms=decision_ms,
                       per_waiting_us=per_waiting_us, poll_ms=poll_ms)
        if 0.0 < poll_ms < _LEAST_POLL_MS:
            raise InputFileError("parameter out of range", where="scheduler slow: poll_ms",
                                 value=poll_ms, allowed=f"0, or at least {_LEAST_POLL_MS:g}")
        self.decision_ms, self.per_waiting_us = decision_ms, per_waiting_us
        self.poll_ms = poll_ms
        self.inbox: deque[_News] = deque()
        self.inner = inner = self._scheduler(of)(engine)
        self.on_start, self.on_end = inner.on_start, inner.on_end  # type: ignore[method-assign]
        self.on_ready, self.on_processed = (  # type: ignore[method-assign]
            inner.on_ready, inner.on_processed)
        self.on_scaled, self.figures = inner.on_scaled, inner.figures  # type: ignore[method-assign]

    def on_arrival(self, request: int) -> None:
        """Queue a request for the process."""
        self._queue(_News(self.engine.now_ms, request))

    def on_loaded(self, worker: int, model: int) -> None:
        """Queue the end of a load for the process."""
        self._queue(_News(self.engine.now_ms, model, worker))

    def on_timer(self, token: object) -> None:
        """Pass the handled item to the scheduler, and begin with the next one."""
        if token is not _CONSIDERED:
            self.inner.on_timer(token)
            return
        news = self.inbox.popleft()
        if news.worker is None:
            self.inner.on_arrival(news.what)
        elif news.what in self.engine.workers.loaded[news.worker]:
            self.inner.on_loaded(news.worker, news.what)
        if self.inbox:
            self._consider(self.inbox[0])

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
        """Queue an item; the process begins with it if it does nothing."""
        self.inbox.append(news)
        if len(self.inbox) == 1:
            self._consider(news)

    def _consider(self, news: _News) -> None:
        """Set the timer for the end of the time that an item takes from its poll on."""
        seen_ms = news.at_ms
        if self.poll_ms:
            seen_ms = max(seen_ms, -(-seen_ms // self.poll_ms) * self.poll_ms)
        ready_ms = max(self.engine.now_ms, seen_ms)
        if news.worker is None:
            ready_ms += self.decision_ms + self.per_waiting_us * self.engine.waiting_count / 1000.0
        self.engine.wake_at(ready_ms, _CONSIDERED)


class _News(NamedTuple):
    """Item for the process: a new request, or a loaded model."""

    at_ms: float
    what: int  # the request, or the model
    worker: int | None = None  # worker that has loaded the model
