"""Confidence of the answers of a batch, from the model's outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from ramsis.errors import InputFileError
from ramsis.profiles.measure.labels import MARGIN, MAX, sureness
from ramsis.serving.tensors import TensorSpec


class ConfidenceReader:
    """Reader of the confidences of answers, by the ``source`` in a variants file.

    It is an output with a number for each sample; or ``max`` or ``margin`` of the only output of
    shape (samples, classes). An InputFileError, of the file ``where``, refuses outputs without it.
    """

    def __init__(self, source: str, outputs: Sequence[TensorSpec], where: str) -> None:
        self._source = source
        shapes = ", ".join(f"{spec.name} {['n', *spec.shape]}" for spec in outputs)
        specs = [spec for spec in outputs if spec.name == source]
        if specs:
            self._scores = ""
            if math.prod(specs[0].shape) != 1:
                raise InputFileError("output has not one number for each sample",
                                     where=f"{where}: confidence", value=shapes,
                                     allowed=f"{source} of shape ['n']")
            return
        if source not in (MAX, MARGIN):
            raise InputFileError("no such output", where=f"{where}: confidence", value=source,
                                 allowed=", ".join((MAX, MARGIN, *(o.name for o in outputs))))
        scores = [spec.name for spec in outputs if spec.dtype.kind == "f"
                  and len(spec.shape) == 1 and spec.shape[0] > 1]
        if len(scores) != 1:
            raise InputFileError(f"outputs do not tell {source}", where=f"{where}: confidence",
                                 value=shapes, allowed="one output of scores ['n', classes], or "
                                 "the name of an output")
        self._scores = scores[0]

    def __call__(self, outputs: Mapping[str, NDArray[Any]]) -> list[float]:
        """Return the confidence of each answer of a batch."""
        if self._scores:
            values = sureness(outputs[self._scores].astype(float), self._source)
        else:
            values = outputs[self._source].reshape(-1).astype(float)
        confidences: list[float] = values.tolist()
        return confidences
