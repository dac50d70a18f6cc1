"""Decision tables as the arrays that compiled kernels read.

For each load level a table maps (idle workers, queue length, slack bin) to an action, as a policy
does; a scheduler that decides by load, queue length and slack alone has one row for all numbers of
idle workers. The level for a load is the lowest level at or above it, or else the highest level,
as in :class:`ramsis.runtime.PolicySet`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ramsis.compiling import uniform
from ramsis.policy import DISPATCHES, Cascade, Policy, encoded
from ramsis.runtime.table import AS_LAST_CODE, SLACK_TOLERANCE_MS
from ramsis.sim.engine import SchedulerError

_BUCKETS_PER_BIN = 4
_ANY_LENGTH = np.iinfo(np.int64).max


class Tables(NamedTuple):
    """Tables of L load levels, padded to common shapes."""

    load_qps: NDArray[np.float64]  # rising, shape (L,)
    # shape (L,): longest queue in a level's table; :data:`_ANY_LENGTH` if its last row is for all
    # longer queues
    longest: NDArray[np.int64]
    # row by number of idle workers, or queue length; unused at 0; the last entry is also for
    # higher numbers; shape (L, K+1), (L, N+1)
    idle_row: NDArray[np.int32]
    queue_row: NDArray[np.int32]
    # shape (L, J+1): least slack of each slack bin; infinite beyond a level's last
    slack_ms: NDArray[np.float64]
    per_ms: NDArray[np.float64]  # buckets of ``first_bin`` per ms of slack, shape (L,)
    # shape (L, G): for each of G buckets of slack, the lowest bin of a slack in the bucket
    first_bin: NDArray[np.int64]
    answer: NDArray[np.int16]  # an action's index, -1 to wait, -2 to drop, shape (L, I, N, J)
    # model, batch: of each action, shape (L, A)
    model: NDArray[np.int16]
    batch: NDArray[np.int16]
    longer: NDArray[np.int64]  # answer to a queue above ``longest``, as in ``answer``, shape (L,)


class CascadeTables(NamedTuple):
    """The rule of a cascade, with the models of a fleet by index."""

    model: NDArray[np.int16]  # of the batch of fresh requests, shape (L, N, J)
    batch: NDArray[np.int16]  # its size; 0 to drop the head, -1 to wait, shape (L, N, J)
    unsure_bins: NDArray[np.int64]  # shape (L, M)
    upto: NDArray[np.float64]  # share of the requests up to each bin of confidence, shape (M, Q)
    gather: NDArray[np.int64]  # shape (L,)
    least: NDArray[np.int64]  # shape (L,)
    # planned time of a batch of second opinions, shape (B+1,), 0 first
    second_ms: NDArray[np.float64]
    second: int  # the model of second opinions
    levels_per_fresh: float
    levels_per_unsure: float
    step_ms: float  # width of a slack bin
    last_call_ms: float


class PlacedCascade(NamedTuple):
    """A cascade with the models of a fleet by index."""

    tables: CascadeTables
    increment: NDArray[np.float64]  # shape (M, Q)

    @classmethod
    def of(cls, cascade: Cascade, index: Sequence[int], models: int) -> PlacedCascade:
        """Return the tables of a cascade; ``index`` is the fleet's index of each of its models."""
        pairs = np.vstack([cascade.actions, [[0, 0], [0, -1]]])  # the last for -2 and -1
        pairs[: len(cascade.actions), 0] = np.asarray(index)[cascade.actions[:, 0]]
        chosen = pairs[cascade.codes]
        bins = max(1, *map(len, cascade.share))
        upto, increment = np.ones((models, bins)), np.zeros((models, bins))
        unsure = np.zeros((cascade.levels, models), dtype=np.int64)
        for place, share, added, edge in zip(index, cascade.share, cascade.increment,
                                             cascade.unsure_bins.T, strict=True):
            if share:
                upto[place, : len(share)] = np.cumsum(share)
                increment[place, : len(share)] = added
            unsure[:, place] = np.minimum(edge, len(share))
        return cls(uniform(CascadeTables(
            model=chosen[..., 0].astype(np.int16), batch=chosen[..., 1].astype(np.int16),
            unsure_bins=unsure, upto=upto, gather=cascade.gather.astype(np.int64),
            least=cascade.least.astype(np.int64), second_ms=np.append(0.0, cascade.second_ms),
            second=int(index[cascade.second]), levels_per_fresh=float(cascade.levels_per_fresh),
            levels_per_unsure=float(cascade.levels_per_unsure), step_ms=float(cascade.step_ms),
            last_call_ms=float(cascade.last_call_ms))), increment)


