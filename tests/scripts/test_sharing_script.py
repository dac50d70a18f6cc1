"""The script that compares policies of sharing: its rows, its grid, and what it refuses."""

import json

import pytest
import sharing

_PROFILE = """\
model,batch,latency_s,throughput_rps,mem_cap_pct,ach_occ_pct,wavg_ach_occ_pct,wavg_sm_util_pct,flag
a,4,0.0100,400.00,10,50,20,30,ok
a,8,0.0160,500.00,12,70,30,50,ok
b,4,0.0200,200.00,20,80,30,60,ok
b,8,0.0320,250.00,20,90,40,80,garbled
"""


@pytest.fixture
def given(tmp_path):
    (tmp_path / "profile.csv").write_text(_PROFILE)
    return ["--profile", str(tmp_path / "profile.csv"), "--models", "a,b", "--slo-ms", "100",
            "--json", str(tmp_path / "rows.json"), "--duration-s", "1", "--seeds", "2"]


@pytest.mark.slow
def test_a_row_for_each_policy_and_cell(given, tmp_path, capsys):
    assert sharing.main([*given, "--rps", "100,250", "--gpus", "1",
                         "--plot", str(tmp_path / "figure.svg")]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [(row["rps"], row["policy"]) for row in rows] == [
        (rps, policy) for rps in (100, 250) for policy in sharing.POLICIES.split(",")]
    for row in rows:
        assert 0 <= row["simulated_goodput_rps"] <= row["bound_rps"] + 1e-9
        assert row["planned_goodput_rps"] <= 2 * row["rps"]
        served = {name for name, *_ in row["replicas"]}
        assert set(row["unserved"]) == {"a", "b"} - served
    assert rows[5]["simulated_goodput_rps"] == max(r["simulated_goodput_rps"] for r in rows[:6])
    assert (tmp_path / "figure.svg").stat().st_size > 0
    assert "of the bound" in capsys.readouterr().out
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert len(lines) == 12
    assert sharing.main([*given, "--rps", "100,250", "--gpus", "1"]) == 0
    assert (tmp_path / "rows.jsonl").read_text().splitlines() == lines  # nothing made again


def test_a_target_that_no_gpu_meets_is_rows_of_nothing(given, capsys):
    assert sharing.main([*given, "--rps", "100", "--gpus", "1", "--slo-ms", "0.1", "--seeds", "1",
                         "--duration-s", "0.5", "--policy", "wsm-milp,queue-aware"]) == 0
    said = capsys.readouterr().out
    assert "no batch is within its SLO" in said
    assert "queue-aware 0.0 = 1.0000 x wsm-milp (0.0)" in said


@pytest.mark.slow
def test_random_mixes_are_played_at_longer_latencies_too(given, tmp_path, capsys):
    bare = [*given[:2], *given[6:], "--random", "2", "--policy", "usher,queue-aware"]
    assert sharing.main(bare) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["policy"] for row in rows] == ["usher", "queue-aware"] * 2
    for row in rows:
        assert row["slower"] == 1.1
        assert row["slower_bound_rps"] <= row["bound_rps"] + 1e-9
        assert row["slower_simulated_goodput_rps"] <= row["slower_bound_rps"] + 1e-9
    assert "longer latencies: at least" in capsys.readouterr().out
    lines = (tmp_path / "rows.jsonl").read_text()
    assert sharing.main(bare) == 0
    assert (tmp_path / "rows.jsonl").read_text() == lines
    assert sharing.main([*bare, "--rps", "100"]) == 3
    assert "either --random, or all of" in capsys.readouterr().err


_OWN = """\
from ramsis.studies.sharing import Replica
def both(models, gpus):
    return [Replica(model.name, gpus[0].name, 4, SHARE) for model in models]
"""


@pytest.mark.parametrize(("change", "message"), [
    (["--models", "a,c"], "model is not in the profile: got 'c'"),
    (["--rps", "-5"], "--rps: not a list of numbers"),
    (["--gpus", "0"], "--gpus: not a list of numbers"),
    (["--policy", "mine"], "unknown policy: got 'mine'"),
    (["--policy", "SHARES:both"], "gpu-0: shares above 100 %"),
    (["--policy", "ABOVE:both"], "not a share: got 1.5"),
    (["--seeds", "0"], "--seeds: out of range: got 0; allowed: a finite number >= 1"),
    (["--waiting-ms", "-1"], "waiting_ms: not positive"),
])
def test_bad_input_is_refused_in_a_line_with_code_3(given, tmp_path, change, message, capsys):
    for name, share in (("SHARES", "0.6"), ("ABOVE", "1.5")):
        (tmp_path / f"{name}.py").write_text(_OWN.replace("SHARE", share))
        change = [part.replace(name, f"{tmp_path / name}.py") for part in change]
    code = sharing.main([*given, "--rps", "100", "--gpus", "1", "--policy", "usher", *change])
    said = capsys.readouterr().err
    assert code == 3
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "rows.json").exists()
