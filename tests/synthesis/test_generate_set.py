"""A folder of policies: what is written when, extended, refused, replaced, interrupted."""

import errno
import json
from pathlib import Path

import pytest

from ramsis import files, runtime
from ramsis.cluster import Cluster, SloClass, WorkerType
from ramsis.errors import InfeasibleError, InputFileError, InvalidValueError, OutputError
from ramsis.policy import read_set, validate_set
from ramsis.runtime.manifest import read_manifest
from ramsis.synthesis import generate_set
from tests.policy.samples import tables
from tests.synthesis import samples

SETTINGS = samples.settings(grid="fixed:6", max_queue=4)
OTHER = samples.settings(grid="fixed:7", max_queue=4)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*") if path.is_file()}


def loads(folder: Path) -> list[float]:
    """The loads of a folder's valid set."""
    return [policy.load_qps for policy in validate_set(folder).levels]


def test_a_file_for_each_load_and_a_manifest_that_lists_them(tiny, tmp_path):
    made = generate_set(tiny, (400.0, 50.0, 0.5), SETTINGS, tmp_path / "a" / "set").levels
    assert [level.load_qps for level in made] == [400.0, 50.0, 0.5]
    assert sorted(contents(tmp_path / "a" / "set")) == [
        "manifest.json", "round-robin-00000qps_5.json", "round-robin-00050qps.json",
        "round-robin-00400qps.json"]
    assert loads(tmp_path / "a" / "set") == [0.5, 50.0, 400.0]
    levels = read_manifest(tmp_path / "a" / "set").levels
    for known, level in zip(made[::-1], levels, strict=True):
        expected = known.policy.expectations
        assert level.expected["expected_effective_accuracy"] == expected.effective_accuracy
        assert level.expected["upper_bound"] == expected.upper_bound
        assert level.expected["overloaded"] == expected.overloaded


COARSE = samples.settings(dispatch="central-queue", workers=2, grid="fixed:2", max_queue=2,
                          slo_ms=50.0, headroom=0.0)
CHANGED_BY_PER_MS = [load for load in map(float, range(1, 10_001))
                     if 1000.0 * (load / 1000.0) != load][::10]
TWO_SLOS = (SloClass(50.0, 0.3), SloClass(55.0, 0.7))  # one queue


@pytest.mark.parametrize("classes", [
    pytest.param((SloClass(50.0),), id="one SLO"),
    pytest.param(TWO_SLOS, id="two SLOs", marks=pytest.mark.slow)])
@pytest.mark.parametrize("loads_qps", [
    (3.0, 1001.0),
    pytest.param((3.0, *CHANGED_BY_PER_MS), marks=pytest.mark.slow)], ids=["some", "many"])
def test_a_level_is_for_the_very_load_that_was_asked_for(tiny, loads_qps, classes, tmp_path):
    cluster = Cluster((WorkerType("a", tiny, 2),), classes)
    made = generate_set(cluster, loads_qps, COARSE, tmp_path)
    assert tuple(level.load_qps for level in made.levels) == loads_qps
    found = validate_set(tmp_path).levels
    assert tuple(level.load_qps for level in found) == tuple(sorted(loads_qps))
    alone = [level for level in found if len(level.stations) == 1]
    assert alone
    assert all(level.policy.load_qps == level.load_qps for level in alone)


