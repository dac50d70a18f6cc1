"""Which law the times of batches with members of different sizes follow.

Under either law a batch takes about

    t(b, x) = a0 + a1·b + a2·b·x + a3·b·x²,   a0, a1, a2, a3 >= 0,

with b the count and x the longest size where the back end pads, and the mean size where it does
not: attention grows with the square. Both are fitted by non-negative least squares of relative
residuals, and the law with the smaller root of their mean square holds. Batches with members of
one size fit both equally well: then nothing tells the laws apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ramsis.arrays import FloatArray
from ramsis.profiles.sized import LAWS, Law

_ALIKE = 0.9  # errors that differ by less than a tenth tell nothing


@dataclass(frozen=True)
class LawFit:
    """Fit of the times of batches by the law that explains them better."""

    law: Law
    errors: dict[Law, float]  # root mean square of the relative residuals, by law
    factors: FloatArray  # a0 … a3
    ratio: FloatArray  # measured time over fitted time of each batch

    @property
    def tells(self) -> bool:
        """Whether the times tell the laws apart."""
        low, high = sorted(self.errors.values())
        return low < _ALIKE * high

    def time_ms(self, count: ArrayLike, size: ArrayLike) -> FloatArray:
        """Return the fitted time of batches whose members have one size."""
        result: FloatArray = _terms(np.asarray(count, float), np.asarray(size, float)) @ (
            self.factors)
        return result

    def summary(self) -> str:
        """Return the law, and by which errors it was chosen, in a few words."""
        errors = ", ".join(f"{law} {self.errors[law]:.1%}" for law in self.errors)
        return f"law {self.law} (relative errors: {errors})"


def fit_law(
    count: ArrayLike, longest: ArrayLike, total: ArrayLike, time_ms: ArrayLike,
    law: Law | None = None,
) -> LawFit:
    """Fit the times of batches by both laws, and choose the better one.

    Parameters
    ----------
    count, longest, total, time_ms : array_like, shape (n,)
        Of each batch.
    law : {"padded", "packed"}, optional
        The law to take; by default that of the smaller error, and padded where the errors are
        alike, as it never states too short a time.
    """
    counts, times = np.asarray(count, float), np.asarray(time_ms, float)
    fits = {}
    for name, size in zip(LAWS, (longest, np.asarray(total, float) / counts), strict=True):
        terms = _terms(counts, np.asarray(size, float))
        factors = _not_negative(terms / times[:, None])
        ratio = times / (terms @ factors)
        fits[name] = factors, ratio, float(np.sqrt(np.mean((1.0 / ratio - 1.0) ** 2)))
    errors = {name: fit[2] for name, fit in fits.items()}
    chosen = law or ("packed" if errors["packed"] < _ALIKE * errors["padded"] else "padded")
    return LawFit(chosen, errors, fits[chosen][0], fits[chosen][1])  # type: ignore[arg-type]


def _terms(count: FloatArray, size: FloatArray) -> FloatArray:
    count, size = np.broadcast_arrays(count, size)
    return np.stack([np.ones(count.shape), count, count * size, count * size**2], axis=-1)


def _not_negative(relative: FloatArray) -> FloatArray:
    """Return factors >= 0 for which rows of terms over times come nearest to 1."""
    from scipy.optimize import nnls  # here, so that reading profiles does without scipy

    scale = np.abs(relative).max(axis=0)
    factors, _ = nnls(relative / scale, np.ones(len(relative)))
    result: FloatArray = factors / scale
    return result
