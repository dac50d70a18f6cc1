"""σOS: a central registry of the copies of each model.

A request goes to any machine with free cores. Its inference is done by the first copy of the model
that was registered and has fewer than ``target`` ongoing requests, over the network if that is on
another machine. If there is none, the machine's own proxy does it, and loads the model if it
has to; only where no machine has both the cores and the model's type of worker, a new copy is
loaded on another machine. A copy counts a request until it leaves its machine.

Source: see :mod:`~ramsis.studies.sigmaos.scheduler`, section 4.6, which counts by machine;
there each runs one replica.
"""

from __future__ import annotations

from ramsis.sim.engine import Engine, check_at_least
from ramsis.studies.sigmaos.scheduler import Place, SigmaOS


class SigmaOSRegistry(SigmaOS):
    """Scheduler with a central registry of copies; see the module.

    Parameters
    ----------
    target : int
        Fewer ongoing requests than this make a copy take one more (``targetOngoingRequests``).
    """

    def __init__(self, engine: Engine, target: int = 3) -> None:
        super().__init__(engine)
        check_at_least(1, "sigmaos-registry", target=target)
        self.target = target

    def place(self, request: int) -> Place | None:
        """Return any machine, and the first copy below the target."""
        model = self.engine.requests.model[request]
        for copy in self.registered.get(model, ()):
            if copy.ongoing < self.target:
                return self.through(request, copy.worker)
        return self.anywhere(request) or self.apart(request)

    def apart(self, request: int) -> Place | None:
        """Return a new copy on another machine, where none has the cores and can run the model."""
        state, workers = self.engine.requests, self.engine.workers
        cores, model = self.streams[state.stream[request]].cores, state.model[request]
        able = [worker for worker, kind in enumerate(workers.type)
                if self.engine.times.runs(kind, model)]
        if any(workers.cores[worker] >= cores for worker in able):
            return None
        hosts = [worker for worker in able if self.hosts(worker, model)]
        return self.through(request, self.any_of(hosts)) if hosts else None

    def through(self, request: int, worker: int) -> Place | None:
        """Return any machine with free cores, and the proxy of a worker."""
        if not self.processed[self.engine.requests.stream[request]]:
            return worker, worker
        free = self.free(request)
        return (self.any_of(free), worker) if free else None
