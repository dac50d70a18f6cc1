"""The manifest of a policy set: names, keys, and files that are missing or have changed."""

import contextlib
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis import policy, runtime
from ramsis.errors import InputFileError, InvalidValueError, OutputError
from ramsis.files import canonical_json
from ramsis.runtime.manifest import read_manifest
from tests.policy.samples import small_policy

BURSTY = {"process": "negative-binomial", "dispersion": 4.0}
READERS = [policy.read_set, policy.validate_set, runtime.load]


def write_set(folder: Path, *members: policy.Policy) -> Path:
    """A folder with the policies' files and their manifest."""
    policy.write_set(folder, policy.set_of(members), created_by="test")
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_set(tmp_path, small_policy(load_qps=800.0), small_policy(load_qps=400.0),
                     small_policy(load_qps=400.0, arrivals=BURSTY))


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest's first level."""
    path = folder / policy.MANIFEST_NAME
    document = json.loads(path.read_text())
    change(document["levels"][0])
    path.write_text(canonical_json(document))


def station(level: dict[str, Any]) -> dict[str, Any]:
    """The only station of a level."""
    only: dict[str, Any] = level["stations"][0]
    return only


def test_a_set_is_read_by_process_and_load_with_one_load_for_two_processes(folder):
    members = [level.policy for level in policy.read_set(folder).levels]
    assert [(m.arrivals_label, m.load_qps) for m in members] == [
        ("negative-binomial:dispersion=4", 400.0), ("poisson", 400.0), ("poisson", 800.0)]
    assert policy.validate_set(folder).levels[0].policy.to_document() == members[0].to_document()
    listed = read_manifest(folder)
    assert [level.policy.file for level in listed.levels] == [
        "round-robin-00400qps-negative-binomial-dispersion=4.json", "round-robin-00400qps.json",
        "round-robin-00800qps.json"]


def test_a_level_says_what_its_policy_promises(folder):
    listed, level = read_manifest(folder).levels[1], policy.read_set(folder).levels[1]
    assert listed.expected == level.expected == policy.level_of(level.policy).expected
    expected = level.policy.expectations
    assert listed.expected["expected_effective_accuracy"] == expected.effective_accuracy
    assert listed.expected["upper_bound"] == expected.upper_bound


def test_the_manifest_does_not_depend_on_the_order_of_writing(tmp_path):
    low, high = small_policy(load_qps=100.0), small_policy(load_qps=200.0)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    texts = [(write_set(tmp_path / name, *members) / policy.MANIFEST_NAME).read_text()
             for name, members in (("a", (low, high)), ("b", (high, low)))]
    assert texts[0] == texts[1]


def test_files_without_a_manifest_are_refused(folder):
    (folder / policy.MANIFEST_NAME).unlink()
    for read in READERS:
        with pytest.raises(InputFileError, match=r"no manifest\.json in the folder"):
            read(folder)


def test_a_missing_policy_file_is_refused(folder):
    (folder / "round-robin-00400qps.json").unlink()
    for read in READERS:
        with pytest.raises(InputFileError,
                           match=r"levels\[1\]\.stations\[0\]\.file: file is missing.*00400"):
            read(folder)


def test_a_policy_file_that_changed_is_refused(folder):
    changed = small_policy(load_qps=400.0, workers=5)
    policy.write(changed, folder / "round-robin-00400qps.json")
    for read in READERS:
        with pytest.raises(InputFileError, match=r"00400qps\.json has changed since the manifest"):
            read(folder)


def test_an_entry_that_contradicts_its_file_is_refused(folder):
    edit(folder, lambda level: station(level).update(workers=3))
    for read in (policy.read_set, policy.validate_set):
        with pytest.raises(InputFileError, match=r"stations\[0\]\.workers: .* says otherwise"):
            read(folder)


@pytest.mark.parametrize(
    "name", ["../worker.json", "/etc/hostname", "..", "a\\b", ".", ])
