"""Reader of accuracy files: model to accuracy, with a stated unit.

- JSON ``{"unit": "percent" | "fraction", "accuracy": {model: number}}``;
- JSON ``{model: number}``, taken as fractions when all lie in [0, 1], else refused;
- CSV with the columns ``model`` and ``accuracy_percent`` or ``accuracy_fraction``;
- timm's results CSV: ``model``, ``top1`` and ``top1_err`` (percent: they add up to 100), entered
  as ``model@size`` where there is a column ``img_size``.

A file of samples (:func:`read_samples`) is a CSV file with a row for each sample and model:
``sample``, ``model``, ``correct`` (1 or 0), ``confidence`` (higher is surer), and optionally
``group``, shared by copies of a sample. The order of rows does not matter.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray
from ramsis.errors import InputFileError
from ramsis.files import read_json
from ramsis.profiles.importers.rows import Rows, open_rows, read_rows, read_text
from ramsis.profiles.model import ProfileSet
from ramsis.profiles.values import placed

_MAX_BYTES = 200_000_000
_COLUMNS = ("sample", "model", "correct", "confidence")
_CORRECT = {"1": True, "0": False, "1.0": True, "0.0": False, "true": True, "false": False}

_FULL = {"percent": 100, "fraction": 1}
_TIMM = ("model", "img_size", "top1", "top1_err", "top5", "top5_err", "param_count", "crop_pct",
         "interpolation", "top1_diff", "top5_diff", "rank_diff")
_PERCENT_SLACK = 0.01


def read_accuracy(path: str | os.PathLike[str], unit: str | None = None) -> dict[str, float]:
    """Return accuracies by model, in [0, 1]; ``unit`` applies if the file states none."""
    file = Path(path)
    if read_text(file).lstrip().startswith("{"):
        return _from_json(file, unit)
    return _from_csv(file, unit)


def _from_json(file: Path, by_user: str | None) -> dict[str, float]:
    """Read accuracies by model from JSON, as fractions; ``by_user`` is the unit if not stated."""
    document = read_json(file)
    unit, values = document.get("unit"), document.get("accuracy")
    if isinstance(values, Mapping):
        if not isinstance(unit, str) or unit not in _FULL or set(document) != {"unit", "accuracy"}:
            raise InputFileError(
                "unknown unit or field", where=f"{file}: unit",
                value=", ".join(f"{key}: {document[key]}" for key in document
                                if key != "accuracy"),
                allowed='only "unit": "percent" or "fraction" beside "accuracy"'
            )
        accuracies = _fractions(values, unit, file)
        _check_unit(accuracies, unit, str(file))
        return accuracies
    numbers = [value for value in document.values() if isinstance(value, int | float)]
    if by_user is None and any(not 0 <= value <= 1 for value in numbers):
        raise InputFileError(
            "unit of the accuracies is not stated", where=str(file), value=max(numbers, key=abs),
            allowed='{"unit": "percent" or "fraction", "accuracy": {model: number}}, or '
            "--accuracy-unit")
    return _fractions(document, by_user or "fraction", file)


def _fractions(values: Mapping[str, Any], unit: str, file: Path) -> dict[str, float]:
    return {key: _fraction(value, unit, f"{file}: {key}") for key, value in values.items()}


def _from_csv(file: Path, by_user: str | None) -> dict[str, float]:
    table = read_rows(file)
    of_timm = {"model", "top1", "top1_err"} <= set(table.columns)
    if of_timm:
        column, unit = "top1", "percent"
        table.require((), _TIMM)
    else:
        column, unit = _column(table, by_user)
        table.require(("model", column))
    accuracies: dict[str, float] = {}
    for row in table.rows:
        name = row.text("model")
        if of_timm and row.cells.get("img_size"):
            name += f"@{row.cells['img_size']}"
        if name in accuracies:
            raise InputFileError("model appears twice", where=row.at("model"), value=name)
        value = row.number(column)
        if of_timm and not abs(value + row.number("top1_err") - 100) < _PERCENT_SLACK:
            raise InputFileError("top1 and top1_err do not add up to 100 percent",
                                 where=row.at("top1"), value=value, allowed="percent")
        accuracies[name] = _fraction(value, unit, row.at(column))
    if not of_timm:
        _check_unit(accuracies, unit, table.path)
    return accuracies


def _column(table: Rows, by_user: str | None) -> tuple[str, str]:
    """Return the column of accuracies and its unit; ``by_user`` is the unit if it states none."""
    stated = [(f"accuracy_{unit}", unit) for unit in _FULL if f"accuracy_{unit}" in table.columns]
    if by_user is not None and not stated and "accuracy" in table.columns:
        return "accuracy", by_user
    if len(stated) != 1:
        raise InputFileError("unit of the accuracies is not stated once",
                             where=f"{table.path}: header", value=", ".join(table.columns),
                             allowed="model and accuracy_percent, or model and accuracy_fraction, "
                             "model and accuracy with --accuracy-unit, or timm's model, top1, "
                             "top1_err")
    return stated[0]


def _fraction(value: Any, unit: str, where: str) -> float:
    full = _FULL[unit]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= full:
        raise InputFileError(f"not an accuracy ({unit})", where=where, value=value,
                             allowed=f"a number in [0, {full}]")
    return float(Decimal(repr(value)) / full)


def _check_unit(accuracy: Mapping[str, float], unit: str, where: str) -> None:
    """Refuse percentages that are all at most 1: they are fractions."""
    largest = max(accuracy.values(), default=0.0)
    if unit == "percent" and 0 < largest <= 0.01:
        raise InputFileError(
            "no accuracy above 1 percent; fractions?", where=where, value=round(largest * 100, 6),
            allowed="accuracies in percent, or the unit fraction (accuracy_fraction)")


@dataclass(frozen=True)
class AnsweredSamples:
    """Samples answered by several models, in the same order for each."""

    path: str
    samples: dict[str, tuple[NDArray[np.bool_], FloatArray]]  # correct, confidence by model
    groups: NDArray[np.str_]  # group of each sample; by default each is its own

    @property
    def accuracies(self) -> dict[str, float]:
        """Share of the samples that each model answers correctly, by the model's name."""
        return {name: float(correct.mean()) for name, (correct, _) in self.samples.items()}

    def added_to(self, profile: ProfileSet) -> ProfileSet:
        """Return the profile with confidences estimated from the samples.

        Samples that contradict the profile, or are too few, are an InputFileError.
        """
        with placed(lambda field: f"{self.path}: {field}"):
            return profile.with_confidences(self.samples, groups=self.groups,
                                            source=Path(self.path).name)


def read_samples(
    path: str | os.PathLike[str], models: Collection[str] | None = None
) -> AnsweredSamples:
    """Return the samples of a CSV file, of at most 200 MB, that every model answered.

    Rows of other models than ``models``, by default all, are left out. A cell that does not fit, a
    row that appears twice, and a model that lacks a sample are an InputFileError.
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
                                 where=row.at("sample"), allowed="one row per sample and model")
        confidence = row.number("confidence")
        if not math.isfinite(confidence):
            raise InputFileError("not finite", where=row.at("confidence"), value=confidence,
                                 allowed="a finite number")
        correct = row.text("correct")
        if correct.lower() not in _CORRECT:
            raise InputFileError("neither right nor wrong", where=row.at("correct"), value=correct,
                                 allowed="1 or 0")
        answered[sample] = _CORRECT[correct.lower()], confidence
        group = row.text("group") if "group" in row.cells else sample
        if groups.setdefault(sample, group) != group:
            raise InputFileError(f"sample {sample} is of group {groups[sample]} in another row",
                                 where=row.at("group"), value=group,
                                 allowed="one group for each sample")
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
