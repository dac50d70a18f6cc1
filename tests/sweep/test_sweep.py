"""Running sweeps: the same figures as by hand, reuse, failures, tables."""

import dataclasses
import random
import shutil
from typing import Any

import pytest

import placement_milp
from ramsis.errors import InputFileError, InvalidValueError, OutputError
from ramsis.files import read_json
from ramsis.policy import read
from ramsis.profiles import ProfileSet, save
from ramsis.sim import ConstantLoad, JellyfishPlus, Policies, RateTrace
from ramsis.sweep import Sweep, SweepSpec, pool, run_sweep
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.schedulers import ComparedScheduler
from ramsis.synthesis.sets import made_level
from tests.runs import simulate_profile
from tests.slow import slow_after
from tests.sweep.samples import WORKER, document, rows, spec, tables


def test_cells_hold_what_generating_and_simulating_by_hand_gives(tiny, tiny_file, tmp_path):
    result = run_sweep(spec(tiny_file, seeds=3, load_qps=300), tmp_path)
    settings = SynthesisSettings(slo_ms=100.0, workers=2, grid="fixed:10", max_queue=8)
    policy = generate_policy(tiny, 300.0, settings)
    load = ConstantLoad(300.0, 500.0)
    for row, scheduler in zip(result.rows, (Policies((policy,)), JellyfishPlus()), strict=True):
        by_hand = simulate_profile(tiny, scheduler, load, workers=2, slo_ms=100.0,
                                   seeds=range(3)).row()
        assert {name: row[name] for name in ("queries", "late", "accuracy", "response_p99_ms",
                                             "effective_accuracy_half_width")} == {
            name: by_hand[name] for name in ("queries", "late", "accuracy", "response_p99_ms",
                                             "effective_accuracy_half_width")}
    assert result.rows[0]["expected_accuracy"] == policy.expectations.accuracy
    assert result.rows[1]["expected_accuracy"] is None
    assert all(row["effective_accuracy"] <= row["upper_bound"] + 1e-9 for row in result.rows)


def test_results_on_a_recorded_trace_are_made_again_when_the_trace_changes(tiny_file, tmp_path):
    recorded, folder = tmp_path / "arrivals.csv", tmp_path / "out"
    for gap_ms in (10, 7):
        lines = [str(gap_ms * number) for number in range(300)]
        recorded.write_text("\n".join(["arrival_ms", *lines, ""]))
        wanted = spec(tiny_file, load_qps=300, arrivals=f"trace:{recorded}")
        assert Sweep(wanted, folder).todo == 3  # a policy and two cells
        assert not run_sweep(wanted, folder).failures
        assert Sweep(wanted, folder).todo == 0


@pytest.mark.slow
def test_cells_of_several_types_and_classes_hold_what_simulate_prints(
    run, tiny, tiny_file, tmp_path
):
    save(ProfileSet("few", tiny.models[:2]), tmp_path / "few.json")
    profiles, workers, slos = (f"gpu={tiny_file},cpu={tmp_path / 'few.json'}", "gpu=2,cpu=2",
                               "60:0.3,100:0.7")
    schemes = ("round-robin:grid=fixed:10,max_queue=8", "greedy")
    wanted = spec(profiles, workers=[workers, "gpu=3,cpu=2"], slo_ms=slos, load_qps=150, seeds=2,
                  scheduler=list(schemes), cv=[1])
    result = run_sweep(wanted, tmp_path / "out")
    assert not result.failures, result.failures
    assert (tmp_path / "out" / "value-table.json").exists() is False
    printed = run("simulate", "--profiles", profiles, "--workers", workers, "--slo-ms", slos,
                  "--load", 150, "--seeds", 2, "--duration-s", 0.5, "--scheduler", schemes[0],
                  "--scheduler", schemes[1], "--json")
    assert printed.code == 0, printed.err
    for row, shown in zip(result.rows[:2], printed.rows, strict=True):
        assert (row["workers"], row["worker_types"], row["slo_ms"], row["slo_classes"]) == (
            4, workers, 100.0, slos)
        same = set(row) & set(shown) - {"workers", "worker_types", "slo_classes", "scheduler",
                                       "monitor"}
        assert {"queries", "effective_accuracy", "expected_effective_accuracy",
                "upper_bound"} <= same
        assert {name: row[name] for name in same} == {name: shown[name] for name in same}
    again = run_sweep(wanted, tmp_path / "out")
    assert (again.computed, again.reused) == (0, 4)
    assert again.rows == result.rows


