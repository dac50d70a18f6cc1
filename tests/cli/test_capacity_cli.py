"""``ramsis capacity``: the fewest workers that are enough."""

import json
from pathlib import Path

import pytest

from ramsis.cluster import WorkerType
from ramsis.planning import compare, scheduler_named, with_memory, with_workers
from ramsis.profiles import save
from ramsis.scenario import read_scenario
from ramsis.sim import ConstantLoad
from ramsis.synthesis.capacity import Targets, fewest_by_bound, fewest_workers
from tests.cli.command import refused, snapshot
from tests.scenario.samples import document, model, stream
from tests.synthesis.samples import linear_profile

FLEET, WORKER = "central-queue:max_queue=8,grid=fixed:10", "round-robin:grid=fixed:10,max_queue=8"


def options(profile: Path, *more: object, load: str = "600", slo_ms: str = "100") -> list[str]:
    return ["--profiles", str(profile), "--slo-ms", slo_ms, "--load", load, "--duration-s", "2",
            "--seeds", "2", *map(str, more)]


def test_rows_are_those_of_the_library(run, tiny, tiny_file):
    ran = run("capacity", *options(tiny_file, "--scheduler", WORKER, "--scheduler", "greedy",
                                   "--min-accuracy", 0.7, load="300,600"), "--json")
    assert (ran.code, ran.err) == (0, "")
    rows = ran.rows
    assert [(row["load_qps"], row["scheduler"]) for row in rows] == [
        (300.0, WORKER), (300.0, "greedy"), (600.0, WORKER), (600.0, "greedy")]
    for row in rows:
        found = fewest_workers(tiny, ConstantLoad(row["load_qps"], 2000.0), Targets(0.001, 0.7),
                               slo_ms=100.0, scheduler=row["scheduler"], seeds=range(2))
        assert row == json.loads(json.dumps(found.row()))
        assert row["accuracy"] >= 0.7
        assert row["violation_rate"] <= 0.001
        assert row["workers"] >= row["workers_bound"] >= 1


def test_the_table_has_promise_simulation_and_bound_side_by_side(run, tiny_file):
    ran = run("capacity", *options(tiny_file, "--scheduler", FLEET, "--min-accuracy", 0.7),
              "--wide")
    assert ran.code == 0
    header, row = ran.out.splitlines()
    for title in ("workers", "lower bound", "accuracy, promised", "violations", "certain"):
        assert title in header
    assert row.startswith(FLEET)
    assert row.split()[-1] in ("yes", "no")


@pytest.mark.parametrize(("lines", "service", "varies"), [
    ("0 200\n1 300\n2 200\n", "p95", "the seeds vary arrivals\n"),
    ("".join(f"{5 * at}\n" for at in range(400)), "p95", "the seeds vary nothing"),
])
def test_a_trace_says_what_its_runs_differ_in(run, tiny_file, tmp_path, lines, service, varies):
    trace = tmp_path / "trace.txt"
    trace.write_text(lines)
    unit = ["--unit", "ms"] if "vary nothing" in varies else []
    ran = run("capacity", "--profiles", tiny_file, "--slo-ms", "100", "--trace", trace, *unit,
              "--service", service, "--scheduler", "greedy", "--json")
    assert ran.code == 0, ran.err
    assert varies in ran.err
    (row,) = ran.rows
    assert row["seeds"] == (2 if unit else 5)
    assert (row["violation_rate_half_width"] == 0.0) == bool(unit)


def test_a_figure_is_drawn(run, tiny_file, tmp_path):
    pytest.importorskip("matplotlib")
    figure = tmp_path / "capacity.png"
    ran = run("capacity", *options(tiny_file, "--scheduler", "greedy",
                                   "--scheduler", "jellyfish-plus",
                                   "--min-accuracy", 0.7, "--plot", figure, load="300,600"))
    assert ran.code == 0
    assert figure.stat().st_size > 1000


