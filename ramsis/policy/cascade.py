"""Second opinions: the part of a policy file that says who gets one, and when.

A request is *fresh* until a first model has answered it. Where that model's confidence lies in one
of the lowest bins the request is *unsure*, and waits for a second opinion by a larger model. The
first answer stands, and is sent, once a second one cannot be in time. All workers share the queue
of fresh requests and that of unsure ones, both by deadline.

**The rule.** What waits sets the level, from 0 to L-1: level = ⌊fresh · levels_per_fresh + unsure
· levels_per_unsure⌋. It stands for the price of worker time. With an idle worker, in this order:

1. Heads of the unsure queue whose slack is below the time of a batch of ``min(unsure,
   gather[level])`` keep their first answers.
2. Second opinions run, as many as end within the slack of the head, where these are
   ``gather[level]`` or more, or where the head's slack exceeds the time of that batch by no more
   than ``last_call_ms``.
3. Else fresh requests run as ``codes[level, fresh, slack of their head]`` says.
4. Where that waits, or no request is fresh, second opinions run if they are ``least[level]`` or
   more.

A request whose first answer by model m comes at level l is unsure in the lowest
``unsure_bins[l, m]`` bins of m's confidence.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import FINITE, FRACTION, NON_NEGATIVE, POSITIVE, Rule
from ramsis.policy.table import compressed, expanded
from ramsis.reprs import dataclass
from ramsis.runtime.fields import Fields
from ramsis.runtime.records import Fraction, NonNegative, Positive, Whole, WrittenRecord
from ramsis.runtime.table import DROP_CODE, WAIT_CODE

_CHANGE = Rule("a number from -1 to 1", lambda value: -1 <= value <= 1, "not a difference")
_ARRAYS = ("unsure_bins", "gather", "least")


@dataclass(frozen=True, slots=True)
class CascadePromise(WrittenRecord):
    """What a policy delivers with second opinions, measured by simulation.

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
        What second opinions add to the effective accuracy of the policy without them, on the same
        requests; and its standard error, by the samples that state increments and by simulation.
    upper_bound
        Effective accuracy that no scheduler passes that answers each request by one model or by a
        cascade of the profile's pairs, if known.
    queries, runs, seed
        Requests in all, runs, and the seed of the first.
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
    upper_bound: Fraction | None
    queries: Annotated[int, Whole(1)]
    runs: Annotated[int, Whole(2)]
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Cascade:
    """Second opinions of a policy for a central queue.

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
        Second opinions that are worth a batch of their own, and those that are run when no fresh
        request is; shape (L,), >= 1.
    last_call_ms
        Slack beyond the batch with which second opinions wait no longer, >= 0.
    second_ms
        Time that is planned for a batch of 1, 2, … second opinions, shape (B,), not falling.
    thresholds
        Edges of the bins of each model's confidence; none where it answers without.
    share, increment
        Share of the requests in each of these bins, and what a second opinion adds to the
        accuracy there.
    promise
        What it delivers.
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
        rows, index = compressed(self.codes)
        return {
            "second": int(self.second),
            "levels_per_fresh": float(self.levels_per_fresh),
            "levels_per_unsure": float(self.levels_per_unsure),
            "step_ms": float(self.step_ms), "bins": int(self.codes.shape[2]),
            "actions": self.actions.tolist(), "rows": rows, "index": index,
            **{name: getattr(self, name).tolist() for name in _ARRAYS},
            "last_call_ms": float(self.last_call_ms), "second_ms": self.second_ms.tolist(),
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
                   "actions", "rows", "index", *_ARRAYS, "last_call_ms", "second_ms", "models",
                   "promise"))
        bins, levels = item.whole("bins", 1, 100_000), len(item.items("gather"))
        pairs = item.entries("actions")
        actions = [pairs.wholes(key, 0, length=2) for key in pairs]
        for key, (model, batch) in zip(pairs, actions, strict=True):
            if not (model < models and 1 <= batch <= max_batch):
                raise pairs.refusal(key, "no such action", value=[model, batch],
                                    allowed=f"a model from 0 to {models - 1} and a batch from 1 "
                                    f"to {max_batch}")
        rows = _rows(item, bins, len(actions))
        lines = item.entries("index", levels)
        queued = len(item.items("index")[0]) if isinstance(item.items("index")[0], list) else 1
        index = [lines.wholes(key, 0, len(rows) - 1, queued) for key in lines]
        batches = np.array([batch for _, batch in actions])
        codes = expanded(rows, index, bins)
        too_large = (batches[codes] > 1 + np.arange(queued)[:, None]) & (codes >= 0)
        if too_large.any():
            level, row, _ = np.argwhere(too_large)[0].tolist()
            raise item.refusal(f"index[{level}][{row}]", "a batch of more requests than wait",
                               value=index[level][row], allowed=f"batches up to {row + 1}")
        if (codes[:, :, 0] == WAIT_CODE).any():
            level, row = np.argwhere(codes[:, :, 0] == WAIT_CODE)[0].tolist()
            raise item.refusal(f"index[{level}][{row}]", "waits without slack",
                               value=index[level][row], allowed="an action, or -2 to drop, in the "
                               "first bin")
        per_level = item.entries("unsure_bins", levels)
        by_model = [cls._of_model(part) for part in item.children("models")]
        if len(by_model) != models:
            raise item.refusal("models", "not an entry for each model", value=len(by_model),
                               allowed=f"{models} entries")
        second_ms = item.numbers("second_ms", POSITIVE)
        if any(np.diff(second_ms) < 0):
            raise item.refusal("second_ms", "times fall", value=second_ms,
                               allowed="times that do not fall")
        return cls(
            second=item.whole("second", 0, models - 1),
            levels_per_fresh=item.number("levels_per_fresh", NON_NEGATIVE),
            levels_per_unsure=item.number("levels_per_unsure", NON_NEGATIVE),
            step_ms=item.number("step_ms", POSITIVE), actions=np.array(actions), codes=codes,
            unsure_bins=np.array([per_level.wholes(key, 0, length=models) for key in per_level]),
            gather=np.array(item.wholes("gather", 1, len(second_ms), levels)),
            least=np.array(item.wholes("least", 1, length=levels)),
            last_call_ms=item.number("last_call_ms", NON_NEGATIVE),
            second_ms=np.array(second_ms),
            thresholds=tuple(edges for edges, _, _ in by_model),
            share=tuple(share for _, share, _ in by_model),
            increment=tuple(added for _, _, added in by_model),
            promise=CascadePromise.from_fields(item.child("promise")))

    @staticmethod
    def _of_model(part: Fields) -> tuple[tuple[float, ...], ...]:
        """Read thresholds, shares and increments of a model; all empty where it has none."""
        part.only(("thresholds", "share", "increment"))
        if part.value("share") == []:
            return (), (), ()
        share = part.numbers("share", FRACTION)
        edges = part.numbers("thresholds", FINITE, len(share) - 1)
        if any(np.diff(edges) <= 0):
            raise part.refusal("thresholds", "not rising", value=edges)
        return tuple(edges), tuple(share), tuple(part.numbers("increment", _CHANGE, len(share)))


def _rows(item: Fields, bins: int, actions: int) -> list[list[int]]:
    """Read rows, each pairs of a slack bin and the code from there on."""
    entries, rows = item.entries("rows"), []
    for key in entries:
        row = entries.wholes(key, DROP_CODE, max(bins, actions) - 1)
        starts, codes = row[::2], row[1::2]
        if (len(row) % 2 or starts[0] != 0 or any(np.diff(starts) <= 0) or starts[-1] >= bins
                or max(codes) >= actions or min(starts) < 0):
            raise entries.refusal(key, "not pairs of a rising slack bin, from 0, and a code",
                                  value=row, allowed=f"bins below {bins}; an action from 0 to "
                                  f"{actions - 1}, {WAIT_CODE} to wait, {DROP_CODE} to drop")
        rows.append(row)
    return rows