@pytest.mark.parametrize(("changes", "says"), [
    ({"workers": "gpu=2,cpu=x"}, "gpu=4,cpu=40"), ({"workers": "gpu=0"}, "whole number >= 1"),
    ({"slo_ms": "100:0.3,150:0.6"}, "sum to 1"), ({"slo_ms": "soon"}, "100:0.3,150:0.7"),
    ({"profiles": "gpu=a.json,cpu"}, "gpu=a.json,cpu=b.json"),
    ({"profiles": "gpu=a.json", "workers": 3}, "no numbers"),
    ({"profiles": "gpu=a.json", "workers": "cpu=3"}, "unknown worker type"),
])
def test_bad_types_and_classes_get_one_line(tiny_file, changes, says):
    with pytest.raises(InputFileError, match=says) as caught:
        spec(tiny_file, **changes)
    assert "\n" not in str(caught.value)


def test_a_second_run_computes_nothing_and_writes_the_same_tables(tiny_file, tmp_path):
    first = run_sweep(spec(tiny_file), tmp_path)
    before = tables(tmp_path)
    second = run_sweep(spec(tiny_file), tmp_path)
    assert (first.computed, first.reused) == (4, 0)
    assert (second.computed, second.reused) == (0, 4)
    assert tables(tmp_path) == before
    assert len(before) == 5


CHANGES: dict[str, tuple[dict[str, Any], int]] = {
    "a load more": ({"load_qps": [100, 300, 500]}, 2),
    "another order": ({"load_qps": [300, 100], "scheduler": ["jellyfish-plus", WORKER]}, 0),
    "another policy setting": ({"scheduler": ["round-robin:grid=fixed:11,max_queue=8",
                                           "jellyfish-plus"]}, 2),
    "other arrivals to make policies for": (
        {"scheduler": [f"{WORKER},arrivals=negative-binomial:4", "jellyfish-plus"]}, 2),
    "a scheduler's parameter": ({"scheduler": [WORKER, "jellyfish-plus:headroom=1.05"]}, 2),
    "more seeds": ({"seeds": 2}, 4),
    "another seed": ({"seed": 1}, 4),
    "a longer run": ({"duration_s": 0.6}, 4),
    "another SLO": ({"slo_ms": 90}, 4),
    "other models": ({"model_sets": {"two": ["small", "medium"]}, "models": "two"}, 4),
    "all models under another name": (
        {"model_sets": {"three": ["small", "medium", "large"]}, "models": "three"}, 0),
    "drawn gaps": ({"cv": 2}, 4),
    "a network": ({"network_ms": 1}, 4),
    "monitored": ({"monitor": "on"}, 4),
    "a slower monitor": ({"monitor_ms": 1000}, 4),
    "a wrong load": ({"told": 1.25}, 4),
    "a fleet": ({"scheduler": ["central-queue", WORKER]}, 2),
}


@pytest.fixture(scope="module")
def swept(tiny_file, tmp_path_factory):
    """A sweep that is done; not to be written to."""
    folder = tmp_path_factory.mktemp("swept")
    run_sweep(spec(tiny_file), folder)
    return folder


@pytest.mark.parametrize("change", slow_after(6, CHANGES))
def test_only_what_changed_is_computed(tiny_file, swept, tmp_path, change):
    changes, expected = CHANGES[change]
    shutil.copytree(swept, tmp_path, dirs_exist_ok=True)
    assert run_sweep(spec(tiny_file, **changes), tmp_path).computed == expected


def test_a_changed_profile_is_computed_anew(tiny, tmp_path):
    save(tiny, tmp_path / "p.json")
    wanted = spec(tmp_path / "p.json")
    run_sweep(wanted, tmp_path / "out")
    save(ProfileSet(tiny.name, tiny.models[:2]), tmp_path / "p.json")
    assert run_sweep(wanted, tmp_path / "out").computed == 4