@dataclass(frozen=True)
class Compiled:
    """Scheduler in the form of arrays that compiled kernels can run."""

    dispatch: str  # the dispatch rule, by which the kernel is chosen
    tables: Tables
    slowness: float = 1.0  # service time as a multiple of what the tables assume
    # second opinions of each level, by rising load; none where no level has any
    cascades: tuple[PlacedCascade | None, ...] = ()

    @property
    def central(self) -> bool:
        """Whether the kernel is the central queue, whose requests may have different SLOs."""
        return not DISPATCHES[self.dispatch].own_queues

    @property
    def in_turn(self) -> bool:
        """Whether requests join the workers' own queues in turn."""
        return DISPATCHES[self.dispatch].own_queues and DISPATCHES[self.dispatch].in_turn

    def check(self, models: int, max_batch: int) -> None:
        """Refuse tables with models or batches that a fleet lacks: kernels do not check bounds."""
        for what, held, most in (("model", self.tables.model, models - 1),
                                 ("batch", self.tables.batch, max_batch)):
            if held.max() > most or held.min() < 0:
                raise SchedulerError(f"no such {what}", where="tables of the scheduler",
                                     value=int(held.max()), allowed=f"at most {most}")


class Level(NamedTuple):
    """Level of :class:`Tables`: a load, and its table with the axes of a policy."""

    load_qps: float
    idle: ArrayLike  # numbers of idle workers with a row, rising from 0, shape (I+1,)
    queued: ArrayLike  # queue lengths with a row, rising from 0, shape (N+1,)
    slack_ms: ArrayLike  # shape (J,)
    # an action's index, -1 to wait, -2 to drop; none for no idle worker or an empty queue, as
    # nothing is decided there; shape (I, N, J)
    codes: NDArray[np.int64]
    actions: NDArray[np.int64]  # the fleet's model and the batch of each action, shape (A, 2)
    longer: int  # code for a queue above the last length; AS_LAST_CODE for those of its row


def level_of(policy: Policy, index: Sequence[int]) -> Level:
    """Return the table of a policy.

    ``index`` is the fleet's index of each of the policy's models.
    """
    actions = np.stack([np.asarray(index)[policy.actions[:, 0]], policy.actions[:, 1]], axis=1)
    level = Level(policy.load_qps, policy.idle_levels, policy.queue_levels, policy.slack_ms,
                  policy.codes, actions, policy.longer_queue)
    if not policy.rule.own_queues or level.longer == AS_LAST_CODE:
        return level
    # The worker of a queue of its own is idle when it is asked, so a row says the same.
    row = np.full((1, 1, policy.codes.shape[2]), level.longer)
    return level._replace(queued=np.append(policy.queue_levels, policy.max_queue + 1),
                          codes=np.concatenate([policy.codes, row], axis=1), longer=AS_LAST_CODE)


def any_idle_level(
    load_qps: float, slack_ms: ArrayLike, model: ArrayLike, batch: ArrayLike
) -> Level:
    """Return a table that is the same for all numbers of idle workers.

    ``model`` and ``batch``, (N, J), are for queues of 1, 2, … N requests, the last row also for
    longer ones. A batch of 0 drops the earliest request.
    """
    actions, codes, _ = encoded(model, batch, (0, 0))
    return Level(load_qps, (0, 1), np.arange(codes.shape[1] + 1), slack_ms, codes, actions,
                 AS_LAST_CODE)


def stack(levels: Iterable[Level]) -> Tables:
    """Return the tables of all levels, by rising load, as one set of arrays."""
    ordered = sorted(levels, key=lambda level: level.load_qps)
    count, actions = len(ordered), max(len(level.actions) for level in ordered)
    last = np.array([(np.max(level.idle), np.max(level.queued)) for level in ordered])
    idle_row, queue_row = (np.zeros((count, most + 1), dtype=np.int32)
                           for most in last.max(axis=0))
    shape = np.max([level.codes.shape for level in ordered], axis=0)
    answer = np.zeros((count, *shape), dtype=np.int16)
    slack, per_ms = np.full((count, shape[2] + 1), np.inf), np.zeros(count)
    first_bin = np.zeros((count, _BUCKETS_PER_BIN * shape[2] + 2), dtype=np.int64)
    model, batch = np.zeros((2, count, actions), dtype=np.int16)
    for i, level in enumerate(ordered):
        codes, edges = level.codes, np.asarray(level.slack_ms, dtype=float)
        # The least slack of each bin has the tolerance of lookups at run time.
        edges = np.where(edges > 0.0, edges - SLACK_TOLERANCE_MS, edges)
        slack[i, : len(edges)] = edges
        if len(edges) > 1:
            per_ms[i] = (first_bin.shape[1] - 2) / edges[-1]
            # One bucket back, so that rounding can never start above the right bin.
            low_ms = (np.arange(first_bin.shape[1]) - 1) / per_ms[i]
            first_bin[i] = np.maximum(np.searchsorted(edges, low_ms, side="right") - 1, 0)
        answer[i, : codes.shape[0], : codes.shape[1], : codes.shape[2]] = codes
        for row, axis in ((idle_row, level.idle), (queue_row, level.queued)):
            row[i] = np.searchsorted(axis, np.arange(row.shape[1]), side="right") - 2
        model[i, : len(level.actions)], batch[i, : len(level.actions)] = level.actions.T
    longer = np.array([level.longer for level in ordered])
    return Tables(
        load_qps=np.array([level.load_qps for level in ordered], dtype=float),
        longest=np.where(longer == AS_LAST_CODE, _ANY_LENGTH, last[:, 1]),
        idle_row=idle_row, queue_row=queue_row, slack_ms=slack, per_ms=per_ms,
        first_bin=first_bin, answer=answer, model=model, batch=batch, longer=longer)