def test_a_file_outside_the_folder_is_refused(folder, name):
    edit(folder, lambda level: station(level).update(file=name))
    for read in READERS:
        with pytest.raises(InputFileError, match="not the name of a file in this folder"):
            read(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "red"}, r"levels\[0\]\.colour: unknown field"),
        ({"load_qps": 500.0}, r"levels\[0\]\.load_qps: the policy was made for another load"),
        ({"load_qps": 400.0 * (1 + 1e-15)}, r"load_qps: the policy was made for another load"),
        ({"arrivals": {"process": "poisson"}}, "two policies for one load and arrival process"),
        ({"arrivals": {"process": "weibull"}}, r"levels\[0\]\.arrivals: the policy file says"),
        ({"overloaded": None}, r"levels\[0\]\.overloaded: not a truth value"),
        ({"expected_accuracy": 0.5}, r"levels\[0\]\.expected_accuracy: the policy file says"),
        ({"expected_violation_rate": 2}, r"levels\[0\]\.expected_violation_rate: not a valid"),
    ],
    ids=str,
)
def test_bad_levels_are_refused(folder, change, message):
    edit(folder, lambda level: level.update(change))
    with pytest.raises(InputFileError, match=message):
        policy.read_set(folder)


@pytest.mark.parametrize(("change", "message"), [
    ({"file": "round-robin-00800qps.json"}, "file is listed twice"),
    ({"workers": 9}, r"stations\[0\]\.workers: not a valid number: got 9"),
    ({"dispatch": "central-queue"}, "policies of several dispatch rules in one set"),
    ({"worker_types": ["tpu"]}, r"worker_types\[0\]: unknown worker type: got 'tpu'"),
    ({"share": [{"slo_ms": 70.0, "share": 1.0}]}, "unknown SLO class: got 70.0; allowed: 100"),
    ({"share": [{"slo_ms": 100.0, "share": 0.5}]}, r"levels\[0\]\.stations: shares of the"),
], ids=str)
def test_bad_stations_are_refused_by_reader_and_runtime(folder, change, message):
    edit(folder, lambda level: station(level).update(change))
    for read in READERS:
        with pytest.raises(InputFileError, match=message):
            read(folder)


def test_a_manifest_of_a_later_version_is_refused(folder):
    path = folder / policy.MANIFEST_NAME
    path.write_text('{"format": "ramsis.manifest/2", "levels": []}')
    with pytest.raises(InputFileError, match=r"not known here.*allowed: ramsis\.manifest/1"):
        policy.read_set(folder)


def test_two_levels_with_one_key_under_two_names_are_refused(tmp_path):
    write_set(tmp_path, small_policy())
    path = tmp_path / policy.MANIFEST_NAME
    document = json.loads(path.read_text())
    (level,) = document["levels"]
    (tmp_path / "copy.json").write_bytes((tmp_path / station(level)["file"]).read_bytes())
    other = {**level, "stations": [{**station(level), "file": "copy.json"}]}
    path.write_text(canonical_json({**document, "levels": [level, other]}))
    for read in READERS:
        with pytest.raises(InputFileError, match="two policies for one load"):
            read(tmp_path)


def test_sets_that_are_none_are_not_made():
    with pytest.raises(InvalidValueError, match="two policies for one load"):
        policy.set_of([small_policy(), small_policy()])
    with pytest.raises(InvalidValueError, match="at least one"):
        policy.set_of([])
    for change, what in (({"workers": 5}, "numbers of workers"), ({"slo_ms": 99.0}, "SLO classes"),
                         ({"dispatch": "shortest-queue"}, "dispatch rules")):
        with pytest.raises(InvalidValueError, match=f"policies for several {what}"):
            policy.set_of([small_policy(), small_policy(load_qps=90.0, **change)])


@given(st.lists(st.floats(1e-6, 99999.0, exclude_max=True), min_size=2, max_size=6, unique=True))
def test_file_names_are_different_and_sort_as_the_loads_do(loads):
    names = [policy.policy_file_name("round-robin", load, {"process": "poisson"})
             for load in sorted(loads)]
    assert len(set(names)) == len(names)
    assert sorted(names) == names


