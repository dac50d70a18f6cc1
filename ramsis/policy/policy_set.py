"""Policy sets in memory and in files: names of the files, the manifest, reading and writing.

A folder's ``manifest.json`` lists the levels of the set, and for each level its stations with
their policy files. Files are written before the manifest that names them, and each file
atomically, so that a folder holds a valid set at every moment. Several processes may extend a set
at once: they write one after the other (:func:`ramsis.files.folder_lock`), and each keeps the
levels of the others.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from pathlib import Path
from typing import Any

from ramsis.errors import FRACTION, InputFileError, InvalidValueError, OutputError
from ramsis.fields import Fields
from ramsis.files import (
    canonical_json,
    check_within,
    fingerprint,
    folder_lock,
    make_folder,
    read_json,
    read_text,
    write_atomic,
)
from ramsis.policy.policy import Policy
from ramsis.policy.records import Rates
from ramsis.policy.storage import validate, write
from ramsis.runtime.manifest import (
    MANIFEST_FORMAT,
    MANIFEST_NAME,
    WHOLE_NAME,
    PolicyFile,
    manifest_path,
    read_manifest,
)
from ramsis.runtime.policy_set import ALL_WORKERS, Level, PolicySet, Station
from ramsis.runtime.table import arrivals_label
from ramsis.schemas import check_schema

_NEW = ".new"

_TOLERANCE = 1e-6
_POISSON = "poisson"
_RATES = ("expected_violation_rate", "expected_effective_accuracy")
_OPTIONAL_RATES = ("expected_accuracy", "upper_bound", "shared_effective_accuracy",
                   "shared_violation_rate", "apart_effective_accuracy", "apart_violation_rate")


_COMMAND: ContextVar[str | None] = ContextVar("command", default=None)


@contextmanager
def made_by(command: str) -> Iterator[None]:
    """Have manifests written in the block list ``command``, a shell command, as made by it."""
    token = _COMMAND.set(command)
    try:
        yield
    finally:
        _COMMAND.reset(token)


def policy_file_name(
    dispatch: str, load_qps: float, arrivals: Mapping[str, Any], slowness: float = 1.0
) -> str:
    """Return the name of a policy's file in its set: dispatch, load and, unless Poisson, process.

    Names sort by load up to 99999 requests per second. Decimals follow an underscore. A slowness
    other than 1 is part of the name. If the label of an arrival process is not a valid file name,
    eight digits of its digest are appended.

    >>> policy_file_name("round-robin", 400, {"process": "poisson"})
    'round-robin-00400qps.json'
    >>> policy_file_name("round-robin", 62.5, {"process": "negative-binomial", "dispersion": 4})
    'round-robin-00062qps_5-negative-binomial-dispersion=4.json'
    >>> policy_file_name("central-queue", 400, {"process": "my.arrivals:Bursts"})
    'central-queue-00400qps-my.arrivals-Bursts-afe2ffc4.json'
    >>> policy_file_name("round-robin", 400, {"process": "poisson"}, 1.3)
    'round-robin-00400qps-slowness-1_3.json'
    """
    whole, decimals = _in_name(load_qps)
    load = f"{whole:0>5}qps{decimals}"
    if slowness != 1:
        load += f"-slowness-{''.join(_in_name(slowness))}"
    label = arrivals_label(arrivals)
    if label == "poisson":
        return f"{dispatch}-{load}.json"
    process, name = str(arrivals["process"]), label.replace(":", "-", 1)
    if ":" in process or not re.fullmatch(r"[A-Za-z0-9._,=+-]{1,60}", name):
        digest = hashlib.sha256(label.encode()).hexdigest()[:8]
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", process)[:40] + f"-{digest}"
    return f"{dispatch}-{load}-{name}.json"


def _in_name(number: float) -> tuple[str, str]:
    """Return the parts of a number in a file name: whole, and decimals with an underscore."""
    whole, _, decimals = format(Decimal(repr(float(number))).normalize(), "f").partition(".")
    return whole, f"_{decimals}" if decimals else ""


def station_name(worker_types: Sequence[str], policy: Policy) -> str:
    """Return the name of a station, and of its folder: worker types, workers and SLOs."""
    slos = [f"{policy.slo_ms:g}ms"]
    if policy.slo_classes:
        slos = [f"{slo_class.label}={slo_class.share:.6g}" for slo_class in policy.slo_classes]
    return "-".join(["+".join(worker_types), f"{policy.workers}w", *slos])


def level_of(policy: Policy, worker_types: tuple[str, ...] = (ALL_WORKERS,)) -> Level[Policy]:
    """Return the level with a single station that is served by a policy."""
    share = {slo_class.slo_ms: 1.0 for slo_class in policy.classes}
    station = Station(station_name(worker_types, policy), worker_types, policy.workers,
                      policy.load_qps, share, policy)
    return Level(policy.load_qps, policy.arrivals_label, (station,), policy.promised,
                 policy.slowness)


def set_of(policies: Iterable[Policy]) -> PolicySet[Policy]:
    """Return a simple set of policies for the same workers and SLOs."""
    listed = list(policies)
    for what, values in (("numbers of workers", {policy.workers for policy in listed}),
                         ("SLO classes", {policy.classes for policy in listed}),
                         ("dispatch rules", {policy.dispatch for policy in listed})):
        if len(values) > 1:
            raise InvalidValueError(f"policies for several {what} in one set",
                                    value=sorted(map(str, values)))
    types, classes = _header_of(listed[0]) if listed else ({}, {})
    return PolicySet(map(level_of, listed), types, classes)


def rates_of(stations: Iterable[tuple[float, Policy]]) -> Rates:
    """Compute the joint promise of stations from their shares of all requests and policies."""
    effective, violations = 0.0, 0.0
    for share, policy in stations:
        effective += share * policy.rates.effective_accuracy
        violations += share * policy.rates.violation_rate
    return Rates(min(effective, 1.0), min(violations, 1.0))


class SetFolder:
    """Writer of a policy set's folder, level by level.

    Parameters
    ----------
    folder : path
        Made when missing.
    worker_types : mapping of str to int
        Workers by name of the type.
    slo_classes : mapping of float to float
        Share of the requests by SLO in ms.
    flat : bool
        Whether every level has one station, so that its file stands beside the manifest.
    accepts : callable, optional
        Called before a set of another process is extended; raises an error to refuse it.
    """

    def __init__(
        self, folder: str | os.PathLike[str], worker_types: Mapping[str, int],
        slo_classes: Mapping[float, float], created_by: str, *, flat: bool = True,
        accepts: Callable[[], None] | None = None,
    ) -> None:
        self._folder, self._flat, self._accepts = Path(folder), flat, accepts
        self._commands: list[str] = []
        self._header = {
            "format": MANIFEST_FORMAT, "created_by": created_by,
            "worker_types": [{"name": name, "workers": int(count)}
                             for name, count in worker_types.items()],
            "slo_classes": _share_document(slo_classes),
        }
        self._levels: dict[tuple[str, float, float], dict[str, Any]] = {}
        self._written: bytes | None = None

    @classmethod
    def of(cls, folder: str | os.PathLike[str], policy: Policy) -> SetFolder:
        """Return the writer of a set for the workers and SLO classes of a policy."""
        return cls(folder, *_header_of(policy), policy.created_by)

    def _take_up(self) -> None:
        """Read the levels of the manifest again if another process has written it."""
        path = self._folder / MANIFEST_NAME
        content = path.read_bytes() if path.exists() else None
        if content == self._written:
            return
        self._written, self._levels, self._commands = content, {}, []
        if content is None:
            return
        if self._accepts is not None:
            self._accepts()
        manifest = read_json(path)
        self._commands = list(manifest.get("commands", ()))
        for document in manifest["levels"]:
            slowness = float(document.get("slowness") or 1.0)
            key = arrivals_label(document["arrivals"]), slowness, float(document["load_qps"])
            self._levels[key] = document

    def add(self, level: Level[Policy]) -> None:
        """Write the policies of a level; replace a level of the same load and arrival process.

        Levels that other processes have written meanwhile are kept.
        """
        make_folder(self._folder)
        with folder_lock(self._folder):
            _finish(self._folder)
            self._take_up()
            self.write_files(level)
            self.write_manifest()

    def write_files(self, level: Level[Policy]) -> None:
        """Write the policies of a level without the manifest."""
        stations = []
        for station in level.stations:
            policy = station.policy
            name = policy_file_name(policy.dispatch, policy.load_qps, policy.arrivals,
                                    policy.slowness)
            file = name if self._flat else f"{station.name}/{name}"
            check_within(self._folder, file)
            text = write(policy, self._folder / file)
            stations.append({
                "name": station.name, "file": file, "fingerprint": fingerprint(text),
                "dispatch": policy.dispatch, "worker_types": list(station.worker_types),
                "workers": int(station.workers), "load_qps": float(station.load_qps),
                "share": _share_document(station.share),
            })
        slower = {} if level.slowness == 1.0 else {"slowness": float(level.slowness)}
        self._levels[level.arrivals, level.slowness, level.load_qps] = {
            "load_qps": float(level.load_qps), **slower, "arrivals": _arrivals_document(level),
            **level.expected, "stations": stations,
        }

    def write_manifest(self) -> Path:
        """Write the manifest of all levels, added or read; return its path."""
        path = self._folder / MANIFEST_NAME
        levels = [self._levels[key] for key in sorted(self._levels)]
        command = _COMMAND.get()
        commands = list(dict.fromkeys([*self._commands, *([command] if command else [])]))
        listed = {"commands": commands} if commands else {}
        text = canonical_json({**self._header, **listed, "levels": levels})
        write_atomic(path, text)
        self._written = text.encode()
        return path


def write_set(
    folder: str | os.PathLike[str], policies: PolicySet[Policy], *, created_by: str
) -> Path:
    """Write the policies of a set and then its manifest; return the manifest's path.

    If a level has several stations, the policies of each are in a sub-folder of its name.
    """
    flat = all(len(level.stations) == 1 for level in policies.levels)
    target = SetFolder(folder, policies.worker_types, policies.slo_classes, created_by, flat=flat)
    make_folder(folder)
    with folder_lock(folder):
        _finish(Path(folder))
        for level in policies.levels:
            target.write_files(level)
        return target.write_manifest()


def read_set(folder: str | os.PathLike[str]) -> PolicySet[Policy]:
    """Read the policies that a folder's manifest lists, by process, slowness and load.

    Raises
    ------
    InputFileError
        When there is no manifest, it breaks its format, or a policy file is missing, has changed
        since the manifest was written, breaks its format, or is not what the manifest says.
    """
    listed = read_manifest(Path(folder))
    file = str(manifest_path(folder))
    for i, stated in enumerate(listed.levels):
        _check_expected(Fields(stated.expected, file, f"levels[{i}]"))

    def read(entry: PolicyFile) -> Policy:
        return Policy.from_document(entry.document(), str(entry.path))

    policies = listed.map(read)
    for i, (stated, level) in enumerate(zip(listed.levels, policies.levels, strict=True)):
        for entry, station in zip(stated.stations, level.stations, strict=True):
            _check_station(entry.policy.entry, station, listed.slo_classes)
        _check_level(Fields(stated.expected, file, f"levels[{i}]"), level,
                     sum(listed.worker_types.values()))
    return policies


def validate_set(folder: str | os.PathLike[str]) -> PolicySet[Policy]:
    """Read a set as :func:`read_set` does; check schemas, policy files and sums, too.

    Raises
    ------
    InputFileError
        Also when a station's load is not that of its shares of the SLO classes, or a level's
        expected effective accuracy is not the mean of its stations' by load.
    """
    policies = read_set(folder)
    path = manifest_path(folder)
    check_schema(read_json(path), "ramsis.policy", "manifest-1", str(path))
    for i, level in enumerate(read_manifest(Path(folder)).levels):
        for station in level.stations:
            validate(station.policy.path)
            load = sum(level.load_qps * policies.slo_classes[slo] * share
                       for slo, share in station.share.items())
            if abs(load - station.load_qps) > _TOLERANCE * level.load_qps:
                raise station.policy.entry.refusal(
                    "load_qps", "load of a station is not that of its shares",
                    value=station.load_qps, allowed=f"{load:g}")
        total = rates_of((station.load_qps / level.load_qps, station.policy)
                         for station in policies.levels[i].stations)
        stated = level.expected["expected_effective_accuracy"]
        if abs(total.effective_accuracy - stated) > _TOLERANCE:
            raise InputFileError("not the sum of the stations' promises",
                                 where=f"{path}: levels[{i}].expected_effective_accuracy",
                                 value=stated, allowed=f"{total.effective_accuracy}")
    return policies


@contextmanager
def replaced_set(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Provide a folder for a new set, which replaces that in ``folder`` at the block's end.

    The old set is valid until the new one is complete: an error or an interruption before that
    leaves the old set unchanged. From then on the new set is valid, first in the sub-folder
    :data:`WHOLE_NAME`, then in ``folder``; if the move is interrupted, the next process that
    writes to the folder completes it. Files of the old set are removed unless they have changed
    since its manifest was written. Other processes that write to the folder wait.
    """
    target = Path(folder)
    new = target / _NEW
    with folder_lock(target):
        try:
            _finish(target)
            new.mkdir()
            yield new
            os.replace(new, target / WHOLE_NAME)
            _finish(target)
        except OSError as error:
            raise OutputError(f"cannot replace the set ({error.strerror})",
                              where=str(folder)) from error
        finally:
            shutil.rmtree(new, ignore_errors=True)