def test_the_same_inputs_give_the_same_bytes(tiny, tmp_path):
    generate_set(tiny, (50.0, 400.0), SETTINGS, tmp_path / "one")
    generate_set(samples.tiny_profile(), (400.0,), SETTINGS, tmp_path / "two")
    generate_set(samples.tiny_profile(), (50.0,), SETTINGS, tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    generate_set(tiny, (50.0,), SETTINGS, tmp_path / "two")  # made anew
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_policies_for_several_arrival_processes_stand_side_by_side(tiny, tmp_path):
    words = ("poisson", "negative-binomial:3", "mmpp:ratio=4,burst-ms=200,share=0.2")
    for word in words:
        chosen = samples.settings(grid="fixed:6", max_queue=4, arrivals=word)
        generate_set(tiny, (50.0, 400.0), chosen, tmp_path)
    assert loads(tmp_path) == [50.0, 400.0] * 3
    policies = runtime.load_set(tmp_path)
    assert policies.processes == (
        "mmpp:burst_ms=200,ratio=4,share=0.2", "negative-binomial:dispersion=3", "poisson")
    made = {(level.arrivals, level.load_qps): level.policy for level in read_set(tmp_path).levels}
    for process in policies.processes:
        assert policies.loads(process) == (50.0, 400.0)
        choice = policies.at(120.0, process)
        policy = made[process, 400.0]
        assert choice.selector.table.arrivals == process
        for queued in range(1, 5):
            name, _ = choice.selector(queued, 100.0)
            assert name == policy.models[tables(policy)[0][queued - 1, -1]].name
    with pytest.raises(InvalidValueError, match="the set has several processes"):
        policies.at(120.0)


def test_a_set_is_extended_and_known_loads_are_made_anew(tiny, tmp_path):
    generate_set(tiny, (50.0, 100.0), SETTINGS, tmp_path)
    generate_set(tiny, (100.0, 200.0), SETTINGS, tmp_path)
    assert loads(tmp_path) == [50.0, 100.0, 200.0]


@pytest.mark.parametrize("other", ["settings", "profile"])
def test_a_set_made_from_something_else_is_refused_untouched(tiny, tmp_path, other):
    generate_set(tiny, (50.0,), SETTINGS, tmp_path)
    before = contents(tmp_path)
    profile = samples.linear_profile((0.7, 5.0, 2.0)) if other == "profile" else tiny
    chosen = OTHER if other == "settings" else SETTINGS
    with pytest.raises(OutputError, match=f"^{tmp_path}: .*got 'tiny'; allowed: .*--overwrite"):
        generate_set(profile, (100.0,), chosen, tmp_path)
    assert contents(tmp_path) == before


def test_overwriting_leaves_nothing_of_the_old_set_and_all_other_files(tiny, tmp_path):
    generate_set(tiny, (50.0, 70.0), SETTINGS, tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    generate_set(tiny, (50.0, 100.0), OTHER, tmp_path, overwrite=True)
    assert loads(tmp_path) == [50.0, 100.0]
    assert sorted(contents(tmp_path)) == [
        "manifest.json", "notes.txt", "round-robin-00050qps.json", "round-robin-00100qps.json"]


def test_a_damaged_set_is_refused_unless_it_is_to_be_replaced(tiny, tmp_path):
    (tmp_path / "manifest.json").write_text('{"format": "ramsis.manifest/1", "poli')
    with pytest.raises(InputFileError, match="cut off or damaged"):
        generate_set(tiny, (50.0,), SETTINGS, tmp_path)
    generate_set(tiny, (50.0,), SETTINGS, tmp_path, overwrite=True)
    assert loads(tmp_path) == [50.0]


@pytest.mark.parametrize(("bad_loads", "changes", "error"), [
    ((), {}, InvalidValueError), ((50.0, -1.0), {}, InvalidValueError),
    ((50.0, 1e15), {}, InvalidValueError), ((50.0,), {"slo_ms": 1.0}, InfeasibleError)
], ids=str)
def test_nothing_is_touched_when_any_of_the_loads_or_settings_is_bad(
    tiny, tmp_path, bad_loads, changes, error
):
    with pytest.raises(error):
        generate_set(tiny, bad_loads, samples.settings(**changes), tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_an_unwritable_folder_is_named_and_nothing_left(tiny, tmp_path):
    """A folder below a regular file cannot be made by anyone, whatever the permissions."""
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutputError, match=f"^{folder}: cannot make the folder"):
            generate_set(tiny, (50.0,), SETTINGS, folder)
    assert contents(tmp_path) == {"file": b"mine"}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
@pytest.mark.parametrize("moment", range(1, 6))
def test_an_end_at_any_write_leaves_a_valid_set(tiny, tmp_path, monkeypatch, moment, error):
    """Files are moved into place policy, manifest, policy, manifest, …"""
    generate_set(tiny, (10.0,), SETTINGS, tmp_path)
    moves = 0
    replace = files.os.replace

    def fail_in_time(source: str, target: Path) -> None:
        nonlocal moves
        moves += 1
        if moves == moment:
            raise error
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", fail_in_time)
    with pytest.raises((KeyboardInterrupt, OutputError)):
        generate_set(tiny, (50.0, 100.0, 150.0), SETTINGS, tmp_path)
    monkeypatch.undo()
    assert loads(tmp_path) == [10.0, 50.0, 100.0, 150.0][: 1 + (moment - 1) // 2]
    assert not [name for name in contents(tmp_path) if name.startswith(".")]
    for path in tmp_path.glob("worker-*.json"):
        json.loads(path.read_text())
    assert len(read_set(tmp_path).levels) == 1 + (moment - 1) // 2