def test_policies_are_made_once_for_all_cells_that_use_them(tiny_file, tmp_path, monkeypatch):
    made: list[float] = []

    def counted(cluster: Any, load_qps: float, settings: Any) -> Any:
        made.append(load_qps)
        return made_level(cluster, load_qps, settings)

    monkeypatch.setattr("ramsis.sweep.jobs.made_level", counted)
    wanted = spec(tiny_file, network_ms=[0, 1], scheduler=WORKER)
    sweep = Sweep(wanted, tmp_path)
    assert sweep.todo == 6  # two policies, four cells
    sweep.run()
    assert sorted(made) == [100.0, 300.0]


def test_policies_are_made_for_the_arrivals_of_a_cell(tiny, tiny_file, tmp_path):
    row, = run_sweep(spec(tiny_file, load_qps=300, cv=3, scheduler=WORKER), tmp_path).rows
    settings = SynthesisSettings(slo_ms=100, workers=2, service="p95", grid="fixed:10",
                                 max_queue=8, arrivals="renewal:3")
    expected = generate_policy(tiny, 300.0, settings).expectations
    assert row["expected_effective_accuracy"] == expected.effective_accuracy


def test_a_damaged_result_is_computed_again(tiny_file, swept, tmp_path):
    shutil.copytree(swept, tmp_path, dirs_exist_ok=True)
    before = tables(tmp_path)
    files = sorted((tmp_path / "cells").iterdir())
    files[0].write_text(files[0].read_text()[:100])
    files[1].write_text('{"format": "ramsis.sweep-cell/1", "inputs": {}}')
    for policy in (tmp_path / "policies").iterdir():
        policy.write_text("")
    assert run_sweep(spec(tiny_file), tmp_path).computed == 2
    assert tables(tmp_path) == before


def test_tables_do_not_depend_on_the_order_of_completion(tiny_file, tmp_path, monkeypatch):
    wanted = spec(tiny_file, workers=[2, 3])
    run_sweep(wanted, tmp_path / "in-turn")

    def shuffled(jobs: Any) -> Any:
        order = list(range(len(jobs)))
        random.Random(1).shuffle(order)
        for index in order:
            yield index, pool.outcome_of(jobs[index])

    monkeypatch.setattr(pool, "_in_this_process", shuffled)
    run_sweep(wanted, tmp_path / "shuffled")
    assert tables(tmp_path / "in-turn") == tables(tmp_path / "shuffled")


def test_a_cell_that_fails_is_told_and_stops_no_other(tiny_file, tmp_path):
    wanted = spec(tiny_file, slo_ms=[1, 100])
    result = run_sweep(wanted, tmp_path)
    assert (result.computed, len(result.failures), len(result.rows)) == (4, 4, 4)
    assert {failure.exit_code for failure in result.failures} <= {2, 4}
    told = rows(tmp_path / "failures.csv")
    assert [row["slo_ms"] for row in told] == ["1.0"] * 4
    assert all("SLO" in row["error"] for row in told)
    again = run_sweep(wanted, tmp_path)
    assert (again.computed, again.reused, len(again.failures)) == (0, 4, 4)


def test_an_unforeseen_error_is_a_failed_cell_too(tiny_file, tmp_path, monkeypatch):
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr("ramsis.sweep.jobs.made_level", broken)
    result = run_sweep(spec(tiny_file), tmp_path)
    assert (result.computed, len(result.failures)) == (2, 2)
    assert {(f.error, f.exit_code) for f in result.failures} == {("ZeroDivisionError: by zero", 1)}


def test_the_value_table_holds_the_best_promise_for_each_case(tiny_file, tmp_path):
    coarse = "round-robin:grid=fixed:2,max_queue=8"
    result = run_sweep(spec(tiny_file, scheduler=[coarse, WORKER, "greedy"]), tmp_path)
    values = list(result.values)
    read = placement_milp.read_values(tmp_path / "value-table.json")
    assert [dataclasses.asdict(row) for row in read] == [
        value | {"model_set": tuple(value["model_set"])} for value in values]
    assert [(v["worker_type"], v["workers"], v["load_qps"]) for v in values] == [
        ("tiny", 2, 100.0), ("tiny", 2, 300.0)]
    for value in values:
        promised = [row["expected_effective_accuracy"] for row in result.rows
                    if row["load_qps"] == value["load_qps"] and row["scheduler"] != "greedy"]
        assert value["expected_effective_accuracy"] == max(promised)
        assert value["model_set"] == ["small", "medium", "large"]