def _finish(folder: Path) -> None:
    """Finish an interrupted write: drop a partial new set, move a complete one into place."""
    whole = folder / WHOLE_NAME
    for name in (_NEW, WHOLE_NAME, MANIFEST_NAME):
        check_within(folder, name)
    shutil.rmtree(folder / _NEW, ignore_errors=True)
    if (whole / MANIFEST_NAME).exists():
        _put_in_place(whole, folder)
    shutil.rmtree(whole, ignore_errors=True)


def _put_in_place(new: Path, folder: Path) -> None:
    """Move a set's files into a folder and remove those of the old set, the manifest last."""
    old = _files_in(folder, folder / MANIFEST_NAME)
    moved = _files_in(folder, new / MANIFEST_NAME).keys()
    for name in moved:
        check_within(folder, name)
        check_within(new, name)
    for name in moved:
        if (new / name).exists():
            (folder / name).parent.mkdir(exist_ok=True)
            os.replace(new / name, folder / name)
    gone = [name for name, listed in old.items() if name not in moved and _is_policy(listed)]
    for name in gone:
        (folder / name).unlink(missing_ok=True)
    for parent in {(folder / name).parent for name in gone} - {folder}:
        if parent.is_dir() and not any(parent.iterdir()):
            parent.rmdir()
    os.replace(new / MANIFEST_NAME, folder / MANIFEST_NAME)


