"""Policy iteration for the decision problem of a central queue.

For a policy, let W(i,n) be the value of waiting and V_x(i,n) that of deciding just after an
arrival (x = a) or at an end of a batch (x = d), relative to W(K,0) = 0, and g the gain per ms:

    (λ + β_i/SLO) W(i,n) = −g + λ V_a(i,n+1) + (β_i/SLO) V_d(i+1,n),        β_i = K − i busy,
    V_x(i,n) = Σ_j P_x(j | n) · { W(i,n)                                     wait
                                { R + h V_d(i−1,n−b) + (1−h) V_d(i,n−b)      start, i > 1
                                { R − g L/K + Σ_k a_k V_d(1, n−b+k)          start, i = 1

with h = L/SLO, a_k the distribution of the arrivals until the next worker is free, and, before it,
any number of drops at −p each. One linear system gives g and all values; the transposed one gives
how often each row is visited (:mod:`ramsis.central.chain`). Improvement takes the best action at
every (i, n, slack bin), and keeps the old one unless another gains more than 1e-9
(:mod:`ramsis.central.actions`). States with few idle workers and short queues are improved first.
A start that leaves workers idle leads to such states, and is valued by their new decisions
(Gauss-Seidel; Puterman 1994, §6.3.3), so that fewer rounds are needed. The iteration stops when no
action gains more than 1e-6. That includes states that the policy never reaches, as real workers
reach more states than this decision problem. Until then values need only be exact to 1e-5 of the
gain of the last round. The initial policy is the solution of a decision problem with few idle
levels.

The table is one step of improvement on that policy: while waiting it keeps the age of the head,
bin by bin from the least slack up, and values what follows the first start by the policy's values.

The chain of an intermediate policy may fall into parts that do not reach each other (drops make
that possible), so that its system is singular. So the chain returns to (K, 0) at a small rate,
1e-9·λ/K, while waiting and while all workers are busy. If a factorisation fails or leaves a large
residual, the whole solution is repeated at ten times the rate, up to 1e-4·λ/K. A policy whose
values still cannot be computed raises an error.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import IntArray
from ramsis.central.actions import improve, table_of
from ramsis.central.chain import EXACT, Chain, ChainValues, SteadyState
from ramsis.central.model import CentralArrays, central_model
from ramsis.central.problem import CentralProblem
from ramsis.errors import NotConvergedError
from ramsis.reprs import dataclass

__all__ = ["DROP", "WAIT", "CentralSolution", "SteadyState", "evaluate_central",
           "solve_central"]

Codes = NDArray[np.int16]

WAIT, DROP = -1, -2
"""Entries of a table that are not an action's index."""

_MOST_ROUNDS = 200
_OF_GAIN = 1e-5  # error of values, as a share of the last round's largest gain
_STILL = 1e-6  # a round in which no action gains more is the last
_FEW = 0.003  # of the decisions: with few levels the round that changes less is the last
_RESTARTS = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4)  # of the arrivals' rate, per worker


@dataclass(frozen=True, eq=False)
class CentralSolution:
    """Optimal policy of a central queue's problem, with its values and steady state."""

    problem: CentralProblem
    # steady state of the policy ``to``, ``action``; the table improves on this policy
    steady_state: SteadyState
    rounds: int  # of policy iteration
    residual: float  # most that any one action could still gain
    # to, action: shape (I, N, J): the optimal policy: level to which the queue is
    # dropped first, and then the action
    to: Codes
    action: Codes
    values: ChainValues
    chain: Chain  # of that policy

    @cached_property
    def table(self) -> Codes:
        """Decision with workers idle and requests queued, shape (I-1, N-1, J).

        An action, :data:`WAIT` or :data:`DROP`.
        """
        problem = self.problem
        width_ms = np.diff(problem.slack_ms, append=problem.slo_ms)
        return table_of(self.chain.model, self.values, width_ms)[1:, 1:]


def solve_central(problem: CentralProblem) -> CentralSolution:
    """Find the optimal policy of a decision problem by policy iteration."""
    for restart in _RESTARTS:
        solution = _solved(problem, restart * problem.load / problem.workers)
        if solution is not None:
            return solution
    raise _not_computed()


