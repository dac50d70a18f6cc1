"""Scheduler for σOS with a central registry of the copies of each model.

A request goes to any machine with free cores. Its inference runs at the first registered copy of
the model with fewer than ``target`` ongoing requests, over the network if this is on another
machine. If there is none, the machine's own proxy runs it, and loads the model if necessary; only
if no machine has both the cores and a suitable worker type, a new copy is loaded on another
machine. A copy counts a request until it leaves its machine.

Source: see :mod:`~ramsis.studies.sigmaos.scheduler`, section 4.6, which counts by machine;
there each runs one replica.
"""

from __future__ import annotations

from ramsis.sim.engine import Engine, check_at_least
from ramsis.studies.sigmaos.scheduler import Place, SigmaOS


class SigmaOSRegistry(SigmaOS):
    """Scheduler that runs inference at the first registered copy with spare capacity.

    Parameters
    ----------
    target : int
        Number of ongoing requests at which a copy takes no more (``targetOngoingRequests``).
    enqueue_ms : float
        Time from the arrival of a request until it is in its queue, >= 0.
    """

    def __init__(self, engine: Engine, target: int = 3, enqueue_ms: float = 0.0) -> None:
        super().__init__(engine, enqueue_ms)
        check_at_least(1, "sigmaos-registry", target=target)
        self.target = target

    def place(self, request: int) -> Place | None:
        """Return any machine with free cores, and the first copy below ``target`` requests."""
        model = self.engine.requests.model[request]
        for copy in self.registered.get(model, ()):
            if copy.ongoing < self.target:
                return self.through(request, copy.worker)
        return self.anywhere(request) or self.apart(request)

    def apart(self, request: int) -> Place | None:
        """Return any machine with free cores, and a new copy on another one that can run it."""
        state, workers = self.engine.requests, self.engine.workers
        cores, model = self.streams[state.stream[request]].cores, state.model[request]
        able = [worker for worker, kind in enumerate(workers.type)
                if self.engine.times.runs(kind, model)]
        if any(workers.cores[worker] >= cores for worker in able):
            return None
        hosts = [worker for worker in able if self.hosts(worker, model)]
        return self.through(request, self.any_of(hosts)) if hosts else None

    def through(self, request: int, worker: int) -> Place | None:
        """Return any machine with free cores for a request, with the proxy of ``worker``."""
        if not self.processed[self.engine.requests.stream[request]]:
            return worker, worker
        free = self.free(request)
        return (self.any_of(free), worker) if free else None