def _files_in(folder: Path, manifest: Path) -> dict[str, PolicyFile]:
    """Return the policy files that a manifest lists by name; none if it is damaged."""
    try:
        return {station.policy.file: station.policy
                for level in read_manifest(folder, manifest).levels for station in level.stations}
    except InputFileError:
        return {}


def _is_policy(listed: PolicyFile) -> bool:
    """Return whether a listed file is a policy with the digest that the manifest states."""
    path = listed.folder / listed.file
    try:
        check_within(listed.folder, listed.file)
        Policy.from_document(read_json(path), listed.file)
        return fingerprint(read_text(path)) == listed.fingerprint
    except (InputFileError, OutputError):
        return False


def _header_of(policy: Policy) -> tuple[dict[str, int], dict[float, float]]:
    """Return workers by type and shares by SLO of a set with a single station."""
    return ({ALL_WORKERS: int(policy.workers)},
            {float(slo_class.slo_ms): slo_class.share for slo_class in policy.classes})


def _share_document(shares: Mapping[float, float]) -> list[dict[str, float]]:
    return [{"slo_ms": float(slo), "share": float(share)} for slo, share in sorted(shares.items())]


def _arrivals_document(level: Level[Policy]) -> dict[str, Any]:
    """Return the document of the arrival process of all requests of a level."""
    if len(level.stations) == 1 or level.arrivals == _POISSON:
        return dict(level.stations[0].policy.arrivals)
    return _thinned(level, 1.0)


