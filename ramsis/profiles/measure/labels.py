"""Accuracy and confidence of models on labelled samples.

The samples are an .npz file: an array for each input of the models, whose first axis is the
sample; ``label``, the correct answers; and optionally ``group``, the number of the item of which
each sample is a copy.

A model answers by its output ``label``, or else by the class of the largest score. Scores are the
only output of shape (samples, classes). The confidence of an answer is the largest probability
(:data:`MAX`; scores that are not probabilities are converted by softmax), the difference between
the largest score and the second largest (:data:`MARGIN`), or an output of the model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import BoolArray, FloatArray, read_arrays
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.profiles.measure.backends import LoadedModel

MAX, MARGIN = "max", "margin"
"""Confidences that scores tell."""
LABEL, GROUP = "label", "group"
"""Arrays of the file that are no inputs; a model's output of the first name is its answer."""
_BATCH = 32
_PROBABILITY = 1e-3  # by which probabilities of single precision may miss a sum of 1

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class LabelledSamples:
    """Samples with their correct answers, on which models are measured."""

    path: str
    inputs: dict[str, NDArray[Any]]
    labels: NDArray[Any]
    groups: NDArray[Any] | None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> LabelledSamples:
        """Read a file of labelled samples.

        A file that cannot be read, or whose arrays are not of the same samples, is an
        InputFileError.
        """
        arrays = read_arrays(path)
        where = os.fspath(path)
        if LABEL not in arrays or len(arrays) < (3 if GROUP in arrays else 2):
            raise InputFileError("no labelled samples", where=where, value=", ".join(arrays),
                                 allowed=f"an array for each input, and one named {LABEL}")
        size = len(arrays[LABEL]) if arrays[LABEL].ndim == 1 else -1
        for name, array in arrays.items():
            if array.ndim < 1 or (name in (LABEL, GROUP) and array.ndim > 1) or len(array) != size:
                raise InputFileError("not of the same samples as the labels",
                                     where=f"{where}: {name}", value=array.shape,
                                     allowed=f"an array of {max(size, 0)} samples"
                                     if size > 0 else "one dimension")
        inputs = {name: array for name, array in arrays.items() if name not in (LABEL, GROUP)}
        return cls(where, inputs, arrays[LABEL], arrays.get(GROUP))

    @property
    def source(self) -> str:
        """Name of the file that the samples were read from."""
        return Path(self.path).name

    def answered(
        self, name: str, model: LoadedModel, confidence: str
    ) -> tuple[BoolArray, FloatArray]:
        """Return whether a model is right on each sample, and how sure it is.

        ``name`` is the model's, for messages; ``confidence`` is :data:`MAX`, :data:`MARGIN`, or
        the name of an output. Samples that do not fit the model are an InputFileError; outputs
        without an answer, or without this confidence, an InvalidValueError.
        """
        inputs = self._inputs(name, model)
        size = len(self.labels)
        parts: list[Arrays] = []
        for start in range(0, size, _BATCH):
            part = {key: array[start : start + _BATCH] for key, array in inputs.items()}
            parts.append(model.fetch(model.run(model.feed(part))))
        outputs = {key: np.concatenate([np.atleast_1d(part[key]) for part in parts])
                   for key in parts[0]}
        answers, scores = self._answers(name, outputs, confidence)
        if confidence in outputs:
            sure = outputs[confidence].reshape(len(outputs[confidence]), -1)
            if sure.shape != (size, 1):
                raise InvalidValueError(
                    f"output of model {name} is not a number for each sample",
                    where="confidence", value=f"{confidence} {outputs[confidence].shape}",
                    allowed=f"({size},)")
            return answers, sure[:, 0].astype(float)
        if confidence not in (MAX, MARGIN):
            raise InvalidValueError(f"no such output of model {name}", where="confidence",
                                    value=confidence,
                                    allowed=", ".join((MAX, MARGIN, *outputs)))
        if scores is None:
            raise InvalidValueError(
                f"model {name} has no scores that tell {confidence}", where="confidence",
                value=_shapes(outputs),
                allowed="an output of shape (samples, classes), or the name of an output")
        return answers, sureness(scores, confidence)

    def _inputs(self, name: str, model: LoadedModel) -> dict[str, NDArray[Any]]:
        """Return the arrays that a model takes, of its types."""
        if model.inputs is None:
            return self.inputs
        chosen = {}
        for key, (kind, shape) in model.inputs.items():
            # A model of one input takes the only array, whatever its name.
            alone = len(model.inputs) == len(self.inputs) == 1
            array = next(iter(self.inputs.values())) if alone else self.inputs.get(key)
            if array is None or array.shape[1:] != shape or array.dtype.kind not in "biuf":
                raise InputFileError(
                    f"not the input of model {name}", where=f"{self.path}: {key}",
                    value=None if array is None else f"{array.dtype} {array.shape[1:]}",
                    allowed=f"{kind} {shape} for each sample")
            chosen[key] = array.astype(kind, copy=False)
        return chosen

    def _answers(
        self, name: str, outputs: Arrays, confidence: str
    ) -> tuple[BoolArray, FloatArray | None]:
        """Return which answers are right, and the scores if the model returns any."""
        size = len(self.labels)
        several = {key: array for key, array in outputs.items()
                   if array.ndim == 2 and array.shape[1] > 1 and key != confidence
                   and array.dtype.kind == "f"}
        scores = (next(iter(several.values())).astype(float) if len(several) == 1 else None)
        if LABEL in outputs and outputs[LABEL].size == size:
            answers = outputs[LABEL].reshape(size)
        elif scores is not None and len(scores) == size:
            answers = scores.argmax(axis=1)
            whole = self.labels.dtype.kind in "biu"
            if not whole or not ((self.labels >= 0) & (self.labels < scores.shape[1])).all():
                raise InputFileError(
                    f"not classes of model {name}", where=f"{self.path}: {LABEL}",
                    value=f"{self.labels.dtype} from {self.labels.min()} to {self.labels.max()}"
                    if whole else str(self.labels.dtype),
                    allowed=f"whole numbers from 0 to {scores.shape[1] - 1}")
        else:
            raise InvalidValueError(
                f"outputs of model {name} tell no answer", where="labels", value=_shapes(outputs),
                allowed=f"one output of shape ({size}, classes), or an output {LABEL}")
        right: BoolArray = np.asarray(answers == self.labels)
        return right, scores


def _shapes(outputs: Arrays) -> str:
    return ", ".join(f"{name} {array.shape}" for name, array in outputs.items())


def sureness(scores: FloatArray, confidence: str) -> FloatArray:
    """Return the largest probability, or the margin to the runner-up, of each row."""
    first, second = -np.partition(-scores, 1, axis=1)[:, :2].T
    if confidence == MARGIN:
        margin: FloatArray = first - second
        return margin
    sums = scores.sum(axis=1)
    if (scores >= 0).all() and (np.abs(sums - 1) < _PROBABILITY).all():
        return np.asarray(first)
    largest: FloatArray = 1 / np.exp(scores - first[:, None]).sum(axis=1)
    return largest
