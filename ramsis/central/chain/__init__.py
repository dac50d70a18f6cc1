"""The chain of a policy: its values and visits, from sparse linear systems.

The systems are those of :mod:`ramsis.central.solve`, solved by sparse LU factors. Where the age of
the head is kept rows have hundreds of entries, and factors are large. But the next policy differs
from the last one in some rows, and the same policy at other service times by small changes of all
weights: the old factors are a good preconditioner. So where factors are large, GMRES comes first.
It stops where the preconditioned residual, which is how far the solution is off, is a given share
of the solution, 1e-13 unless less will do; where 30 steps are not enough, the policy's own system
is factorised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array
from scipy.sparse.linalg import LinearOperator, SuperLU, gmres, splu

from ramsis.central.chain import _kernels
from ramsis.central.model import Model

__all__ = ["EXACT", "Chain", "SteadyState", "Values"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Codes = NDArray[np.int16]

_RESIDUAL = 1e-6
EXACT = 1e-13
"""How far off values are at most, as a share of the largest, but for rounding."""

_STEPS, _SPARE = 30, 100.0  # of GMRES; what it may be further off
_LARGE = 200_000  # entries of a factor
_GROWN = 1.5  # of the entries with an order of columns that is their own


@dataclass(frozen=True)
class Values:
    """Gain per ms, and values.

    Waiting and deciding at an end of a batch (I, N), deciding with one worker idle (N, J); whether
    they are as exact as they can be.
    """

    gain: float
    wait: FloatArray
    free: FloatArray
    last: FloatArray
    exact: bool


@dataclass(frozen=True, eq=False)
class SteadyState:
    """How a policy behaves in the steady state of its model.

    Attributes
    ----------
    gain : float
        Effective accuracy less price times violation rate.
    batches, in_time : ndarray, shape (A,)
        Batches of each action and their queries in time, per query that arrives.
    dropped, overflow : float
        Share of the queries dropped, and of those because the queue was at its longest.
    queue, slack : ndarray, shapes (N,), (J,)
        Distribution of the queue and of the head's slack bin when a batch is started.
    late_share : float
        Mean over the batches of the share of its queries that is late.
    restart : float
        Share of the arrivals' rate at which the chain was returned to empty.
    """

    gain: float
    batches: FloatArray
    in_time: FloatArray
    dropped: float
    overflow: float
    queue: FloatArray
    slack: FloatArray
    late_share: float
    restart: float


class Chain:
    """The Markov chain of a policy.

    Parameters
    ----------
    model : Model
    to, action : ndarrays of int16, shape (I, N, J)
        The policy: level to which the queue is dropped first, and then the action.
    near : Chain, optional
        Of a like policy, or like service times.
    """

    def __init__(
        self, model: Model, to: Codes, action: Codes, near: Chain | None = None
    ) -> None:
        self.model, self.to, self.action = model, to, action
        row, column, weight, self._constant, cost = _kernels.rows(model, to, action)
        size = len(cost)
        self._home = (len(model.idle) - 1) * len(model.queue)
        kept = column != self._home  # the value of home is 0; the gain takes its column
        costly = np.flatnonzero(cost)
        self._matrix = csr_array(
            (np.concatenate([weight[kept], cost[costly]]),
             (np.concatenate([row[kept], costly]),
              np.concatenate([column[kept], np.full(len(costly), self._home)]))),
            shape=(size, size),
        )
        self._factors: _Factors | None = None
        self._own = False
        if near is not None and near._matrix.shape == self._matrix.shape:
            self._factors = near._factors

    def values(self, exact: float = EXACT) -> Values | None:
        """Gain and values; None where the system is singular to working precision.

        Parameters
        ----------
        exact : float
            How far off they may be, as a share of the largest, if that saves work.
        """
        value = self._solved(self._constant, turned=False, exact=exact)
        if value is None:
            return None
        gain = float(value[self._home])
        value[self._home] = 0.0
        parts, last = self._parts(value)
        return Values(gain, parts[0].copy(), parts[1].copy(), last, self._own or exact <= EXACT)

    def steady_state(self) -> SteadyState | None:
        """What the policy does, from the visits of the rows; None as for the values."""
        unit = np.zeros(len(self._constant))
        unit[self._home] = 1.0
        visits = self._solved(unit, turned=True, exact=EXACT)
        if visits is None:
            return None
        model, (parts, last) = self.model, self._parts(np.maximum(visits, 0.0))
        found = _kernels.rates(model, self.to, self.action, parts, last)
        started = max(float(found.batches.sum()), 1e-300)
        return SteadyState(
            gain=float(visits @ self._constant) / model.load,
            batches=found.batches / model.load,
            in_time=found.in_time / model.load,
            dropped=found.dropped / model.load,
            overflow=found.overflow / model.load,
            queue=found.queue / started,
            slack=found.slack / started,
            late_share=found.mean_late / started,
            restart=model.restart / model.load,
        )

    def _solved(self, right: FloatArray, *, turned: bool, exact: float) -> FloatArray | None:
        """The solution of the system, or of the transposed one."""
        matrix = csr_array(self._matrix.T) if turned else self._matrix
        factors = self._factors
        if factors is not None and not self._own and factors.large:
            found = _by_steps(matrix, right, factors, turned, exact)
            if found is not None:
                return found
        if not self._own:
            try:
                self._factors = _Factors(self._matrix, factors, dense=self.model.carries)
                self._own = True
            except RuntimeError:  # exactly singular
                return None
        assert self._factors is not None
        found = self._factors.solve(right, turned)
        if not np.isfinite(found).all():
            return None
        scale = 1.0 + float(np.abs(right).max())
        off = float(np.abs(matrix @ found - right).max())
        return found if off <= _RESIDUAL * scale else None

    def _parts(self, solution: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Of waiting and both kinds of deciding (3, I, N); of deciding, one worker idle (N, J)."""
        model = self.model
        shape = (3, len(model.idle), len(model.queue))
        last, bins = int(np.prod(shape)), model.slack_probability[0].shape
        return (solution[:last].reshape(shape),
                solution[last : last + int(np.prod(bins))].reshape(bins))


