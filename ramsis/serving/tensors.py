"""Tensors of the Open Inference Protocol: names of data types, shapes of what models take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InvalidValueError

DATATYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(kind) for name, kind in (
        ("BOOL", "bool"), ("UINT8", "uint8"), ("UINT16", "uint16"), ("UINT32", "uint32"),
        ("UINT64", "uint64"), ("INT8", "int8"), ("INT16", "int16"), ("INT32", "int32"),
        ("INT64", "int64"), ("FP16", "float16"), ("FP32", "float32"), ("FP64", "float64"))}
"""The protocol's names; texts (``BYTES``) are not served."""
MOST_QUERIES = 2048  # of a request, unless a server states another limit
_NAMES = {kind: name for name, kind in DATATYPES.items()}


class TensorSpec(NamedTuple):
    """An input or output of a model."""

    name: str
    datatype: str  # one of :data:`DATATYPES`
    shape: tuple[int, ...]  # without the batch's dimension, which is the first

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy data type."""
        return DATATYPES[self.datatype]

    @property
    def nbytes(self) -> int:
        """Bytes that the tensor takes for one query."""
        return self.dtype.itemsize * prod(self.shape)

    def metadata(self) -> dict[str, object]:
        """Return the protocol's metadata of the tensor."""
        return {"name": self.name, "datatype": self.datatype, "shape": [-1, *self.shape]}


def datatype_of(array: NDArray[Any], name: str) -> str:
    """Return the protocol's name for the type of an array."""
    if array.dtype not in _NAMES:
        raise InvalidValueError("a tensor of a type that is not served", where=name,
                                value=str(array.dtype), allowed=", ".join(DATATYPES))
    return _NAMES[array.dtype]


def specs_to_json(specs: Sequence[TensorSpec]) -> list[list[Any]]:
    """Convert tensor specs to JSON-serialisable values."""
    return [[spec.name, spec.datatype, list(spec.shape)] for spec in specs]


def specs_from_json(values: Sequence[Sequence[Any]]) -> tuple[TensorSpec, ...]:
    """Convert the values of :func:`specs_to_json` to tensor specs."""
    return tuple(TensorSpec(name, datatype, tuple(shape)) for name, datatype, shape in values)