def test_a_target_out_of_reach_names_the_nearest_and_simulates_nothing(run, tiny_file, tmp_path):
    ran = run("capacity", *options(tiny_file, "--min-accuracy", 0.95, "--plot",
                                   tmp_path / "a.png", load="300,600"))
    refused(ran, 4, "--min-accuracy", "no number of workers", "0.95", "at most 0.9")
    assert not snapshot(tmp_path)


def test_an_slo_below_every_latency_is_out_of_reach(run, tiny_file):
    refused(run("capacity", *options(tiny_file, slo_ms="3")), 4, "--slo-ms", "at least 4 ms")


def test_a_scheme_that_does_not_get_there_is_told_after_the_others(run, tiny_file):
    ran = run("capacity", *options(tiny_file, "--scheduler", "jellyfish-plus",
                                   "--scheduler", WORKER,
                                   "--min-accuracy", 0.85, "--max-violation", 0.01, slo_ms="39",
                                   load="100"), "--json")
    assert ran.code == 4
    assert [row["scheduler"] for row in json.loads(ran.out)["rows"]] == [WORKER]
    assert ran.err.startswith("error: --min-accuracy: jellyfish-plus at 100 QPS does not reach")


@pytest.mark.parametrize(("more", "words"), [
    (["--trace", "day"], ["--load or --trace"]),
    (["--max-violation", "1"], ["--max-violation", "1.0", "[0, 1)"]),
    (["--min-accuracy", "74"], ["--min-accuracy", "74.0"]),
    (["--scheduler", "best"], ["scheduler", "best", "greedy"]),
    (["--scheduler", "central-queue:colour=red"],
     ["central-queue", "colour=red", "violation_price"]),
    (["--plot", "figure.doc"], ["plot", ".png"]),
])
def test_bad_options_are_refused_in_one_line(run, tiny_file, more, words):
    refused(run("capacity", *options(tiny_file, *more)), 2, *words)


@pytest.fixture(scope="module")
def typed(tiny_file, tmp_path_factory):
    fast = tmp_path_factory.mktemp("fast") / "fast.json"
    save(linear_profile((0.7, 2.0, 1.0), (0.85, 6.0, 3.0)), fast)
    return f"old={tiny_file},new={fast}"


@pytest.mark.slow
def test_several_types_give_the_cheapest_mix_of_the_library(run, tiny, typed):
    asked = options(Path(typed), "--scheduler", WORKER, "--min-accuracy", 0.78,
                    "--cost", "new=2.5", "--max-workers", "new=4")
    (row,) = run("capacity", *asked, "--json").rows
    types = [WorkerType("old", tiny), WorkerType(
        "new", linear_profile((0.7, 2.0, 1.0), (0.85, 6.0, 3.0)), 4, 2.5)]
    found = fewest_workers(types, ConstantLoad(600.0, 2000.0), Targets(0.001, 0.78), slo_ms=100.0,
                         scheduler=WORKER, seeds=range(2)).row()
    for name, value in found.items():
        assert row[name] == (pytest.approx(value) if isinstance(value, float) else value)
    header, line = run("capacity", *asked, "--wide").out.splitlines()
    for title in ("workers", "cost", "lower bound", "accuracy, promised", "violations", "certain"):
        assert title in header
    assert all(f"{name}={count}" in line for name, count in row["worker_types"].items() if count)


@pytest.mark.slow
def test_queries_of_several_slos(run, tiny, tiny_file):
    (row,) = run("capacity", *options(
        tiny_file, "--scheduler", f"{FLEET},headroom=0", "--min-accuracy", 0.7, "--json",
        slo_ms="60:0.5,100:0.5")).rows
    assert (row["slo_ms"], row["slo_classes"]) == (
        100.0, [{"slo_ms": 60.0, "share": 0.5}, {"slo_ms": 100.0, "share": 0.5}])
    tight, wide = (fewest_by_bound(tiny, ConstantLoad(600.0, 2000.0), Targets(0.001, 0.7),
                                   slo_ms=slo) for slo in (60.0, 100.0))
    assert tight > row["bound_workers"] > wide
    assert row["workers"] >= row["bound_workers"]
    assert row["accuracy"] >= 0.7


