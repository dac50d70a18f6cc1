"""The chain of a policy: its values and visits, from linear systems.

The systems are those of :mod:`ramsis.central.solve`. If the age of the head is drawn anew, they
are solved level by level (:mod:`ramsis.central.chain._levels`). If it is kept, rows have hundreds
of entries, and the systems are solved by sparse LU factors, which may be large. But the system of
the next policy differs from the last one in some rows only, and that of the same policy at other
service times by small changes of all weights. So the factors of a similar system are a good
preconditioner. If they are large, GMRES with them is tried first. It stops when the preconditioned
residual, an estimate of the error of the solution, is a given share of the solution: 1e-13, or
more if the caller allows it. If 30 steps do not suffice, the policy's own system is factorised.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array
from scipy.sparse.linalg import LinearOperator, SuperLU, gmres, splu

from ramsis.arrays import FloatArray
from ramsis.central.chain import _by_levels, _kernels
from ramsis.central.chain._levels import Levels, eliminated
from ramsis.central.model import CentralArrays
from ramsis.mdp.dense_chain import one_thread

__all__ = ["EXACT", "Chain", "ChainValues", "SteadyState"]

Codes = NDArray[np.int16]

_RESIDUAL = 1e-6  # above this share of the right-hand side, the system counts as singular
EXACT = 1e-13
"""Largest error of values besides rounding, as a share of the largest value."""

_STEPS, _SPARE = 30, 100.0  # of GMRES; its result may miss the wanted error by this factor
_LARGE = 200_000  # entries of a factor, above which GMRES is tried first


@dataclass(frozen=True)
class ChainValues:
    """Gain and relative values of a central queue's policy."""

    gain: float  # per ms
    wait: FloatArray  # of waiting, shape (I, N)
    free: FloatArray  # of deciding at an end of a batch, shape (I, N)
    last: FloatArray  # of deciding with one worker idle, shape (N, J)
    exact: bool  # whether their error is rounding alone, or at most :data:`EXACT`


@dataclass(frozen=True, eq=False)
class SteadyState:
    """Steady state of a policy in its model, per arriving request unless stated otherwise."""

    gain: float  # effective accuracy less price times violation rate
    # shape (A, J): batches of each action by the head's slack bin, per request that arrives
    started: FloatArray
    in_time: FloatArray  # shape (A,): requests of each action in time, per request that arrives
    # dropped, overflow: share of the requests dropped, and of those because the queue was at its
    # longest
    dropped: float
    overflow: float
    queue: FloatArray  # distribution of the queue when a batch is started, shape (N,)
    late_share: float  # mean over the batches of the share of its requests that is late
    restart: float  # share of the arrivals' rate at which the chain was returned to empty

    @property
    def batches(self) -> FloatArray:
        """Batches of each action per arriving request, shape (A,)."""
        by_action: FloatArray = self.started.sum(axis=1)
        return by_action

    @property
    def slack(self) -> FloatArray:
        """Distribution of the head's slack bin when a batch is started, shape (J,)."""
        by_slack: FloatArray = self.started.sum(axis=0)
        return np.asarray(by_slack / max(float(by_slack.sum()), 1e-300))


