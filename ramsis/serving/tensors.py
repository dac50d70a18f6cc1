"""Tensors of the Open Inference Protocol: data types and shapes of inputs and outputs."""

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
ANY = -1
"""Mark of the request's size in shapes."""
MOST_QUERIES = 2048  # of a request, unless a server states another limit
_NAMES = {kind: name for name, kind in DATATYPES.items()}


class TensorSpec(NamedTuple):
    """Specification of an input or output of a model."""

    name: str
    datatype: str  # one of :data:`DATATYPES`
    # without the first dimension, which is the batch's; :data:`ANY` for the dimension of the size
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy data type of the tensor's elements."""
        return DATATYPES[self.datatype]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor for one query; the shape must be fixed."""
        return self.dtype.itemsize * prod(self.shape)

    def at(self, size: int) -> TensorSpec:
        """Return the specification for requests of a size."""
        return self if ANY not in self.shape else self._replace(
            shape=tuple(size if n == ANY else n for n in self.shape))

    def fits(self, shape: Sequence[int]) -> bool:
        """Return whether a shape, without the batch's dimension, fits the specification."""
        return tuple(shape) == self.shape or (
            len(shape) == len(self.shape) and ANY in self.shape and all(
                n == m or (m == ANY and n >= 1)
                for n, m in zip(shape, self.shape, strict=True)))

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
