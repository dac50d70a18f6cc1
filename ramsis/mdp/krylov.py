"""Minimal residuals in a Krylov space: GMRES for systems that are known by their products only.

Y. Saad, M. H. Schultz, "GMRES: A generalized minimal residual algorithm for solving nonsymmetric
linear systems", SIAM Journal on Scientific and Statistical Computing 7, 1986. The basis is made
orthonormal by two Gram-Schmidt steps, each with two matrix products.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.mdp.dense_chain import one_thread

__all__ = ["minimal_residual"]

_LOOKS = 3  # steps between two estimates of the residual


def minimal_residual(
    product: Callable[[FloatArray], FloatArray], right: FloatArray, start: FloatArray,
    tolerance: float, steps: int,
) -> FloatArray | None:
    """Solve a linear system by GMRES; None if it does not converge.

    Parameters
    ----------
    product : callable
        The product of the system's matrix and a vector.
    start : ndarray
        Initial solution.
    tolerance : float
        Largest residual, as a share of the right-hand side.
    steps : int
        Largest dimension of the Krylov space.
    """
    enough = tolerance * float(np.linalg.norm(right))
    residual = right - product(start)
    first = float(np.linalg.norm(residual))
    if first <= enough:
        return start
    basis, upper = np.empty((steps + 1, len(right))), np.zeros((steps + 1, steps))
    basis[0] = residual / first
    with one_thread():
        for k in range(steps):
            new = product(basis[k])
            for _ in range(2):
                along = basis[: k + 1] @ new
                new -= along @ basis[: k + 1]
                upper[: k + 1, k] += along
            upper[k + 1, k] = length = float(np.linalg.norm(new))
            if length > 0.0:
                basis[k + 1] = new / length
            if k % _LOOKS == _LOOKS - 1 or k == steps - 1 or not length > 0.0:
                aim = np.zeros(k + 2)
                aim[0] = first
                system = upper[: k + 2, : k + 1]
                weights = np.linalg.lstsq(system, aim, rcond=None)[0]
                if np.linalg.norm(aim - system @ weights) <= enough:
                    return np.asarray(start + weights @ basis[: k + 1])
                if not length > 0.0:  # also NaN
                    return None
    return None
