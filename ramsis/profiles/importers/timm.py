"""Importer of ``timm``: results of timm's ``benchmark.py``, a file or a folder of such files.

Columns: ``model``, ``infer_step_time`` (ms, the mean over a run), ``infer_samples_per_sec``,
``infer_batch_size``; optional and passed over ``param_count``, ``infer_gmacs``, ``infer_macts``,
and all about training. Very old versions of the script wrote seconds; a time that does not fit
the samples per second is refused.

A run measures one batch size per model, 256 unless asked otherwise, while a profile needs batch
size 1, and others to batch at all. Run it once for each (``benchmark.py --batch-size 1``, then 2,
4, …) and import the folder, or one file with all the rows. There is no percentile, so profiles
made so have the mean alone: they serve with ``--service mean``, and what is promised then holds
for latencies that do not vary.

A model that was measured at several image sizes becomes several, ``resnet18@160`` and
``resnet18@224``. There is no accuracy; timm's own results file is one of the kinds that
:func:`~ramsis.profiles.importers.accuracy.read_accuracy` takes, and counts at the image size at
which latency was measured.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from ramsis.errors import InputFileError
from ramsis.profiles.importers.rows import CsvRow, Measured, read_rows

_REQUIRED = ("model", "infer_samples_per_sec", "infer_step_time", "infer_batch_size")
_PASSED_OVER = (
    "infer_img_size", "infer_gmacs", "infer_macts", "param_count", "train_samples_per_sec",
    "train_step_time", "train_fwd_time", "train_bwd_time", "train_opt_time",
    "train_batch_size", "train_img_size",
)
_OFF = 2.0
"""Largest factor between a step's time and its samples per second (both are rounded)."""
_MORE = "also benchmark.py --batch-size 1, its results in the same folder or file"
_NOTE = ("timm reports no percentile: the mean is the only latency statistic "
         "(use --service mean), and its variation is unknown")


def recognises(columns: Collection[str]) -> bool:
    """Whether a header is of this format (also one of training results alone)."""
    return "model" in columns and any(
        re.fullmatch(r"(infer|train)_(step_time|samples_per_sec).*", column) for column in columns
    )


def read(path: Path) -> dict[str, Measured]:
    """The models of a file, or of the CSV files of a folder, in their order."""
    rows: list[CsvRow] = []
    for file in sorted(path.glob("*.csv")) if path.is_dir() else [path]:
        table = read_rows(file)
        table.require(_REQUIRED, (*_REQUIRED, *_PASSED_OVER))
        rows += table.rows
    if not rows:
        raise InputFileError("no CSV file in this folder", where=str(path),
                             allowed="results of timm's benchmark.py")
    sizes: dict[str, set[str]] = {}
    for row in rows:
        sizes.setdefault(row.text("model"), set()).add(row.cells.get("infer_img_size", ""))
    models: dict[str, Measured] = {}
    batches: dict[str, set[int]] = {}
    for row in rows:
        model = row.text("model")
        name = _at_size(row) if len(sizes[model]) > 1 else model
        _add(models, row, name, batches.setdefault(name, set()))
    return models


def _add(
    models: dict[str, Measured], row: CsvRow, name: str, batches: set[int]
) -> None:
    item = models.setdefault(
        name, Measured(alias=_at_size(row), notes=[_NOTE], more=_MORE)
    )
    batch, step_ms = row.count("infer_batch_size"), row.positive("infer_step_time")
    expected_ms = 1000.0 * batch / row.positive("infer_samples_per_sec")
    if not expected_ms / _OFF <= step_ms <= _OFF * expected_ms:
        raise InputFileError("does not fit infer_samples_per_sec, so it is not the ms of a batch",
                             where=row.at("infer_step_time"), value=step_ms,
                             allowed=f"about {expected_ms:.4g}")
    if batch in batches:
        raise InputFileError(f"batch size appears twice for {name}",
                             where=row.at("infer_batch_size"), value=batch, allowed="each once")
    batches.add(batch)
    item.batches.append(row.batch_profile({"mean_ms": step_ms}, column="infer_batch_size"))


def _at_size(row: CsvRow) -> str:
    size = row.cells.get("infer_img_size")
    return f"{row.text('model')}@{size}" if size else row.text("model")
