"""The structured form with variable batching: slack nodes and sparse rows.

A batch of the whole queue leads through the slack nodes
(:mod:`ramsis.worker.structure.structured`), as with maximal batching; a batch of part of it, or a
drop, straight to the next state, by a sparse row (:mod:`ramsis.worker.structure.partial_actions`).
So with V the value of a state and u that of a node,

    Q(s, whole batch) = reward − gain·cost + Σ_r w(s, r)·h_l(r)
    Q(s, part)        = reward − gain·(cost + excess) + Σ_s' P(s' | s, part)·V(s').

The states are the likely ones (:mod:`ramsis.worker.structure.likely_states`). In the other states
of the table batches of the whole queue compete with those of the fastest model only, with the
values that follow from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import InvalidValueError
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.problem.actions import LateRule
from ramsis.worker.structure.likely_states import (
    likely_after_drops,
    likely_states,
    representatives,
)
from ramsis.worker.structure.partial_actions import (
    PartialActions,
    maximise_over,
    partial_actions,
    slack_after_drop,
)
from ramsis.worker.structure.structured import Backup, NodeKind, StructuredMDP, build_structured

MAX_LIKELY = 12_000
"""Most likely states: a policy's chain between them is one dense matrix."""
_ROUNDING = 1e-11  # relative gain below which the incumbent action stays
_FILL_SWEEPS = 200
_FILLED = 1e-9  # relative change of values at which filling ends


@dataclass(frozen=True, eq=False)
class VariableMDP:
    """A worker problem with variable batching; made by :func:`build_variable`."""

    # the slack nodes; its ``reached`` are the S likely states, the full one last
    whole: StructuredMDP
    columns: IntArray  # the likely state that represents each state, shape (N+1, D+1)
    partial: PartialActions  # at the likely states
    # shape (N+1, D+1, D+1): distribution of the bin after a drop, where there are drops
    after_drop: FloatArray | None

    @property
    def problem(self) -> WorkerProblem:
        """Decision problem that this is a form of."""
        return self.whole.problem

    @cached_property
    def likely(self) -> IntArray:
        """The S likely states as (n − 1)·(D+1) + j."""
        n, j = self.whole.reached
        return n * (self.problem.bins + 1) + j

    @property
    def excess_cost(self) -> float:
        """Return the cost of a request beyond the table."""
        return float(self.problem.charges_excess)

    def backup(self, value: FloatArray, gain: float, incumbent: IntArray) -> Backup:
        """Back up every likely state from the values of the likely states, shape (S,)."""
        codes = self.problem.with_full_state(incumbent)
        best, arg, kept = self._whole_queues(value, gain, codes)
        q = self._partial_values(self.partial, value, gain)
        maximise_over(self.partial, q, best.ravel(), arg.ravel())
        chosen = codes.ravel()[self.partial.state] == self.partial.code
        kept.ravel()[self.partial.state[chosen]] = q[chosen]
        at = self.whole.reached
        change = best[at] > kept[at] + _ROUNDING * (1.0 + np.abs(best[at]))
        codes[at] = np.where(change, arg[at], codes[at])
        return Backup(best, codes[:-1], kept)

    def _whole_queues(
        self, value: FloatArray, gain: float, codes: IntArray
    ) -> tuple[FloatArray, IntArray, FloatArray]:
        """Return best value and action among whole queues, and the value of ``codes``."""
        whole, problem = self.whole, self.problem
        price = gain + problem.violation_price
        node_value = np.asarray(whole.continuation @ value) - price * whole.charged_excess
        service_values = whole.service_values(node_value)
        best = np.full(codes.shape, -np.inf)
        kept, arg = best.copy(), codes.copy()
        for n, actions in enumerate(problem.actions.by_queue):
            for action in actions:
                if action.drops or action.batch <= n:
                    continue
                span = action.bins
                q = (problem.reward(action) - gain * problem.cost(action.batch)
                     + whole.phase[n, span] @ service_values[action.service])
                better, incumbent = q > best[n, span], codes[n, span] == action.code
                best[n, span][better] = q[better]
                arg[n, span][better] = action.code
                kept[n, span][incumbent] = q[incumbent]
        return best, arg, kept

    def _partial_values(
        self, partial: PartialActions, value: FloatArray, gain: float
    ) -> FloatArray:
        price = (gain + self.problem.violation_price) * self.excess_cost
        q: FloatArray = (partial.reward - gain * partial.cost - price * partial.excess
                         + partial.transition @ value)
        return q

    def fill(self, value: FloatArray, gain: float, policy: IntArray) -> IntArray:
        """Extend a policy to unlikely states by their best actions.

        There whole queues compete with parts on the fastest model, until the values converge or
        ``_FILL_SWEEPS`` are done.
        """
        problem = self.problem
        codes = problem.with_full_state(policy)
        best, arg, _ = self._whole_queues(value, gain, codes)
        elsewhere = np.ones(best.size, dtype=bool)
        elsewhere[self.likely] = False
        elsewhere[-(problem.bins + 1) :] = False  # the full state's row
        every = np.arange(best.size).reshape(best.shape)
        every[-1] = every[-1, 0]
        partial = partial_actions(
            self.whole, every, elsewhere.reshape(best.shape), self.after_drop,
            lambda action: action.drops or action.model == problem.latency.fastest)
        start, whole_arg = best.ravel(), arg.ravel()
        values = np.where(np.isfinite(start), start, value.min())
        values[self.likely] = value
        for _ in range(_FILL_SWEEPS):
            q = self._partial_values(partial, values[: partial.transition.shape[1]], gain)
            improved, chosen = start.copy(), whole_arg.copy()
            maximise_over(partial, q, improved, chosen)
            improved[~elsewhere] = values[~elsewhere]
            change = np.abs(improved[elsewhere] - values[elsewhere]).max(initial=0.0)
            values = improved
            if change < _FILLED * (1.0 + np.abs(values[self.likely]).max()):
                break
        filled = codes.ravel().copy()
        filled[elsewhere] = chosen[elsewhere]
        return filled.reshape(codes.shape)[:-1]