@pytest.mark.parametrize(("code", "more", "words"), [
    (2, ["--trace", "day"], ["--load or --trace"]),
    (2, ["--arrivals", "fixed-rate"], ["--arrivals is not for several worker types"]),
    (2, ["--plot", "a.png"], ["--plot is not for several worker types"]),
    (2, ["--cost", "gpu=3"], ["--cost", "unknown worker type", "gpu", "old, new"]),
    (2, ["--scheduler", "greedy"], ["scheduler", "not policies", "central-queue"]),
    (4, ["--max-workers", "old=1,new=1", "--min-accuracy", 0.84],
     ["--max-workers", "too few", "600", "QPS"]),
    (4, ["--min-accuracy", 0.95], ["--min-accuracy", "0.95", "at most 0.9"]),
])
def test_several_types_refuse_in_one_line(run, typed, code, more, words):
    refused(run("capacity", *options(Path(typed), *more)), code, *words)


def test_costs_are_for_several_types(run, tiny_file):
    refused(run("capacity", *options(tiny_file, "--cost", "gpu=3")), 2, "--cost",
            "one worker type only")


@pytest.fixture
def scenario_file(tmp_path):
    """Three models of 190 requests/s; a worker holds one, and answers 125 in a second."""
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(document(
        worker_types=[{"name": "gpu", "count": 2, "memory_mb": 150},
                      {"name": "cpu", "count": 1, "memory_mb": 150}],
        models=[model(copies=3, latency=[
            {"worker_type": "gpu", "batch": 1, "latency_ms": 8}])],
        streams=[stream(workload={"load_qps": 190}, slo_ms=330)], duration_s=4,
        start=[{"worker": "gpu-2", "models": ["m-2"]}])))
    return path


def test_workers_of_a_scenario_are_those_of_the_library(run, scenario_file):
    words = ["--scenario", scenario_file, "--grow", "gpu", "--max-violation", "0.07",
             "--seeds", "2"]
    ran = run("capacity", *words, "--scheduler", "clockwork", "--scheduler", "lru", "--json")
    assert (ran.code, ran.err) == (0, "")
    rows = ran.rows
    assert [row["scheduler"] for row in rows] == ["clockwork", "lru"]
    scenario = read_scenario(scenario_file)
    for row in rows:
        assert row["workers"] >= row["workers_bound"] >= 2
        assert row["tried"] == list(range(row["workers_bound"], row["workers"] + 1))
        spec = [scheduler_named(row["scheduler"])]
        for count in row["tried"]:
            (found,) = compare(with_workers(scenario, "gpu", count), spec, range(2))
            share = found.row()["in_time"]
            assert (share >= 0.93) == (count == row["workers"])
            assert count < row["workers"] or share == row["in_time"]
    table = run("capacity", *words).out.splitlines()
    assert table[0].split()[:2] == ["scheduler", "workers"]
    assert table[1].split()[:2] == ["clockwork", str(rows[0]["workers"])]
    assert max(map(len, table)) <= 100


def test_memory_of_a_scenario_is_that_of_the_library(run, scenario_file, tmp_path):
    """Two workers that hold one of three models each are too few; all below the answer fail."""
    words = ["--scenario", scenario_file, "--grow", "gpu:memory", "--max-violation", "0.5",
             "--seeds", "2"]
    ran = run("capacity", *words, "--scheduler", "lru", "--scheduler", "planned", "--keep",
              tmp_path / "kept", "--json")
    assert (ran.code, ran.err) == (0, "")
    rows = ran.rows
    scenario = read_scenario(scenario_file)
    assert [row["scheduler"] for row in rows] == ["lru", "planned"]
    for row in rows:
        assert row["memory_mb"] >= row["memory_mb_bound"] >= 100
        assert row["tried"] == [100 * count for count in range(
            round(row["memory_mb_bound"] / 100), round(row["memory_mb"] / 100) + 1)]
        assert row["gap"] == row["memory_mb"] - row["memory_mb_bound"]
        for memory_mb in row["tried"]:
            (found,) = compare(with_memory(scenario, "gpu", memory_mb),
                               [scheduler_named(row["scheduler"])], range(2))
            assert (found.row()["in_time"] >= 0.5) == (memory_mb == row["memory_mb"])
    assert max(row["memory_mb"] for row in rows) > 100
    table = run("capacity", *words, "--scheduler", "lru").out.splitlines()
    assert table[-1].split()[:2] == ["lru", f"{rows[0]['memory_mb']:.0f}"]


