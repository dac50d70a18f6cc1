"""The manifest of a policy set: which files a folder holds and what each promises.

A set is keyed by kind, load and arrival process, so that policies for two processes at one load
stand side by side.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from ramsis.errors import InvalidValueError, describe
from ramsis.files import canonical_json, fingerprint, read_json, write_atomic
from ramsis.policy.records import names
from ramsis.policy.schema import check_schema
from ramsis.policy.storage import Policy, policy_of, policy_text, validate
from ramsis.runtime.fields import FRACTION, POSITIVE, Fields
from ramsis.runtime.manifest import (
    MANIFEST_FORMAT,
    MANIFEST_NAME,
    listed_policies,
    manifest_entries,
)
from ramsis.runtime.table import KINDS, arrivals_label

__all__ = ["ManifestEntry", "entry_for", "policy_file_name", "read_manifest", "read_set",
           "validate_set", "write_manifest"]


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One policy of a set.

    Attributes
    ----------
    file
        Name of the policy file, in the manifest's folder.
    kind, load_qps, arrivals, slo_ms, workers
        As in the policy file.
    fingerprint
        ``sha256:`` and the digest of the file's bytes.
    expected_accuracy, expected_violation_rate, expected_effective_accuracy, upper_bound, \
overloaded
        The policy's expectations per query.
    """

    file: str
    kind: str
    load_qps: float
    arrivals: Mapping[str, Any]
    slo_ms: float
    workers: int
    fingerprint: str
    expected_accuracy: float | None
    expected_violation_rate: float
    expected_effective_accuracy: float
    upper_bound: float | None
    overloaded: bool

    @property
    def key(self) -> tuple[str, str, float]:
        """Kind, arrival process and load: what tells the policies of a set apart."""
        return self.kind, arrivals_label(self.arrivals), self.load_qps

    @classmethod
    def from_fields(cls, entry: Fields) -> ManifestEntry:
        """The entry in a manifest."""
        entry.only(names(cls))
        arrivals = entry.child("arrivals")
        arrivals.text("process")
        return cls(
            file=entry.text("file"),
            kind=entry.text("kind", KINDS),
            load_qps=entry.number("load_qps", POSITIVE),
            arrivals={key: arrivals.value(key) for key in arrivals},
            slo_ms=entry.number("slo_ms", POSITIVE),
            workers=entry.whole("workers", 1),
            fingerprint=entry.text("fingerprint"),
            expected_accuracy=entry.number_or_none("expected_accuracy", FRACTION),
            expected_violation_rate=entry.number("expected_violation_rate", FRACTION),
            expected_effective_accuracy=entry.number("expected_effective_accuracy", FRACTION),
            upper_bound=entry.number_or_none("upper_bound", FRACTION),
            overloaded=entry.flag("overloaded"),
        )


def policy_file_name(kind: str, load_qps: float, arrivals: Mapping[str, Any]) -> str:
    """The name of a policy's file in its set: by kind, load and, unless Poisson, process.

    Names sort by load up to 99999 queries per second. Decimals follow an underscore; a process
    that does not fit a file name is told by eight digits of its label's digest.

    >>> policy_file_name("worker", 400, {"process": "poisson"})
    'worker-00400qps.json'
    >>> policy_file_name("worker", 62.5, {"process": "negative-binomial", "dispersion": 4})
    'worker-00062qps_5-negative-binomial-dispersion=4.json'
    >>> policy_file_name("worker", 400, {"process": "my.arrivals:Bursts"})
    'worker-00400qps-my.arrivals-Bursts-afe2ffc4.json'
    """
    whole, _, decimals = format(Decimal(repr(float(load_qps))).normalize(), "f").partition(".")
    load = f"{whole:0>5}qps" + (f"_{decimals}" if decimals else "")
    label = arrivals_label(arrivals)
    if label == "poisson":
        return f"{kind}-{load}.json"
    process, name = str(arrivals["process"]), label.replace(":", "-", 1)
    if ":" in process or not re.fullmatch(r"[A-Za-z0-9._,=+-]{1,60}", name):
        digest = hashlib.sha256(label.encode()).hexdigest()[:8]
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", process)[:40] + f"-{digest}"
    return f"{kind}-{load}-{name}.json"


