"""BentoML's adaptive batching: a worker waits for more requests while that costs little.

Each worker has a dispatcher with its own queue, first come, first served; requests are routed to
the workers in turn. A batch of n is expected to take a·n + b, the line through the last 50 batches
by least squares; w is the mean wait of the first request of each of these batches. The three
numbers a, b and w are fitted again when a batch ends, at most every 5 s. Let n requests wait, the
first one for w0 and the last one for wn. A dispatcher

1. drops the first request while n > 1 and w0 + a·n + b is at least the objective; on a busy worker
   it also drops a single request with w0 of at least the objective;
2. waits while n is below the batch limit and n·(wn + 1 ms + a) <= 0.95·w;
3. otherwise starts a batch of all waiting requests, up to the limit, when its worker is idle.

While requests wait, the dispatcher decides every millisecond. The first batches are for training,
in four phases: eight batches and one batch start at once, then one batch waits for two requests
and one for three. A batch of n waits while the wait of its first request plus its expected time is
at most the expected time of a batch of 2n + 1. Training batches drop only requests that are
already late, and count with a wait of 0. One thing is not modelled: in BentoML the operating
system chooses the worker.

Source: bentoml/BentoML, ``_internal/marshal/dispatcher.py`` (BentoML 1.4); its objective is
``max_latency_ms``, the limit ``max_batch_size``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import ClassVar

import numpy as np

from ramsis.sim.engine import Scheduler, WorkerGroup
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import Plan
from ramsis.sim.schedulers.fixed import SingleModel, model_index

_TICK_MS = 1.0
_DECAY = 0.95
_KEPT, _SKIPPED = 50, 2
_REFRESH_MS = 5000.0
_LEAST_SLOPE_MS = 1e-3
_TRAINING = ((2, 8, 1), (6, 1, 1), (5, 1, 2), (3, 1, 3))
"""Training phases: requests that may wait too long, number of batches, requests of a batch."""


@dataclass(frozen=True)
class BentoML(SingleModel):
    """BentoML's adaptive batching of one model; parameters as of :class:`SingleModel`."""

    name: ClassVar[str] = "bentoml"

    def prepare(self, fleet: Fleet) -> Plan:
        """Prepare runs on the plain engine, since the fit depends on the history of the run."""
        return Plan(self.name, partial(
            _Run, model=model_index(fleet, self.model), limit=self.limit(fleet),
            objective_ms=self.objective * fleet.slo_ms))


class _Line:
    """Line through the last batches, a·n + b in ms, and the mean wait of their first requests."""

    def __init__(self, objective_ms: float) -> None:
        self.slope_ms = min(2000.0, objective_ms * 2.0 / 30.0)
        self.start_ms = min(1000.0, objective_ms / 30.0)
        self.wait_ms = 0.0
        self._batches: deque[tuple[int, float, float]] = deque(maxlen=_KEPT)
        self._seen = 0
        self._refreshed_ms = -inf

    def record(self, now_ms: float, size: int, took_ms: float, waited_ms: float) -> None:
        """Record a batch that has ended; fit the line again from time to time."""
        self._seen += 1
        if self._seen <= _SKIPPED:
            return
        self._batches.append((size, took_ms, waited_ms))
        if now_ms - self._refreshed_ms >= _REFRESH_MS:
            self._refreshed_ms = now_ms
            self.fit()

    def fit(self) -> None:
        """Fit the line by least squares; if it is not unique, take the one of least norm."""
        if not self._batches:
            return
        size, took_ms, waited_ms = np.array(self._batches).T
        (slope, start), *_ = np.linalg.lstsq(
            np.stack([size, np.ones_like(size)], 1), took_ms, rcond=None)
        self.slope_ms = max(_LEAST_SLOPE_MS, float(slope))
        self.start_ms = max(0.0, float(start))
        self.wait_ms = float(waited_ms.mean())


