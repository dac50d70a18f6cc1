"""Checkpoints of a measurement, to resume it after an interruption.

If models are measured one after the other, ``OUT.partial`` is a valid profile file of the finished
ones. If they are interleaved, none is finished before the end, and the file ``OUT.runs`` has all
runs. A measurement resumes only with the same hardware, versions and settings. The file of runs
also has a digest of each model's file; a changed model is measured again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import compress
from pathlib import Path
from typing import Any

from ramsis.errors import InputFileError, InvalidValueError, OutputError
from ramsis.files import canonical_json, make_folder, read_json, write_atomic
from ramsis.profiles.file import load
from ramsis.profiles.measure.sampling import RunsInTime
from ramsis.profiles.model import ProfileSet

SAME = ("backend", "settings", "versions")
"""Entries of ``measurement`` that must agree, beside ``hardware``."""

_KEPT_EACH_S = 5.0


def partial_path(out: str | os.PathLike[str]) -> Path:
    """Return the path of the file that keeps the models finished so far."""
    return Path(f"{os.fspath(out)}.partial")


class KeptRuns:
    """Runs of interleaved models, with the file that stores them.

    ``out`` is the profile file that is to be written; without one nothing is kept. ``hardware``
    and ``measurement`` are those of the new profile set, and ``models`` has the name of each model
    in the profile → its name in the back end. New runs are appended to ``runs``.
    """

    def __init__(
        self, out: str | os.PathLike[str] | None, hardware: Mapping[str, Any],
        measurement: Mapping[str, Any], models: Mapping[str, str],
    ) -> None:
        self._path = None if out is None else Path(f"{os.fspath(out)}.runs")
        self._identity = _identity(hardware, measurement)
        self._digests = {} if out is None else {
            name: _digest(model) for name, model in models.items()}
        self.runs, self._written_s = RunsInTime(), time.monotonic()

    def go_on(self, changed: Callable[[str], object] = lambda model: None) -> None:
        """Load the runs of an interrupted measurement, if there is one.

        ``changed`` is called with each model whose runs are left out, as its file has changed.
        """
        if self._path is None or not self._path.exists():
            return
        try:
            before = read_json(self._path)
            kept = before.pop("runs")
            self.runs.keys = [(str(kept["models"][model]), int(batch)) for model, batch in
                              zip(kept["model"], kept["batch"], strict=True)]
            self.runs.latency_ms = list(map(float, kept["latency_ms"]))
            if len(self.runs.keys) != len(self.runs.latency_ms) or not all(
                    0.0 < latency_ms < math.inf for latency_ms in self.runs.latency_ms):
                raise ValueError("runs without a time")
            digests = dict(kept.get("digests", {}))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise InputFileError(
                "not the runs of an interrupted measurement", where=str(self._path),
                allowed="--restart to discard it") from error
        _check_same(before, self._identity, self._path)
        others = {name for name, digest in self._digests.items()
                  if digests.get(name, digest) != digest}
        stay = [name not in others for name, _ in self.runs.keys]
        for name in sorted(others & {name for name, _ in self.runs.keys}):
            changed(name)
        self.runs.keys = list(compress(self.runs.keys, stay))
        self.runs.latency_ms = list(compress(self.runs.latency_ms, stay))

    def discard(self) -> None:
        """Remove the file of kept runs, which a finished measurement no longer needs."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def after_round(self) -> None:
        """Write the file, if the last write was some seconds ago."""
        if self._path is not None and time.monotonic() - self._written_s > _KEPT_EACH_S:
            models = list(dict.fromkeys(name for name, _ in self.runs.keys))
            place = {name: number for number, name in enumerate(models)}
            write_atomic(self._path, json.dumps({**self._identity, "runs": {
                "models": models, "digests": self._digests,
                "model": [place[name] for name, _ in self.runs.keys],
                "batch": [batch for _, batch in self.runs.keys],
                "latency_ms": self.runs.latency_ms}}))
            self._written_s = time.monotonic()


def _digest(model: str) -> str | None:
    """Return the digest of the file that a model is read from; None where there is none.

    A function is read from its module, and a folder's model from its configuration.
    """
    module = sys.modules.get(model.partition(":")[0])
    try:
        path = Path(model)
        if not path.exists():
            path = Path(getattr(module, "__file__", None) or os.devnull)
        if path.is_dir():
            path /= "config.json"
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):  # a name that no file can have, or one that is not to be read
        return None


def check_writable(out: str | os.PathLike[str]) -> None:
    """Refuse, before any measuring, a file that could not be written after it."""
    target = Path(out)
    if target.is_dir():
        raise OutputError("is a folder", where=str(out), allowed="a file name")
    make_folder(target.parent, of=target)
    if not os.access(target.parent, os.W_OK):
        raise OutputError("cannot write in the folder", where=str(target))


def unfinished(
    path: Path, hardware: Mapping[str, Any], measurement: Mapping[str, Any]
) -> ProfileSet:
    """Load the set measured so far from ``path``; refuse one of another measurement."""
    profile = load(path)
    _check_same(_identity(profile.hardware, profile.measurement), _identity(hardware, measurement),
                path)
    return profile


def _check_same(before: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    differing = sorted(_differences(before, now, ""))
    if differing:
        raise InvalidValueError(
            "an interrupted measurement differs in " + ", ".join(differing), where=str(path),
            allowed="the same settings to go on with it, or --restart to discard it")


def _identity(hardware: Mapping[str, Any], measurement: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that must agree to resume, as they read back from a file."""
    entries = {"hardware": dict(hardware), **{key: measurement.get(key) for key in SAME}}
    result: dict[str, Any] = json.loads(canonical_json(entries))
    return result


def _differences(before: object, now: object, place: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in before.keys() | now.keys():
            yield from _differences(before.get(key), now.get(key),
                                    f"{place}.{key}" if place else key)
    elif before != now:
        yield place
