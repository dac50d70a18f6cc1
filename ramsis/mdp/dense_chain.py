"""Gain, relative values and stationary frequencies of one dense chain, by one factorisation.

A policy gives a chain with kernel M, reward r and cost c (semi-Markov: reward per unit of cost),
which need not be the chain of states: any embedded one will do. Its equations are

    relative values   u = r − g·c + M·u,    u(reference) = 0,
    frequencies       v = v·M,              v·c = 1,
    gain              g = v·r.

Let B be I − M with the column of the reference replaced by the costs. Then B·x = r gives the
values, with g in the place of the reference, and v·B is the unit vector of the reference. So one
LU factorisation gives all three without iteration. An often visited state is a good reference;
some steps of the chain find one. A system that is singular within rounding shows in the balance
of the frequencies.

*Restarts.* A policy may have two regimes between which the chain moves once in 1e15 steps. Its
stationary distribution is then a matter of rounding, while a system that starts empty sees one
regime only. Where rounding would move the gain by more than 1e-6, the chain is taken to restart
from a given distribution s with probability ε = 1e-7 at every step, M → (1 − ε)·M + ε·1·s.

:mod:`ramsis.mdp.chain` has the same system for sparse chains with several closed classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.linalg import LinAlgWarning, lu_factor, lu_solve
from threadpoolctl import ThreadpoolController

from ramsis.arrays import FloatArray
from ramsis.errors import NotConvergedError

_Found = TypeVar("_Found")

RESTART = 1e-7
"""Probability ε of a restart, where there are restarts."""
_WALK_STEPS = 16
_ONE_THREADED = 200  # up to so many states BLAS libraries have one thread by themselves
_ROUNDINGS = 4.0 * float(np.finfo(np.float64).eps)
_PRECISION = 1e-6  # error of the gain from which there are restarts
_BALANCE = 1e-8  # largest relative residual of the frequencies


class DenseChain(NamedTuple):
    """Markov chain of a policy, with the reward and cost of each step."""

    kernel: FloatArray  # M; overwritten where there are restarts, shape (S, S)
    # reward, cost: shape (S,)
    reward: FloatArray
    cost: FloatArray
    start: FloatArray  # distribution after a restart, shape (S,)


class ChainSolution(NamedTuple):
    """Solution of the equations of a chain: gain, values and frequencies."""

    gain: float
    value: FloatArray  # u, shape (S,)
    frequency: FloatArray  # v: stationary frequencies per unit of cost, shape (S,)
    reference: int  # the most frequent state, a good reference for a similar chain
    residual: float  # largest error of v = v·M, relative to the largest frequency


def solve_chain(chain: DenseChain, restart: float, reference: int | None) -> ChainSolution:
    """Solve the equations of a chain.

    Parameters
    ----------
    restart : float
        Probability of a restart at every step.
    reference : int, optional
        An often visited state; ``None`` to look for one.
    """
    size = len(chain.kernel)
    if restart:
        chain.kernel[:] += restart * (chain.start - chain.kernel)
    if reference is None:
        reference = _often_visited(chain.kernel, chain.start)
    unit = np.zeros(size)
    unit[reference] = 1.0
    system = -chain.kernel
    system.flat[:: size + 1] += 1.0
    system[:, reference] = chain.cost
    threads = one_thread() if size > _ONE_THREADED else nullcontext()
    with threads, warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore", LinAlgWarning)  # a singular system shows in the residual
        # The transpose lies in memory as LAPACK wants it, so nothing is copied.
        factors = lu_factor(system.T, overwrite_a=True, check_finite=False)
        value = lu_solve(factors, chain.reward, trans=1, check_finite=False)
        frequency = lu_solve(factors, unit, check_finite=False)
        error = np.abs(frequency @ chain.kernel - frequency).max()
        residual = float(error / np.abs(frequency).max())
    if not (np.isfinite(value).all() and residual < _BALANCE):
        raise NotConvergedError("a policy has no single stationary distribution",
                                where="policy iteration", value=f"balance residual {residual:.1e}")
    gain = float(value[reference])
    value[reference] = 0.0
    frequency = np.maximum(frequency, 0.0)
    return ChainSolution(gain, value, frequency, int(frequency.argmax()), residual)


def with_restarts(
    evaluate: Callable[[int | None, float], _Found],
    reference: int | None,
    error: Callable[[_Found], float],
    restart: float | None = None,
) -> _Found:
    """Evaluate a chain without restarts, or with them if that fails or is too inexact.

    If the probability ``restart`` is given, evaluate the chain with it.
    """
    if restart is not None:
        return evaluate(reference, restart)
    try:
        solution = evaluate(reference, 0.0)
    except NotConvergedError:
        return evaluate(None, RESTART)
    return evaluate(None, RESTART) if error(solution) > _PRECISION else solution


def rounding_error(value: FloatArray, costs: FloatArray) -> float:
    """Return how far rounding of relative values may move the gain, given the costs of steps."""
    return float(_ROUNDINGS * np.ptp(value) / costs.min())


def one_thread() -> AbstractContextManager[object]:
    """Return a context in which BLAS libraries have one thread.

    On two busy cores 400 rows take 2.7 ms with one thread, and 350 ms with two that wait.
    """
    limited: AbstractContextManager[object] = _blas().limit(limits=1)
    return limited


@cache
def _blas() -> ThreadpoolController:
    """Return the BLAS libraries of NumPy and SciPy; cached, since the search takes 20 ms."""
    return ThreadpoolController().select(user_api="blas")


def _often_visited(kernel: FloatArray, current: FloatArray) -> int:
    """Return a state that the chain visits often, found by a few steps from a distribution."""
    seen = np.zeros(len(kernel))
    for _ in range(_WALK_STEPS):
        current = current @ kernel
        seen = 0.9 * seen + current
    return int(seen.argmax())