def test_without_policies_there_is_no_value_table(tiny_file, tmp_path):
    run_sweep(spec(tiny_file), tmp_path)
    assert (tmp_path / "value-table.json").exists()
    run_sweep(spec(tiny_file, scheduler="greedy"), tmp_path)
    assert not (tmp_path / "value-table.json").exists()


def test_a_duration_of_nothing_gives_promises_only(tiny_file, tmp_path):
    result = run_sweep(spec(tiny_file, duration_s=0, scheduler=WORKER), tmp_path)
    assert [row["queries"] for row in result.rows] == [None, None]
    assert all(0 < row["expected_effective_accuracy"] <= row["upper_bound"] + 1e-9
               for row in result.rows)
    assert rows(tmp_path / "seeds.csv") == rows(tmp_path / "models.csv") == []


def test_tables_are_tidy(tiny_file, tmp_path):
    run_sweep(spec(tiny_file, seeds=2), tmp_path)
    cells, seeds = rows(tmp_path / "results.csv"), rows(tmp_path / "seeds.csv")
    assert len(cells) == 4
    assert [row["seed"] for row in seeds] == ["0", "1"] * 4
    for i, cell in enumerate(cells):
        own = seeds[2 * i:2 * i + 2]
        assert int(cell["queries"]) == sum(int(row["queries"]) for row in own)
        assert float(cell["accuracy"]) == pytest.approx(
            sum(float(row["accuracy"]) for row in own) / 2)
    shares = rows(tmp_path / "models.csv")
    for cell in cells:
        own = [float(row["share"]) for row in shares
               if (row["load_qps"], row["scheduler"]) == (cell["load_qps"], cell["scheduler"])]
        assert sum(own) == pytest.approx(1.0)


def test_central_queue_policies_are_generated_and_replayed(tiny, tiny_file, tmp_path):
    central = "central-queue:grid=fixed:10,violation_price=0.5,max_queue=8"
    given = spec(tiny_file, scheduler=[central, WORKER], seeds=2)
    sweep = Sweep(given, tmp_path)
    assert sweep.todo == 8
    result = sweep.run()
    settings = SynthesisSettings(dispatch="central-queue", slo_ms=100.0, workers=2, service="p95",
                                 grid="fixed:10", violation_price=0.5, max_queue=8)
    for row in result.rows[::2]:
        policy = generate_policy(tiny, row["load_qps"], settings)
        alone = simulate_profile(tiny, Policies((policy,)), ConstantLoad(row["load_qps"], 500.0),
                                 workers=2, slo_ms=100.0, seeds=range(2)).row()
        for measured in ("queries", "effective_accuracy"):
            assert row[measured] == alone[measured]
        assert row["expected_accuracy"] == policy.expectations.accuracy
        assert row["expected_effective_accuracy"] == policy.expectations.effective_accuracy
    best = [max(row["expected_effective_accuracy"] for row in result.rows[at:at + 2])
            for at in range(0, len(result.rows), 2)]
    assert [value["expected_effective_accuracy"] for value in result.values] == best
    assert Sweep(given, tmp_path).todo == 0
    for cell in (tmp_path / "cells").iterdir():
        cell.unlink()
    assert Sweep(given, tmp_path).todo == len(result.rows)  # the policies are there


def test_model_switching_is_profiled_once_for_a_fleet(tiny_file, tmp_path):
    scheduler = "model-switching:profile_s=0.5"
    sweep = Sweep(spec(tiny_file, scheduler=scheduler), tmp_path / "a")
    assert sweep.todo == 3
    shared = sweep.run()
    (kept,) = (tmp_path / "a" / "responses").iterdir()
    assert read_json(kept)["format"] == "ramsis.response-profile/1"
    own = f"{scheduler},store={tmp_path / 'own.json'}"
    alone = run_sweep(spec(tiny_file, scheduler=own), tmp_path / "b")
    assert [r["accuracy"] for r in shared.rows] == [r["accuracy"] for r in alone.rows]


