"""Arrival processes of a user's own, for tests."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.arrivals import Poisson


@dataclass(frozen=True)
class Wrapped:
    """The Poisson process, with nothing but what the protocol asks for."""

    load_qps: float

    @property
    def rate_per_ms(self) -> float:
        return self.load_qps / 1000.0

    def log_pf(self, count: NDArray[Any], interval_ms: NDArray[Any]) -> NDArray[np.float64]:
        return Poisson(self.load_qps).log_pf(count, interval_ms)


@dataclass(frozen=True)
class Pairs:
    """Requests that come two at a time, at Poisson instants: odd counts are impossible."""

    load_qps: float

    @property
    def rate_per_ms(self) -> float:
        return self.load_qps / 1000.0

    def log_pf(self, count: NDArray[Any], interval_ms: NDArray[Any]) -> NDArray[np.float64]:
        half = Poisson(self.load_qps / 2).log_pf(np.asarray(count) // 2, interval_ms)
        return np.where(np.asarray(count) % 2 == 0, half, -np.inf)


@dataclass(frozen=True)
class Broken:
    """What a user gets wrong: log PF shifted by a constant, or NaN."""

    shift: float
    rate_per_ms: float = 0.1

    def log_pf(self, count: NDArray[Any], interval_ms: NDArray[Any]) -> NDArray[np.float64]:
        return Poisson(100.0).log_pf(count, interval_ms) + self.shift


@dataclass(frozen=True)
class Described(Wrapped):
    """A process with a parameter, which its description states."""

    depth: float = 1.0

    def describe(self) -> dict[str, Any]:
        return {"process": f"{__name__}:Described", "depth": self.depth}


def twice_the_load(load_qps: float) -> Wrapped:
    return Wrapped(2.0 * load_qps)


class Outer:
    """A home for a process that is not at the top of its module."""

    Inner = Wrapped


NOT_CALLABLE = 3


def no_argument() -> Wrapped:
    return Wrapped(1.0)


def not_a_process(load_qps: float) -> float:
    return load_qps
