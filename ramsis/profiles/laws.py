"""Fit of service times of batches with members of different sizes: padded or packed.

By both laws a batch takes about

    t(b, x) = a0 + a1·b + a2·b·x + a3·b·x²,   a0, a1, a2, a3 >= 0,

with b the number of members, and x the longest size if the back end pads (*padded*), or the mean
size if it does not (*packed*); attention is quadratic in the size. Both are fitted by non-negative
least squares of relative residuals; the law with the smaller root mean square is chosen. Batches
with members of one size fit both equally well, and cannot distinguish the laws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ramsis.arrays import FloatArray
from ramsis.profiles.sized import LAWS, Law

_ALIKE = 0.9  # ratio of errors above which the laws are not distinguished


@dataclass(frozen=True)
class LawFit:
    """Fit of the times of batches by the better of the two laws."""

    law: Law
    errors: dict[Law, float]  # root mean square of the relative residuals, by law
    factors: FloatArray  # a0 … a3
    ratio: FloatArray  # measured time divided by fitted time of each batch

    @property
    def tells(self) -> bool:
        """Whether the times distinguish the laws."""
        low, high = sorted(self.errors.values())
        return low < _ALIKE * high

    def time_ms(self, count: ArrayLike, size: ArrayLike) -> FloatArray:
        """Return the fitted time of batches with members of equal size."""
        result: FloatArray = _terms(np.asarray(count, float), np.asarray(size, float)) @ (
            self.factors)
        return result

    def summary(self) -> str:
        """Return a text with the law, and the errors by which it was chosen."""
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
        Number of members, longest and total size, and time of each batch.
    law : {"padded", "packed"}, optional
        The law; by default the one with the smaller error, and padded if the errors are similar,
        as it never underestimates times.
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
    """Fit factors >= 0 of terms relative to times, whose weighted sums should be 1."""
    from scipy.optimize import nnls  # reading profiles must not require scipy

    scale = np.abs(relative).max(axis=0)
    factors, _ = nnls(relative / scale, np.ones(len(relative)))
    result: FloatArray = factors / scale
    return result
