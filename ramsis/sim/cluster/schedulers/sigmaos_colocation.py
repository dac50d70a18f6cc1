"""σOS: requests go where their model is.

*Colocation without queueing* prefers a machine that has the model, as soon as its cores suffice;
if there is none at the moment, any other machine takes the request, with a cold start.
*Colocation with queueing* lets the request wait for a machine that has the model; only a model
that no machine has is loaded anywhere.

Which of several machines with the model is not stated in the source; here the one with fewest
ongoing requests for it, and of equal ones that which has had it for longest.

Source: see :mod:`~ramsis.sim.cluster.schedulers.sigmaos`, section 4.5.
"""

from __future__ import annotations

from ramsis.sim.cluster.schedulers.sigmaos import Place, SigmaOS

__all__ = ["SigmaOSColocation", "SigmaOSColocationQueue"]


class SigmaOSColocation(SigmaOS):
    """Without queueing; see the module."""

    def place(self, request: int) -> Place | None:
        """A machine with the model, or else any."""
        return self.preferred(request) or self.anywhere(request)

    def preferred(self, request: int) -> Place | None:
        """A machine that has the model and enough free cores."""
        model, free = self.engine.requests.model[request], set(self.free(request))
        able = [copy for copy in self.registered.get(model, ()) if copy.worker in free]
        if not able:
            return None
        worker = min(able, key=lambda copy: copy.ongoing).worker
        return worker, worker


class SigmaOSColocationQueue(SigmaOSColocation):
    """With queueing; see the module."""

    def place(self, request: int) -> Place | None:
        """A machine with the model, or any if none has it."""
        if self.registered.get(self.engine.requests.model[request]):
            return self.preferred(request)
        return self.anywhere(request)
