"""The script that proves the fewest GPUs for scenarios."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import partitions
import pytest
from scipy.optimize import LinearConstraint, milp

from placement_milp.partitions import shipped_partitions
from ramsis.profiles.importers.instances import read_instance_profile
from ramsis.profiles.importers.rows import read_rows
from tests.reference.partitions import fits

PROFILE = """\
model,instance,batch,processes,latency_ms,throughput_rps
a,1,4,1,40,100
a,1,8,2,45,300
a,3,8,1,20,400
b,7,8,1,30,260
"""


def run(folder: Path, scenarios: str, *more: str) -> int:
    (folder / "profile.csv").write_text(PROFILE)
    (folder / "scenarios.csv").write_text("scenario,model,slo_ms,rate_rps\n" + scenarios)
    return partitions.main(["--profiles", str(folder / "profile.csv"), "--scenarios",
                            str(folder / "scenarios.csv"), "--json", str(folder / "rows.json"),
                            *more])


def test_a_batch_has_to_stay_below_its_share(tmp_path):
    """45 ms is not below 0.45 x 100 ms; seven instances of 100, or two of 400 and one of 100."""
    assert run(tmp_path, "s,a,100,900\ns,b,100,200\nt,a,100.1,900\n") == 0
    first, second = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert (first["scenario"], first["gpus"], first["bound"]) == ("s", 3, 3)
    assert Counter(one["model"] for one in first["instances"])["b"] == 1
    assert (second["gpus"], {one["batch"] for one in second["instances"]}) in (
        (1, {8}), (1, {4, 8}))


@pytest.mark.parametrize(("scenarios", "more", "code", "says"), [
    ("s,c,100,9\n", (), 3, "scenario s: model is not in the profile: got 'c'; allowed: a, b"),
    ("s,b,66,9\n", (), 4, "model b: no instance meets the SLO: got '66 ms'; allowed: above 66.66"),
    ("s,a,100,9\ns,a,100,9\n", (), 3, "line 3, model: model stands twice"),
    ("s,a,100,0\n", (), 3, "line 2, rate_rps"),
    ("s,a,100,9\n", ("--gpu", "A30-24GB"), 3, "A30-24GB has no such instance: got '3'"),
    ("s,a,100,9\n", ("--latency-share", "0"), 3, "no batch can be in time"),
])
def test_what_is_refused(scenarios, more, code, says, tmp_path, capsys):
    assert run(tmp_path, scenarios, *more) == code
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_a_scenario_without_a_plan_leaves_the_rows_of_the_others(tmp_path):
    assert run(tmp_path, "1,b,66,9\n2,a,100,900\n") == 4
    first, second = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert (first["scenario"], first["gpus"], first["bound"], first["status"]) == (
        1, None, None, "infeasible")
    assert "no instance meets the SLO" in first["reason"]
    assert (second["scenario"], second["status"]) == (2, "optimal")
    assert second["gpus"] == second["bound"] > 0


def test_plans_are_played(tmp_path):
    """A GPU that is busy all the time is late for many; two are not."""
    assert run(tmp_path, "s,b,100,259\n", "--queues", "--play-s", "30") == 0
    (row,) = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert row["raised_by"]["b"] > 1
    assert (row["gpus"], row["rule_raised_gpus"], row["queue_aware_gpus"]) == (1, 2, 2)
    assert 0 < row["p99_share"] <= row["p99_share_longer"] <= 1


def _another_solver(profile: Path, demands: dict[str, tuple[float, float]]) -> int:
    """The fewest GPUs by another program: columns are all layouts with their positions."""
    best: dict[tuple[str, str], float] = {}
    for row in read_instance_profile(profile):
        if row.model in demands and row.processes <= 3 and (
                row.latency_ms < 0.45 * demands[row.model][0] - 1e-9):
            key = row.model, row.instance
            best[key] = max(best.get(key, 0.0), row.rate_rps)
    table = shipped_partitions()["A100-80GB"]
    sizes = {"1": "1g.10gb", "2": "2g.20gb", "3": "3g.40gb", "4": "4g.40gb", "7": "7g.80gb"}
    places = [(size, start) for size, name in sizes.items()
              for start in table.instance(name).starts]
    layouts: set[tuple[int, ...]] = set()
    for mask in range(1 << len(places)):
        if mask.bit_count() <= 7:
            chosen = tuple(p for i, p in enumerate(places) if mask >> i & 1)
            if fits(table, tuple((sizes[size], start) for size, start in chosen)):
                layouts.add(tuple(sum(s == size for s, _ in chosen) for size in sizes))
    columns, keys = sorted(layouts), list(best)
    supply = np.array([[layout[i] for layout in columns] for i in range(len(sizes))], dtype=float)
    use = np.array([[float(key[1] == size) for key in keys] for size in sizes])
    rates = np.array([[best[key] if key[0] == model else 0.0 for key in keys]
                      for model in demands])
    found = milp(
        np.concatenate([np.ones(len(columns)), np.zeros(len(keys))]),
        integrality=np.ones(len(columns) + len(keys), dtype=np.int64),
        constraints=[LinearConstraint(np.hstack([supply, -use]), 0, np.inf),
                     LinearConstraint(np.hstack([np.zeros((len(demands), len(columns))), rates]),
                                      [rate for _, rate in demands.values()], np.inf)])
    assert found.success
    return math.ceil(found.fun - 1e-6)


def test_the_published_scenarios(reference_dir, tmp_path):
    folder = reference_dir / "partitions"
    assert partitions.main(["--profiles", str(folder / "parvagpu_profiles.csv"), "--scenarios",
                            str(folder / "parvagpu_scenarios.csv"), "--json",
                            str(tmp_path / "rows.json")]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["gpus"] for row in rows] == [2, 3, 5, 7, 12, 16]
    assert [row["bound"] for row in rows] == [2, 3, 5, 7, 12, 16]
    table = shipped_partitions()["A100-80GB"]
    demand = {(row.text("scenario"), row.text("model")): row.number("rate_rps")
              for row in read_rows(folder / "parvagpu_scenarios.csv").rows}
    for row in rows:
        for instances in row["layouts"].values():
            assert fits(table, tuple((name, int(start)) for name, _, start in (
                instance.rpartition("@") for instance in instances)))
        served: Counter[str] = Counter()
        for one in row["instances"]:
            served[one["model"]] += one["rate_rps"]
        for (scenario, model), rate in demand.items():
            assert scenario != str(row["scenario"]) or served[model] >= rate


def test_other_scenarios_against_another_solver(reference_dir, tmp_path):
    folder = reference_dir / "partitions"
    rng = np.random.default_rng(5)
    table = read_rows(folder / "parvagpu_scenarios.csv")
    demands = {str(i): {
        row.text("model"): (round(float(rng.uniform(60, 800)), 1) if row.text("model") != "bert"
                            else 3000.0, float(rng.integers(5, 3000)))
        for row in table.rows if row.text("scenario") == "3" and rng.random() < 0.8}
        for i in range(5)}
    path = tmp_path / "scenarios.csv"
    path.write_text("scenario,model,slo_ms,rate_rps\n" + "".join(
        f"{name},{model},{slo},{rate}\n" for name, models in demands.items()
        for model, (slo, rate) in models.items()))
    profile = folder / "parvagpu_profiles.csv"
    assert partitions.main(["--profiles", str(profile), "--scenarios", str(path), "--json",
                            str(tmp_path / "rows.json")]) == 0
    for row in json.loads((tmp_path / "rows.json").read_text())["rows"]:
        assert row["gpus"] == _another_solver(profile, demands[str(row["scenario"])])
        assert row["status"] == "optimal"