def _thinned(level: Level[Policy], share: float) -> dict[str, Any]:
    """Return the document of a level's arrivals of which a random ``share`` is kept."""
    # Here, as arrival processes take long to load and few sets need them.
    from ramsis.arrivals import Arrivals, describe_process
    from ramsis.cluster.routing import split

    process = Arrivals.parse(level.arrivals)(level.load_qps)
    return describe_process(split(process, share=share).process)


def _check_expected(fields: Fields) -> None:
    """Refuse a level's promise with unknown names, or rates that are no fractions."""
    fields.only((*_RATES, *_OPTIONAL_RATES, "overloaded"))
    for name in _RATES:
        fields.number(name, FRACTION)
    for name in _OPTIONAL_RATES:
        fields.number_or_none(name, FRACTION)
    fields.flag("overloaded")


def _check_station(
    entry: Fields, station: Station[Policy], classes: Mapping[float, float]
) -> None:
    """Refuse a station's entry in a manifest that contradicts its policy file."""
    policy, file = station.policy, entry.text("file")
    loads = {slo: classes[slo] * share for slo, share in sorted(station.share.items())}
    total = max(sum(loads.values()), 1e-300)
    shares = {slo_class.slo_ms: round(slo_class.share, 6) for slo_class in policy.classes}
    for key, stated, actual in (
        ("dispatch", entry.text("dispatch"), policy.dispatch),
        ("workers", station.workers, policy.workers),
        ("load_qps", station.load_qps, policy.load_qps),
        ("share", {slo: round(load / total, 6) for slo, load in loads.items()}, shares),
    ):
        if stated != actual:
            raise entry.refusal(key, f"{file} says otherwise", value=stated,
                                allowed=f"{actual!r}")


