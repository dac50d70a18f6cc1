"""The problem of serving requests with a size by a deadline.

Requests of sizes drawn from a distribution wait in one queue for K workers. A worker that is idle
takes a batch on a model. It takes T(m, b, x) ms, with b its count and x its longest size where the
model's back end pads, and its total size where it does not. An answer by the deadline is worth the
accuracy of the model times the weight of the request's size class, a late one nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals.process import Sampler
from ramsis.arrivals.recorded import RecordedProcess, RepeatedRequests
from ramsis.arrivals.sizes import SizeDistribution
from ramsis.errors import (
    POSITIVE,
    InfeasibleError,
    InvalidValueError,
    check_number_of,
    check_positive,
)
from ramsis.files import fingerprint
from ramsis.profiles import ProfileError, ProfileSet
from ramsis.profiles.sized import SizedTimes
from ramsis.profiles.values import MAX_BATCH
from ramsis.reprs import brief, dataclass

CLASSES = 5
"""Size classes by default."""
MAX_BATCH_BY_DEFAULT = 64
"""Largest count of a batch by default."""


class BatchTimes(NamedTuple):
    """Times of batches, as compiled code reads them.

    A batch of b on model m at x, its longest size where the back end pads and else its total size,
    takes ``time_ms[m, b-1, x // step]`` ms, linear to the next entry.
    """

    padded: bool  # by longest size; else by total size
    step: int  # sizes between two entries; 1 where padded
    time_ms: FloatArray  # shape (M, B, X); falls neither with count nor with size

    def __repr__(self) -> str:
        return brief(self)


@dataclass(frozen=True, eq=False)
class SizedProblem:
    """Problem of serving requests with a size: models, deadline, workers, sizes, values.

    Parameters
    ----------
    models : tuple of str, length M
    accuracy : ndarray, shape (M,)
        Fractions in (0, 1].
    times : BatchTimes
    slo_ms : float
        Time from arrival to deadline.
    workers : int
    sizes : SizeDistribution
        Sizes of requests, none above ``max_size``.
    edges : tuple of int, length k
        Largest size of each size class, rising; the last is ``max_size`` or more.
    weights : tuple of float, length k
        Value of an answer in time for each class, at accuracy 1.
    unit : str
        Unit of sizes, such as tokens.
    max_size : int
        Largest size that the profile covers.
    statistic : str
        Statistic of the measured times, such as ``"p95"``.

    Raises
    ------
    InvalidValueError
        When a value breaks the above.
    InfeasibleError
        When no size can be answered in time, even alone.
    """

    models: tuple[str, ...]
    accuracy: FloatArray
    times: BatchTimes
    slo_ms: float
    workers: int
    sizes: SizeDistribution
    edges: tuple[int, ...]
    weights: tuple[float, ...]
    unit: str
    max_size: int
    statistic: str = "p95"

    def __post_init__(self) -> None:
        check_positive(slo_ms=self.slo_ms)
        check_number_of("workers", self.workers)
        _check_sizes(self.sizes, self.max_size, self.unit)
        if not (self.edges and list(self.edges) == sorted(set(self.edges))
                and self.edges[0] >= 1 and self.edges[-1] >= self.sizes.largest):
            raise InvalidValueError("not size classes", where="edges", value=self.edges,
                                    allowed="their largest sizes, rising, the last "
                                    f"{self.sizes.largest} or more")
        if len(self.weights) != len(self.edges):
            raise InvalidValueError("not a weight for each size class", where="weights",
                                    value=len(self.weights), allowed=f"{len(self.edges)} numbers")
        for i, weight in enumerate(self.weights):
            POSITIVE.required(f"weights[{i}]", weight)
        smallest = int(self.sizes.values[0])
        alone = self.batch_ms(1, smallest)
        if alone.min() > self.slo_ms:
            raise InfeasibleError("no request can be answered in time", where="slo_ms",
                                  value=self.slo_ms, allowed=f"{alone.min():.4g} ms or more, what "
                                  f"a request of {smallest} {self.unit} takes alone")

    @classmethod
    def of(
        cls, profile: ProfileSet, sizes: SizeDistribution, *, slo_ms: float, workers: int = 1,
        max_batch: int = MAX_BATCH_BY_DEFAULT, statistic: str = "p95",
        edges: Sequence[int] | None = None, weights: Sequence[float] | None = None,
    ) -> SizedProblem:
        """Return the problem of a profile whose models have times by size.

        Parameters
        ----------
        profile : ProfileSet
        sizes : SizeDistribution
        slo_ms : float
        workers : int
        max_batch : int
            Largest count of a batch; counts beyond the measured ones are extrapolated.
        statistic : str
            ``"p95"``, ``"p99"``, ``"p90"``, ``"p50"`` or ``"mean"``.
        edges : sequence of int, optional
            Largest size of each class; five classes of the distribution by default.
        weights : sequence of float, optional
            Value of an answer in time by class; 1 by default.

        Raises
        ------
        InvalidValueError
            The profile has no times by size or not those, the sizes are not covered by it, or a
            value is out of range.
        InfeasibleError
            No size can be answered in time, even alone.
        """
        return cls.of_times(
            [model.name for model in profile.models],
            [model.accuracy for model in profile.models], _sized(profile), sizes, slo_ms=slo_ms,
            workers=workers, max_batch=max_batch, statistic=statistic, edges=edges,
            weights=weights)

    @classmethod
    def of_times(
        cls, models: Sequence[str], accuracy: Sequence[float], times: Sequence[SizedTimes],
        sizes: SizeDistribution, *, slo_ms: float, workers: int = 1,
        max_batch: int = MAX_BATCH_BY_DEFAULT, statistic: str = "p95",
        edges: Sequence[int] | None = None, weights: Sequence[float] | None = None,
    ) -> SizedProblem:
        """Return the problem of models with these names, accuracies and times, each of one law.

        The rest is as in :meth:`of`.
        """
        check_number_of("requests in a batch", max_batch, where="max_batch", most=MAX_BATCH)
        tables = []
        max_size = min(sized.sizes[-1] for sized in times)
        for name, sized in zip(models, times, strict=True):
            try:
                tables.append(sized.table(statistic, max_batch, max_size))
            except ProfileError as error:
                raise InvalidValueError(error.at(f"model {name}, {error.field}")) from error
        _check_sizes(sizes, max_size, times[0].unit, min(sized.sizes[0] for sized in times))
        classes = sizes.classes(CLASSES) if edges is None else tuple(edges)
        return cls(
            models=tuple(models), accuracy=np.array(accuracy, dtype=float),
            times=BatchTimes(tables[0].padded, tables[0].step, np.array(
                [table.time_ms for table in tables])),
            slo_ms=float(slo_ms), workers=workers, sizes=sizes, edges=classes,
            weights=(1.0,) * len(classes) if weights is None else tuple(weights),
            unit=times[0].unit, max_size=max_size, statistic=statistic)

    @property
    def max_batch(self) -> int:
        """Largest number of requests in a batch."""
        return int(self.times.time_ms.shape[1])

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Smallest and largest size of each class."""
        return tuple(zip((1, *(edge + 1 for edge in self.edges[:-1])), self.edges, strict=True))

    @property
    def shares(self) -> FloatArray:
        """Share of the requests in each class, shape (k,)."""
        return self.sizes.shares(self.edges)

    def class_of(self, sizes: IntArray) -> IntArray:
        """Return the index of each size's class."""
        return np.searchsorted(np.asarray(self.edges), sizes)

    def batch_ms(self, count: int, x: int) -> FloatArray:
        """Return the time of a batch on each model, (M,); x is its longest or total size."""
        _padded, step, time_ms = self.times
        at, part = divmod(x, step)
        low, high = time_ms[:, count - 1, at], time_ms[:, count - 1, at + 1]
        result: FloatArray = low + (high - low) * (part / step)
        return result

    def requests_of(
        self, process: Sampler, duration_ms: float, arrivals: np.random.Generator,
        sizes: np.random.Generator,
    ) -> tuple[FloatArray, IntArray]:
        """Sample arrival times of a process, and sizes: recorded ones, else by ``self.sizes``.

        Returns
        -------
        arrival_ms, size : ndarray, shape (n,)
        """
        if isinstance(process, RecordedProcess | RepeatedRequests):
            arrival_ms, size = process.sample_sized(duration_ms, arrivals)
        else:
            arrival_ms, size = process.sample(duration_ms, arrivals), None
        return arrival_ms, self.sizes.sample(len(arrival_ms), sizes) if size is None else size

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the problem's JSON document."""
        return fingerprint(self.to_document())

    def to_document(self) -> dict[str, Any]:
        """Return the JSON document of the problem, times included."""
        return {"models": list(self.models), "accuracy": self.accuracy.tolist(),
                "law": "padded" if self.times.padded else "packed", "step": self.times.step,
                "time_ms": self.times.time_ms.tolist(), "slo_ms": self.slo_ms,
                "workers": self.workers, "sizes": self.sizes.to_document(),
                "edges": list(self.edges), "weights": list(self.weights), "unit": self.unit,
                "max_size": self.max_size, "statistic": self.statistic}

    def _summary(self) -> str:
        return (f"{len(self.models)} models, {'padded' if self.times.padded else 'packed'}, "
                f"slo_ms={self.slo_ms:g}, workers={self.workers}, sizes: "
                f"{self.sizes.summary(self.unit)}")


def _sized(profile: ProfileSet) -> list[SizedTimes]:
    """Return every model's times by size; refuse models without them, or of which some pad."""
    times = [model.sized for model in profile.models if model.sized is not None]
    if not times:
        raise InvalidValueError(
            "the profile has no times by size", where="profile", value=profile.name,
            allowed="one measured with ramsis profile measure --size-points, or imported from a "
            "table with a column of sizes")
    for model in profile.models:
        if model.sized is None:
            raise InvalidValueError("no times by size, beside models with them",
                                    where="profile", value=model.name,
                                    allowed="models that all have them; choose by --models")
        if model.sized.law != times[0].law:
            raise InvalidValueError("models of different laws", where=f"model {model.name}, law",
                                    value=model.sized.law, allowed=times[0].law)
    return times


def _check_sizes(
    sizes: SizeDistribution, max_size: int, unit: str, min_size: int | None = None
) -> None:
    """Refuse sizes that the profile does not cover."""
    if sizes.largest > max_size:
        beyond = float(sizes.probability[sizes.values > max_size].sum())
        raise InvalidValueError(
            "a size beyond those of the profile", where="sizes", value=sizes.largest,
            allowed=f"1 to {max_size} {unit} ({beyond:.2%} of the requests are beyond)")
    if min_size is not None and sizes.largest < min_size:
        raise InvalidValueError("all sizes are below those of the profile", where="sizes",
                                value=sizes.largest, allowed=f"{min_size} to {max_size} {unit}")