def test_of_what_is_held_at_the_start_stays_what_has_room(scenario_file):
    document = json.loads(scenario_file.read_text())
    document["worker_types"][0]["memory_mb"] = 350
    document["start"] = [{"worker": "gpu-1", "models": ["m-3", "m-1", "m-2"]},
                         {"worker": "gpu-2", "models": ["m"]}]
    scenario_file.write_text(json.dumps(document))
    scenario = read_scenario(scenario_file)
    assert [len(held) for held in scenario.arrays.start] == [3, 3, 0]
    less = with_memory(scenario, "gpu", 200.0)
    assert [[less.arrays.models[model] for model in held] for held in less.arrays.start[:2]] == [
        ["m-3", "m-1"], ["m-1", "m-2"]]
    assert less.arrays.type_memory_mb.tolist() == [200.0, 150.0]


def test_a_search_on_a_scenario_goes_on_from_what_is_kept(
    run, scenario_file, tmp_path, monkeypatch
):
    words = ["--scenario", scenario_file, "--grow", "gpu", "--max-violation", "0.07",
             "--seeds", "1", "--keep", tmp_path / "kept", "--json"]
    first = run("capacity", *words)
    assert first.code == 0
    monkeypatch.setattr("ramsis.planning.capacity.compare", lambda *_: pytest.fail("again"))
    again = run("capacity", *words)
    assert again.rows == first.rows


def test_a_scenario_out_of_reach_says_what_is_reached(run, scenario_file, tmp_path):
    words = ["--scenario", scenario_file, "--grow", "gpu", "--seeds", "1"]
    refused(run("capacity", *words, "--max-workers", "gpu=1"), 4, "no scheduler reaches this on 1",
            "allowed: at least 0.")
    own = tmp_path / "own.py"
    own.write_text("from ramsis.sim import Scheduler\n\n"
                   "class Idle(Scheduler):\n    pass\n")
    ran = run("capacity", *words, "--scheduler", f"{own}:Idle", "--scheduler", "clockwork",
              "--max-workers", "gpu=6", "--max-violation", "0.2")
    assert (ran.code, len(ran.out.splitlines())) == (4, 2)
    assert "Idle does not reach this on up to 6 workers" in ran.err


@pytest.mark.parametrize(("more", "code", "words"), [
    (["--grow", "tpu"], 2, ("grow", "'tpu'", "gpu, cpu")),
    ([], 2, ("--grow", "gpu, cpu")),
    (["--grow", "gpu:places"], 2, ("'gpu:places'", "gpu or gpu:memory")),
    (["--grow", "gpu:memory", "--max-workers", "gpu=3"], 2, ("--max-workers", "gpu:memory")),
    (["--grow", "gpu", "--load", "3"], 2, ("--load is not for a scenario",)),
    (["--grow", "gpu", "--max-workers", "cpu=3"], 2, ("--max-workers", "gpu=N")),
    (["--grow", "gpu", "--max-violation", "1.5"], 2, ("--max-violation", "1.5")),
    (["--grow", "gpu", "--scheduler", "fastest"], 3, ("fastest", "clockwork")),
])
def test_wrong_inputs_for_a_scenario(run, scenario_file, more, code, words):
    refused(run("capacity", "--scenario", scenario_file, *more), code, *words)


def test_a_type_to_grow_needs_a_scenario(run, tiny_file):
    refused(run("capacity", *options(tiny_file, "--grow", "gpu")), 2, "--grow is for --scenario")
    refused(run("capacity", "--slo-ms", "100", "--load", "3"), 2, "--profiles", "--scenario")
