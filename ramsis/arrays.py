"""Kinds of arrays that signatures name, and series of numbers as documents have them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def fraction(value: float) -> float:
    """Return a share without the rounding errors that take it outside [0, 1]."""
    return min(1.0, max(0.0, float(value)))


def ratio(part: float, whole: float) -> float | None:
    """Return a part as a share of the whole; None where the whole is nothing."""
    return fraction(part / whole) if whole > 1e-300 else None


def six_digits(series: Mapping[str, FloatArray]) -> dict[str, list[float | None]]:
    """Round series for a document to six significant digits; ``None`` for what is not finite."""
    return {name: [float(f"{value:.6g}") if math.isfinite(value) else None
                   for value in values.tolist()] for name, values in series.items()}
