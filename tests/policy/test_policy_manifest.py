"""The manifest of a policy set: names, keys, and files that are missing or have changed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis import policy, runtime
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.files import canonical_json
from tests.policy.samples import small_policy

BURSTY = {"process": "negative-binomial", "dispersion": 4.0}
READERS = [policy.read_set, policy.validate_set, runtime.load]


def write_set(folder: Path, *members: policy.WorkerPolicy) -> Path:
    """A folder with the policies' files and their manifest."""
    entries = []
    for member in members:
        name = policy.policy_file_name(member.kind, member.load_qps, member.arrivals)
        policy.write(member, folder / name)
        entries.append(policy.entry_for(member, name))
    policy.write_manifest(folder, entries)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_set(tmp_path, small_policy(load_qps=800.0), small_policy(load_qps=400.0),
                     small_policy(load_qps=400.0, arrivals=BURSTY))


def edit(folder: Path, change: Callable[[dict[str, object]], None]) -> None:
    """Change the manifest's first entry."""
    path = folder / policy.MANIFEST_NAME
    document = json.loads(path.read_text())
    change(document["policies"][0])
    path.write_text(canonical_json(document))


def test_a_set_is_read_by_process_and_load_with_one_load_for_two_processes(folder: Path) -> None:
    members = policy.read_set(folder)
    assert [(m.arrivals_label, m.load_qps) for m in members] == [
        ("negative-binomial:dispersion=4", 400.0), ("poisson", 400.0), ("poisson", 800.0)]
    assert policy.validate_set(folder)[0].to_document() == members[0].to_document()
    assert [entry.file for entry in policy.read_manifest(folder)] == [
        "worker-00400qps-negative-binomial-dispersion=4.json", "worker-00400qps.json",
        "worker-00800qps.json"]


def test_an_entry_says_what_its_policy_promises(folder: Path) -> None:
    entry, member = policy.read_manifest(folder)[1], policy.read_set(folder)[1]
    assert entry == policy.entry_for(member, entry.file)
    assert entry.expected_effective_accuracy == member.expectations.effective_accuracy
    assert entry.upper_bound == member.expectations.upper_bound


def test_the_manifest_does_not_depend_on_the_order_of_writing(tmp_path: Path) -> None:
    low, high = small_policy(load_qps=100.0), small_policy(load_qps=200.0)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    texts = [(write_set(tmp_path / name, *members) / policy.MANIFEST_NAME).read_text()
             for name, members in (("a", (low, high)), ("b", (high, low)))]
    assert texts[0] == texts[1]


def test_files_without_a_manifest_are_refused(folder: Path) -> None:
    (folder / policy.MANIFEST_NAME).unlink()
    for read in READERS:
        with pytest.raises(InputFileError, match=r"no manifest\.json in the folder"):
            read(folder)


def test_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="not a folder"):
        policy.read_set(tmp_path / "none")


def test_a_missing_policy_file_is_refused(folder: Path) -> None:
    (folder / "worker-00400qps.json").unlink()
    for read in READERS:
        with pytest.raises(InputFileError, match=r"policies\[1\]\.file: file is missing.*00400"):
            read(folder)


def test_a_policy_file_that_changed_is_refused(folder: Path) -> None:
    changed = small_policy(load_qps=400.0, workers=5)
    policy.write(changed, folder / "worker-00400qps.json")
    for read in READERS:
        with pytest.raises(InputFileError, match=r"00400qps\.json has changed since the manifest"):
            read(folder)


def test_an_entry_that_contradicts_its_file_is_refused(folder: Path) -> None:
    edit(folder, lambda entry: entry.update(workers=9))
    for read in (policy.read_set, policy.validate_set):
        with pytest.raises(InputFileError, match=r"policies\[0\]\.workers: .* says otherwise"):
            read(folder)


