"""``ramsis simulate``."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ramsis import profiles, report
from ramsis.errors import OutputError
from ramsis.sim import ConstantLoad, JellyfishPlus
from ramsis.synthesis import generate_set
from tests.cli.command import refused, snapshot
from tests.runs import simulate_profile
from tests.synthesis.samples import settings, tiny_profile


@pytest.fixture(scope="module")
def policies(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    generate_set(tiny_profile(), (200.0, 600.0), settings(), folder)
    return folder


@pytest.fixture
def base(tiny_file):
    return ["simulate", "--profiles", tiny_file, "--workers", 4, "--slo-ms", 100]


def test_seeds_without_requests_count_neither_way(run, base):
    """At this load some of the runs have requests and some have none."""
    (row,) = run(*base, "--scheduler", "greedy", "--load", 0.05, "--seeds", 10,
                 "--max-violation", 0.001, "--json").rows
    assert row["queries"] == row["in_time"] > 0
    assert row["effective_accuracy"] == row["accuracy"] <= row["upper_bound"]
    assert row["effective_accuracy_half_width"] == row["violation_rate_half_width"] > 0.0
    assert row["violation_rate"] == 0.0


def test_a_burst_in_the_middle_of_the_runs_says_when_it_is_over(run, base):
    burst = [*base, "--scheduler", "greedy", "--load", 100, "--duration-s", 4, "--burst", 50]
    (row,) = run(*burst, "--seeds", 2, "--json").rows
    (usual,) = run(*burst[:-2], "--seeds", 2, "--json").rows
    assert row["queries"] == usual["queries"] + 100
    assert row["burst"] == 50
    assert 0.0 < row["recovery_ms"] < 2000.0
    assert not {"burst", "recovery_ms"} & set(usual)
    assert "recovery" in run(*burst).out
    ran = run(*burst[:-1], 100_000)
    assert ran.err.startswith("note: greedy, 100 QPS: not recovered from the burst")
    refused(run(*base, "--scheduler", "greedy", "--trace", "day", "--burst", 5), 2, "--burst",
            "--load")


def test_policies_for_other_service_times_are_told(run, base, policies, tmp_path):
    def notes(*options: Any, batches_longer: float = 1.0) -> str:
        known = tiny_profile()
        profiles.save(replace(known, name="other", models=tuple(
            replace(model, batches=tuple(
                replace(item, p95_ms=item.p95_ms * batches_longer) for item in model.batches
                if item.p95_ms is not None)) for model in known.models)), tmp_path / "p.json")
        return run(*base[:2], tmp_path / "p.json", *base[3:], "--policy", policies, "--load", 200,
                   "--duration-s", 1, *options).err

    told = f"note: round-robin {policies}: made for other service times than the profile's"
    assert notes() == notes("--models", "small,medium,large") == ""
    for err in (notes(batches_longer=0.5), notes(batches_longer=2.0)):
        assert err.startswith(told)
        assert "by a factor of up to 2: " in err
    assert notes("--overhead-ms", 1).startswith(told)


def test_a_load_without_requests_is_told(run, base):
    ran = run(*base, "--scheduler", "greedy", "--load", "1e-5,200", "--duration-s", 1)
    assert ran.err.splitlines() == ["note: 1e-05 QPS: no request arrived, so these rows have "
                                    "no rates; a longer --duration-s is needed"]


def test_one_row_per_scheme_and_load_with_the_named_fields(run, base, policies):
    ran = run(*base, "--policy", policies, "--scheduler", "jellyfish-plus:headroom=1.05",
              "--scheduler", "greedy", "--load", "200,600,900", "--duration-s", 2, "--seeds", 3,
              "--json")
    assert ran.code == 0
    assert "above the highest level, 600, which is used" in ran.err
    found = ran.rows
    assert [(r["label"], r["load_qps"]) for r in found][:3] == [
        (f"round-robin {policies}", 200.0), ("jellyfish-plus:headroom=1.05", 200.0),
        ("greedy", 200.0)]
    assert len(found) == 9
    for row in found:
        assert row["seeds"] == 3
        assert row["workers"] == 4
        assert row["slo_ms"] == 100.0
        assert row["effective_accuracy"] == pytest.approx(
            row["accuracy"] * (1 - row["violation_rate"]), abs=1e-3)
        assert row["effective_accuracy"] <= row["upper_bound"] + 1e-9
        assert row["queries"] == (row["in_time"] + row["late"] + row["dropped"]
                                  + row["never_answered"])
    at_level, between = found[0], found[6]
    assert at_level["policy"] == str(policies)
    assert at_level["expected_effective_accuracy"] == pytest.approx(
        at_level["effective_accuracy"], abs=0.02)
    assert between["expected_accuracy"] is None  # no policy was made for 900
    assert found[1]["expected_accuracy"] is None


def test_figures_are_those_of_the_python_interface(run, base):
    ran = run(*base, "--scheduler", "jellyfish-plus", "--load", 500, "--duration-s", 1, "--seed",
              5,
              "--seeds", 2, "--json")
    result = simulate_profile(tiny_profile(), JellyfishPlus(), ConstantLoad(500.0, 1000.0),
                              workers=4, slo_ms=100.0, seeds=[5, 6])
    (row,) = ran.rows
    assert {key: row[key] for key in result.row()} == json.loads(json.dumps(result.row()))


def test_the_table_names_schemes_and_models(run, base):
    ran = run(*base, "--scheduler", "jellyfish-plus", "--load", 300, "--duration-s", 1, "--wide")
    assert ran.code == 0
    head, line = ran.out.splitlines()
    assert head.split()[:3] == ["scheduler", "load", "(QPS)"]
    assert line.startswith("jellyfish-plus")
    assert "(100%)" in line


def test_recorded_timestamps_are_replayed_as_they_are_or_faster(run, base, tmp_path):
    trace = tmp_path / "recorded.csv"
    times = ["2024-05-01T12:00:00.0", "2024-05-01T12:00:00.25", "2024-05-01T12:00:02.0"]
    trace.write_text("\n".join(["id,seen", *(f"{i},{t}" for i, t in enumerate(times))]))
    words = ["--scheduler", "greedy", "--trace", trace, "--time-column", "seen", "--json"]
    (row,), (faster,) = (run(*base, *words, "--scale", scale).rows for scale in (1, 4))
    assert row["queries"] == faster["queries"] == 3
    assert row["duration_s"] == pytest.approx(3.0)  # one mean gap after the last
    assert faster["duration_s"] == pytest.approx(0.75)


def test_recorded_timestamps_take_no_process_and_need_a_unit(run, base, tmp_path):
    trace = tmp_path / "recorded.txt"
    trace.write_text("1\n2\n3\n")
    words = [*base, "--scheduler", "greedy", "--trace", trace]
    refused(run(*words), 2, "numbers need a unit")
    assert run(*words, "--unit", "ms").code == 0
    refused(run(*words, "--unit", "s", "--arrivals", "fixed-rate"), 2, "follow no process")
    trace.write_text("1\n3\n2\n")
    refused(run(*words, "--unit", "s"), 3, "recorded.txt: line 3", "goes back")


def test_a_trace_is_monitored_scaled_and_cut(run, base, policies):
    words = [*base, "--policy", policies, "--scheduler", "jellyfish-plus", "--trace", "day",
             "--scale", 0.1, "--duration-s", 4, "--json"]
    told, forced = run(*words).rows, run(*words, "--monitor", "off").rows
    assert [row["monitor"] for row in told] == [True, True]
    assert [row["monitor"] for row in forced] == [False, False]
    assert told[0]["duration_s"] == 4.0
    assert told[0]["load_qps"] == pytest.approx(175.0, rel=0.05)
    assert told[0]["queries"] == forced[0]["queries"]
    even = run(*words, "--arrivals", "fixed-rate", "--seeds", 2).rows
    assert even[0]["queries"] == 2 * math.ceil(4 * told[0]["load_qps"])
    bursty = run(*words, "--arrivals", "renewal:3").rows
    assert bursty[0]["queries"] != told[0]["queries"]


def test_schemes_told_a_wrong_load_use_and_name_the_policy_for_it(run, base, policies):
    words = [*base, "--policy", policies, "--load", 200, "--duration-s", 2]
    wrong = run(*words, "--told", 3, "--json")
    (row,) = wrong.rows
    assert row["load_qps"] == 200.0
    assert row["expected_accuracy"] is None  # the policy for 600 QPS promises nothing for 200
    right = run(*words, "--json").rows[0]
    assert row["queries"] == right["queries"]
    assert row["accuracy"] != right["accuracy"]
    assert "a load of 800 QPS is above" in run(*words, "--told", 4).err


@pytest.mark.parametrize(("option", "value"), [("--told", 0), ("--monitor-ms", -1)])
def test_a_bad_anticipation_is_refused(run, base, option, value):
    ran = run(*base, "--scheduler", "greedy", "--load", 100, option, value)
    refused(ran, 2, f"{option}: ", "> 0")


def test_the_monitor_can_be_forced_on_for_a_constant_load(run, base):
    ran = run(*base, "--scheduler", "greedy", "--load", 100, "--duration-s", 1, "--monitor", "on",
              "--json")
    assert ran.rows[0]["monitor"] is True


def test_rows_figures_and_timelines_are_written(run, base, tmp_path):
    pytest.importorskip("matplotlib")
    ran = run(*base, "--scheduler", "greedy", "--scheduler", "jellyfish-plus", "--load", "200,400",
              "--duration-s", 1, "--csv", tmp_path / "rows.csv", "--plot", tmp_path / "a.svg",
              "--timeline", tmp_path / "t.json")
    assert ran.code == 0, ran.err
    with (tmp_path / "rows.csv").open(newline="") as stream:
        table = list(csv.DictReader(stream))
    assert [row["label"] for row in table] == ["greedy", "jellyfish-plus"] * 2
    assert all("=" in row["model_share"] for row in table)
    assert "jellyfish-plus" in (tmp_path / "a.svg").read_text() or (tmp_path / "a.svg").exists()
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {
        "greedy", "jellyfish-plus"}
    again = run(*base, "--scheduler", "greedy", "--trace", "day", "--scale", "0.1",
                "--duration-s", 2,
                "--plot", tmp_path / "b.png")
    assert again.code == 0
    assert (tmp_path / "b.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(("words", "code", "said"), [
    ([], 2, ["Nothing to simulate"]),
    (["--scheduler", "greedy"], 2, ["either --load or --trace"]),
    (["--scheduler", "greedy", "--trace", "day", "--scale", -1], 2, ["--scale: ", "got -1"]),
    (["--scheduler", "greedy", "--trace", "day", "--scale", 1e6], 3, ["peak load", "--unit"]),
    (["--scheduler", "infaas:accuracy=0.99", "--load", 1], 4, ["accurate enough"]),
])
def test_bad_input_is_refused_in_one_line_and_nothing_is_written(
    run, base, tmp_path, monkeypatch, words, code, said
):
    monkeypatch.chdir(tmp_path)
    refused(run(*base, *words, "--csv", "rows.csv", "--timeline", "t.json"), code, *said)
    assert snapshot(tmp_path) == {}


def test_policies_made_for_something_else_exit_with_3(run, policies, tiny_file, tmp_path):
    part = tmp_path / "part.json"
    profiles.save(tiny_profile().subset(["small"]), part)
    for file, workers, slo_ms, said in ((tiny_file, 5, 100, "workers"),
                                        (tiny_file, 4, 90, "SLO"), (part, 4, 100, "models")):
        refused(run("simulate", "--profiles", file, "--workers", workers, "--slo-ms", slo_ms,
                    "--policy", policies, "--load", 100), 3, said, str(policies))


def test_policies_are_made_for_the_loads_and_compared(run, base):
    labels = ("round-robin:grid=fixed:10", "central-queue:violation_price=0,grid=fixed:10",
              "greedy")
    ran = run(*base, "--load", "300,600", "--duration-s", 3, "--scheduler", labels[0],
              "--scheduler", labels[1], "--scheduler", labels[2], "--json")
    assert ran.code == 0, ran.err
    found = ran.rows
    assert [(row["load_qps"], row["label"]) for row in found] == [
        (load, label) for load in (300.0, 600.0) for label in labels]
    for row in found:
        promised = row["expected_effective_accuracy"]
        assert (promised is None) == (row["label"] == "greedy")
        if promised is not None:
            assert promised == pytest.approx(row["effective_accuracy"], abs=0.03)
        assert row["policy"] is None


def test_made_policies_are_told_a_wrong_load(run, base):
    asked = ["--load", 800, "--duration-s", 3, "--scheduler", "round-robin:grid=fixed:10",
             "--json"]
    (wrong,) = run(*base, *asked, "--told", 0.25).rows
    (right,) = run(*base, *asked).rows
    assert wrong["model_share"] != right["model_share"]  # the policy for a quarter serves


def test_policies_are_played_with_the_service_times_that_they_were_made_for(run, tmp_path):
    base = ["--profiles", "digits-cpu", "--workers", 4, "--slo-ms", 25]
    made = run("generate", *base, "--load", 800, "--max-queue", 8, "--out", tmp_path / "set")
    assert made.code == 0
    command = ["simulate", *base, "--load", 800, "--duration-s", 20, "--policy", tmp_path / "set",
               "--json"]
    played = run(*command)
    (row,) = played.rows
    assert row["service"] == "distribution"
    assert row["effective_accuracy"] == pytest.approx(row["expected_effective_accuracy"],
                                                      abs=0.001)
    assert "service" not in played.err
    other = run(*command, "--service", "p95")
    assert other.rows[0]["service"] == "p95"
    assert "made for --service distribution, simulated with p95" in other.err


@pytest.mark.slow
def test_the_gap_of_policies_is_at_their_own_price(run, base, tiny_file):
    """Against what `bound` prints for Poisson arrivals at that price; other schemes have none."""
    given = (*base[1:5], "--slo-ms", 20, "--load", 1400)
    found = run("simulate", *given, "--scheduler", "central-queue:max_queue=8,headroom=0",
                "--scheduler", "central-queue:max_queue=8,headroom=0,violation_price=0",
                "--scheduler", "greedy", "--duration-s", 20, "--json").rows
    assert [row["violation_price"] for row in found] == [1.0, 0.0, None]
    for row in found[:2]:
        price = row["violation_price"]
        (limit,) = run("bound", *given, "--violation-price", price, "--json").rows
        assert row["priced_upper_bound"] == pytest.approx(limit["poisson_upper_bound"])
        assert limit["poisson_upper_bound"] < limit["upper_bound"]
        value = row["effective_accuracy"] - price * row["violation_rate"]
        assert row["certified_gap"] == pytest.approx(1 - value / row["priced_upper_bound"])
        assert 0.0 < row["certified_gap"] < 0.1
    assert found[2]["certified_gap"] is found[2]["priced_upper_bound"] is None
    traced = run(*base, "--scheduler", "central-queue:max_queue=8,levels=2", "--trace", "day",
                 "--scale", 0.2, "--duration-s", 5, "--json").rows
    assert traced[0]["priced_upper_bound"] == pytest.approx(traced[0]["upper_bound"])
    assert 0.0 <= traced[0]["certified_gap"] < 0.2
    shown = run(*base, "--scheduler", "greedy", "--load", 300, "--duration-s", 1).out
    assert "certified gap" not in shown


def test_rows_are_printed_when_a_figure_cannot_be_drawn(run, tiny_file, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")

    def fail(charts: object, plot: Path, title: str) -> None:
        raise OutputError(f"{plot.name}: disk is full")

    monkeypatch.setattr(report, "plot_charts", fail)
    ran = run("simulate", "--profiles", tiny_file, "--slo-ms", 100, "--workers", 2, "--load", 100,
              "--duration-s", 1, "--scheduler", "greedy", "--plot", tmp_path / "a.png")
    assert (ran.code, ran.err) == (2, "error: a.png: disk is full\n")
    assert "greedy" in ran.out
