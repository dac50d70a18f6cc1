"""Sweeps into a URL: the tables of a folder, what is reused, and a store that goes away."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ramsis.errors import InvalidValueError, OutputError
from ramsis.sweep import Sweep, SweepSpec, run_sweep
from ramsis.sweep.store import _of_this_process
from tests.cli.command import Run, refused

fsspec = pytest.importorskip("fsspec")

TABLES = ("results.csv", "seeds.csv", "models.csv", "failures.csv", "value-table.json")


def spec(**changes: Any) -> SweepSpec:
    """Four cells, two of them with a policy."""
    return SweepSpec.of({
        "profiles": "digits-cpu", "slo_ms": 25, "workers": 1, "load_qps": [100, 200],
        "scheme": ["greedy", "round-robin:grid=fixed:5,max_queue=4"], "duration_s": 0.2,
        **changes})


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store in memory, empty."""
    return f"memory://{tmp_path.name}/sweep"


def content(url: str) -> dict[str, bytes]:
    """The files of a store, by their names below it."""
    system, root = fsspec.core.url_to_fs(url)
    return {name[len(root) + 1:]: system.cat_file(name) for name in system.find(root)}


@pytest.mark.slow
def test_a_url_gets_the_tables_of_a_folder_byte_for_byte(tmp_path: Path, url: str) -> None:
    run_sweep(spec(), tmp_path / "here")
    result = run_sweep(spec(), url)
    found = content(url)
    for name in TABLES:
        assert found[name] == (tmp_path / "here" / name).read_bytes()
    cells = {path.name for path in (tmp_path / "here" / "cells").iterdir()}
    assert {name for name in found if name.startswith("cells/")} == {f"cells/{n}" for n in cells}
    assert result.files[0] == f"{url}/results.csv"


@pytest.mark.slow
def test_what_is_at_the_url_is_used_again_by_another_process(tmp_path: Path, url: str) -> None:
    run_sweep(spec(load_qps=100), url)
    _of_this_process.cache_clear()  # as in a new process: nothing has been fetched
    again = run_sweep(spec(), url)
    assert (again.computed, again.reused) == (2, 2)
    run_sweep(spec(), tmp_path / "here")
    assert content(url)["results.csv"] == (tmp_path / "here" / "results.csv").read_bytes()


def test_a_damaged_result_is_made_again(tmp_path: Path, url: str) -> None:
    run_sweep(spec(), url)
    system, root = fsspec.core.url_to_fs(url)
    before = content(url)
    name = next(one for one in before if one.startswith("cells/"))
    system.pipe_file(f"{root}/{name}", before[name][:-9])
    _of_this_process.cache_clear()
    assert run_sweep(spec(), url).computed == 1
    assert content(url)[name] == before[name]


@pytest.mark.slow
def test_sets_of_several_files_are_fetched_and_kept(url: str) -> None:
    several = spec(scheme="central-queue:max_queue=4,grid=fixed:2", slo_ms="25:0.5,50:0.5",
                   load_qps=100)
    run_sweep(several, url)
    found = content(url)
    assert any(name.startswith("policies/") and name.endswith("manifest.json") for name in found)
    system, root = fsspec.core.url_to_fs(url)
    for name in [one for one in found if one.startswith("cells/")]:
        system.rm(f"{root}/{name}")
    _of_this_process.cache_clear()
    assert run_sweep(several, url).computed == 1
    assert content(url) == found


def test_a_url_that_cannot_be_opened_is_refused_in_a_line(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "spec.toml"
    path.write_text('profiles = "digits-cpu"\nworkers = 1\nslo_ms = 25\nload_qps = 20\n'
                    'scheme = "greedy"\nduration_s = 0.1\n')
    refused(run("sweep", path, "--out", "nowhere://bucket/x"), 2, "cannot open the store",
            "nowhere://bucket/x")


def breaking(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Let a store in memory go away after some files."""
    kept: list[str] = []
    system = fsspec.filesystem("memory")
    put: Callable[..., None] = type(system).pipe_file

    def pipe_file(self: Any, path: str, value: bytes, **more: Any) -> None:
        kept.append(path)
        if len(kept) > after:
            raise ConnectionError("no route to the store")
        put(self, path, value, **more)

    monkeypatch.setattr(type(system), "pipe_file", pipe_file)


def test_a_store_that_goes_away_ends_the_sweep_and_loses_nothing_that_was_finished(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        breaking(broken, after=3)
        with pytest.raises(OutputError, match=r"cannot be written .*no route to the store") as one:
            run_sweep(spec(), url)
        assert "\n" not in str(one.value)
    assert len(content(url)) == 3
    _of_this_process.cache_clear()
    again = run_sweep(spec(), url)
    assert again.computed + again.reused == 4
    assert again.reused == 1  # three files: two policies and a cell


def test_a_folder_that_is_removed_meanwhile_is_said(tmp_path: Path) -> None:
    sweep = Sweep(spec(scheme="greedy"), tmp_path / "out")

    def remove() -> None:
        shutil.rmtree(tmp_path / "out")

    with pytest.raises(OutputError, match="a result that was finished is gone"):
        sweep.run(on_step=remove)


def test_a_file_is_no_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidValueError, match="not a folder"):
        run_sweep(spec(), tmp_path / "file")
