"""Importer of ``ramsis-artifact``: the folder of samples that the RAMSIS paper's artifact keeps.

For each model M and batch size B a file ``M/M_bsize-B_profile.json``, a list of latencies in
seconds. Statistics and a sketch of 128 quantiles are computed from the samples. There is no
accuracy: it comes from a separate file.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ramsis.errors import InputFileError
from ramsis.files import parsed
from ramsis.profiles.batch import BatchProfile
from ramsis.profiles.importers.rows import QUANTILES, MeasuredModel, read_text
from ramsis.profiles.importers.runs import Node
from ramsis.profiles.values import placed

_LAYOUT = "M/M_bsize-B_profile.json, a list of seconds for model M and batch size B"


def recognises(columns: Collection[str]) -> bool:
    """Return False: no CSV header is of this format, as its files are JSON."""
    return False


def read(path: Path) -> dict[str, MeasuredModel]:
    """Read the models of a folder, by name; files that are not JSON are passed over."""
    models: dict[str, MeasuredModel] = {}
    folders = sorted(item for item in path.glob("*") if item.is_dir())
    for folder in folders:
        files = sorted(folder.glob("*.json"))
        if files:
            models[folder.name] = MeasuredModel([_profile(file, folder.name) for file in files])
    if not models:
        raise InputFileError("no profiles in this folder", where=str(path), allowed=_LAYOUT)
    return models


def _profile(file: Path, model: str) -> BatchProfile:
    digits = file.name.removeprefix(f"{model}_bsize-").removesuffix("_profile.json")
    if file.name != f"{model}_bsize-{digits}_profile.json" or not digits.isdecimal():
        raise InputFileError("unexpected file name", where=str(file), allowed=_LAYOUT)
    with placed(lambda field: f"{file}: {field}"):
        return BatchProfile.from_samples(int(digits), _samples_ms(file), QUANTILES)


def _samples_ms(file: Path) -> list[float]:
    samples = Node(parsed(read_text(file), str(file)), str(file))
    if not isinstance(samples.value, list) or not samples.value:
        raise InputFileError("not a list of samples", where=str(file),
                             allowed="latencies in seconds")
    return [entry.number() * 1000 for entry in samples.entries()]
