"""Sharing profiles: GPU utilisation, memory and isolated latency by model and batch size.

A CSV file with a row for each model and batch size; missing sizes do not fit the GPU.

- ``model``, ``batch``, ``latency_s``, ``throughput_rps`` (batch / latency);
- ``mem_cap_pct``: memory, as a share of the GPU's;
- ``ach_occ_pct``, ``wavg_ach_occ_pct``: achieved occupancy, the largest sum over kernels that run
  at once, and its mean over time; ``wavg_sm_util_pct``: multiprocessors in use, over time;
- optional ``gpu_type``, and ``mps_share_pct``, the share of the multiprocessors that the model was
  held to (none is all of them); ``flag``: rows whose flag starts with ``garbled``, or that is
  ``unreadable``, are skipped.

The latency is computed as batch / throughput, which is printed with more digits; it must agree
with the printed latency within rounding.

``v100`` names the shipped profile: 13 models on an NVIDIA V100, Table A.1 of P. Elvinger, ETH
Zurich, MSc thesis, 2024.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import ramsis
from ramsis.errors import InputFileError, check_known, whole
from ramsis.profiles.importers.rows import CsvRow, read_rows

__all__ = ["SharedBatch", "SharingProfile", "between", "find_sharing_profile",
           "read_sharing_profile"]

_PACKAGE = Path(ramsis.__file__).resolve().parent
# Folders of shipped profiles: in a wheel, and in the repository of an editable installation.
_SHIPPED = (_PACKAGE / "profiles" / "shipped" / "sharing",
            _PACKAGE.parent / "profiles" / "sharing")

_REQUIRED = ("model", "batch", "latency_s", "throughput_rps", "mem_cap_pct", "ach_occ_pct",
             "wavg_ach_occ_pct", "wavg_sm_util_pct")
_KNOWN = (*_REQUIRED, "gpu_type", "mps_share_pct", "flag")
_UNREADABLE = ("garbled", "unreadable")
# Last printed digit of latencies (four decimals of a second) and of throughputs.
_LATENCY_STEP_MS = 0.1
_RATE_STEP_RPS = 0.01


@dataclass(frozen=True, slots=True)
class SharedBatch:
    """Profile of a batch of a model, alone on a GPU."""

    model: str
    gpu_type: str
    batch: int
    latency_ms: float  # > 0
    memory: float  # share of the GPU's memory, in (0, 1]
    # largest and mean achieved occupancy, in [0, 1]
    occupancy: float
    weighted_occupancy: float
    utilisation: float  # mean share of the multiprocessors in use, in [0, 1]
    # share of the multiprocessors that it was limited to; ``None`` is all of them
    mps_share: float | None = None

    @property
    def rate_rps(self) -> float:
        """Throughput of successive batches, in requests per second."""
        return 1000.0 * self.batch / self.latency_ms


@dataclass(frozen=True)
class SharingProfile:
    """Sharing profile of several models."""

    rows: tuple[SharedBatch, ...]  # one for each model, GPU type, batch and share
    skipped: tuple[str, ...] = ()  # messages on unreadable rows

    def models(self) -> tuple[str, ...]:
        """Names of the models, in the order of the file."""
        return tuple(dict.fromkeys(row.model for row in self.rows))

    def gpu_types(self) -> tuple[str, ...]:
        """Names of the GPU types, in the order of the file."""
        return tuple(dict.fromkeys(row.gpu_type for row in self.rows))

    def batches(self, model: str, gpu_type: str) -> tuple[SharedBatch, ...]:
        """Return the batches of a model on a whole GPU, by size; empty if it does not fit."""
        check_known("model is not in the profile", model, self.models())
        return tuple(sorted((row for row in self.rows if row.mps_share is None
                             and (row.model, row.gpu_type) == (model, gpu_type)),
                            key=lambda row: row.batch))


def between(rows: Sequence[SharedBatch], batch: int) -> SharedBatch | None:
    """Return the row of a batch size, interpolated linearly between measured sizes.

    A batch below the smallest measured one has its latency. Return None above the largest one.
    """
    if not rows or batch > rows[-1].batch:
        return None
    if batch <= rows[0].batch:
        return replace(rows[0], batch=batch)
    i = next(i for i, row in enumerate(rows) if row.batch >= batch)
    low, high = rows[i - 1], rows[i]
    if high.batch == batch:
        return high
    part = (batch - low.batch) / (high.batch - low.batch)
    values = {name: (1 - part) * getattr(low, name) + part * getattr(high, name)
              for name in ("latency_ms", "memory", "occupancy", "weighted_occupancy",
                           "utilisation")}
    return replace(low, batch=batch, **values)


def find_sharing_profile(path_or_name: str | os.PathLike[str]) -> Path:
    """Return the path if the file exists, else that of the shipped profile with this name.

    If neither exists, return the path, so that opening it raises an error with this name.
    """
    path = Path(path_or_name)
    shipped = (folder / f"{path}.csv" for folder in _SHIPPED)
    return path if path.exists() else next((file for file in shipped if file.is_file()), path)


def read_sharing_profile(path_or_name: str | os.PathLike[str]) -> SharingProfile:
    """Read a sharing profile from a CSV file, or a shipped one by name."""
    path = find_sharing_profile(path_or_name)
    table = read_rows(path)
    table.require(_REQUIRED, _KNOWN)
    rows: dict[tuple[object, ...], SharedBatch] = {}
    skipped = []
    for row in table.rows:
        flag = row.cells.get("flag", "")
        if flag.startswith(_UNREADABLE):
            skipped.append(f"{row.text('model')} batch {row.text('batch')}: {flag}")
            continue
        item = _row(row)
        case = (item.model, item.gpu_type, item.batch, item.mps_share)
        if case in rows:
            raise InputFileError("the same case stands twice", where=row.at("batch"),
                                 value=item.batch)
        rows[case] = item
    if not rows:
        raise InputFileError("no readable rows", where=str(path))
    return SharingProfile(tuple(rows.values()), tuple(skipped))


def _row(row: CsvRow) -> SharedBatch:
    batch = row.count("batch")
    whole(1).required(row.at("batch"), batch, "not a batch size", InputFileError)
    rate = row.positive("throughput_rps")
    printed_ms = 1000.0 * row.positive("latency_s")
    latency_ms = 1000.0 * batch / rate
    step = latency_ms - 1000.0 * batch / (rate + _RATE_STEP_RPS / 2)
    if abs(latency_ms - printed_ms) > _LATENCY_STEP_MS / 2 + step + 1e-9:
        raise InputFileError("latency is not batch / throughput", where=row.at("latency_s"),
                             value=printed_ms / 1000.0, allowed=f"{latency_ms / 1000.0:.4f}")
    mps = _share(row, "mps_share_pct") if row.cells.get("mps_share_pct") else None
    return SharedBatch(
        row.text("model"), row.text("gpu_type") if row.cells.get("gpu_type") else "gpu", batch,
        latency_ms,
        _share(row, "mem_cap_pct"), _share(row, "ach_occ_pct"), _share(row, "wavg_ach_occ_pct"),
        _share(row, "wavg_sm_util_pct"), None if mps == 1.0 else mps)


def _share(row: CsvRow, column: str) -> float:
    """Read a percentage as a share, in (0, 1]."""
    value = row.number(column)
    if not 0 < value <= 100:
        raise InputFileError("not a percentage", where=row.at(column), value=value,
                             allowed="above 0, at most 100")
    return value / 100.0
