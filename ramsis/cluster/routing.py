"""Splitting of arrivals among stations, and the arrival process of each station.

- *At random by shares*: each request goes to some stations with a fixed probability q, so counts
  are binomially thinned: their generating function G(z) becomes G(1 - q + q·z). A Poisson process
  stays Poisson, with rate q·λ; a two-mode Markov-modulated Poisson process has both rates
  multiplied by q; a negative binomial process with index of dispersion I gets 1 + q·(I - 1). Other
  processes are refused.
- *Round robin* among k equal stations: each gets exactly every k-th request, for any process.
- *Shortest queue* of k equal stations: each gets every k-th request on average. Which ones depends
  on the queues, so taking every k-th request is an approximation.
- *A central queue*: one station gets all requests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ramsis.arrivals import MarkovModulated, NegativeBinomial, Poisson
from ramsis.arrivals.process import ProcessWithRate
from ramsis.errors import ABOVE_ZERO, InvalidValueError, check_known, check_number_of
from ramsis.runtime.routing import DISPATCHES


@dataclass(frozen=True)
class StationArrivals:
    """Arrival process of one station, as a part of a process that several stations share."""

    process: ProcessWithRate  # arrivals at all equal stations together
    every: int = 1  # a station gets every ``every``-th of these arrivals
    exact: bool = True  # whether it gets exactly these; False: on average, as an approximation

    @property
    def rate_per_ms(self) -> float:
        """Mean arrivals at one station per millisecond."""
        return self.process.rate_per_ms / self.every


def split(
    process: ProcessWithRate, dispatch: str = "round-robin", *, share: float = 1.0,
    stations: int = 1,
) -> StationArrivals:
    """Return the arrival process at one of several equal stations.

    A ``share`` of all requests, in (0, 1], is routed at random to the equal stations, among which
    ``dispatch`` divides them: ``round-robin``, ``shortest-queue``, or ``central-queue`` for a
    single station.
    """
    check_number_of("stations", stations)
    check_known("unknown dispatch", dispatch, DISPATCHES, "dispatch")
    rule = DISPATCHES[dispatch]
    if not rule.own_queues and stations > 1:
        raise InvalidValueError("several stations have several queues",
                                where="dispatch", value=dispatch,
                                allowed=", ".join(
                                    name for name, dispatch in DISPATCHES.items()
                                    if dispatch.own_queues))
    return StationArrivals(_thinned(process, share), stations,
                           exact=rule.in_turn or stations == 1)


def _thinned(process: ProcessWithRate, share: float) -> ProcessWithRate:
    """Thin a process: each request stays with a given probability."""
    ABOVE_ZERO.check("not a share of the requests", share=share)
    if share == 1.0:
        return process
    if isinstance(process, NegativeBinomial):
        return replace(process, load_qps=share * process.load_qps,
                       dispersion=1.0 + share * (process.dispersion - 1.0))
    if isinstance(process, (Poisson, MarkovModulated)):
        return replace(process, load_qps=share * process.load_qps)
    raise InvalidValueError("this process is not split at random", where="arrivals",
                            value=type(process).__name__,
                            allowed="poisson, negative-binomial or mmpp")
