"""The table of a policy: full arrays, codes of its actions, and rows that files hold.

Codes are indices into the actions, -1 to wait and -2 to drop. Files and lookups store them as
*rows*: each distinct row once, as pairs of a slack bin and the code from this bin on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ramsis.arrays import IntArray
from ramsis.runtime.table import DROP_CODE


def encoded(
    model: ArrayLike, batch: ArrayLike, longer_queue: tuple[int, int]
) -> tuple[IntArray, IntArray, int]:
    """Encode a table that serves or drops: actions, codes and the code for a longer queue.

    Parameters
    ----------
    model, batch : array_like of int, shape (N, J)
        A batch of 0 drops.
    longer_queue : (int, int)
        Model and batch, likewise.

    Returns
    -------
    actions : ndarray, shape (A, 2)
        Batch and model of each action.
    codes : ndarray, shape (1, N, J)
    longer : int
    """
    models, batches = np.append(model, longer_queue[0]), np.append(batch, longer_queue[1])
    serves, count = batches != 0, models.max() + 1
    # One number for each action is sorted in a tenth of the time of pairs.
    actions, code = np.unique((batches * count + models)[serves], return_inverse=True)
    codes = np.full(len(batches), DROP_CODE, dtype=np.int64)
    codes[serves] = code
    return (np.stack([actions % count, actions // count], axis=1),
            codes[:-1].reshape(1, *np.shape(batch)), int(codes[-1]))


def codes_among(actions: IntArray, others: IntArray, codes: IntArray) -> tuple[IntArray, IntArray]:
    """Append new actions of ``others`` to ``actions``; return all, and ``codes`` among these."""
    merged = [tuple(pair) for pair in actions.tolist()]
    place = {pair: i for i, pair in enumerate(merged)}
    for pair in map(tuple, others.tolist()):
        if pair not in place:
            place[pair] = len(merged)
            merged.append(pair)
    among = np.array([place[tuple(pair)] for pair in others.tolist()], dtype=np.int64)
    return np.array(merged, dtype=np.int64), np.where(codes >= 0, among[codes], codes)


def compressed(codes: IntArray) -> tuple[list[list[int]], list[list[int]]]:
    """Compress codes (I-1, N-1, J) to distinct rows, and the row of each idle and queue level."""
    numbers: dict[bytes, int] = {}
    rows: list[list[int]] = []
    row_of: list[list[int]] = []
    for block in np.ascontiguousarray(codes):
        line = []
        for row in block:
            key = row.tobytes()
            if key not in numbers:
                numbers[key] = len(rows)
                starts = np.flatnonzero(np.diff(row, prepend=row[0] - 1))
                rows.append(np.stack([starts, row[starts]], axis=1).ravel().tolist())
            line.append(numbers[key])
        row_of.append(line)
    return rows, row_of


def expanded(
    rows: Sequence[Sequence[int]], row_of: Sequence[Sequence[int]], bins: int
) -> NDArray[Any]:
    """Return the codes of the whole table from rows by :func:`compressed`."""
    full = np.array([np.repeat(row[1::2], np.diff([*row[::2], bins])) for row in rows],
                    dtype=np.int64)
    return np.take(full, np.array(row_of), axis=0)
