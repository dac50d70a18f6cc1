"""``ramsis validate``: one line for each file, all files, exit code 3 when any is bad."""

import json

import pytest

import placement_milp
from ramsis import policy, profiles
from tests.cli.command import refused
from tests.placement.samples import document as placement_document
from tests.placement.samples import problem as placement_problem
from tests.placement.samples import value_row
from tests.policy.samples import document, small_policy


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "set"
    members = [small_policy(load_qps=load) for load in (400.0, 800.0)]
    policy.write_set(folder, policy.set_of(members), created_by="test")
    return folder


def test_policies_sets_and_manifests_are_recognised(run, folder):
    one, manifest = folder / "round-robin-00400qps.json", folder / "manifest.json"
    ran = run("validate", one, folder, manifest)
    assert ran.code == 0
    assert ran.err == ""
    assert ran.out.splitlines() == [
        f"ok {one}: round-robin policy for 400 QPS (poisson), 4 workers, SLO 100 ms",
        f"ok {folder}: policy set, 2 files for 400 to 800 QPS",
        f"ok {manifest}: policy set, 2 files for 400 to 800 QPS",
    ]


def test_placement_problems_and_value_tables_are_recognised(run, tmp_path):
    problem, values = tmp_path / "problem.json", tmp_path / "values.json"
    problem.write_text(json.dumps(placement_document()))
    values.write_text(json.dumps({"format": "ramsis.value-table/1", "rows": [value_row()]}))
    ran = run("validate", problem, values)
    assert ran.out.splitlines() == [
        f"ok {problem}: placement problem sample, 3 variants, 4 workers",
        f"ok {values}: value table, 1 row",
    ]
    problem.write_text(json.dumps(placement_document(families=[])))
    refused(run("validate", problem), 3, "families: not a list")


def test_placements_and_scenarios_in_toml_are_recognised(run, tmp_path):
    placed, scenario = tmp_path / "placed.json", tmp_path / "scenario.toml"
    placement_milp.write_placement(placement_milp.place(placement_problem()), placed)
    scenario.write_text("""format = "ramsis.scenario/1"
name = "one"
duration_s = 1
worker_types = [{name = "gpu", count = 1}]
models = [{name = "m", latency = [{worker_type = "gpu", batch = 1, latency_ms = 5}]}]
streams = [{name = "s", model = "m", slo_ms = 50, workload = {load_qps = 10}}]
""")
    ran = run("validate", placed, scenario)
    assert ran.out.splitlines() == [
        f"ok {placed}: placement sample, 4 workers in use",
        f"ok {scenario}: scenario one, 1 worker, 1 model, 1 stream",
    ]
    document = json.loads(placed.read_text())
    document["groups"][0]["workers"] = []
    placed.write_text(json.dumps(document))
    refused(run("validate", placed), 3, "groups")


def test_profiles_are_recognised(run, tmp_path):
    path = tmp_path / "profile.json"
    batches = tuple(profiles.BatchProfile(batch=b, p95_ms=10.0 * b) for b in (1, 2))
    model = profiles.ModelProfile(name="small", accuracy=0.6, batches=batches)
    profiles.save(profiles.ProfileSet(name="tiny", models=(model,)), path)
    assert run("validate", path).out == f"ok {path}: profile set tiny, 1 model\n"
    path.write_text(path.read_text().replace("10.0", "-10.0"))
    refused(run("validate", path), 3, "p95_ms")


def test_all_files_are_looked_at_and_the_bad_ones_counted(run, folder, tmp_path):
    (tmp_path / "late.json").write_text(json.dumps(document() | {"format": "ramsis.policy/9"}))
    (tmp_path / "empty.json").write_text("")
    bad = [tmp_path / "late.json", tmp_path / "none.json", tmp_path / "empty.json"]
    ran = run("validate", bad[0], folder, *bad[1:])
    assert ran.code == 3
    assert ran.out == f"ok {folder}: policy set, 2 files for 400 to 800 QPS\n"
    *lines, last = ran.err.splitlines()
    assert last == "error: 3 of 4 files are not valid"
    assert [line.split(":")[1].strip() for line in lines] == [str(path) for path in bad]
    assert "ramsis.policy/1" in lines[0]


def test_contradictions_inside_a_set_are_found(run, folder):
    path = folder / "round-robin-00400qps.json"
    contradiction = document() | {"load_qps": 400.0}
    contradiction["expectations"]["effective_accuracy"] = 0.1
    path.write_text(json.dumps(contradiction))
    refused(run("validate", path), 3, "effective_accuracy: not accuracy")
    refused(run("validate", folder), 3, "has changed since the manifest")


def test_a_manifest_under_another_name_is_refused(run, folder):
    (folder / "manifest.json").rename(folder / "list.json")
    refused(run("validate", folder / "list.json"), 3, "allowed: manifest.json")
