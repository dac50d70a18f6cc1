"""Slow spells: times in which a worker takes a factor longer, as on a machine with other work.

Service times on real machines are not independent: slow batches follow slow batches. Here each
worker alternates between usual and slow times, of exponential lengths with the means

    length·(1 − share)/share   and   length,

so that it is slow for the given share of the time; it starts in the steady state. The service time
of a batch that starts in a slow spell, fixed or drawn, is multiplied by *factor*. Spells are drawn
up to twice the time in which requests arrive; after that no worker is slow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import INNER, InvalidValueError, at_least, check_positive

_HORIZON = 2.0  # time for which spells are drawn, as a multiple of the time of arrivals


@dataclass(frozen=True)
class DrawnSpells:
    """Slow spells of each worker in one run."""

    # starts and ends of spells, alternating, of one worker after the other
    edge_ms: FloatArray
    first: IntArray  # index of each worker's first entry in ``edge_ms``, shape (K+1,)
    factor: float  # on the time of batches that start in a spell

    def factor_at(self, worker: int, now_ms: float) -> float:
        """Return the factor on the time of a batch that starts on a worker now."""
        edges_ms = self.edge_ms[self.first[worker] : self.first[worker + 1]]
        return self.factor if np.searchsorted(edges_ms, now_ms, side="right") % 2 else 1.0


@dataclass(frozen=True)
class SlowSpells:
    """Slow spells of workers: share of the time, factor and mean length."""

    share: float  # of the time, in (0, 1)
    factor: float  # on the time of batches that start in a spell, >= 1
    length_ms: float  # mean length of a spell, > 0

    def __post_init__(self) -> None:
        INNER.check(inside="slow_spells: ", share=self.share)
        at_least(1).check(inside="slow_spells: ", factor=self.factor)
        check_positive("out of range", inside="slow_spells: ", length_ms=self.length_ms)

    @classmethod
    def parse(cls, text: str, where: str = "slow_spells") -> SlowSpells:
        """Parse the text ``share=S,factor=F,length-ms=L`` of slow spells.

        >>> SlowSpells.parse("share=0.05,factor=3,length-ms=100")
        SlowSpells(share=0.05, factor=3.0, length_ms=100.0)
        """
        names = [item.name for item in fields(cls)]
        pairs = [part.partition("=") for part in text.split(",")]
        texts = {name.strip().replace("-", "_"): value for name, _, value in pairs}
        try:
            numbers = {name: float(value) for name, value in texts.items()}
        except ValueError:
            numbers = {}
        if sorted(numbers) != sorted(names) or len(pairs) != len(names):
            raise InvalidValueError("not slow spells", where=where, value=text,
                                    allowed="share=S,factor=F,length-ms=L, or profile")
        return cls(**numbers)

    @classmethod
    def recorded(cls, measurement: Mapping[str, Any], where: str = "slow_spells") -> SlowSpells:
        """Return the slow spells that a profile's measurement recorded (``slow_spells``)."""
        recorded = measurement.get("slow_spells")
        names = [item.name for item in fields(cls)]
        if not (isinstance(recorded, Mapping) and all(name in recorded for name in names)):
            raise InvalidValueError(
                "the profile records no slow spells", where=where, value="profile",
                allowed="share=S,factor=F,length-ms=L, or a profile that `profile measure` made")
        return cls(**{name: float(recorded[name]) for name in names})

    def drawn(self, workers: int, duration_ms: float, rng: np.random.Generator) -> DrawnSpells:
        """Draw the spells of a run in which requests arrive for ``duration_ms``."""
        horizon_ms = _HORIZON * duration_ms
        means = np.array([self.length_ms * (1.0 - self.share) / self.share, self.length_ms])
        cycles = math.ceil(1.2 * horizon_ms / means.sum()) + 10
        edges: list[FloatArray] = []
        for _ in range(workers):
            slow = bool(rng.random() < self.share)
            edges_ms = np.zeros(1 if slow else 0)  # a spell that began before the run
            at = 0.0
            while at < horizon_ms:
                lengths = rng.exponential(means[::-1] if slow else means, size=(cycles, 2))
                more = at + np.cumsum(lengths)
                edges_ms, at = np.append(edges_ms, more), float(more[-1])
            edges.append(edges_ms[edges_ms < horizon_ms])
        first = np.cumsum([0, *(len(edges_ms) for edges_ms in edges)])
        return DrawnSpells(np.concatenate(edges), first, self.factor)