def entry_for(policy: Policy, file: str, text: str | None = None) -> ManifestEntry:
    """The manifest's entry for a policy in the file of that name, which holds ``text``."""
    return _entry(policy, file, fingerprint(policy_text(policy) if text is None else text))


def _entry(policy: Policy, file: str, digest: str) -> ManifestEntry:
    expected = policy.expectations
    return ManifestEntry(
        file=file,
        kind=policy.kind,
        load_qps=policy.load_qps,
        arrivals=policy.arrivals,
        slo_ms=policy.slo_ms,
        workers=policy.workers,
        fingerprint=digest,
        expected_accuracy=expected.accuracy,
        expected_violation_rate=expected.violation_rate,
        expected_effective_accuracy=expected.effective_accuracy,
        upper_bound=expected.upper_bound,
        overloaded=expected.overloaded,
    )


def write_manifest(folder: str | os.PathLike[str], entries: Iterable[ManifestEntry]) -> Path:
    """Write the manifest of a folder whose policy files are already there; its path.

    Raises
    ------
    InvalidValueError
        When there is no entry, or two have the same file or the same key.
    OutputError
        When the manifest cannot be written.
    """
    ordered = sorted(entries, key=lambda entry: entry.key)
    if not ordered:
        raise InvalidValueError(describe("a manifest needs at least one policy"))
    for what in ("file", "key"):
        seen = [getattr(entry, what) for entry in ordered]
        twice = next((value for value in seen if seen.count(value) > 1), None)
        if twice is not None:
            raise InvalidValueError(describe(f"two policies with one {what}", value=twice))
    path = Path(folder) / MANIFEST_NAME
    policies = [asdict(entry) for entry in ordered]
    write_atomic(path, canonical_json({"format": MANIFEST_FORMAT, "policies": policies}))
    return path


def read_manifest(folder: str | os.PathLike[str]) -> tuple[ManifestEntry, ...]:
    """The entries of a folder's manifest; the policy files are not looked at.

    Raises
    ------
    InputFileError
        When there is no manifest, it breaks its format, or two entries have the same key.
    """
    listed = manifest_entries(Path(folder))
    entries = tuple(ManifestEntry.from_fields(fields) for fields in listed)
    keys = [entry.key for entry in entries]
    for fields, key in zip(listed, keys, strict=True):
        if keys.count(key) > 1:
            raise fields.refusal("load_qps", "two policies for one load and arrival process",
                                 value=key)
    return entries


def read_set(folder: str | os.PathLike[str]) -> tuple[Policy, ...]:
    """The policies that a folder's manifest lists, in its order (arrival process, load).

    Raises
    ------
    InputFileError
        As :func:`read_manifest`, and when a policy file is missing, has changed since the
        manifest was written, breaks its format, or is not what the manifest says.
    """
    entries = read_manifest(folder)
    policies = []
    for one, entry in zip(listed_policies(Path(folder)), entries, strict=True):
        policy = policy_of(one.document, str(one.path))
        _check_entry(one.entry, entry, policy)
        policies.append(policy)
    return tuple(policies)


def validate_set(folder: str | os.PathLike[str]) -> tuple[Policy, ...]:
    """As :func:`read_set`, with the schemas and each file's consistency checked too."""
    policies = read_set(folder)
    path = Path(folder) / MANIFEST_NAME
    check_schema(read_json(path), "manifest-1", str(path))
    for entry in read_manifest(folder):
        validate(Path(folder) / entry.file)
    return policies


def _check_entry(fields: Fields, stated: ManifestEntry, policy: Policy) -> None:
    """Refuse an entry that says something else than its policy file."""
    found = _entry(policy, stated.file, stated.fingerprint)
    for name in names(ManifestEntry):
        if getattr(found, name) != getattr(stated, name):
            raise fields.refusal(name, f"{stated.file} says otherwise",
                                 value=getattr(stated, name), allowed=f"{getattr(found, name)!r}")
