"""``--dispatch central-queue`` from the profile to the verified, shown and simulated policy."""

import json

import pytest

_TERMS = ("--slo-ms", 100, "--workers", 8)


@pytest.fixture
def folder(run, tiny_file, tmp_path):
    ran = run("generate", "--profiles", tiny_file, *_TERMS, "--load", "400,3000", "--dispatch",
              "central-queue", "--max-queue", 8, "--out", tmp_path / "set")
    assert ran.code == 0, ran.err
    return tmp_path / "set"


@pytest.mark.slow
def test_every_command_takes_a_fleet_set(run, folder, tiny_file):
    rows = json.loads(run("analyze", folder, "--json").out)["rows"]
    assert [row["scheduler"] for row in rows] == ["central-queue", "central-queue"]
    assert all(row["expected_effective_accuracy"] <= row["upper_bound"] for row in rows)
    assert run("validate", folder).code == 0
    path = folder / "central-queue-00400qps.json"
    shown = run("policy", "show", path).out
    assert "idle by queued" in shown
    listed = json.loads(run("policy", "show", path, "--json").out)
    assert {row["do"] for row in listed["rows"]} <= {"serve", "wait", "drop"}
    ran = run("simulate", "--profiles", tiny_file, *_TERMS, "--load", 400, "--policy", folder,
              "--duration-s", 5, "--json")
    row = json.loads(ran.out)["rows"][0]
    assert row["effective_accuracy"] == pytest.approx(row["expected_effective_accuracy"], abs=0.02)


@pytest.mark.slow
def test_verification_prints_the_certified_gap_and_notices_a_lie(run, folder):
    ran = run("verify", folder)
    assert ran.code == 0, ran.err
    assert ran.out.count("certified_gap 0.") == 2
    path = folder / "central-queue-00400qps.json"
    document = json.loads(path.read_text())
    document["expectations"]["effective_accuracy"] += 0.03
    document["expectations"]["accuracy"] += 0.03
    path.write_text(json.dumps(document))
    ran = run("verify", path, "--wide")
    assert ran.code == 6
    assert "expected effective accuracy" in ran.out
    assert "effective accuracy by a simulator of its own" in ran.out
