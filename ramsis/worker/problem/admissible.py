"""The admissible actions of every state.

With n queued and slack T_j of the head, a batch of b requests on model m is admissible when it may
be in time for the head: l(m, b) <= T_j where service times are fixed, P(L(m, b) <= T_j) > 0 where
they are random. With maximal batching b = n; with variable batching 1 <= b <= n. Where no batch of
the whole queue is admissible the head is late, and the late rule says what may be done
(:class:`~ramsis.worker.problem.actions.LateRule`; EuroSys '24, §4.1-4.3). The full state has the
late actions only.

The expected number of requests in time, of a batch of b with P(L <= T_j) = F(j), is

    b·F(j)                            fixed times: all or none;
    F(j) + Σ_j' waiting(j')·F(j')     random ones: waiting(j') of the b − 1 others have slack T_j',

with ``waiting`` as in :mod:`ramsis.worker.problem.waiting_slack` for the whole queue and as in
:mod:`ramsis.worker.problem.partial_batch` for its first requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from ramsis.arrays import FloatArray
from ramsis.worker.problem.actions import DROP, Action, ActionSet, Batching, LateRule
from ramsis.worker.problem.partial_batch import waiting_in_partial_batch
from ramsis.worker.problem.queue import WorkerQueue
from ramsis.worker.problem.round_robin_phase import phase_distribution
from ramsis.worker.problem.waiting_slack import waiting_by_slack


def admissible_actions(queue: WorkerQueue, late: LateRule, batching: Batching) -> ActionSet:
    """List the actions of all states, the fastest first for each batch size."""
    maker = _Maker(queue, late, batching)
    return ActionSet(
        tuple(maker.actions(n) for n in range(1, queue.max_queue + 2)), len(queue.slack_ms)
    )


@dataclass(frozen=True, eq=False)
class _Maker:
    """Enumeration of the actions of a queue under a late rule and a way of batching."""

    queue: WorkerQueue
    late: LateRule
    batching: Batching

    def actions(self, queued: int) -> tuple[Action, ...]:
        """List the actions on a queue: batches that may be in time, and a late action or a drop.

        The late action comes first and is for the bins where no batch of the whole queue may be in
        time; the drop comes last and is for all bins.
        """
        full = queued > self.queue.max_queue
        chances = {m: self.queue.in_time_probability(m, queued) for m in self._models(queued)}
        whole = () if full else tuple(self._whole(queued, chances))
        partial = () if full else tuple(self._partial(queued))
        top = len(self.queue.slack_ms)
        if self.late is LateRule.DROP:
            none = np.zeros(top)
            return (*whole, *partial, Action(DROP, -1, 1, -1, 0, top, none, none))
        first_in_time = min((action.first_bin for action in whole), default=top)
        if not first_in_time:
            return (*whole, *partial)
        fastest = self.queue.latency.fastest
        late = self._batch(queued, (fastest, queued), (0, first_in_time),
                           chances.get(fastest, np.zeros(top)))
        return (late, *whole, *partial)

    def _models(self, batch: int) -> list[int]:
        """List the models that may be in time for some slack, the fastest first."""
        latency = self.queue.latency
        return sorted(self.queue.possible_models[batch], key=lambda m: (
            latency.latency_ms[m, batch - 1], -latency.accuracy[m]))

    def _whole(self, queued: int, chances: dict[int, FloatArray]) -> Iterator[Action]:
        """Yield batches of the whole queue that may be in time, given chances by model and bin."""
        top = len(self.queue.slack_ms)
        for m, probability in chances.items():
            first = self.queue.first_bin(m, queued)
            if first < top:
                yield self._batch(queued, (m, queued), (first, top), probability)

    def _partial(self, queued: int) -> Iterator[Action]:
        """Yield batches of part of the queue that may be in time, the fastest of a size first."""
        top, latency = len(self.queue.slack_ms), self.queue.latency.latency_ms
        for batch in self.batching.parts(queued):
            for m in sorted(self.queue.possible_models[batch], key=latency[:, batch - 1].item):
                probability = self.queue.in_time_probability(m, batch)
                first = self.queue.first_bin(m, batch)
                if first < top:
                    yield self._batch(queued, (m, batch), (first, top), probability)

    def _batch(
        self, queued: int, run: tuple[int, int], bins: tuple[int, int], probability: FloatArray
    ) -> Action:
        """Build the action that runs (model, batch) at bins[0] <= j < bins[1]."""
        (model, batch), span = run, slice(*bins)
        in_time = self._in_time(queued, run, probability)
        code = model + len(self.queue.latency.models) * (queued - batch)
        return Action(code, model, batch, self.queue.services.row[model, batch], *bins,
                      in_time[span], probability[span])

    def _in_time(
        self, queued: int, run: tuple[int, int], probability: FloatArray
    ) -> FloatArray:
        """Compute the expected number of requests that (model, batch) answers in time, (D+1,)."""
        model, batch = run
        if queued > self.queue.max_queue:
            return np.zeros(len(probability))
        if self._waiting is None or batch == 1:
            return batch * probability
        if not probability.any():
            return np.zeros(len(probability))
        if batch == queued:
            waiting = self._waiting[batch - 1]
            return self.queue.of_batch("in time", model, batch,
                                       lambda: np.asarray(probability + waiting @ probability))
        rows = slice((queued - 1) * len(probability), queued * len(probability))
        partial: FloatArray = probability + self._waiting_in_part[batch - 1][rows] @ probability
        return partial

    @cached_property
    def _waiting(self) -> FloatArray | None:
        """Expected numbers of requests behind the head by slack; None if times are fixed."""
        queue = self.queue
        if queue.quantiles_ms is None:
            return None
        return queue.once("waiting by slack", queue.max_queue,
                          lambda: waiting_by_slack(queue, queue.max_queue))

    @cached_property
    def _waiting_in_part(self) -> list[csr_array[np.float64]]:
        """Expected numbers of requests behind the head in partial batches, by slack and size."""
        queue = self.queue
        largest = max(b for b in range(1, queue.max_queue + 1) if queue.possible_models[b])
        return waiting_in_partial_batch(queue, phase_distribution(queue),
                                        min(largest, queue.max_queue - 1))
