"""Reader of answered samples: a CSV file of correctness and confidence.

It has a row for each sample and model: ``sample``, ``model``, ``correct`` (1 or 0), ``confidence``
(higher is surer), and optionally ``group``, shared by copies of a sample. The order of rows does
not matter.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray
from ramsis.errors import InputFileError
from ramsis.profiles.importers.rows import CsvRow, open_rows
from ramsis.profiles.model import ProfileSet
from ramsis.profiles.values import placed

_MAX_BYTES = 200_000_000
_COLUMNS = ("sample", "model", "correct", "confidence")
_CORRECT = {"1": True, "0": False, "1.0": True, "0.0": False, "true": True, "false": False}


@dataclass(frozen=True)
class AnsweredSamples:
    """Samples answered by several models, in the same order for each."""

    path: str
    samples: dict[str, tuple[NDArray[np.bool_], FloatArray]]  # correct, confidence by model
    groups: NDArray[np.str_]  # group of each sample; by default each is its own

    @property
    def accuracies(self) -> dict[str, float]:
        """Accuracy by model."""
        return {name: float(correct.mean()) for name, (correct, _) in self.samples.items()}

    def added_to(self, profile: ProfileSet) -> ProfileSet:
        """Return the profile with confidences estimated from the samples.

        Raises
        ------
        InputFileError
            The samples contradict the profile, or are too few.
        """
        with placed(lambda field: f"{self.path}: {field}"):
            return profile.with_confidences(self.samples, groups=self.groups,
                                            source=Path(self.path).name)


def read_samples(
    path: str | os.PathLike[str], models: Collection[str] | None = None
) -> AnsweredSamples:
    """Return the samples of a CSV file that every model answered.

    Parameters
    ----------
    path : path
        A file of at most 200 MB.
    models : collection of str, optional
        Models to read; rows of others are left out.

    Raises
    ------
    InputFileError
        When a cell does not fit, a row appears twice, or a model lacks a sample.
    """
    table = open_rows(Path(path), _MAX_BYTES)
    table.require(_COLUMNS, ("group",))
    answers: dict[str, dict[str, tuple[bool, float]]] = {}
    groups: dict[str, str] = {}
    left_out = False
    for row in table.rows:
        model, sample = row.text("model"), row.text("sample")
        if models is not None and model not in models:
            left_out = True
            continue
        answered = answers.setdefault(model, {})
        if sample in answered:
            raise InputFileError(f"sample {sample} of model {model} appears twice",
                                 where=row.at("sample"), allowed="one row for sample and model")
        confidence = row.number("confidence")
        if not math.isfinite(confidence):
            raise InputFileError("not finite", where=row.at("confidence"), value=confidence,
                                 allowed="a finite number")
        answered[sample] = _correct(row), confidence
        group = row.text("group") if "group" in row.cells else sample
        if groups.setdefault(sample, group) != group:
            raise InputFileError(f"sample {sample} is of group {groups[sample]} in another row",
                                 where=row.at("group"), value=group, allowed="one group a sample")
    if not answers:
        raise InputFileError("no rows of these models" if left_out else
                             "no rows below the header", where=str(path),
                             allowed="a row for each sample and model")
    for model, answered in answers.items():
        if len(answered) < len(groups):
            missing = next(sample for sample in groups if sample not in answered)
            raise InputFileError(
                f"no row of model {model} for sample {missing}", where=str(path),
                allowed=f"a row of every model for each sample (this one lacks "
                        f"{len(groups) - len(answered)} of {len(groups)})")
    ordered = sorted(groups)
    samples = {model: (np.array([answered[sample][0] for sample in ordered]),
                       np.array([answered[sample][1] for sample in ordered]))
               for model, answered in answers.items()}
    return AnsweredSamples(str(path), samples, np.array([groups[sample] for sample in ordered]))


def _correct(row: CsvRow) -> bool:
    text = row.text("correct")
    if text.lower() not in _CORRECT:
        raise InputFileError("neither right nor wrong", where=row.at("correct"), value=text,
                             allowed="1 or 0")
    return _CORRECT[text.lower()]