class _Dispatcher:
    """Dispatcher of one worker, with a queue of its own."""

    def __init__(
        self, engine: WorkerGroup, worker: int, model: int, limit: int, objective_ms: float
    ) -> None:
        self.engine, self.worker, self.model = engine, worker, model
        self.limit, self.objective_ms = limit, objective_ms
        self.queue: deque[tuple[int, float]] = deque()  # requests, and when they came
        self.line = _Line(objective_ms)
        self.asleep = False
        self.phase = self.trained = 0
        self.patience_ms = 0.0  # how long a batch of this phase may take to gather, and run
        self.running = (0, 0.0, 0.0)  # size, start, wait

    def look(self) -> None:
        """Drop requests and start batches until nothing waits, or look again after a tick."""
        while self.queue:
            late, ready = self.trained_look() if self.phase < len(_TRAINING) else self.usual_look()
            if late:
                self.engine.drop(self.queue.popleft()[0])
            elif ready and self.engine.is_idle(self.worker):
                self.start()
            else:
                self.asleep = True
                self.engine.wake_at(self.engine.now_ms + _TICK_MS, self)
                return

    def usual_look(self) -> tuple[bool, bool]:
        """Decide by the trained line: whether to drop the first request, and to start a batch."""
        now_ms, count, line = self.engine.now_ms, len(self.queue), self.line
        first_ms = now_ms - self.queue[0][1]
        if count > 1 and first_ms + line.slope_ms * count + line.start_ms >= self.objective_ms:
            return True, False
        if not self.engine.is_idle(self.worker):
            return count == 1 and first_ms >= self.objective_ms, False
        last_ms = now_ms - self.queue[-1][1]
        waits = (count < self.limit
                 and count * (last_ms + _TICK_MS + line.slope_ms) <= line.wait_ms * _DECAY)
        return False, not waits

    def trained_look(self) -> tuple[bool, bool]:
        """Return the decisions of :meth:`usual_look`, for the phases of training."""
        spare, _, size = _TRAINING[self.phase]
        size = min(size, self.limit)
        count, first_ms = len(self.queue), self.engine.now_ms - self.queue[0][1]
        if count > spare - self.trained and first_ms >= self.objective_ms:
            return True, False
        expected_ms = size * self.line.slope_ms + self.line.start_ms
        waits = count < size and expected_ms + first_ms <= self.patience_ms
        return False, not waits

    def start(self) -> None:
        """Start a batch of all that wait, up to the limit."""
        training = self.phase < len(_TRAINING)
        now_ms, size = self.engine.now_ms, min(len(self.queue), self.limit)
        waited_ms = 0.0 if training else now_ms - self.queue[0][1]
        self.running = (size, now_ms, waited_ms)
        self.engine.run(self.worker, self.model, [self.queue.popleft()[0] for _ in range(size)])
        if training:
            self.train()

    def train(self) -> None:
        """Count a batch of a training phase; the next phase begins with a new line."""
        self.trained += 1
        if self.trained < _TRAINING[self.phase][1]:
            return
        if self.phase > 0:
            self.line.fit()
        self.phase, self.trained = self.phase + 1, 0
        if self.phase < len(_TRAINING):
            size = min(_TRAINING[self.phase][2], self.limit)
            self.patience_ms = min(
                _DECAY * self.objective_ms,
                (2 * size + 1) * self.line.slope_ms + self.line.start_ms)

    def ended(self) -> None:
        """Record that the worker has finished its batch."""
        size, start_ms, waited_ms = self.running
        self.line.record(self.engine.now_ms, size, self.engine.now_ms - start_ms, waited_ms)


class _Run(Scheduler[WorkerGroup]):
    def __init__(
        self, engine: WorkerGroup, model: int, limit: int, objective_ms: float
    ) -> None:
        super().__init__(engine)
        self.dispatchers = [_Dispatcher(engine, worker, model, limit, objective_ms)
                            for worker in range(engine.fleet.workers)]
        self.turn = 0

    def on_arrival(self, query: int) -> None:
        chosen = self.dispatchers[self.turn]
        self.turn = (self.turn + 1) % len(self.dispatchers)
        chosen.queue.append((query, self.engine.now_ms))
        if not chosen.asleep:
            chosen.look()

    def on_end(self, worker: int, batch: int) -> None:
        self.dispatchers[worker].ended()

    def on_timer(self, token: object) -> None:
        assert isinstance(token, _Dispatcher)
        token.asleep = False
        token.look()
