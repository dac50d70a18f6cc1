"""Worker problems with variable batching: whole queues on slack nodes, parts of queues as rows.

A batch of the whole queue leads through the slack nodes (:mod:`ramsis.worker.structured`), as with
maximal batching; a batch of part of it, or a drop, straight to the next state, by a sparse row
(:mod:`ramsis.worker.parts`). So with V the value of a state and u that of a node,

    Q(s, whole batch) = reward − gain·cost + Σ_r w(s, r)·h_l(r)
    Q(s, part)        = reward − gain·(cost + excess) + Σ_s' P(s' | s, part)·V(s').

The states are the *likely* ones, some hundred where n and the age of the earliest request go
together: n requests in T ms with a probability above 1e-15. The few entries of rows that lead
elsewhere go to the likely state of nearest n in the same bin. In the other states of the table
whole queues and the fastest model's parts compete, with the values that follow from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ramsis.errors import InvalidValueError, describe
from ramsis.worker.actions import LateRule
from ramsis.worker.parts import Parts, after_a_drop, parts_at, take_best
from ramsis.worker.problem import Objective, WorkerProblem
from ramsis.worker.remainder import likely_states
from ramsis.worker.structured import Backup, NodeKind, StructuredMDP, build_structured

__all__ = ["MAX_LIKELY", "VariableMDP", "build_variable"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MAX_LIKELY = 12_000
"""Most likely states: a policy's chain between them is one dense matrix."""
_ROUNDING = 1e-11
_AFTER_DROPS = 1e-10
_FILL_SWEEPS = 200
_FILLED = 1e-9


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
        take_best(self.parts, q, best.ravel(), arg.ravel())
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
        parts = parts_at(self.whole, every, elsewhere.reshape(best.shape), self.second,
                       lambda choice: choice.drops or choice.model == problem.latency.fastest)
        start, whole_arg = best.ravel(), arg.ravel()
        values = np.where(np.isfinite(start), start, value.min())
        values[self.likely] = value
        for _ in range(_FILL_SWEEPS):
            q = self._of_parts(parts, values[: parts.law.shape[1]], gain)
            found, chosen = start.copy(), whole_arg.copy()
            take_best(parts, q, found, chosen)
            found[~elsewhere] = values[~elsewhere]
            change = np.abs(found[elsewhere] - values[elsewhere]).max(initial=0.0)
            values = found
            if change < _FILLED * (1.0 + np.abs(values[self.likely]).max()):
                break
        filled = codes.ravel().copy()
        filled[elsewhere] = chosen[elsewhere]
        return filled.reshape(codes.shape)[:-1]


def build_variable(problem: WorkerProblem, nodes: NodeKind = "auto") -> VariableMDP:
    """Put the structured form of a problem with variable batching together.

    Parameters
    ----------
    nodes : {"auto", "quadrature", "exact"}
        Slack nodes, as of :func:`~ramsis.worker.structured.build_structured`.

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
        second = after_a_drop(problem)
        likely |= _after_drops(second)
    columns = _nearest(likely)
    states = np.flatnonzero(likely)
    if len(states) > MAX_LIKELY:
        raise InvalidValueError(
            describe("the problem is too large for variable batching", where="worker problem",
                     value=f"{len(states)} likely states",
                     allowed=f"up to {MAX_LIKELY}: a coarser grid, a smaller max_queue, or "
                             "maximal batching")
        )
    old = whole.continuation.tocoo()
    law: csr_array[np.float64] = csr_array(
        (old.data, (old.row, columns[whole.reached][old.col])),
        shape=(old.shape[0], len(states)),
    )
    whole = replace(whole, reached=np.divmod(states, problem.bins + 1), continuation=law)
    parts = parts_at(whole, columns, likely, second, lambda _: True)
    return VariableMDP(whole, columns, parts, second)


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
