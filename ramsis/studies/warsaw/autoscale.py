"""Autoscaler of workers of several types, by request rates.

Every ``every_ms`` the arrival rate of each model is estimated (:class:`Demand`). Models, the ones
with most work first, are assigned to the worker type on which a request is fastest, as far as its
workers suffice at a utilisation of ``target``, and the remaining work to the next type. The work
of a type divided by ``target``, rounded up, is its desired number of workers; if requests wait for
a model that no active worker can run, a suitable type gets at least one. Missing workers are
started. When more than desired have been active for ``down_after_ms``, idle ones are stopped,
those with the fewest models first. So no running or waiting request is lost.

Serving and loading are those of another scheduler, ``of``: ``modified-baseline`` (with loads where
no idle worker holds the model), ``round-robin`` (with earliest deadlines) or ``planned``.

The Warsaw thesis (see :mod:`~ramsis.studies.warsaw.phases`) has actions to scale, but no
rule, and one machine type: clusters of several are the gap that it names. The rule is that of
Kubernetes' horizontal autoscaler, by type: workers in proportion to use over target.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import partial
from math import ceil, inf

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.errors import check_known
from ramsis.sim.engine import Engine, Scheduler
from ramsis.sim.engine.workers import OFF
from ramsis.sim.schedulers.loading.planned import Planned
from ramsis.studies.warsaw.modified_baseline import ModifiedBaseline
from ramsis.studies.warsaw.phases import PhasedScheduler
from ramsis.studies.warsaw.round_robin import RoundRobin

_OF: Mapping[str, Callable[[Engine], PhasedScheduler | Planned]] = {
    "modified-baseline": partial(ModifiedBaseline, load_when="no-idle"),
    "planned": Planned,
    "round-robin": partial(RoundRobin, variant="d"),
}
_LOOK = object()  # token of the timer for the next decision
_LONG_MS = 30_000.0  # window of the mean rate, unless a shorter one shows an increase
_SHORT_MS = (500.0, 1000.0, 3000.0)
_Z = 1.5  # standard deviations subtracted from the count of a short window, as noise
_FIRST_MS = 1000.0  # least length of the long window at the start of a run


class Demand:
    """Rates of requests by model, estimated from the arrivals seen so far."""

    def __init__(self, models: int) -> None:
        self._models = models
        self._model_of = array("q")  # of each arrival
        self._at_ms = array("d")  # sorted

    def seen(self, model: int, at_ms: float) -> None:
        """Record an arrival; times must not go back."""
        self._model_of.append(model)
        self._at_ms.append(at_ms)

    def rates(self, now_ms: float) -> FloatArray:
        """Return the rate of each model in requests per ms, shape (M,).

        It is the mean of the last 30 s, or if larger the lower confidence limit of a shorter
        window with count n: (n - 1.5·√n) / window.
        """
        long_ms = min(_LONG_MS, max(now_ms, _FIRST_MS))
        rates = self._count(now_ms - long_ms) / long_ms
        for window_ms in _SHORT_MS:
            count = self._count(now_ms - window_ms)
            rates = np.maximum(rates, (count - _Z * np.sqrt(count)) / window_ms)
        return rates

    def _count(self, since_ms: float) -> FloatArray:
        """Return the arrivals of each model since a time."""
        latest = self._model_of[bisect_left(self._at_ms, since_ms):]
        return np.bincount(np.asarray(latest), minlength=self._models).astype(float)


class Autoscale(Scheduler[Engine]):
    """Autoscaler of workers of several types, by request rates, around another scheduler.

    Parameters
    ----------
    of : str
        The scheduler that serves and loads.
    target : float
        Utilisation, in (0, 1].
    every_ms : float
        Time between two decisions, > 0.
    down_after_ms : float
        Time for which there must have been surplus workers, before they are stopped.
    """

    def __init__(
        self, engine: Engine, of: str = "modified-baseline", target: float = 0.5,
        every_ms: float = 1000.0, down_after_ms: float = 30_000.0,
    ) -> None:
        super().__init__(engine)
        check_known("unknown scheduler", of, _OF, "of")
        self.inner = _OF[of](engine)
        self.target, self.every_ms, self.down_after_ms = target, every_ms, down_after_ms
        self.demand = Demand(len(engine.site.models))
        types = range(len(engine.world.types))
        self.many_since_ms = [inf] * len(types)
        self.each_ms = [[engine.times.rows[kind][m][0] for kind in types]
                        for m in range(len(engine.site.models))]
        # Worker types that can run each model, the fastest first.
        self.able = [sorted((kind for kind in types if each_ms[kind] < inf),
                            key=each_ms.__getitem__) for each_ms in self.each_ms]
        self.workers = [[w for w, type_of in enumerate(engine.workers.type) if type_of == kind]
                        for kind in types]
        self.present = self._present()
        self.on_end, self.on_loaded = self.inner.on_end, self.inner.on_loaded  # type: ignore[method-assign]
        self.on_scaled = self.inner.on_scaled  # type: ignore[method-assign]

    def on_start(self) -> None:
        """Set the timer for the first decision."""
        self.inner.on_start()
        self.engine.wake_at(self.every_ms, _LOOK)

    def on_arrival(self, request: int) -> None:
        """Count the request and serve it; start a worker at once if none could run it."""
        model = self.engine.requests.model[request]
        self.demand.seen(model, self.engine.now_ms)
        self.inner.on_arrival(request)
        if not self._runnable(model):
            self.look()

    def on_timer(self, token: object) -> None:
        """Review the workers, or pass the timer on to the wrapped scheduler."""
        if token is not _LOOK:
            self.inner.on_timer(token)
            return
        self.look()
        self.engine.wake_at(self.engine.now_ms + self.every_ms, _LOOK)

    def look(self) -> None:
        """Start workers that are missing, and stop those that are not needed."""
        engine, now_ms = self.engine, self.engine.now_ms
        for kind, wanted in enumerate(self.wanted()):
            present = self.present[kind]
            for _ in range(wanted - len(present)):
                engine.scale_up(kind)
            if len(present) <= wanted:
                self.many_since_ms[kind] = inf
                continue
            self.many_since_ms[kind] = min(self.many_since_ms[kind], now_ms)
            if now_ms - self.many_since_ms[kind] >= self.down_after_ms:
                idle = sorted((w for w in present if engine.workers.idle(w)),
                              key=lambda w: (len(engine.workers.loaded[w]), -w))
                for worker in idle[:len(present) - wanted]:
                    engine.scale_down(worker)
                    self.inner.on_stopped(worker)
        self.present = self._present()

    def wanted(self) -> list[int]:
        """Return the desired number of workers of each type."""
        counts = [len(workers) for workers in self.workers]
        room = [self.target * count for count in counts]
        work_of = [0.0] * len(room)
        least = [0] * len(room)
        each_ms, rates = self.each_ms, self.demand.rates(self.engine.now_ms).tolist()
        requested = [m for m, rate in enumerate(rates) if rate]
        for model in sorted(requested, key=lambda m: -rates[m] * each_ms[m][self.able[m][0]]):
            left = 1.0
            for kind in self.able[model]:
                work = rates[model] * each_ms[model][kind]
                part = min(left, (room[kind] - work_of[kind]) / work) if work else 0.0
                work_of[kind] += part * work
                left -= part
        for model, waiting in enumerate(self.inner.waiting):
            if waiting and not self._runnable(model):
                least[self.able[model][0]] = 1
        return [max(low, min(ceil(assigned / self.target - 1e-9), count))
                for assigned, low, count in zip(work_of, least, counts, strict=True)]

    def _runnable(self, model: int) -> bool:
        """Return whether a worker that can run a model is active or starting."""
        return any(map(self.present.__getitem__, self.able[model]))

    def _present(self) -> list[list[int]]:
        """Return the workers of each type that are active or starting."""
        status = self.engine.workers.status
        return [[worker for worker in workers if status[worker] != OFF]
                for workers in self.workers]
