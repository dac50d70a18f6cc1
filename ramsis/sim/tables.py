"""Decisions as arrays: what compiled kernels read.

For each load level a table (queued, slack bin) → (model, batch), with one answer for longer
queues: the form of a policy file, and of every scheme that decides by the load, the length of the
queue and the slack of its head alone. The level for a load is the lowest that meets it, else the
highest, as in :class:`ramsis.runtime.PolicySet`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ramsis.runtime.fleet import FleetTable
from ramsis.runtime.mixture import Mixture
from ramsis.runtime.table import LookupTable

__all__ = ["Compiled", "Dispatch", "FleetTables", "Level", "Tables", "stack", "stack_fleet"]

Dispatch = Literal["round-robin", "shortest-queue", "central", "fleet"]
"""How queries reach workers: every K-th to a worker's own queue, to the worker with fewest queries
waiting or in service (ties: the next in turn), one queue for all, or one that a fleet policy
decides about."""

_BUCKETS_PER_BIN = 4


class Tables(NamedTuple):
    """Tables of L levels, padded to common shapes.

    Attributes
    ----------
    load_qps : ndarray, shape (L,)
        Rising; the last may be infinite.
    rows : ndarray, shape (L,)
        Longest queue that a level's table tells apart.
    slack_ms : ndarray, shape (L, J+1)
        Low edges of the slack bins; infinite beyond a level's last.
    per_ms : ndarray, shape (L,)
        Buckets of slack per ms, of ``first_bin``.
    first_bin : ndarray, shape (L, G)
        For each bucket of slack a bin at or below that of any slack in it.
    model, batch : ndarrays, shape (L, N, J)
        A batch of 0 drops the earliest query.
    overflow_model, overflow_batch : ndarrays, shape (L,)
        The answer to a longer queue; where the batch is 0, it is that of the last row, and where
        it is -1, the earliest query is dropped.
    mixed : ndarray, shape (L, 4)
        Row, bin, model and batch of the second answer that a level's table has at one place; row
        -1 where it has none.
    chance : ndarray, shape (L,)
        Probability of the second answer.
    """

    load_qps: NDArray[np.float64]
    rows: NDArray[np.int64]
    slack_ms: NDArray[np.float64]
    per_ms: NDArray[np.float64]
    first_bin: NDArray[np.int64]
    model: NDArray[np.int16]
    batch: NDArray[np.int16]
    overflow_model: NDArray[np.int64]
    overflow_batch: NDArray[np.int64]
    mixed: NDArray[np.int64]
    chance: NDArray[np.float64]


class FleetTables(NamedTuple):
    """Fleet policies of L levels, padded to common shapes.

    Attributes
    ----------
    load_qps : ndarray, shape (L,)
        Rising.
    longest : ndarray, shape (L,)
        Longest queue that a level's table knows.
    idle_row : ndarray, shape (L, K+1)
        Row for each number of idle workers; none for 0.
    queue_row : ndarray, shape (L, longest+1)
        Row for each queue; none for 0.
    slack_ms : ndarray, shape (L, J)
        Low edges of the slack bins; infinite beyond a level's last.
    answer : ndarray, shape (L, I, N, J)
        An option's index, -1 to wait, -2 to drop.
    model, batch : ndarrays, shape (L, O)
        Of each option.
    mixed : ndarray, shape (L, 4)
        Indices of the place that has a second answer, and that answer; the first -1 where there
        is none.
    chance : ndarray, shape (L,)
        Probability of the second answer.
    """

    load_qps: NDArray[np.float64]
    longest: NDArray[np.int64]
    idle_row: NDArray[np.int32]
    queue_row: NDArray[np.int32]
    slack_ms: NDArray[np.float64]
    answer: NDArray[np.int16]
    model: NDArray[np.int16]
    batch: NDArray[np.int16]
    mixed: NDArray[np.int64]
    chance: NDArray[np.float64]


@dataclass(frozen=True)
class Compiled:
    """A scheme that kernels can run."""

    dispatch: Dispatch
    tables: Tables | FleetTables

    @property
    def by_chance(self) -> bool:
        """Whether an answer is drawn."""
        return bool(self.tables.chance.any())


class Level(NamedTuple):
    """One level: a load, and its table as in :class:`Tables`."""

    load_qps: float
    slack_ms: ArrayLike
    model: ArrayLike
    batch: ArrayLike
    overflow: tuple[int, int]
    mixture: Mixture | None = None

    @classmethod
    def of(cls, table: LookupTable, index: Sequence[int]) -> Level:
        """A policy file's table; ``index`` gives the fleet's index of each of its models."""
        indices = np.asarray(index)
        model, batch = table.overflow
        return cls(table.load_qps, table.slack_ms, indices[np.array(table.model)], table.batch,
                   (int(indices[model]), batch or -1),
                   None if table.mixture is None else table.mixture._replace(answer=(
                       int(indices[table.mixture.answer[0]]), table.mixture.answer[1])))


def stack(levels: Sequence[Level]) -> Tables:
    """The levels, by rising load, as one set of arrays."""
    ordered = sorted(levels, key=lambda level: level.load_qps)
    count = len(ordered)
    shapes = [np.shape(level.model) for level in ordered]
    rows, bins = (max(shape[axis] for shape in shapes) for axis in (0, 1))
    buckets = _BUCKETS_PER_BIN * bins + 2
    slack = np.full((count, bins + 1), np.inf)
    first_bin = np.zeros((count, buckets), dtype=np.int64)
    per_ms = np.zeros(count)
    model, batch = (np.zeros((count, rows, bins), dtype=np.int16) for _ in range(2))
    for i, (level, shape) in enumerate(zip(ordered, shapes, strict=True)):
        edges = np.asarray(level.slack_ms, dtype=float)
        slack[i, : len(edges)] = edges
        model[i, : shape[0], : shape[1]] = level.model
        batch[i, : shape[0], : shape[1]] = level.batch
        if len(edges) > 1:
            per_ms[i] = (buckets - 2) / edges[-1]
            # One bucket back, so that rounding can never start above the right bin.
            low_ms = (np.arange(buckets) - 1) / per_ms[i]
            first_bin[i] = np.maximum(np.searchsorted(edges, low_ms, side="right") - 1, 0)
    overflow = np.array([level.overflow for level in ordered])
    return Tables(
        load_qps=np.array([level.load_qps for level in ordered]),
        rows=np.array([shape[0] for shape in shapes]),
        slack_ms=slack, per_ms=per_ms, first_bin=first_bin, model=model, batch=batch,
        overflow_model=overflow[:, 0].copy(), overflow_batch=overflow[:, 1].copy(),
        mixed=_mixed([level.mixture for level in ordered]),
        chance=_chance([level.mixture for level in ordered]),
    )


def _mixed(mixtures: Sequence[Mixture | None]) -> NDArray[np.int64]:
    return np.array([(-1, 0, 0, 0) if one is None else (*one.place, *one.answer)
                     for one in mixtures], dtype=np.int64)


def _chance(mixtures: Sequence[Mixture | None]) -> NDArray[np.float64]:
    return np.array([0.0 if one is None else one.probability for one in mixtures])


def stack_fleet(
    levels: Sequence[tuple[FleetTable, Sequence[int], NDArray[np.int64]]]
) -> FleetTables:
    """Fleet policies by rising load: the file's table, the fleet's model indices, the answers."""
    ordered = sorted(levels, key=lambda level: level[0].load_qps)
    tables = [table for table, _, _ in ordered]
    count, workers = len(ordered), tables[0].workers
    longest = np.array([table.queue[-1] for table in tables])
    queue_row = np.zeros((count, int(longest.max()) + 1), dtype=np.int32)
    idle_row = np.zeros((count, workers + 1), dtype=np.int32)
    slack = np.full((count, max(len(table.slack_ms) for table in tables)), np.inf)
    answer = np.zeros((count, *np.max([rows.shape for _, _, rows in ordered], axis=0)),
                      dtype=np.int16)
    options = max(len(table.options) for table in tables)
    model, batch = np.zeros((count, options), np.int16), np.zeros((count, options), np.int16)
    for i, (table, index, rows) in enumerate(ordered):
        slack[i, : len(table.slack_ms)] = table.slack_ms
        answer[i, : rows.shape[0], : rows.shape[1], : rows.shape[2]] = rows
        for row, levels_of in ((idle_row, table.idle), (queue_row, table.queue)):
            row[i] = np.searchsorted(levels_of, np.arange(row.shape[1]), side="right") - 2
        for o, (m, b) in enumerate(table.options):
            model[i, o], batch[i, o] = index[m], b
    return FleetTables(np.array([table.load_qps for table in tables]), longest, idle_row,
                       queue_row, slack, answer, model, batch,
                       _mixed([table.mixture for table in tables]),
                       _chance([table.mixture for table in tables]))
