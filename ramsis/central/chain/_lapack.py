"""Products and solutions of dense systems in compiled loops, by BLAS and LAPACK.

They are called by the symbols that numba gives them. numba's own ``@`` and ``solve`` take ten
seconds to compile: they check and copy arrays of all kinds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import types

from ramsis.arrays import FloatArray
from ramsis.compiling import njit

_DOUBLE, _AS_IT_IS = ord("d"), ord("n")  # kind of numbers; not transposed
_INT: Any = types.intp
_NUMBERS: Any = types.CPointer(types.float64)  # type: ignore[no-untyped-call,unused-ignore]
_PIVOTS: Any = types.CPointer(types.intc)  # type: ignore[no-untyped-call,unused-ignore]
_CHAR, _RETURNED = types.char, types.intc
_gemm: Any = types.ExternalFunction("numba_xxgemm", _RETURNED(
    _CHAR, _CHAR, _CHAR, _INT, _INT, _INT, _NUMBERS, _NUMBERS, _INT, _NUMBERS, _INT, _NUMBERS,
    _NUMBERS, _INT))
_gesv: Any = types.ExternalFunction("numba_xgesv", _RETURNED(
    _CHAR, _INT, _INT, _NUMBERS, _INT, _PIVOTS, _NUMBERS, _INT))


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _add_product(
    factor: float, left: FloatArray, right: FloatArray, first: int, to: FloatArray
) -> None:
    """Add ``factor · left @ right[:, first : first + n]`` to an array, (m, n)."""
    if left.size == 0 or to.size == 0:
        return
    factors = np.array([factor, 1.0])
    # BLAS has arrays by columns, and so takes those by rows as their transposes.
    _gemm(_DOUBLE, _AS_IT_IS, _AS_IT_IS, to.shape[1], to.shape[0], left.shape[1], factors.ctypes,
          right.ravel()[first:].ctypes, right.shape[1], left.ctypes, left.shape[1],
          factors[1:].ctypes, to.ctypes, to.shape[1])


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _solve(matrix: FloatArray, right: FloatArray) -> None:
    """Write the solution x, (n, k), of ``matrix @ x = right`` to ``right``; NaN if singular."""
    size, columns = right.shape
    if size == 0:
        return
    factors, solution = matrix.T.copy(), right.T.copy()
    pivots = np.empty(size, np.int32)
    singular = _gesv(_DOUBLE, size, columns, factors.ctypes, size, pivots.ctypes, solution.ctypes,
                     size)
    for r in range(size):
        for c in range(columns):
            right[r, c] = np.nan if singular else solution[c, r]