def test_file_names_tell_processes_apart_and_stay_plain():
    processes: list[dict[str, object]] = [
        {"process": "poisson"}, {"process": "poisson", "shift": 1}, {"process": "mmpp"},
        {"process": "mmpp", "rates": [0.5, 1.5]}, {"process": "mmpp", "rates": [0.5, 2.5]},
        {"process": "mmpp", "text": "a/b"}, {"process": "mmpp", "x" * 50: 1},
        {"process": "a:b"}, {"process": "a-b"}, {"process": "a/b"}, {"process": "a:" + "b" * 99},
    ]
    names = [policy.policy_file_name("round-robin", 400, process) for process in processes]
    assert len(set(names)) == len(names)
    assert all(name == Path(name).name and len(name) < 90 for name in names)
    assert policy.policy_file_name("round-robin", 400, {"process": "mmpp", "r": 2}) == (
        policy.policy_file_name("round-robin", 400.0, {"r": 2.0, "process": "mmpp"}))


def loads_in(folder: Path) -> list[float]:
    return [level.load_qps for level in policy.validate_set(folder).levels]


def test_writers_of_one_folder_add_to_each_others_levels(tmp_path):
    writers = [policy.SetFolder.of(tmp_path, small_policy()) for _ in range(3)]
    for i in range(9):
        writers[i % 3].add(policy.level_of(small_policy(load_qps=100.0 * (i + 1))))
    assert loads_in(tmp_path) == [100.0 * (i + 1) for i in range(9)]


def test_a_set_that_another_process_wrote_is_extended_only_if_accepted(tmp_path):
    def refuse() -> None:
        raise OutputError("made from something else")

    other = policy.SetFolder(tmp_path, {"all": 2}, {100.0: 1.0}, "test", accepts=refuse)
    write_set(tmp_path, small_policy(load_qps=800.0))
    with pytest.raises(OutputError, match="something else"):
        other.add(policy.level_of(small_policy(load_qps=400.0)))
    assert loads_in(tmp_path) == [800.0]


def test_a_replaced_set_stays_until_the_new_one_is_whole(folder):
    (folder / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def fail(new: Path) -> None:
        write_set(new, small_policy(load_qps=400.0), small_policy(load_qps=100.0))
        raise OSError(errno.ENOSPC, "no space left")

    with pytest.raises(OutputError, match="no space left"), policy.replaced_set(folder) as new:
        fail(new)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    with policy.replaced_set(folder) as new:
        write_set(new, small_policy(load_qps=400.0), small_policy(load_qps=100.0))
    assert loads_in(folder) == [100.0, 400.0]
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json", "notes.txt", "round-robin-00100qps.json", "round-robin-00400qps.json"]


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_move_that_was_cut_off_changes_nothing_for_readers_and_is_ended_by_the_next_writer(
    folder, monkeypatch, step
):
    """Of four steps the first says that the new set holds, the last moves its manifest."""
    write_set(folder, small_policy(load_qps=100.0), small_policy(load_qps=200.0))
    replace, count = os.replace, 0

    def killed(source: Path, target: Path) -> None:
        nonlocal count
        if ".ramsis-tmp" not in str(source):
            if count > step:
                raise SystemExit
            count += 1
        replace(source, target)

    with contextlib.suppress(SystemExit), policy.replaced_set(folder) as new:
        write_set(new, small_policy(load_qps=100.0, workers=8),
                  small_policy(load_qps=400.0, workers=8))
        monkeypatch.setattr(os, "replace", killed)
    monkeypatch.undo()
    assert loads_in(folder) == [100.0, 400.0]
    assert policy.validate_set(folder).levels[0].stations[0].workers == 8
    last = small_policy(load_qps=800.0, workers=8)
    policy.SetFolder.of(folder, last).add(policy.level_of(last))
    assert loads_in(folder) == [100.0, 400.0, 800.0]
    policy.validate_set(folder)
    assert {path.name for path in folder.iterdir()} >= {
        "manifest.json", *(f"round-robin-00{load}00qps.json" for load in (1, 4, 8))}
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    assert not (folder / "round-robin-00200qps.json").exists()