def test_on_a_trace_the_levels_cover_what_the_monitor_reads(tiny_file, tmp_path):
    trace = tmp_path / "trace.txt"
    trace.write_text("0 100\n1 400\n2 200\n")
    given = document(tiny_file, trace=str(trace), scheduler=f"{WORKER},levels=6", duration_s=3)
    del given["load_qps"]
    result = run_sweep(SweepSpec.of(given), tmp_path / "out")
    assert len(result.rows) == 1
    assert result.rows[0]["expected_accuracy"] is None
    loads = ComparedScheduler("round-robin", levels=6).loads(
        RateTrace([0.0, 1000.0], [100.0, 400.0]))
    assert len(list((tmp_path / "out" / "policies").iterdir())) == len(loads)
    assert loads[-1] == pytest.approx(400 + 4 * 800**0.5, rel=1e-5)
    assert loads[0] <= 100


def test_drawn_service_times_are_bounded_and_fleets_know_them(tiny_file, tmp_path):
    wanted = spec(tiny_file, service="distribution", scheduler=["central-queue", "greedy"],
                  load_qps=300, duration_s=20)
    result = run_sweep(wanted, tmp_path)
    assert len({row["upper_bound"] for row in result.rows}) == 1  # the same arrivals
    for row in result.rows:
        assert 0.3 < row["effective_accuracy"] < row["upper_bound"] + 0.01
    (made,) = (tmp_path / "policies").iterdir()
    assert read(made).service == "distribution"


def test_policies_are_made_for_the_load_that_schemes_are_told(tiny_file, tmp_path):
    result = run_sweep(spec(tiny_file, scheduler=WORKER, load_qps=300, told=0.5), tmp_path)
    (made,) = (tmp_path / "policies").iterdir()
    assert read(made).load_qps == 150.0
    assert result.rows[0]["expected_accuracy"] is None  # promised for another load
    assert result.values == ()
    with_monitor = run_sweep(spec(tiny_file, scheduler=WORKER, load_qps=300, told=0.5,
                                  monitor="on"), tmp_path)
    assert len(list((tmp_path / "policies").iterdir())) == 2
    assert with_monitor.rows[0]["queries"] == result.rows[0]["queries"]


def test_model_sets_are_subsets_fronts_and_interpolations(tiny_file, tmp_path):
    result = run_sweep(spec(tiny_file, models=["all", "pareto", "interpolate:0.05", "two"],
                            model_sets={"two": ["small", "large"]}, scheduler=WORKER,
                            load_qps=100, duration_s=0), tmp_path)
    assert {len(value["model_set"]) for value in result.values} == {3, 7, 2}
    with pytest.raises(InputFileError, match="models two"):
        run_sweep(spec(tiny_file, models="two", model_sets={"two": ["none"]}), tmp_path)


def test_inputs_that_cannot_be_read_stop_before_anything_is_written(tmp_path):
    with pytest.raises(InputFileError, match="no-such"):
        run_sweep(spec("no-such"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").touch()
    with pytest.raises(InvalidValueError, match="not a folder"):
        run_sweep(spec("digits-cpu"), tmp_path / "file")
    with pytest.raises(InvalidValueError, match="processes"):
        Sweep(spec("digits-cpu"), tmp_path / "out").run(processes=0)


@pytest.mark.parametrize("linked", ["results.csv", "cells", "cells/of another.json"])
def test_nothing_is_written_through_a_link_that_leads_out_of_the_folder(
    tiny_file, tmp_path, linked
):
    outside, out = tmp_path / "outside", tmp_path / "out"
    outside.mkdir()
    (outside / "mine.csv").write_text("mine")
    (out / linked).parent.mkdir(parents=True)
    (out / linked).symlink_to(outside if linked == "cells" else outside / "mine.csv")
    with pytest.raises(OutputError, match="a link leads out of the folder"):
        run_sweep(spec(tiny_file, scheduler="greedy"), out)
    assert [path.read_text() for path in outside.iterdir()] == ["mine"]