def _check_level(fields: Fields, level: Level[Policy], workers: int) -> None:
    """Refuse a level whose load, slowness, arrivals or promise are not those of its policies.

    With one station the promise is that of its policy, and with all ``workers`` the bound, too.
    """
    stated: list[tuple[str, Any, Any]] = []
    for station in level.stations:
        stated += [("slowness", level.slowness, station.policy.slowness),
                   *_arrivals_stated(level, station)]
    if len(level.stations) == 1:
        policy = level.policy
        if level.load_qps != policy.load_qps:  # the load is carried, never computed
            raise fields.refusal("load_qps", "the policy was made for another load",
                                 value=level.load_qps, allowed=f"{policy.load_qps!r}")
        stated += [(name, level.expected.get(name), value)
                   for name, value in level_of(policy).expected.items()
                   if name != "upper_bound" or policy.workers == workers]
    for name, value, actual in stated:
        if not _equal(value, actual):
            raise fields.refusal(name, "the policy file says otherwise", value=value,
                                 allowed=f"{actual!r}")


def _arrivals_stated(
    level: Level[Policy], station: Station[Policy]
) -> list[tuple[str, Any, Any]]:
    """Return a station's arrivals by the manifest, and by its policy, field by field."""
    policy = station.policy
    several = len(level.stations) > 1 and level.arrivals != _POISSON
    process, _, _ = level.arrivals.partition(":")
    # A process of the user's (module:name) is not imported to check a file.
    if not several or ":" in str(policy.arrivals["process"]) or (
            process != policy.arrivals["process"]):
        return [("arrivals", level.arrivals, policy.arrivals_label)]
    wanted = _thinned(level, min(1.0, station.load_qps / level.load_qps))
    return [("arrivals", value, policy.arrivals.get(name)) for name, value in wanted.items()]


def _equal(value: object, other: object) -> bool:
    """Return whether two values are the same; numbers up to rounding."""
    if isinstance(value, float) and isinstance(other, float):
        return abs(value - other) <= _TOLERANCE * max(1.0, abs(other))
    return value == other
