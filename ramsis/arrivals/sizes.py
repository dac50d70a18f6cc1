"""Distribution of request sizes, and its division into size classes.

A *size* is a whole number >= 1 of tokens, pixels, characters or atoms. Size classes divide the
sizes into ranges, each with its share of requests and of work.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.errors import InvalidValueError, check_number_of
from ramsis.reprs import dataclass

MAX_SIZE = 65536
"""Largest size of a request."""
_MOST_CLASSES = 64


@dataclass(frozen=True, eq=False)
class SizeDistribution:
    """Probability distribution of the size of a request.

    Parameters
    ----------
    values : array_like of int, shape (n,)
        Sizes from 1 to 65,536, increasing.
    probability : array_like, shape (n,)
        Weight of each size, finite and > 0; normalised to sum 1.

    Examples
    --------
    >>> sizes = SizeDistribution.of_sizes([8, 8, 8, 128])
    >>> sizes.mean, sizes.quantile(0.5), sizes.largest
    (38.0, 8, 128)
    """

    values: IntArray
    probability: FloatArray

    def __post_init__(self) -> None:
        values = whole_sizes(self.values, "values")
        probability = np.array(self.probability, dtype=float).reshape(-1)
        if len(probability) != len(values):
            raise InvalidValueError("not a probability for each size", where="probability",
                                    value=len(probability), allowed=f"{len(values)} numbers")
        if (np.diff(values) <= 0).any():
            at = int(np.argmax(np.diff(values) <= 0)) + 1
            raise InvalidValueError("sizes do not rise", where=f"values[{at}]",
                                    value=int(values[at]), allowed=f"above {int(values[at - 1])}")
        likely = np.isfinite(probability) & (probability > 0)
        if not likely.all():
            at = int(np.argmin(likely))
            raise InvalidValueError("not a probability", where=f"probability[{at}]",
                                    value=float(probability[at]), allowed="a finite number > 0")
        probability = probability / probability.sum()
        for array in (values, probability):
            array.setflags(write=False)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "probability", probability)

    @classmethod
    def of_sizes(cls, sizes: ArrayLike) -> SizeDistribution:
        """Return the empirical distribution of some sizes.

        Raises
        ------
        InvalidValueError
            There are no sizes, or one is not a whole number from 1 to 65,536.
        """
        values, counts = np.unique(whole_sizes(sizes, "sizes"), return_counts=True)
        return cls(values, counts.astype(float))

    @property
    def mean(self) -> float:
        """Mean size of a request."""
        return float(self.values @ self.probability)

    @property
    def largest(self) -> int:
        """Largest size that a request may have."""
        return int(self.values[-1])

    def quantile(self, level: float) -> int:
        """Return the quantile of the sizes at ``level``, a share of the requests."""
        at = np.searchsorted(np.cumsum(self.probability), level - 1e-12)
        return int(self.values[min(int(at), len(self.values) - 1)])

    def sample(self, n: int, rng: np.random.Generator) -> IntArray:
        """Sample the sizes of ``n`` requests, shape (n,)."""
        return self.values[rng.choice(len(self.values), size=n, p=self.probability)]

    def classes(self, k: int) -> tuple[int, ...]:
        """Return the upper edges of ``k`` size classes, increasing; fewer if sizes are fewer.

        A class has a share of the requests and a share of the work (the sum of sizes). The mean of
        the two shares is about equal for all classes, so neither the many small nor the few large
        requests are all in one class.
        """
        check_number_of("classes", k, most=_MOST_CLASSES)
        work = self.values * self.probability
        share = np.cumsum(self.probability + work / work.sum()) / 2.0
        at = np.searchsorted(share, np.arange(1, k) / k - 1e-12)
        return tuple(np.unique(np.append(self.values[at], self.largest)).tolist())

    def shares(self, edges: ArrayLike) -> FloatArray:
        """Return the share of the requests in each size class, given the upper edges."""
        edges = np.asarray(edges)
        shares: FloatArray = np.bincount(np.searchsorted(edges, self.values), self.probability,
                                         len(edges)).astype(float)
        return shares

    def summary(self, unit: str = "") -> str:
        """Return median, 90th percentile and largest size as text."""
        return (f"median {self.quantile(0.5)}, 90 % up to {self.quantile(0.9)}, "
                f"largest {self.largest}{unit and ' '}{unit}")

    def to_document(self) -> dict[str, Any]:
        """Return the JSON document of the distribution."""
        return {"values": self.values.tolist(), "probability": self.probability.tolist()}

    def _summary(self) -> str:
        return f"of {len(self.values)} sizes: {self.summary()}"


def are_sizes(values: FloatArray) -> BoolArray:
    """Return which numbers are valid request sizes: whole, from 1 to the largest allowed."""
    return np.asarray((values >= 1) & (values <= MAX_SIZE) & (values == np.floor(values)))


def whole_sizes(values: ArrayLike, where: str) -> IntArray:
    """Check request sizes, and return them as a new integer array, shape (n,).

    None at all, or one that is not a whole number from 1 to 65,536, are an InvalidValueError.
    """
    try:
        numbers = np.array(values, dtype=float).reshape(-1)
    except (TypeError, ValueError) as error:
        raise InvalidValueError("not an array of sizes", where=where, value=values,
                                allowed="whole numbers >= 1") from error
    if not len(numbers):
        raise InvalidValueError("no sizes", where=where, value=0, allowed="one or more sizes")
    right = are_sizes(numbers)
    if not right.all():
        at = int(np.argmin(right))
        raise InvalidValueError("not a size", where=f"{where}, entry {at + 1}",
                                value=float(numbers[at]),
                                allowed=f"a whole number from 1 to {MAX_SIZE}")
    return numbers.astype(np.int64)