class _Factors:
    """The sparse factors of a matrix, or of its transpose where rows are long and alike.

    Parameters
    ----------
    near : _Factors, optional
        Of a like matrix, whose order of the columns is taken where rows are short: to find one
        takes as long as all the rest there. It is found anew where it made the last factors much
        larger than those that it was found for.
    """

    def __init__(self, matrix: csr_array, near: _Factors | None, *, dense: bool) -> None:
        self._turned = dense
        # With columns of a few entries, larger blocks are work for nothing.
        blocks: dict[str, Any] = {} if dense else {"relax": 1, "panel_size": 1}
        columns = csc_array(matrix.T) if dense else matrix.tocsc()
        self._columns: slice | IntArray = slice(None)  # of the matrix, in the factors' order
        self._order: IntArray
        self._least: int
        if dense or near is None or near._factors.nnz > _GROWN * near._least:
            self._factors: SuperLU = splu(columns, permc_spec="COLAMD", **blocks)
            self._order, self._least = np.argsort(self._factors.perm_c), self._factors.nnz
        else:
            self._order, self._least = near._order, near._least
            self._columns = self._order
            self._factors = splu(columns[:, self._order], permc_spec="NATURAL", **blocks)
        # L is put together to be counted, so that is left until it may be large.
        self.large = self._factors.nnz > _LARGE and self._factors.L.nnz > _LARGE

    def solve(self, right: FloatArray, turned: bool) -> FloatArray:
        """The solution of the system, or of the transposed one."""
        factors: Any = self._factors
        if turned != self._turned:
            return np.asarray(factors.solve(right[self._columns], "T"))
        result = np.empty_like(right)
        result[self._columns] = factors.solve(right)
        return result


def _by_steps(
    matrix: csr_array, right: FloatArray, factors: _Factors, turned: bool, exact: float
) -> FloatArray | None:
    """The solution by GMRES with the factors of a like matrix; None where that is not quick."""
    first = factors.solve(right, turned)
    if not np.isfinite(first).all():
        return None
    product = LinearOperator(matrix.shape, dtype=float,
                             matvec=lambda x: factors.solve(matrix @ x, turned))
    found, _ = gmres(product, first, x0=first, rtol=exact, restart=_STEPS, maxiter=1)
    off = factors.solve(right - matrix @ found, turned)
    far = float(np.abs(off).max()) > _SPARE * exact * float(np.abs(found).max())
    return None if far else np.asarray(found + off)
