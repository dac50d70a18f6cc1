"""Second opinions: the part of a policy file that states which requests get one, and when.

A request is *fresh* until a first model has answered it. If the confidence of this answer lies in
one of the lowest bins, the request is *unsure*, and waits for a second opinion by a larger model.
The first answer is kept, and sent, once a second opinion cannot be in time any more. There are two
queues by deadline, of fresh and of unsure requests: two that all workers share, or with round
robin two for each worker, which also gives the second opinions on its own first answers.

**The rule.** The numbers of waiting requests, ``fresh`` and ``unsure``, set the level from 0 to
L-1: level = ⌊fresh · levels_per_fresh + unsure · levels_per_unsure⌋. The level stands for the
price of worker time. When a worker is idle, the steps are, in this order:

1. As long as the slack of the head of the unsure queue is below the time of a batch of
   ``min(unsure, gather[level])``, the head keeps its first answer.
2. Let n be the largest number of second opinions that end within the slack of the head of the
   unsure queue. A batch of n runs if n is at least ``gather[level]``, or if the slack exceeds the
   time of the batch by at most ``last_call_ms``.
3. Otherwise fresh requests run, wait or are dropped by ``codes[level, fresh, slack bin of their
   head]``.
4. If the code is to wait, or no request is fresh, a batch of n second opinions runs if n is at
   least ``least[level]``.

A request whose first answer by model m comes at level l is unsure in the lowest
``unsure_bins[l, m]`` bins of m's confidence.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import FRACTION, Rule
from ramsis.fields import Fields
from ramsis.policy.table import compressed, expanded
from ramsis.records import Fraction, NonNegative, Positive, Whole, WrittenRecord
from ramsis.reprs import dataclass
from ramsis.runtime.cascade import CascadeTable, cascade_table

_CHANGE = Rule("a number from -1 to 1", lambda value: -1 <= value <= 1, "not a difference")


@dataclass(frozen=True, slots=True)
class CascadePromise(WrittenRecord):
    """Promise of a policy with second opinions, measured by simulation.

    Attributes
    ----------
    effective_accuracy, violation_rate
        Over all requests; a second opinion counts its stated increment.
    effective_half_width, violation_half_width
        Halves of their 95 % intervals, >= 0.
    second_opinions
        Share of the requests that are answered by a second opinion.
    response_mean_ms, response_p50_ms, response_p95_ms, response_p99_ms
        Time from arrival to answer.
    gain, gain_error
        Gain in effective accuracy over the policy without second opinions, on the same requests;
        and its standard error, by the samples that state increments and by simulation.
    upper_bound
        Bound on the effective accuracy of every scheduler that answers each request by one model
        or by a cascade of the profile's pairs. With Poisson arrivals and fixed service times it
        accounts for the time in which a batch gathers.
    queries, runs, seed
        Number of requests in all runs together, number of runs, and seed of the first run.
    """

    effective_accuracy: Fraction
    effective_half_width: NonNegative
    violation_rate: Fraction
    violation_half_width: NonNegative
    second_opinions: Fraction
    response_mean_ms: Positive
    response_p50_ms: Positive
    response_p95_ms: Positive
    response_p99_ms: Positive
    gain: Annotated[float, _CHANGE]
    gain_error: NonNegative
    upper_bound: Fraction
    queries: Annotated[int, Whole(1)]
    runs: Annotated[int, Whole(2)]
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Cascade:
    """Second opinions of a policy for a central queue, or for queues that are joined in turn.

    Attributes
    ----------
    second
        Index of the model of second opinions.
    levels_per_fresh, levels_per_unsure
        Levels for each request that waits, >= 0.
    step_ms
        Width of a slack bin, > 0.
    actions
        Model and batch of each action for fresh requests, shape (A, 2).
    codes
        Index of the action, -1 to wait, -2 to drop, shape (L, N, J); more than N fresh requests
        are treated as N.
    unsure_bins
        Bins of confidence in which a first answer is unsure, by level and model, shape (L, M).
    gather, least
        Least number of second opinions that run before fresh requests, and least number that run
        when no fresh request does; shape (L,), >= 1.
    last_call_ms
        Second opinions wait no longer if their slack exceeds the time of their batch by at most
        this, >= 0.
    second_ms
        Time that is planned for a batch of 1, 2, … second opinions, shape (B,), not falling.
    thresholds
        Edges of the bins of each model's confidence; empty for a model without confidences.
    share, increment
        Share of the requests in each bin, and the expected increase of accuracy by a second
        opinion there.
    promise
        Measured figures.
    """

    second: int
    levels_per_fresh: float
    levels_per_unsure: float
    step_ms: float
    actions: IntArray
    codes: IntArray
    unsure_bins: IntArray
    gather: IntArray
    least: IntArray
    last_call_ms: float
    second_ms: FloatArray
    thresholds: tuple[tuple[float, ...], ...]
    share: tuple[tuple[float, ...], ...]
    increment: tuple[tuple[float, ...], ...]
    promise: CascadePromise

    @property
    def levels(self) -> int:
        """Number of levels L."""
        return len(self.gather)

    def to_document(self) -> dict[str, Any]:
        """Return the object ``cascade`` of a policy file."""
        fields = self.table()._asdict()
        del fields["thresholds"], fields["confidence_bins"]
        return {
            **{"index" if name == "row_of" else name: value for name, value in fields.items()},
            "models": [{"thresholds": list(edges), "share": list(share), "increment": list(added)}
                       for edges, share, added in zip(self.thresholds, self.share, self.increment,
                                                      strict=True)],
            "promise": asdict(self.promise),
        }

    @classmethod
    def from_fields(cls, item: Fields, models: int, max_batch: int) -> Cascade:
        """Read the object ``cascade`` of a policy file with so many models.

        Raises
        ------
        InputFileError
            When it breaks the format, or a lookup could fail on it.
        """
        item.only(("second", "levels_per_fresh", "levels_per_unsure", "step_ms", "bins",
                   "actions", "rows", "index", "unsure_bins", "gather", "least", "last_call_ms",
                   "second_ms", "models", "promise"))
        table = cascade_table(item, models, max_batch)
        by_model = [cls._of_model(part, bins) for part, bins in zip(
            item.children("models"), table.confidence_bins, strict=True)]
        return cls(
            second=table.second, levels_per_fresh=table.levels_per_fresh,
            levels_per_unsure=table.levels_per_unsure, step_ms=table.step_ms,
            actions=np.array(table.actions), codes=expanded(table.rows, table.row_of, table.bins),
            unsure_bins=np.array(table.unsure_bins), gather=np.array(table.gather),
            least=np.array(table.least), last_call_ms=table.last_call_ms,
            second_ms=np.array(table.second_ms),
            thresholds=tuple(map(tuple, table.thresholds)),
            share=tuple(share for share, _ in by_model),
            increment=tuple(added for _, added in by_model),
            promise=CascadePromise.from_fields(item.child("promise")))

    @staticmethod
    def _of_model(part: Fields, bins: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Read a model's share and increment by bin; empty where it has no confidences."""
        part.only(("thresholds", "share", "increment"))
        if not bins:
            return (), ()
        return (tuple(part.numbers("share", FRACTION)),
                tuple(part.numbers("increment", _CHANGE, bins)))

    def table(self) -> CascadeTable:
        """Return the second opinions in the form that decisions at run time look up."""
        rows, index = compressed(self.codes)
        return CascadeTable(
            second=int(self.second), levels_per_fresh=float(self.levels_per_fresh),
            levels_per_unsure=float(self.levels_per_unsure), step_ms=float(self.step_ms),
            bins=self.codes.shape[2], actions=self.actions.tolist(), rows=rows, row_of=index,
            unsure_bins=self.unsure_bins.tolist(), gather=self.gather.tolist(),
            least=self.least.tolist(), last_call_ms=float(self.last_call_ms),
            second_ms=self.second_ms.tolist(),
            thresholds=self.thresholds, confidence_bins=tuple(map(len, self.share)))
