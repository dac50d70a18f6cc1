"""Kinds of arrays that signatures name, series of numbers in documents, and files of arrays."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InputFileError

# The arrays of a file may take this many bytes, or this many times the size of the file.
_MAX_BYTES, _MOST_EXPANDED = 64 * 1024 * 1024, 60

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def fraction(value: float) -> float:
    """Return a share clipped to [0, 1], from which rounding errors may have taken it."""
    return min(1.0, max(0.0, float(value)))


def ratio(part: float, whole: float) -> float | None:
    """Return a part as a share of the whole, in [0, 1]; None where the whole is zero."""
    return fraction(part / whole) if whole > 1e-300 else None


def six_digits(series: Mapping[str, FloatArray]) -> dict[str, list[float | None]]:
    """Round series for a document to six significant digits; ``None`` for what is not finite."""
    return {name: [float(f"{value:.6g}") if math.isfinite(value) else None
                   for value in values.tolist()] for name, values in series.items()}


def read_arrays(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Read the arrays of an .npz file without unpickling, unless they are far larger."""
    where = os.fspath(path)
    try:
        with zipfile.ZipFile(path) as packed:
            grown = sum(member.file_size for member in packed.infolist())
        most = max(_MAX_BYTES, _MOST_EXPANDED * os.path.getsize(path))
        if grown > most:
            raise InputFileError("arrays are too large for their file", where=where,
                                 value=f"{grown} bytes", allowed=f"at most {most} bytes")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except InputFileError:
        raise
    except (OSError, ValueError, AttributeError, KeyError, EOFError, MemoryError,
            NotImplementedError, RuntimeError, SyntaxError, TypeError, zipfile.BadZipFile,
            zlib.error) as error:
        raise InputFileError(f"cannot read an .npz file ({error})", where=where) from None
