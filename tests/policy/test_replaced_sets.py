"""A set that takes the place of another touches nothing but that set's own policy files."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ramsis.errors import OutputError
from ramsis.files import canonical_json, fingerprint
from ramsis.policy import Policy, read_set, write_set
from ramsis.policy.policy_set import replaced_set, set_of
from tests.policy.samples import small_policy


def at(load_qps: float) -> Policy:
    return small_policy(load_qps=load_qps)


def made(folder: Path, *loads: float) -> Path:
    write_set(folder, set_of([at(load) for load in loads]), created_by="tests")
    return folder


def replaced(folder: Path, *loads: float) -> None:
    with replaced_set(folder) as new:
        write_set(new, set_of([at(load) for load in loads]), created_by="tests")


def edited(folder: Path, **changes: Any) -> None:
    """Change the entry of the first station."""
    path = folder / "manifest.json"
    document = json.loads(path.read_text())
    document["levels"][0]["stations"][0].update(changes)
    path.write_text(canonical_json(document))


@pytest.fixture
def outside(tmp_path):
    return made(tmp_path / "outside", 100.0, 200.0)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("linked", ["sub/round-robin-00100qps.json", "sub"])
def test_a_file_behind_a_link_stays(tmp_path, outside, linked):
    folder, before = made(tmp_path / "set", 100.0), contents(outside)
    if linked == "sub":
        (folder / "sub").symlink_to(outside)
    else:
        (folder / "sub").mkdir()
        (folder / linked).symlink_to(outside / "round-robin-00100qps.json")
    edited(folder, file="sub/round-robin-00100qps.json",
           fingerprint=fingerprint((outside / "round-robin-00100qps.json").read_text()))
    replaced(folder, 300.0)
    assert contents(outside) == before
    assert (folder / linked).is_symlink()


def test_a_file_that_is_no_policy_or_has_changed_stays(tmp_path):
    folder = made(tmp_path / "set", 100.0, 200.0)
    (folder / "notes.json").write_text('{"mine": 1}')
    edited(folder, file="notes.json", fingerprint=fingerprint('{"mine": 1}'))
    changed = folder / "round-robin-00200qps.json"
    changed.write_text(changed.read_text() + "\n")
    before = contents(folder)
    replaced(folder, 300.0)
    after = contents(folder)
    assert {name: after[name] for name in ("notes.json", changed.name)} == {
        name: before[name] for name in ("notes.json", changed.name)}


@pytest.mark.parametrize("plant", ["whole", "within", "target", "manifest", "new"])
def test_a_link_that_leads_out_of_the_folder_is_refused(tmp_path, outside, plant):
    """Whoever writes there, with the old set to be replaced or not."""
    folder = made(tmp_path / "set", 100.0)
    before = contents(outside)
    if plant in ("whole", "new"):
        (folder / f".{plant}").symlink_to(outside)
    elif plant == "manifest":
        (folder / "manifest.json").unlink()
        (folder / "manifest.json").symlink_to(outside / "manifest.json")
    else:
        other = made(tmp_path / "other", 100.0)
        (other / "sub").mkdir()
        edited(other, file="sub/round-robin-00100qps.json")
        shutil.move(other / "round-robin-00100qps.json", other / "sub")
        shutil.move(other, folder / ".whole")
        if plant == "within":
            shutil.rmtree(folder / ".whole" / "sub")
            (folder / ".whole" / "sub").symlink_to(outside)
        else:
            (folder / "sub").symlink_to(outside)
    with pytest.raises(OutputError, match="a link leads out of the folder"):
        replaced(folder, 300.0)
    with pytest.raises(OutputError, match="a link leads out of the folder"):
        made(folder, 100.0)
    assert contents(outside) == before


def test_a_policy_is_not_written_through_a_link(tmp_path, outside):
    folder, before = tmp_path / "set", contents(outside)
    folder.mkdir()
    (folder / "round-robin-00300qps.json").symlink_to(outside / "round-robin-00100qps.json")
    with pytest.raises(OutputError, match="a link leads out"):
        made(folder, 300.0)
    assert contents(outside) == before


def test_the_folder_itself_may_be_a_link(tmp_path, outside):
    (tmp_path / "link").symlink_to(outside)
    replaced(tmp_path / "link", 300.0)
    assert [level.load_qps for level in read_set(outside).levels] == [300.0]
