"""Measurement by size: each size like a separate model, and the law of mixed batches.

Cells of count and size are sampled like batch sizes, with each size as a separate model: so rounds
visit all cells in random order, the time limit applies to each size, and interrupted measurements
can be resumed. Afterwards a mixed batch, with members of the smallest and the largest size, is
timed in turn with two batches of one size: of the largest size, which takes as long if the back
end pads, and of the mean size, which takes as long if it does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ramsis.memory import without_collection
from ramsis.profiles.batch import STATISTICS, BatchProfile
from ramsis.profiles.measure.backends import LoadedModel
from ramsis.profiles.measure.sampling import timed
from ramsis.profiles.sized import Grid, Law, SizedTimes, better_law

_MOST_MIXED = 8  # requests in a mixed batch
_TURNS = 11  # of the three batches; the least time counts, as others only make runs longer


@dataclass(frozen=True)
class AtSize:
    """A loaded model, run on requests of one size."""

    model: LoadedModel
    size: int

    def prepare(self, batch: int) -> Any:
        """Make an input of ``batch`` requests of the size; not timed."""
        assert self.model.prepare_sizes is not None
        return self.model.prepare_sizes([self.size] * batch)

    def run(self, prepared: Any) -> Any:
        """Run the model on an input of the size."""
        return self.model.run(prepared)


def key_of(name: str, size: int) -> str:
    """Return the name of a model at a size among the runs."""
    return f"{name}@{size}"


@dataclass(frozen=True)
class MixedBatches:
    """Measured time of a mixed batch, and its times by each law, in ms."""

    sizes: tuple[int, ...]  # of the members
    mixed_ms: float
    padded_ms: float
    packed_ms: float

    @property
    def errors(self) -> dict[Law, float]:
        """Relative error of each law, padded or packed, on batches of mixed sizes."""
        return {"padded": abs(self.padded_ms / self.mixed_ms - 1.0),
                "packed": abs(self.packed_ms / self.mixed_ms - 1.0)}

    @property
    def law(self) -> Law:
        """Law, padded or packed, that predicts batches of mixed sizes better."""
        return better_law(self.errors)

    def note(self) -> dict[str, object]:
        """Return the entry for a profile's ``measurement``."""
        return {"law": self.law, "sizes": list(self.sizes), "mixed_ms": round(self.mixed_ms, 4),
                "padded_ms": round(self.padded_ms, 4), "packed_ms": round(self.packed_ms, 4)}

    def summary(self) -> str:
        """Return a text with the law, and the errors by which it was chosen."""
        errors = ", ".join(f"{law} {error:.1%}" for law, error in self.errors.items())
        return (f"law {self.law}, by batches of {len(self.sizes)} with sizes {self.sizes[0]} and "
                f"{self.sizes[-1]} (relative errors: {errors})")


def mixed_batches(model: LoadedModel, sizes: Sequence[int], count: int) -> MixedBatches | None:
    """Time batches with members of the smallest and the largest size; None for single requests.

    ``sizes`` are the measured ones, rising; ``count`` the largest that was measured at the largest
    size.
    """
    assert model.prepare_sizes is not None
    count = min(count, _MOST_MIXED) // 2 * 2
    if count < 2:
        return None
    members = tuple([sizes[0]] * (count // 2) + [sizes[-1]] * (count // 2))
    mean = round(sum(members) / count)
    inputs = [model.prepare_sizes(several)
              for several in (members, [sizes[-1]] * count, [mean] * count)]
    times: list[list[float]] = [[] for _ in inputs]
    with without_collection():
        for turn in range(1 + _TURNS):  # the first is not counted
            for prepared, taken in zip(inputs, times, strict=True):
                latency_ms = timed(model, prepared)
                if turn:
                    taken.append(latency_ms)
    return MixedBatches(members, *map(min, times))


def sized_times(
    unit: str, law: Law, measured: Mapping[int, Sequence[BatchProfile]]
) -> SizedTimes:
    """Return times by count and size from the batches of each size, two or more that rise."""
    by_size = {size: {batch.batch: batch for batch in batches}
               for size, batches in measured.items()}
    counts = sorted({count for batches in by_size.values() for count in batches})
    grids: dict[str, Grid] = {}
    for statistic in STATISTICS:
        grids[f"{statistic}_ms"] = tuple(tuple(
            batches[count].statistic_ms(statistic) if count in batches else None
            for batches in by_size.values()) for count in counts)
    return SizedTimes(unit, law, tuple(counts), tuple(by_size), **cast(dict[str, Any], grids))
