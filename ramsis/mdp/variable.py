"""Worker problems with variable batching: whole queues on slack nodes, parts of queues as rows.

A batch of the whole queue leads through the slack nodes (:mod:`ramsis.mdp.structured`), as with
maximal batching; a batch of part of it, or a drop, straight to the next state, by a sparse row
(:mod:`ramsis.mdp.remainder`). So with V the value of a state and u that of a node,

    Q(s, whole batch) = reward − gain·cost + Σ_r w(s, r)·h_l(r)
    Q(s, part)        = reward − gain·(cost + excess) + Σ_s' P(s' | s, part)·V(s').

The states are the *likely* ones, some hundred where n and the age of the earliest request go
together: n requests in T ms with a probability above 1e-15. The few entries of rows that lead
elsewhere go to the likely state of nearest n in the same bin. In the other states of the table
whole queues and the fastest model's parts compete, with the values that follow from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from ramsis.mdp.behind import second_by_bin
from ramsis.mdp.choices import Choice, LateRule
from ramsis.mdp.problem import Objective, WorkerProblem
from ramsis.mdp.remainder import (
    PartialBatches,
    likely_states,
    remainder,
    service_points,
)
from ramsis.mdp.structured import Backup, NodeKind, StructuredMDP, build_structured

__all__ = ["Parts", "VariableMDP", "build_variable"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_ROUNDING = 1e-11
_NEGLIGIBLE = 1e-16
_AFTER_DROPS = 1e-10
_FILL_SWEEPS = 200
_FILLED = 1e-9


@dataclass(frozen=True, eq=False)
class Parts:
    """P pairs of a state and a choice that takes part of its queue, by state.

    Attributes
    ----------
    state : ndarray of int, shape (P,)
        (n − 1)·(D+1) + j, not falling.
    code : ndarray of int, shape (P,)
        The choice as it stands in a policy's table.
    reward, cost : ndarrays, shape (P,)
    law : csr_array, shape (P, S)
    excess : ndarray, shape (P,)
        Expected requests beyond N + 1 afterwards.
    """

    state: IntArray
    code: IntArray
    reward: FloatArray
    cost: FloatArray
    law: csr_array[np.float64]
    excess: FloatArray

    def find(self, state: IntArray, code: IntArray) -> IntArray:
        """Index of each pair, −1 where there is none."""
        if not len(self.code):
            return np.full(len(state), -1)
        base = 2 + int(max(self.code.max(), code.max()))  # codes are -1 and more
        keys, wanted = self.state * base + self.code, state * base + code
        order = np.argsort(keys)
        place = order[np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)]
        return np.where(keys[place] == wanted, place, -1)


@dataclass(frozen=True, eq=False)
class VariableMDP:
    """A worker problem with variable batching; made by :func:`build_variable`.

    Attributes
    ----------
    whole : StructuredMDP
        The slack nodes; its ``reached`` are the S likely states, the full one last.
    columns : ndarray of int, shape (N+1, D+1)
        The likely state that stands for each state.
    parts : Parts
        At the likely states.
    second : ndarray, shape (N+1, D+1, D+1), or None
        Law of the bin after a drop, where there are drops.
    """

    whole: StructuredMDP
    columns: IntArray
    parts: Parts
    second: FloatArray | None

    @property
    def problem(self) -> WorkerProblem:
        """What this is made from."""
        return self.whole.problem

    @cached_property
    def likely(self) -> IntArray:
        """The S likely states as (n − 1)·(D+1) + j."""
        n, j = self.whole.reached
        return n * (self.problem.bins + 1) + j

    @property
    def charged(self) -> float:
        """What a request beyond the table costs."""
        return float(self.problem.objective is Objective.PER_QUERY)

    def backup(self, value: FloatArray, gain: float, incumbent: IntArray) -> Backup:
        """Back up every likely state from the values of these, shape (S,); the others stay."""
        codes = self.problem.every_state(incumbent)
        best, arg, kept = self._whole_queues(value, gain, codes)
        q = self._of_parts(self.parts, value, gain)
        _take_best(self.parts, q, best.ravel(), arg.ravel())
        mine = codes.ravel()[self.parts.state] == self.parts.code
        kept.ravel()[self.parts.state[mine]] = q[mine]
        at = self.whole.reached
        change = best[at] > kept[at] + _ROUNDING * (1.0 + np.abs(best[at]))
        codes[at] = np.where(change, arg[at], codes[at])
        return Backup(best, codes[:-1], kept)

    def _whole_queues(
        self, value: FloatArray, gain: float, codes: IntArray
    ) -> tuple[FloatArray, IntArray, FloatArray]:
        """Best value and choice among whole queues, and the value of those in ``codes``."""
        whole, problem = self.whole, self.problem
        price = (gain + problem.violation_price) * self.charged
        futures = whole.futures(np.asarray(whole.continuation @ value) - price * whole.excess)
        best = np.full(codes.shape, -np.inf)
        kept, arg = best.copy(), codes.copy()
        for n, choices in enumerate(problem.choices.rows):
            for choice in choices:
                if choice.drops or choice.batch <= n:
                    continue
                span = choice.bins
                q = (problem.reward(choice) - gain * problem.cost(choice.batch)
                     + whole.missing[n, span] @ futures[choice.service])
                better, mine = q > best[n, span], codes[n, span] == choice.code
                best[n, span][better] = q[better]
                arg[n, span][better] = choice.code
                kept[n, span][mine] = q[mine]
        return best, arg, kept

    def _of_parts(self, parts: Parts, value: FloatArray, gain: float) -> FloatArray:
        price = (gain + self.problem.violation_price) * self.charged
        q: FloatArray = (parts.reward - gain * parts.cost - price * parts.excess
                         + parts.law @ value)
        return q

    def fill(self, value: FloatArray, gain: float, policy: IntArray) -> IntArray:
        """The policy with the best choice also in the states that are not likely.

        There the fastest model's parts compete with whole queues, until the values settle.
        """
        problem = self.problem
        codes = problem.every_state(policy)
        best, arg, _ = self._whole_queues(value, gain, codes)
        elsewhere = np.ones(best.size, dtype=bool)
        elsewhere[self.likely] = False
        elsewhere[-(problem.bins + 1) :] = False  # the full state's row
        every = np.arange(best.size).reshape(best.shape)
        every[-1] = every[-1, 0]
        parts = _parts(self.whole, every, elsewhere.reshape(best.shape), self.second,
                       lambda choice: choice.drops or choice.model == problem.latency.fastest)
        start, whole_arg = best.ravel(), arg.ravel()
        values = np.where(np.isfinite(start), start, value.min())
        values[self.likely] = value
        for _ in range(_FILL_SWEEPS):
            q = self._of_parts(parts, values[: parts.law.shape[1]], gain)
            found, chosen = start.copy(), whole_arg.copy()
            _take_best(parts, q, found, chosen)
            found[~elsewhere] = values[~elsewhere]
            change = np.abs(found[elsewhere] - values[elsewhere]).max(initial=0.0)
            values = found
            if change < _FILLED * (1.0 + np.abs(values[self.likely]).max()):
                break
        filled = codes.ravel().copy()
        filled[elsewhere] = chosen[elsewhere]
        return filled.reshape(codes.shape)[:-1]


def _take_best(parts: Parts, q: FloatArray, best: FloatArray, arg: IntArray) -> None:
    """Raise the values of states to those of their parts, where these are more."""
    if not len(q):
        return
    first = np.flatnonzero(np.diff(parts.state, prepend=-1))
    state = parts.state[first]
    most = np.maximum.reduceat(q, first)
    order = np.lexsort((-q, parts.state))[first]
    better = most > best[state]
    best[state[better]] = most[better]
    arg[state[better]] = parts.code[order[better]]


def build_variable(problem: WorkerProblem, nodes: NodeKind = "auto") -> VariableMDP:
    """Put the structured form of a problem with variable batching together.

    Parameters
    ----------
    nodes : {"auto", "quadrature", "exact"}
        Slack nodes, as of :func:`~ramsis.mdp.structured.build_structured`.

    Raises
    ------
    InvalidValueError
        When the problem is too large.
    """
    whole = build_structured(problem, nodes)
    likely = likely_states(problem)
    likely[whole.reached] = True
    second = None
    if problem.late is LateRule.DROP:
        second = _second(problem)
        likely |= _after_drops(second)
    columns = _nearest(likely)
    states = np.flatnonzero(likely)
    old = whole.continuation.tocoo()
    law: csr_array[np.float64] = csr_array(
        (old.data, (old.row, columns[whole.reached][old.col])),
        shape=(old.shape[0], len(states)),
    )
    whole = replace(whole, reached=np.divmod(states, problem.bins + 1), continuation=law)
    parts = _parts(whole, columns, likely, second, lambda _: True)
    return VariableMDP(whole, columns, parts, second)


def _second(problem: WorkerProblem) -> FloatArray:
    """Law of the bin after a drop, (N+1, D+1, D+1); after the only request, (1, SLO)."""
    second = second_by_bin(
        problem.arrivals, problem.workers, problem.slack_ms, problem.max_queue + 1
    )
    second[0, :, -1] = 1.0
    return second


def _after_drops(second: FloatArray) -> NDArray[np.bool_]:
    """The states that drops lead to from the full one, which is taken to hold N + 1 requests."""
    reach = np.zeros(second.shape[:2])
    reach[-1, 0] = 1.0
    for n in range(len(reach) - 1, 0, -1):
        reach[n - 1] = reach[n] @ second[n]
    return reach > _AFTER_DROPS


def _nearest(likely: NDArray[np.bool_]) -> IntArray:
    """The column of each state, likely or not; fills gaps between likely n of a bin."""
    n = np.arange(len(likely) - 1)
    listed = likely[:-1]
    least = np.argmax(listed, axis=0)
    most = len(n) - 1 - np.argmax(listed[::-1], axis=0)
    listed |= (n[:, None] >= least) & (n[:, None] <= most)
    own = np.cumsum(likely).reshape(likely.shape) - 1
    columns = np.empty(likely.shape, dtype=np.int64)
    columns[:-1] = np.take_along_axis(own[:-1], np.clip(n[:, None], least, most), axis=0)
    columns[-1] = own[-1, 0]
    return columns


def _parts(
    whole: StructuredMDP,
    columns: IntArray,
    where: NDArray[np.bool_],
    second: FloatArray | None,
    wanted: Callable[[Choice], bool],
) -> Parts:
    """The wanted choices of parts of the queue in some states."""
    problem = whole.problem
    chosen = [
        (choice, n, np.flatnonzero(where[n, choice.bins]) + choice.first_bin)
        for n, choices in enumerate(problem.choices.rows)
        for choice in choices
        if (choice.drops or choice.batch <= n) and wanted(choice)
    ]
    size = [len(bins) for *_, bins in chosen]
    row = np.repeat(np.array([n for _, n, _ in chosen], dtype=np.int64), size)
    slack_bin = np.concatenate([np.empty(0, dtype=np.int64), *(bins for *_, bins in chosen)])
    code, batch, service = (
        np.repeat(np.array([getattr(c, name) for c, *_ in chosen], dtype=np.int64), size)
        for name in ("code", "batch", "service")
    )
    rewards = [problem.reward(c)[bins - c.first_bin] for c, _, bins in chosen]
    cost = np.repeat([problem.cost(c.batch) for c, *_ in chosen], size)
    served = service >= 0
    law, excess = _rows(whole, columns, *(x[served] for x in (row, slack_bin, batch, service)))
    if second is not None:
        dropped = _drop_rows(second, columns, row[~served], slack_bin[~served], law.shape[1])
        place = np.argsort(np.argsort(~served, kind="stable"), kind="stable")
        law = csr_array(vstack([law, dropped], format="csr"))[place]
        excess = np.append(excess, np.zeros(dropped.shape[0]))[place]
    state = row * (problem.bins + 1) + slack_bin
    order = np.argsort(state, kind="stable")
    return Parts(state[order], code[order], np.concatenate([np.empty(0), *rewards])[order],
                 cost[order], law[order], excess[order])


def _rows(
    whole: StructuredMDP, columns: IntArray, row: IntArray, slack_bin: IntArray,
    batch: IntArray, service: IntArray,
) -> tuple[csr_array[np.float64], FloatArray]:
    """Law and excess of each batch of part of a queue, averaged over its service time."""
    latency_ms, weight = service_points(whole.problem)
    points = latency_ms.shape[1]
    every = np.repeat(np.arange(len(row)), points)
    batches = PartialBatches(row[every] + 1, slack_bin[every], batch[every],
                             latency_ms[service].ravel())
    found = remainder(whole.problem, whole.missing, columns, batches)
    if points == 1:
        return found.law, found.excess
    mix: csr_array[np.float64] = csr_array(
        (weight[service].ravel(), (every, np.arange(len(every)))), shape=(len(row), len(every))
    )
    return csr_array(mix @ found.law), np.asarray(mix @ found.excess)


def _drop_rows(
    second: FloatArray, columns: IntArray, row: IntArray, slack_bin: IntArray, states: int
) -> csr_array[np.float64]:
    """Laws after drops of the earliest request; as with maximal batching, from the bins' edges."""
    law = second[row, slack_bin]
    pair, bin_after = np.nonzero(law > _NEGLIGIBLE)
    column = columns[np.maximum(row[pair] - 1, 0), bin_after]
    return csr_array((law[pair, bin_after], (pair, column)), shape=(len(row), states))
