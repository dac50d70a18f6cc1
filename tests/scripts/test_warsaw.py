"""The Warsaw workload, and what its schedulers make of it."""

import csv
import json

import pytest
import warsaw


def by_name(overhead_ms: float, *names: str) -> dict[str, dict[str, object]]:
    found = warsaw.rows(overhead_ms, 0, {name: warsaw.SCHEDULERS[name] for name in names}, False)
    return {row["scheduler"]: row for row in found}


def test_requests_by_model_and_by_minute_are_those_of_the_thesis():
    minutes = warsaw.minutes_by_model()
    assert {name: sum(counts) for name, counts in minutes.items()} == {
        name: requests for name, (requests, _, _) in warsaw.MODELS.items()}
    for minute, counts in enumerate(zip(*minutes.values(), strict=True)):
        assert sum(counts) == pytest.approx(warsaw.MINUTES[minute], rel=0.01)
    share = {m: minutes[warsaw.IN_SPIKES][m] / warsaw.MINUTES[m] for m in (9, 10, 25, 26)}
    assert share[10] > 0.4 < share[25]
    assert share[9] < 0.1 > share[26]


def test_the_constants_are_those_of_the_reference_folder(reference_dir):
    folder = reference_dir / "cluster"
    if not (folder / "warsaw_models.csv").exists():
        pytest.skip("no reference data of the thesis")
    with (folder / "warsaw_models.csv").open(encoding="utf-8") as stream:
        models = {row["model"]: (int(row["requests_in_30_min"]), float(row["latency_ms_batch_1"]),
                                 float(row["size_mb"])) for row in csv.DictReader(stream)}
    assert models == warsaw.MODELS
    with (folder / "warsaw_minutes.csv").open(encoding="utf-8") as stream:
        assert tuple(int(row["requests"]) for row in csv.DictReader(stream)) == warsaw.MINUTES
    printed = json.loads((folder / "warsaw_printed.json").read_text(encoding="utf-8"))
    known = {"baseline": "modified-baseline", "clockwork-adjusted": "clockwork-adjusted",
             "round-robin": "round-robin"}
    for name in printed["violations_percent"]:
        row = known.get(name, f"round-robin-{name[0]}")
        assert warsaw.PRINTED[row] == (printed["violations_percent"][name],
                                       printed["loading_s"][name])


def test_the_baseline_collapses_in_the_spikes_and_only_there():
    row = by_name(0.0, "baseline")["baseline"]
    late = row["violations_by_minute"]
    assert isinstance(late, list)
    for minute, share in enumerate(late):
        if minute in warsaw.SPIKES:
            assert share > 0.4
        else:  # what the spike left behind is served in the minute after it
            assert share < 0.05


@pytest.mark.slow
def test_renewing_the_quantum_cuts_loading_time():
    found = by_name(0.0, "round-robin", "round-robin-a")
    assert found["round-robin-a"]["loading_s"] < 0.5 * found["round-robin"]["loading_s"]
    assert found["round-robin"]["loading_s"] == pytest.approx(857.81, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("overhead_ms", [0.0, 150.0, 300.0])
def test_planned_has_fewest_violations_and_half_the_loading_time(overhead_ms):
    others = [name for name in warsaw.SCHEDULERS if not name.startswith("planned")]
    found = by_name(overhead_ms, "planned", *others)
    best = min(found[name]["violation_rate"] for name in others)
    assert found["planned"]["violation_rate"] <= best + 2e-5  # a request of 54,836
    assert found["planned"]["loading_s"] <= 0.5 * found["round-robin"]["loading_s"]


def test_rows_and_scenario_are_written(tmp_path):
    out, made = tmp_path / "rows.json", tmp_path / "scenario.json"
    assert warsaw.main(["--scheduler", "baseline", "--no-bound", "--json", str(out),
                        "--scenario", str(made)]) == 0
    (row,) = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert {"scheduler", "violation_rate", "loading_s", "bound"} <= set(row)
    assert json.loads(made.read_text(encoding="utf-8"))["format"] == "ramsis.scenario/1"


def test_an_unknown_scheduler_is_refused_in_a_line(capsys):
    assert warsaw.main(["--no-bound", "--scheduler", "round-robbin"]) == 3
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("requests", warsaw.REQUESTS)
def test_each_division_has_the_same_requests_by_minute(requests):
    minutes = warsaw.minutes_by_model(requests)
    assert sum(map(sum, minutes.values())) == pytest.approx(sum(warsaw.MINUTES), rel=0.001)
    for minute, counts in enumerate(zip(*minutes.values(), strict=True)):
        assert sum(counts) == pytest.approx(warsaw.MINUTES[minute], rel=0.01)
    assert min(map(min, minutes.values())) >= 0


def test_decision_time_alone_reaches_the_printed_range():
    """Printed are 3.49 to 32.53 %; machines have no overhead, and work for 6.7 % of the time."""
    name = {"clockwork-adjusted": "clockwork-adjusted"}
    for decision_ms, least, most in ((0.0, 0.0, 0.0015), (16.0, 0.0, 0.0349), (28.0, 0.3, 0.4)):
        (row,) = warsaw.rows(0.0, 0, name, bound=False, decision_ms=decision_ms, poll_ms=100.0)
        assert least <= row["violation_rate"] <= most
    late = row["violations_by_minute"]
    assert max(late[:10]) < 0.2 < 0.9 < min(late[minute] for minute in warsaw.SPIKES)


@pytest.mark.slow
def test_models_are_switched_unused_where_loads_are_seen_late():
    def unused(name: str, poll_ms: float) -> float:
        (row,) = warsaw.rows(0.0, 0, {name: name}, bound=False, poll_ms=poll_ms, machines=4)
        return float(row["unused_loads"] / row["loads"])

    assert unused("baseline", 0.0) == 0.0
    assert unused("baseline", 100.0) > 0.8
    assert unused("modified-baseline", 100.0) < 0.2


@pytest.mark.parametrize(("option", "value"), [
    ("--overhead-ms", "-1"), ("--decision-ms", "-1"), ("--poll-ms", "nan"), ("--machines", "0")])
def test_numbers_out_of_range_are_refused(option, value, capsys):
    with pytest.raises(SystemExit) as refused:
        warsaw.main([option, value])
    assert refused.value.code == 2
    assert option in capsys.readouterr().err
