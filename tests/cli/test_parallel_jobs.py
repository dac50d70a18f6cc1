"""Capacity searches and levels in several processes are those of one, and answers are kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from ramsis.cli.parallel_jobs import level_maker
from ramsis.cluster import Cluster
from ramsis.errors import InfeasibleError
from ramsis.policy import read_set
from ramsis.sweep import Engine, engines
from ramsis.synthesis import SynthesisSettings, generate_set
from ramsis.synthesis.sets import Point
from tests.cli.command import Run, refused


@pytest.fixture
def here(monkeypatch):
    """Two processes asked for are this one: starting others takes seconds."""
    asked: list[int] = []

    def in_this_process(engine: Engine) -> Any:
        asked.append(engine.workers)
        return engines.process_runner(1)

    monkeypatch.setitem(engines.ENGINES, "processes", in_this_process)
    return asked


def capacity(run: Run, tiny_file: Path, *more: object) -> Any:
    return run("capacity", "--profiles", tiny_file, "--slo-ms", 100, "--load", "100,300",
               "--scheduler", "greedy", "--scheduler", "jellyfish-plus", "--duration-s", 1,
               "--seeds", 2, "--max-violation", 0.05, *more)


def test_searches_in_several_processes_find_what_one_finds(run, tiny_file, tmp_path, here):
    plain = capacity(run, tiny_file, "--json")
    assert plain.code == 0, plain.err
    assert here == [1]
    keep = tmp_path / "kept"
    rows = json.loads(plain.out)["rows"]
    for more in (("--processes", 2), ("--keep", keep), ("--keep", keep, "--processes", 2)):
        found = capacity(run, tiny_file, "--json", *more)
        assert found.code == 0, found.err
        assert json.loads(found.out)["rows"] == rows
    assert here == [1, 2, 1]  # the last found all answers kept
    assert len(list((keep / "answers").iterdir())) == 4


def test_a_kept_answer_is_of_the_same_question(run, tiny_file, tmp_path, here):
    capacity(run, tiny_file, "--keep", tmp_path)
    capacity(run, tiny_file, "--keep", tmp_path, "--max-violation", 0.04)
    assert here == [1, 1]
    assert len(list((tmp_path / "answers").iterdir())) == 8


def test_what_no_number_of_workers_reaches_is_refused_as_by_one_process(run, tiny_file, here):
    refused(capacity(run, tiny_file, "--processes", 2, "--min-accuracy", 0.99), 4)


def test_levels_made_in_several_processes_are_the_same_files(run, tiny_file, tmp_path, here):
    terms = ("--profiles", tiny_file, "--slo-ms", 100, "--workers", 2, "--load", "40,80",
             "--grid", "fixed:10", "--max-queue", 8, "--slowness", "1,1.5")
    assert run("generate", *terms, "--out", tmp_path / "one").code == 0
    made = run("generate", *terms, "--out", tmp_path / "two", "--processes", 2)
    assert made.code == 0, made.err
    assert here == [2]
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / name).glob("*.json")}
                for name in ("one", "two"))
    first, second = (json.loads(held.pop("manifest.json")) for held in (one, two))
    assert first.pop("commands") != second.pop("commands")
    assert first == second
    assert one == two
    assert [(level.load_qps, level.slowness) for level in read_set(tmp_path / "two").levels] == [
        (40, 1), (80, 1), (40, 1.5), (80, 1.5)]


def test_levels_of_several_stations_come_back_whole(tiny, tmp_path):
    cluster = Cluster.of(tiny, workers=2, slo_ms=100.0)
    settings = SynthesisSettings(slo_ms=100.0, workers=2, grid="fixed:10", max_queue=8)
    made = level_maker(cluster, Engine())
    found = generate_set(cluster, (80.0, 40.0), settings, tmp_path, make=made)
    assert [level.load_qps for level in found.levels] == [80.0, 40.0]
    assert found.levels[0].expected == generate_set(
        cluster, (80.0,), settings, tmp_path / "other").levels[0].expected


def test_a_level_that_there_is_not_is_refused(tiny, tmp_path):
    settings = SynthesisSettings(slo_ms=1e-3, workers=2, grid="fixed:10", max_queue=8)
    cluster = Cluster.of(tiny, workers=2, slo_ms=1e-3)
    with pytest.raises(InfeasibleError):
        list(level_maker(cluster, Engine())([Point(load, settings) for load in (40.0, 80.0)]))
