"""Reader of request sizes from inputs or parameters of a request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.serving.tensors import ANY, TensorSpec

_PARAMETER = "parameters."


class SizeReader:
    """Reader of the sizes of a request's queries.

    ``source`` is ``input:axis``, the length of an input along an axis (0 is the batch's);
    ``input``, a mask, which is 1 up to the size and then 0, or one number for each query; or
    ``parameters.name``, a parameter of the request. ``max_size`` is the largest served size. An
    InputFileError, of the variants file ``where``, refuses a source that does not fit the inputs
    of the model.
    """

    def __init__(
        self, source: str, inputs: Sequence[TensorSpec], max_size: int, where: str
    ) -> None:
        self._source, self._max_size = source, max_size
        self._parameter = source.removeprefix(_PARAMETER) if source.startswith(
            _PARAMETER) else None
        self._place = f"{where}: size"
        self._input, self._axis = 0, 0
        # Dimension of each input that is the size; 0 if none is.
        self._axes = [spec.shape.index(ANY) + 1 if ANY in spec.shape else 0 for spec in inputs]
        shapes = ", ".join(f"{spec.name} {['n', *spec.shape]}" for spec in inputs)
        if self._parameter is None:
            name, _, axis = source.partition(":")
            names = [spec.name for spec in inputs]
            if name not in names:
                raise InputFileError("no such input", where=self._place, value=source,
                                     allowed="input:axis, input or parameters.name; inputs are "
                                     f"{shapes}")
            self._input = names.index(name)
            shape = inputs[self._input].shape
            if axis and not (re.fullmatch("[1-9]", axis) and int(axis) <= len(shape)
                             and shape[int(axis) - 1] == ANY):
                raise InputFileError("not a dimension of the input without a fixed size",
                                     where=self._place, value=source, allowed=shapes)
            self._axis = int(axis or 0)
        # A mask shows where the padding of a request begins; batches do not need this padding.
        self.is_mask = (self._parameter is None and not self._axis
                        and ANY in inputs[self._input].shape)

    def __call__(
        self, arrays: Sequence[NDArray[Any]], parameters: Mapping[str, Any]
    ) -> list[int]:
        """Return the size of each query of a request.

        Sizes are whole numbers from 1 to the largest size; others are an InvalidValueError, as are
        inputs that differ in length.
        """
        lengths = {array.shape[axis] for array, axis in zip(arrays, self._axes, strict=True)
                   if axis}
        if len(lengths) > 1:
            raise InvalidValueError("inputs of different lengths", where="inputs",
                                    value=sorted(lengths), allowed="one length")
        if lengths and max(lengths) > self._max_size:
            raise InvalidValueError("an input that is longer than the largest size",
                                    where="inputs", value=max(lengths),
                                    allowed=f"at most {self._max_size}")
        queries = len(arrays[0])
        sizes: list[Any]
        if self._parameter is not None:
            sizes = [parameters.get(self._parameter)] * queries
        elif self._axis:
            sizes = [arrays[self._input].shape[self._axis]] * queries
        elif self.is_mask:
            mask = arrays[self._input].reshape(queries, -1) != 0
            sizes = mask.sum(axis=1).tolist()
            if (mask[:, 1:] > mask[:, :-1]).any():
                raise InvalidValueError("a mask with padding before the end", where=self._source,
                                        allowed="1 up to the size of the request, then 0")
        else:
            sizes = arrays[self._input].reshape(queries, -1).sum(axis=1).tolist()
        for size in sizes:
            if isinstance(size, bool) or not isinstance(size, int | float) or (
                    not 1 <= size <= self._max_size or size != int(size)):
                raise InvalidValueError("not a size that is served", where=self._source,
                                        value=size,
                                        allowed=f"a whole number from 1 to {self._max_size}")
        return [int(size) for size in sizes]


def lengths_of(arrays: Sequence[NDArray[Any]], specs: Sequence[TensorSpec]) -> int:
    """Return the length of the inputs along the dimension of the size; 0 if there is none."""
    return next((array.shape[spec.shape.index(ANY) + 1]
                 for array, spec in zip(arrays, specs, strict=True) if ANY in spec.shape), 0)