def evaluate_central(problem: CentralProblem, plan: CentralSolution) -> SteadyState:
    """Compute the steady state of a solution's policy under other service times.

    Parameters
    ----------
    problem : CentralProblem
        Problem with the levels, slack bins and actions of the solution's own problem.
    """
    actions = np.unique(plan.action[plan.action >= 0]).astype(np.int64)
    for restart in _RESTARTS:
        model = central_model(problem, restart * problem.load / problem.workers, actions)
        steady_state = Chain(model, plan.to, plan.action, plan.chain).steady_state()
        if steady_state is not None:
            return steady_state
    raise _not_computed()


def _not_computed() -> NotConvergedError:
    return NotConvergedError("the values of a policy cannot be computed", value="singular system")


def _solved(problem: CentralProblem, restart: float) -> CentralSolution | None:
    """Solve the problem; None if the values of an intermediate policy are not computable."""
    model = central_model(problem, restart)
    first = _from_few_levels(model)  # with many workers quicker than rounds with all levels
    iterated = None if first is None else _iterated(model, first.to, first.action, first.chain)
    steady_state = None if iterated is None else iterated.chain.steady_state()
    if iterated is None or steady_state is None:
        return None
    return CentralSolution(problem, steady_state, iterated.rounds, iterated.residual,
                           iterated.to, iterated.action, iterated.values, iterated.chain)


def _from_few_levels(model: CentralArrays) -> _Policy | None:
    """Return the best policy of a coarse decision problem as a start for all idle levels.

    The coarse problem has few levels of idle workers, and draws the age of the head anew.
    """
    start = _coarse_levels(model.idle)
    to, action = _first_policy(model, len(start))
    coarse = _iterated(model._replace(idle=model.idle[start], carries=False), to, action, few=_FEW)
    if coarse is None:
        return None
    nearest = np.searchsorted(start, np.arange(len(model.idle)), side="right") - 1
    return replace(coarse, to=coarse.to[nearest], action=coarse.action[nearest])


def _coarse_levels(idle: IntArray) -> IntArray:
    """Return indices of idle levels for a coarse solution, each 1.5 times the one before."""
    chosen = [0]
    while chosen[-1] < len(idle) - 1:
        chosen.append(min(max(chosen[-1] + 1, chosen[-1] * 3 // 2), len(idle) - 1))
    return np.array(chosen)


@dataclass(frozen=True, eq=False)
class _Policy:
    """Result of policy iteration; values and chain are those of the last policy evaluated."""

    to: Codes
    action: Codes
    values: ChainValues
    rounds: int
    residual: float
    chain: Chain


def _iterated(
    model: CentralArrays, to: Codes, action: Codes, near: Chain | None = None, *, few: float = 0.0
) -> _Policy | None:
    """Run policy iteration from a policy; None if values are not computable.

    It also ends when a round changes less than a share ``few`` of the decisions.
    """
    most = 1.0
    for rounds in range(1, _MOST_ROUNDS + 1):
        near = chain = Chain(model, to, action, near)
        exact = max(_OF_GAIN * min(most, 1.0), EXACT)
        while True:
            values = chain.values(exact)
            if values is None:
                return None
            better_to, better_action = to.copy(), action.copy()
            changed, most = improve(model, values, better_to, better_action)
            if changed < few * to.size:
                return _Policy(better_to, better_action, values, rounds, most, chain)
            if most > _STILL:
                break
            if values.exact:
                return _Policy(to, action, values, rounds, most, chain)
            # Optimality may only be concluded from exact values, so the round is repeated.
            exact = EXACT
        to, action = better_to, better_action
    raise NotConvergedError("policy iteration did not come to rest",
                            value=f"{_MOST_ROUNDS} rounds")


def _first_policy(model: CentralArrays, levels: int) -> tuple[Codes, Codes]:
    """Return a policy that always starts the batch with the most requests per ms."""
    shape = (levels, len(model.queue), model.slack_probability.shape[2])
    to = np.broadcast_to(np.arange(shape[1], dtype=np.int16)[None, :, None], shape).copy()
    action = np.full(shape, WAIT, dtype=np.int16)
    rate = model.batch / model.mean_ms
    for n in range(1, shape[1]):  # a batch of 1 is always an action
        action[1:, n] = np.where(model.batch <= model.queue[n], rate, 0.0).argmax()
    return to, action
