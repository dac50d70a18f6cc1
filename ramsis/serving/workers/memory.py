"""Anonymous shared memory of the front end and its workers.

A block is an anonymous file that both map, so it cannot be left behind; a worker gets it as an
open file at its start. The inputs of a query are in a *slot*: one row of an array for each input
tensor. A worker reads the rows of its batch in place; its outputs are in another block.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ramsis.serving.tensors import TensorSpec

_ALIGNED = 64  # alignment to cache lines, so that no two arrays share one


class Block:
    """Block of shared memory, as an open file.

    Parameters
    ----------
    size
        Size in bytes, >= 1.
    file
        Open file of a block created by another process.
    """

    def __init__(self, size: int, file: int | None = None) -> None:
        self.file, self.size = _anonymous_file() if file is None else file, size
        try:
            if file is None:
                os.ftruncate(self.file, size)
            self.memory = mmap.mmap(self.file, size)
        except BaseException:  # no memory; starts are tried for ever, and each leaves no file open
            self.close()
            raise

    def close(self) -> None:
        """Close the file; the memory is released with the last array in it."""
        with contextlib.suppress(OSError):  # what is closed with an error is closed
            os.close(self.file)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("ramsis")
    with tempfile.TemporaryFile() as stream:
        return os.dup(stream.fileno())


def _places(specs: Sequence[TensorSpec], rows: int) -> tuple[list[int], int]:
    """Return the offset of each tensor's array, and the total size, in bytes."""
    starts, end = [], 0
    for spec in specs:
        starts.append(end)
        end += -(-rows * spec.nbytes // _ALIGNED) * _ALIGNED
    return starts, max(end, 1)


def size_of(specs: Sequence[TensorSpec], rows: int) -> int:
    """Return the size in bytes of arrays with ``rows`` rows of each tensor."""
    return _places(specs, rows)[1]


def arrays_in(
    block: Block, specs: Sequence[TensorSpec], rows: int
) -> dict[str, NDArray[np.generic]]:
    """Return an array of shape (rows, …) for each tensor, in a block."""
    starts, _ = _places(specs, rows)
    return {spec.name: np.frombuffer(block.memory, spec.dtype,
                                     rows * spec.nbytes // spec.dtype.itemsize, start)
            .reshape(rows, *spec.shape)
            for spec, start in zip(specs, starts, strict=True)}


class Slots:
    """Slots for the inputs of queries; the last freed slot is reused first.

    Parameters
    ----------
    specs
        Input tensors.
    count
        Number of slots, >= 1.
    """

    def __init__(self, specs: Sequence[TensorSpec], count: int) -> None:
        self.specs, self.count = tuple(specs), count
        self.block = Block(size_of(specs, count))
        self.arrays = arrays_in(self.block, specs, count)
        self._free = list(range(count - 1, -1, -1))

    @property
    def free(self) -> int:
        """Number of free slots."""
        return len(self._free)

    def put(self, inputs: Sequence[NDArray[np.generic]]) -> list[int]:
        """Copy the inputs of n queries to free slots, and return these; enough must be free.

        Parameters
        ----------
        inputs
            An array of shape (n, …) for each input tensor, n >= 1; shorter dimensions are padded
            with zeros.
        """
        count = len(inputs[0])
        taken = self._free[-count:]
        del self._free[-count:]
        for array, rows in zip(self.arrays.values(), inputs, strict=True):
            if rows.shape[1:] != array.shape[1:]:
                array[taken] = 0
                array[(taken, *map(slice, rows.shape[1:]))] = rows  # type: ignore[index]
            elif count == 1:  # without a list of places: speed counts
                array[taken[0]] = rows[0]
            else:
                array[taken] = rows
        return taken

    def give(self, slots: Sequence[int]) -> None:
        """Free slots."""
        self._free.extend(slots)
