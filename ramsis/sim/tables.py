"""Decision tables as the arrays that compiled kernels read.

For each load level, :class:`Tables` map (queue length, slack bin) to (model, batch), with one
answer for all longer queues: policies for queues of single workers have this form. Policies of a
central queue decide by the number of idle workers, too (:class:`CentralTables`); a scheduler that
decides by load, queue length and slack alone has one row for all numbers of idle workers. The
level for a load is the lowest level at or above it, or else the highest level, as in
:class:`ramsis.runtime.PolicySet`.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """Tables of L load levels for queues without idle counts, padded to common shapes."""

    load_qps: NDArray[np.float64]  # rising; the last may be infinite, shape (L,)
    rows: NDArray[np.int64]  # longest queue with a row of its own, by level, shape (L,)
    # shape (L,): row of longer queues: the row after those, or the last of them
    last: NDArray[np.int64]
    # shape (L, J+1): least slack of each slack bin; infinite beyond a level's last
    slack_ms: NDArray[np.float64]
    per_ms: NDArray[np.float64]  # buckets of ``first_bin`` per ms of slack, shape (L,)
    # shape (L, G): for each of G buckets of slack, the lowest bin of a slack in the bucket
    first_bin: NDArray[np.int64]
    # model, batch: shape (L, N+1, J); a batch of 0 drops the earliest request
    model: NDArray[np.int16]
    batch: NDArray[np.int16]


class CentralTables(NamedTuple):
    """Tables of central queues for L load levels, padded to common shapes."""

    load_qps: NDArray[np.float64]  # rising, shape (L,)
    # shape (L,): longest queue in a level's table; :data:`_ANY_LENGTH` if its last row is for all
    # longer queues
    longest: NDArray[np.int64]
    # row by number of idle workers, or queue length; unused at 0; the last entry is also for
    # higher numbers; shape (L, K+1), (L, N+1)
    idle_row: NDArray[np.int32]
    queue_row: NDArray[np.int32]
    # shape (L, J): least slack of each slack bin; infinite beyond a level's last
    slack_ms: NDArray[np.float64]
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
        """Return the tables of a cascade.

        Parameters
        ----------
        index : sequence of int
            The fleet's index of each model of the policy.
        models : int
            Models of the fleet.
        """
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
    """A scheduler that kernels can run."""

    kernel: str  # the dispatch rule
    tables: Tables | CentralTables
    slowness: float = 1.0  # service time as a multiple of what the tables assume
    # second opinions of each level, by rising load; none where no level has any
    cascades: tuple[PlacedCascade | None, ...] = ()

    @property
    def central(self) -> bool:
        """Whether the kernel is the central queue, whose requests may have different SLOs."""
        return self.kernel == "central-queue"

    @property
    def in_turn(self) -> bool:
        """Whether requests join the workers' own queues in turn."""
        return self.kernel == "round-robin"

    def check(self, models: int, max_batch: int) -> None:
        """Refuse tables with models or batches that a fleet lacks: kernels do not check bounds.

        Raises
        ------
        SchedulerError
            No such model, or no such batch.
        """
        for what, held, most in (("model", self.tables.model, models - 1),
                                 ("batch", self.tables.batch, max_batch)):
            if held.max() > most or held.min() < 0:
                raise SchedulerError(f"no such {what}", where="tables of the scheduler",
                                     value=int(held.max()), allowed=f"at most {most}")


class TableOfLevel(NamedTuple):
    """One level: a load, and its table, (N, J), as in :class:`Tables`.

    ``overflow`` is model and batch for a longer queue; a batch of 0 stands for those of the last
    row, and one of −1 drops the earliest request.
    """

    load_qps: float
    slack_ms: ArrayLike
    model: ArrayLike
    batch: ArrayLike
    overflow: tuple[int, int]


def level_of(policy: Policy, index: Sequence[int]) -> TableOfLevel:
    """Return the table of a policy for queues of single workers.

    ``index`` is the fleet's index of each of the policy's models.
    """
    actions = [(index[m], batch) for m, batch in policy.actions.tolist()]
    as_last = policy.longer_queue == AS_LAST_CODE
    padded = np.array([*actions, (0, 0)])  # the last for code -2, in place of -1
    cells = padded[np.maximum(policy.codes[0], -1)]
    model, batch = actions[policy.longer_queue] if policy.longer_queue >= 0 else (0, 0)
    return TableOfLevel(policy.load_qps, policy.slack_ms, cells[..., 0], cells[..., 1],
                        (model, batch if batch or as_last else -1))