class Chain:
    """The Markov chain of a policy.

    The policy is the level ``to`` which the queue is dropped first, and then the ``action``, int16
    of shape (I, N, J). The factors of ``near``, of a similar policy or service times, are the
    preconditioner.
    """

    def __init__(
        self, model: CentralArrays, to: Codes, action: Codes, near: Chain | None = None
    ) -> None:
        self.model, self.to, self.action = model, to, action
        # Row of waiting with all workers idle and no request. Its value is 0, and its place among
        # the values holds the gain.
        self._home = (len(model.idle) - 1) * len(model.queue)
        self._levels: Levels | None = None
        self._sparse: _Sparse | None = None
        if model.carries:
            like = None if near is None else near._sparse
            self._sparse = _Sparse(self._system, self._home, like)

    @cached_property
    def _system(self) -> _kernels.System:
        return _kernels.rows(self.model, self.to, self.action)

    def values(self, exact: float = EXACT) -> ChainValues | None:
        """Return gain and values; None if the system is singular to working precision.

        Their error is at most ``exact``, as a share of the largest value.
        """
        value = self._solved(turned=False, exact=exact)
        if value is None:
            return None
        gain = float(value[self._home])
        value[self._home] = 0.0
        parts, last = self._parts(value)
        direct = self._sparse is None or self._sparse.direct
        return ChainValues(gain, parts[0].copy(), parts[1].copy(), last, direct or exact <= EXACT)

    def steady_state(self) -> SteadyState | None:
        """Return the steady state of the policy from the visits of the rows, or None."""
        visits = self._solved(turned=True, exact=EXACT)
        if visits is None:
            return None
        model, (parts, last) = self.model, self._parts(np.maximum(visits, 0.0))
        rates = _kernels.rates(model, self.to, self.action, parts, last)
        started = max(float(rates.batches.sum()), 1e-300)
        return SteadyState(
            gain=float(visits @ self._system.constant) / model.load,
            started=rates.batches / model.load,
            in_time=rates.in_time / model.load,
            dropped=rates.dropped / model.load,
            overflow=rates.overflow / model.load,
            queue=rates.queue / started,
            late_share=rates.mean_late / started,
            restart=model.restart / model.load,
        )

    def _solved(self, *, turned: bool, exact: float) -> FloatArray | None:
        """Solve for the values, or for the visits if ``turned``; None if the system is singular.

        The gain is in the place of home's value.
        """
        system, model = self._system, self.model
        if self._sparse is not None:
            solution = self._sparse.solved(turned=turned, exact=exact)
        else:
            try:
                with one_thread():
                    if self._levels is None:
                        self._levels = eliminated(
                            system, len(model.idle), *model.slack_probability.shape[1:])
                    solution = (_by_levels.visits if turned else _by_levels.values)(
                        system, self._levels)
            except np.linalg.LinAlgError:  # exactly singular
                return None
        if solution is None or not np.isfinite(solution).all():
            return None
        if self._sparse is None or self._sparse.direct:
            scale = 2.0 if turned else 1.0 + float(np.abs(system.constant).max())
            residual = _kernels.residuals(system, solution, self._home, turned)
            if float(np.abs(residual).max()) > _RESIDUAL * scale:
                return None
        if self._sparse is not None:
            self._sparse.latest[turned] = solution.copy()
        return solution

    def _parts(self, solution: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Split a solution into values by idle level and queue, and those of one worker idle.

        The first, (3, I, N), are of waiting, and of deciding at an end of a batch and after an
        arrival; the second, (N, J), of deciding with one worker idle, by slack bin.
        """
        model = self.model
        shape = (3, len(model.idle), len(model.queue))
        last, bins = int(np.prod(shape)), model.slack_probability[0].shape
        return (solution[:last].reshape(shape),
                solution[last : last + int(np.prod(bins))].reshape(bins))


class _Sparse:
    """Sparse linear system, solved by its LU factors or by GMRES.

    GMRES is preconditioned with the factors of ``near``, a similar system.
    """

    def __init__(self, system: _kernels.System, home: int, near: _Sparse | None) -> None:
        size = len(system.cost)
        order = np.argsort(system.start)
        row = np.repeat(order, (system.end - system.start)[order])
        kept = system.column != home  # the value of home is 0; the gain takes its column
        costly = np.flatnonzero(system.cost)
        self._matrix = csr_array(
            (np.concatenate([system.weight[kept], system.cost[costly]]),
             (np.concatenate([row[kept], costly]),
              np.concatenate([system.column[kept], np.full(len(costly), home)]))),
            shape=(size, size),
        )
        self._constant, self._home = system.constant, home
        self._factors: _Factors | None = None
        self.latest: dict[bool, FloatArray] = {}  # last solution, by whether it was transposed
        self.direct = False  # whether the factors are those of this system
        if near is not None and near._matrix.shape == self._matrix.shape:
            self._factors, self.latest = near._factors, dict(near.latest)

    def solved(self, *, turned: bool, exact: float) -> FloatArray | None:
        """Solve the system or its transpose; None if it is singular."""
        matrix, right = self._matrix, self._constant
        if turned:
            matrix, right = csr_array(matrix.T), np.zeros(len(right))
            right[self._home] = 1.0
        factors = self._factors
        if factors is not None and not self.direct and factors.large:
            solution = _by_steps(matrix, right, factors, turned, exact, self.latest.get(turned))
            if solution is not None:
                return solution
        if not self.direct:
            try:
                self._factors, self.direct = _Factors(self._matrix), True
            except RuntimeError:  # exactly singular
                return None
        assert self._factors is not None
        return self._factors.solve(right, turned)


class _Factors:
    """Sparse LU factors of the transpose, whose columns have similar structure: little fill-in."""

    def __init__(self, matrix: csr_array) -> None:
        self._factors: SuperLU = splu(csc_array(matrix.T), permc_spec="COLAMD")
        # SuperLU builds L only to count its entries, so this is done only where it may be large.
        self.large = self._factors.nnz > _LARGE and self._factors.L.nnz > _LARGE

    def solve(self, right: FloatArray, turned: bool) -> FloatArray:
        """Solve the factorised linear system, or its transpose."""
        factors: Any = self._factors
        return np.asarray(factors.solve(right, "N" if turned else "T"))


def _by_steps(
    matrix: csr_array, right: FloatArray, factors: _Factors, turned: bool, exact: float,
    near: FloatArray | None,
) -> FloatArray | None:
    """Solve by GMRES with the factors of a similar matrix; None if it converges slowly.

    It starts from ``near``, the solution of a similar system, if there is one.
    """
    first = factors.solve(right, turned)
    if not np.isfinite(first).all():
        return None
    product = LinearOperator(matrix.shape, dtype=float,
                             matvec=lambda x: factors.solve(matrix @ x, turned))
    solution, _ = gmres(product, first, x0=first if near is None else near, rtol=exact,
                        restart=_STEPS, maxiter=1)
    # One more step of refinement, whose size estimates the error.
    off = factors.solve(right - matrix @ solution, turned)
    far = float(np.abs(off).max()) > _SPARE * exact * float(np.abs(solution).max())
    return None if far else np.asarray(solution + off)
