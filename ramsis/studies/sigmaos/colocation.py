"""Colocation schedulers for σOS: requests prefer machines that have their model.

*Colocation without queueing* prefers a machine that has the model, as soon as its cores suffice;
if there is none at the moment, any other machine takes the request, with a cold start.
*Colocation with queueing* lets the request wait for a machine that has the model; only a model
that no machine has is loaded anywhere.

The source does not state which of several machines with the model takes a request; here it is the
machine with the fewest ongoing requests for it, and of equal ones that which has had it longest.

Source: see :mod:`~ramsis.studies.sigmaos.scheduler`, section 4.5.
"""

from __future__ import annotations

from math import inf

from ramsis.studies.sigmaos.scheduler import Place, SigmaOS


class SigmaOSColocation(SigmaOS):
    """Scheduler that prefers machines with the model, else starts cold on another one."""

    def place(self, request: int) -> Place | None:
        """Return a machine that holds the model, or else any, with enough free cores."""
        return self.preferred(request) or self.anywhere(request)

    def preferred(self, request: int) -> Place | None:
        """Return a machine that has the model and enough free cores."""
        state, workers = self.engine.requests, self.engine.workers
        cores = self.streams[state.stream[request]].cores
        least, best = inf, -1
        for copy in self.registered.get(state.model[request], ()):
            if copy.ongoing < least and workers.free_cores[copy.worker] >= cores:
                least, best = copy.ongoing, copy.worker
        return None if best < 0 else (best, best)


class SigmaOSColocationQueue(SigmaOSColocation):
    """Scheduler whose requests wait for a machine that has their model."""

    def place(self, request: int) -> Place | None:
        """Return a machine with the model, or any if none has it that is large enough."""
        state = self.engine.requests
        cores = self.streams[state.stream[request]].cores
        if any(self.engine.workers.cores[copy.worker] >= cores
               for copy in self.registered.get(state.model[request], ())):
            return self.preferred(request)
        return self.anywhere(request)
