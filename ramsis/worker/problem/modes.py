"""Arrivals with a hidden mode: what the decision problem needs to know of them.

Most processes have stationary, independent increments: nothing of their past tells anything about
their future. Under Markov-modulated arrivals the rate depends on a hidden mode, a Markov chain in
continuous time. A process says so by its attribute ``modes``, the number of its modes.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeGuard

from numpy.typing import NDArray

from ramsis.arrays import FloatArray
from ramsis.arrivals import ArrivalProcess, Poisson

MODES = 2
"""Modes of a modulated process: 0 is quiet, 1 is a burst."""


class ModulatedProcess(ArrivalProcess, Protocol):
    """Poisson arrivals whose rate depends on a hidden mode; z is the mode, rates are per ms."""

    @property
    def modes(self) -> int:
        """Number of modes: :data:`MODES`."""
        ...

    @property
    def rates(self) -> FloatArray:
        """Arrival rate in each mode, rising; shape (2,)."""
        ...

    @property
    def switches(self) -> tuple[float, float]:
        """Rates at which bursts begin and end."""
        ...

    @property
    def generator(self) -> FloatArray:
        """Generator of the modes' chain, rows adding up to 0; shape (2, 2)."""
        ...

    @property
    def stationary(self) -> FloatArray:
        """Share of the time in each mode; shape (2,)."""
        ...

    @property
    def at_arrivals(self) -> FloatArray:
        """Distribution of the mode that an arrival finds; shape (2,)."""
        ...

    def joint_pf(self, count: NDArray[Any], interval_ms: NDArray[Any]) -> FloatArray:
        """P(k arrivals in T, mode z' at its end | mode z at its start), indexed [T, z, z', k]."""
        ...

    def joint_cdf(self, count: NDArray[Any], interval_ms: NDArray[Any]) -> FloatArray:
        """Return the joint probabilities of at most k arrivals and the mode at the end."""
        ...


def is_modulated(arrivals: ArrivalProcess) -> TypeGuard[ModulatedProcess]:
    """Whether the arrivals have a hidden mode."""
    return getattr(arrivals, "modes", 1) > 1


def without_modes(arrivals: ArrivalProcess) -> ArrivalProcess:
    """Poisson arrivals of the same rate in the place of modulated ones; others as they are."""
    return Poisson(1000.0 * arrivals.rate_per_ms) if is_modulated(arrivals) else arrivals