@pytest.mark.parametrize("name", ["../worker.json", "/etc/hostname", "a/b.json", "..", "a\\b"])
def test_a_file_outside_the_folder_is_refused(folder: Path, name: str) -> None:
    edit(folder, lambda entry: entry.update(file=name))
    for read in READERS:
        with pytest.raises(InputFileError, match="not the name of a file in this folder"):
            read(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"file": "worker-00800qps.json"}, "file is listed twice"),
        ({"colour": "red"}, r"policies\[0\]\.colour: unknown field"),
        ({"load_qps": -1}, r"policies\[0\]\.load_qps: not a valid number"),
        ({"kind": "cell"}, r"policies\[0\]\.kind: unknown kind"),
        ({"arrivals": {"process": "poisson"}}, "two policies for one load and arrival process"),
        ({"arrivals": {}}, r"policies\[0\]\.arrivals\.process: field is missing"),
        ({"overloaded": None}, r"policies\[0\]\.overloaded: not a truth value"),
    ],
    ids=str,
)
def test_bad_entries_are_refused(
    folder: Path, change: dict[str, object], message: str
) -> None:
    edit(folder, lambda entry: entry.update(change))
    with pytest.raises(InputFileError, match=message):
        policy.read_manifest(folder)


def test_a_manifest_of_a_later_version_or_without_policies_is_refused(folder: Path) -> None:
    path = folder / policy.MANIFEST_NAME
    path.write_text('{"format": "ramsis.manifest/2", "policies": []}')
    with pytest.raises(InputFileError, match=r"not known here.*allowed: ramsis\.manifest/1"):
        policy.read_manifest(folder)
    path.write_text('{"format": "ramsis.manifest/1", "policies": []}')
    with pytest.raises(InputFileError, match="policies: not a list"):
        policy.read_manifest(folder)


def test_a_runtime_refuses_two_policies_with_one_key_under_two_names(tmp_path: Path) -> None:
    write_set(tmp_path, small_policy())
    (entry,) = policy.read_manifest(tmp_path)
    (tmp_path / "copy.json").write_bytes((tmp_path / entry.file).read_bytes())
    twice = [dataclasses.asdict(entry), {**dataclasses.asdict(entry), "file": "copy.json"}]
    (tmp_path / policy.MANIFEST_NAME).write_text(
        canonical_json({"format": policy.MANIFEST_FORMAT, "policies": twice}))
    for read in READERS:
        with pytest.raises(InputFileError, match="two policies for one load"):
            read(tmp_path)


def test_a_manifest_with_one_key_twice_or_nothing_is_not_written(tmp_path: Path) -> None:
    entry = policy.entry_for(small_policy(), "a.json")
    with pytest.raises(InvalidValueError, match="two policies with one key"):
        policy.write_manifest(tmp_path, [entry, dataclasses.replace(entry, file="b.json")])
    with pytest.raises(InvalidValueError, match="two policies with one file"):
        policy.write_manifest(tmp_path, [entry, dataclasses.replace(entry, load_qps=1.0)])
    with pytest.raises(InvalidValueError, match="at least one"):
        policy.write_manifest(tmp_path, [])
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.floats(1e-6, 99999.0, exclude_max=True), min_size=2, max_size=6, unique=True))
def test_file_names_are_different_and_sort_as_the_loads_do(loads: list[float]) -> None:
    names = [policy.policy_file_name("worker", load, {"process": "poisson"})
             for load in sorted(loads)]
    assert len(set(names)) == len(names)
    assert sorted(names) == names


def test_file_names_tell_processes_apart_and_stay_plain() -> None:
    processes: list[dict[str, object]] = [
        {"process": "poisson"}, {"process": "poisson", "shift": 1}, {"process": "mmpp"},
        {"process": "mmpp", "rates": [0.5, 1.5]}, {"process": "mmpp", "rates": [0.5, 2.5]},
        {"process": "mmpp", "text": "a/b"}, {"process": "mmpp", "x" * 50: 1},
        {"process": "a:b"}, {"process": "a-b"}, {"process": "a/b"}, {"process": "a:" + "b" * 99},
    ]
    names = [policy.policy_file_name("worker", 400, process) for process in processes]
    assert len(set(names)) == len(names)
    assert all(name == Path(name).name and len(name) < 90 for name in names)
    assert policy.policy_file_name("worker", 400, {"process": "mmpp", "r": 2}) == (
        policy.policy_file_name("worker", 400.0, {"r": 2.0, "process": "mmpp"}))
