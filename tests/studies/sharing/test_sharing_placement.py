"""Placements of models that share GPUs are played by `ramsis simulate`."""

import json

import pytest

from placement_milp import place, write_placement
from ramsis.errors import InputFileError
from ramsis.studies.sharing.play import measure_sharing, play
from ramsis.studies.sharing.play.placement import cluster_of_placement, play_placement
from ramsis.studies.sharing.presets import gpu_sharing, usher
from tests.placement.samples import problem, shared_problem, value_row


def test_a_placement_is_played(run, tmp_path):
    path = tmp_path / "shared.json"
    write_placement(usher(shared_problem()), path)
    cluster, replicas = cluster_of_placement(path, duration_s=2)
    assert [(r.model, r.gpu, r.mps_share) for r in replicas] == [
        ("vision", "gpu-1", 0.4), ("text", "gpu-1", 0.4)]
    by_hand = measure_sharing(play(cluster, replicas, 3))
    rows, total = play_placement(path, [3], duration_s=2)
    assert total["goodput_rps"] == pytest.approx(by_hand.goodput_rps)
    assert [row["family"] for row in rows] == ["vision", "text"]
    assert total["goodput_rps"] <= total["bound_rps"]
    ran = run("simulate", "--placement", str(path), "--interference", "thesis", "--seed", "3",
              "--duration-s", "2", "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["goodput_rps"] == pytest.approx(by_hand.goodput_rps)
    shown = run("simulate", "--placement", str(path), "--duration-s", "1", "--interference",
                "none")
    assert "goodput" in shown.out


def test_shares_are_those_of_the_preset(tmp_path):
    write_placement(gpu_sharing(shared_problem()), tmp_path / "shared.json")
    _, replicas = cluster_of_placement(tmp_path / "shared.json")
    assert {r.mps_share for r in replicas} == {None}


def test_what_cannot_be_played_is_refused(run, tmp_path):
    path = tmp_path / "policies.json"
    known = problem(values=[{"family": "text", "rows": [value_row(load_qps=60)]}],
                    families=[{"name": "text", "demand_qps": 40, "slo_ms": 200}],
                    variants=[{"name": "bert", "family": "text", "accuracy": 0.8,
                               "memory_mb": 300, "latency": []}])
    write_placement(place(known), path)
    with pytest.raises(InputFileError, match="a worker follows a policy"):
        cluster_of_placement(path)
    write_placement(usher(shared_problem()), path)
    document = json.loads(path.read_text())
    document["groups"][0]["uses"][0]["mps_share"] = 0.9
    path.write_text(json.dumps(document))
    ran = run("simulate", "--placement", str(path), "--interference", "thesis")
    assert ran.code == 3
    assert ran.err.count("\n") == 1
    assert "shared out twice" in ran.err