def build_variable(problem: WorkerProblem, nodes: NodeKind = "auto") -> VariableMDP:
    """Build the structured form of a problem with variable batching.

    Parameters
    ----------
    nodes : {"auto", "quadrature", "exact"}
        Slack nodes, as of :func:`~ramsis.worker.structure.structured.build_structured`.
    """
    whole = build_structured(problem, nodes)
    likely = likely_states(problem)
    likely[whole.reached] = True
    after_drop = None
    if problem.late is LateRule.DROP:
        after_drop = slack_after_drop(problem)
        likely |= likely_after_drops(after_drop)
    columns = representatives(likely)
    states = np.flatnonzero(likely)
    if len(states) > MAX_LIKELY:
        raise InvalidValueError(
            "the problem is too large for variable batching", where="worker problem",
            value=f"{len(states)} likely states",
            allowed=f"up to {MAX_LIKELY}: a coarser grid, a smaller max_queue, or "
            "maximal batching")
    among = columns[whole.reached]
    late = whole.late and whole.late._replace(
        others=_onto_likely(whole.late.others, among, len(states)))
    whole = replace(whole, reached=np.divmod(states, problem.bins + 1),
                    continuation=_onto_likely(whole.continuation, among, len(states)), late=late)
    partial = partial_actions(whole, columns, likely, after_drop, lambda _: True)
    return VariableMDP(whole, columns, partial, after_drop)


def _onto_likely(
    transition: csr_array[np.float64], columns: IntArray, states: int
) -> csr_array[np.float64]:
    """Redirect transitions to the likely states that represent their targets."""
    old = transition.tocoo()
    likely_only: csr_array[np.float64] = csr_array((old.data, (old.row, columns[old.col])),
                                                   shape=(old.shape[0], states))
    return likely_only
