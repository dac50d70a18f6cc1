"""Collection of models' measurements from the rows of a table."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from ramsis.errors import InputFileError
from ramsis.profiles.batch import BatchProfile
from ramsis.profiles.importers.rows import CsvRow
from ramsis.profiles.sized import SizedTimes
from ramsis.profiles.values import MAX_MODELS, placed

STATISTICS = ("mean", "std", "min", "p50", "p90", "p95", "p99", "max")
SAMPLE = "sample"
"""In the place of a statistic: each latency is a sample."""
LATENCY = "latency"
"""Likewise, where no heading names a statistic: one latency is the mean, several are samples."""
QUANTILES = 128
"""Quantiles of samples that profiles keep."""


@dataclass
class MeasuredModel:
    """Measurements of one model."""

    batches: list[BatchProfile] = field(default_factory=list)
    accuracy: float | None = None  # a fraction
    # what the accuracy is about; accuracies of different tasks do not compare
    task: str | None = None
    alias: str | None = None  # another name under which a separate file may have the accuracy
    # what a reader of the profile has to know: what was left out, what is missing
    notes: list[str] = field(default_factory=list)
    more: str | None = None  # how to measure a batch size that is missing
    memory_mb: float | None = None  # of the loaded model
    load_ms: float | None = None  # time to load it
    padded: int | None = None  # least batch size of a model that pads smaller batches
    sized: SizedTimes | None = None  # times by count and size; ``batches`` have the largest size


def check_number(models: Collection[str], path: Path | str) -> None:
    """Refuse more models than a profile set may have, before time is spent on each."""
    if len(models) > MAX_MODELS:
        raise InputFileError("too many models", where=str(path), value=len(models),
                             allowed=f"at most {MAX_MODELS}")


@dataclass
class BatchSize:
    """Latencies of one model at one batch size."""

    model: str
    batch: int
    first: CsvRow  # the first row that is about it
    # how rows that collide may be told apart; empty where nothing tells
    advice: Callable[[], str] = str
    # latencies in ms by statistic, and the place of the first: its row and column
    times_ms: dict[str, tuple[array[float], CsvRow, str]] = field(default_factory=dict)
    quantiles_ms: tuple[float, ...] | None = None
    n: int | None = None  # number of samples behind the statistics

    def add(self, row: CsvRow, column: str, statistic: str, time_ms: float) -> None:
        """Enter a latency: a statistic, which may be stated once, or a sample."""
        if statistic not in self.times_ms:
            self.times_ms[statistic] = array("d"), row, column
        elif statistic in STATISTICS:
            first = self.times_ms[statistic][1].place(row.path)
            raise InputFileError(
                f"{statistic} of {self.model} at batch size {self.batch} appears twice",
                where=row.at(column), value=row.cells[column],
                allowed=f"once (the first is {first}){self.advice()}")
        self.times_ms[statistic][0].append(time_ms)

    def profile(self) -> BatchProfile:
        """Return the profile; refuse a value that it cannot hold at its place in the file."""
        with placed(self._place):
            for statistic in (SAMPLE, LATENCY):
                samples_ms = self.times_ms[statistic][0] if statistic in self.times_ms else ()
                if len(samples_ms) > 1 or (samples_ms and statistic == SAMPLE):
                    return BatchProfile.from_samples(self.batch, samples_ms, QUANTILES)
            statistics_ms = {f"{'mean' if statistic == LATENCY else statistic}_ms": times_ms[0]
                             for statistic, (times_ms, _, _) in self.times_ms.items()}
            return BatchProfile(self.batch, self.n, quantiles_ms=self.quantiles_ms,
                                **statistics_ms)  # type: ignore[arg-type]

    def _place(self, field: str) -> str:
        """Return the place of the cell from which a field of the profile was read."""
        statistic = field.removesuffix("_ms")
        if statistic not in self.times_ms and (field == "mean_ms" or field.startswith("samples")):
            statistic = SAMPLE if SAMPLE in self.times_ms else LATENCY
        _, row, column = self.times_ms.get(statistic, (None, self.first, field))
        return row.at(column)


class Measurements:
    """Latencies by model and batch size, collected from rows in any order."""

    def __init__(self, advice: Callable[[], str] = str) -> None:
        self._advice = advice
        self.sizes: dict[str, dict[int, BatchSize]] = {}

    def of(self, row: CsvRow, model: str, batch: int) -> BatchSize:
        """Return the collected latencies of a model at a batch size, for a row."""
        sizes = self.sizes.get(model)
        if sizes is None:
            sizes = self.sizes[model] = {}
        size = sizes.get(batch)
        if size is None:
            size = sizes[batch] = BatchSize(model, batch, row, self._advice)
        return size

    def models(self, path: Path, more: str | None = None) -> dict[str, MeasuredModel]:
        """Return the profiles of all models, in the order of their first rows."""
        check_number(self.sizes, path)
        return {model: MeasuredModel([size.profile() for size in sizes.values()], more=more)
                for model, sizes in self.sizes.items()}