def stack(levels: Sequence[TableOfLevel]) -> Tables:
    """Return the tables of all levels, by rising load, as one set of arrays."""
    ordered = sorted(levels, key=lambda level: level.load_qps)
    count = len(ordered)
    shapes = [np.shape(level.model) for level in ordered]
    rows, bins = (max(shape[axis] for shape in shapes) for axis in (0, 1))
    buckets = _BUCKETS_PER_BIN * bins + 2
    slack = np.full((count, bins + 1), np.inf)
    first_bin = np.zeros((count, buckets), dtype=np.int64)
    per_ms = np.zeros(count)
    model, batch = (np.zeros((count, rows + 1, bins), dtype=np.int16) for _ in range(2))
    for i, (level, shape) in enumerate(zip(ordered, shapes, strict=True)):
        edges = _reached_from(level.slack_ms)
        slack[i, : len(edges)] = edges
        model[i, : shape[0], : shape[1]] = level.model
        batch[i, : shape[0], : shape[1]] = level.batch
        model[i, shape[0]], batch[i, shape[0]] = level.overflow[0], max(level.overflow[1], 0)
        if len(edges) > 1:
            per_ms[i] = (buckets - 2) / edges[-1]
            # One bucket back, so that rounding can never start above the right bin.
            low_ms = (np.arange(buckets) - 1) / per_ms[i]
            first_bin[i] = np.maximum(np.searchsorted(edges, low_ms, side="right") - 1, 0)
    rows_of_level = np.array([shape[0] for shape in shapes])
    return Tables(
        load_qps=np.array([level.load_qps for level in ordered], dtype=float),
        rows=rows_of_level,
        last=rows_of_level - np.array([level.overflow[1] == 0 for level in ordered]),
        slack_ms=slack, per_ms=per_ms, first_bin=first_bin, model=model, batch=batch,
    )


class CentralLevel(NamedTuple):
    """Level of :class:`CentralTables`: a load, and its table with the axes of a policy."""

    load_qps: float
    idle: ArrayLike  # numbers of idle workers with a row, rising from 0, shape (I+1,)
    queued: ArrayLike  # queue lengths with a row, rising from 0, shape (N+1,)
    slack_ms: ArrayLike  # shape (J,)
    # an action's index, -1 to wait, -2 to drop; none for no idle worker or an empty queue, as
    # nothing is decided there; shape (I, N, J)
    codes: NDArray[np.int64]
    actions: NDArray[np.int64]  # the fleet's model and the batch of each action, shape (A, 2)
    longer: int  # code for a queue above the last length; AS_LAST_CODE for those of its row


def central_level(policy: Policy, index: Sequence[int]) -> CentralLevel:
    """Return the table of a central queue's policy.

    ``index`` is the fleet's index of each of the policy's models.
    """
    actions = np.stack([np.asarray(index)[policy.actions[:, 0]], policy.actions[:, 1]], axis=1)
    return CentralLevel(policy.load_qps, policy.idle_levels, policy.queue_levels, policy.slack_ms,
                        policy.codes, actions, policy.longer_queue)


def policy_tables(
    dispatch: str, placed: Sequence[tuple[Policy, Sequence[int]]]
) -> Tables | CentralTables:
    """Return the tables of policies for a dispatch rule, each with its models' indices."""
    if DISPATCHES[dispatch].own_queues:
        return stack([level_of(*policy) for policy in placed])
    return stack_central([central_level(*policy) for policy in placed])


def any_idle_level(
    load_qps: float, slack_ms: ArrayLike, model: ArrayLike, batch: ArrayLike
) -> CentralLevel:
    """Return a table that is the same for all numbers of idle workers.

    Parameters
    ----------
    model, batch : array_like, shape (N, J)
        For queues of 1, 2, … N requests, the last row also for longer ones. A batch of 0 drops the
        earliest request.
    """
    actions, codes, _ = encoded(model, batch, (0, 0))
    return CentralLevel(load_qps, (0, 1), np.arange(codes.shape[1] + 1), slack_ms, codes, actions,
                        AS_LAST_CODE)


def stack_central(levels: Sequence[CentralLevel]) -> CentralTables:
    """Return the tables of all levels, by rising load, as one set of arrays."""
    ordered = sorted(levels, key=lambda level: level.load_qps)
    count, actions = len(ordered), max(len(level.actions) for level in ordered)
    last = np.array([(np.max(level.idle), np.max(level.queued)) for level in ordered])
    idle_row, queue_row = (np.zeros((count, most + 1), dtype=np.int32)
                           for most in last.max(axis=0))
    slack = np.full((count, max(np.size(level.slack_ms) for level in ordered)), np.inf)
    answer = np.zeros((count, *np.max([level.codes.shape for level in ordered], axis=0)),
                      dtype=np.int16)
    model, batch = np.zeros((2, count, actions), dtype=np.int16)
    for i, level in enumerate(ordered):
        codes = level.codes
        slack[i, : codes.shape[2]] = _reached_from(level.slack_ms)
        answer[i, : codes.shape[0], : codes.shape[1], : codes.shape[2]] = codes
        for row, axis in ((idle_row, level.idle), (queue_row, level.queued)):
            row[i] = np.searchsorted(axis, np.arange(row.shape[1]), side="right") - 2
        model[i, : len(level.actions)], batch[i, : len(level.actions)] = level.actions.T
    longer = np.array([level.longer for level in ordered])
    return CentralTables(
        load_qps=np.array([level.load_qps for level in ordered], dtype=float),
        longest=np.where(longer == AS_LAST_CODE, _ANY_LENGTH, last[:, 1]),
        idle_row=idle_row, queue_row=queue_row, slack_ms=slack, answer=answer, model=model,
        batch=batch, longer=longer)


def _reached_from(slack_ms: ArrayLike) -> NDArray[np.float64]:
    """Return the least slack of each bin, with the tolerance of lookups at run time."""
    edges = np.asarray(slack_ms, dtype=float)
    return np.where(edges > 0.0, edges - SLACK_TOLERANCE_MS, edges)
