"""The Ray Serve adapter: what it exports, how it scales, and an application that answers."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from ramsis.cli.main import cli
from ramsis.serving.export.ray_configuration import yaml_text
from ramsis.serving.ray_scaling import LOAD_METRIC, CapacityPolicy
from tests.cli.command import Run, refused
from tests.serving.servers import make, profile

LEVELS = [(100.0, 1), (200.0, 2), (400.0, 4)]


def context(now_s: float, load_qps: float | None, state: Any = None, **other: Any) -> Any:
    metrics = {} if load_qps is None else {LOAD_METRIC: {"a": load_qps, "b": load_qps - 5.0}}
    return SimpleNamespace(**{
        "aggregated_metrics": metrics, "current_time": now_s, "policy_state": state,
        "target_num_replicas": 3, "capacity_adjusted_min_replicas": 1,
        "capacity_adjusted_max_replicas": 4, **other})


def test_replicas_follow_the_capacity_answers() -> None:
    policy = CapacityPolicy(LEVELS, startup_s=10.0)
    for load_qps, wanted in ((50.0, 1), (100.0, 1), (101.0, 2), (300.0, 4), (5000.0, 4)):
        assert policy(context(0.0, load_qps))[0] == wanted
    assert policy(context(0.0, None))[0] == 3  # no worker has said anything
    assert policy(context(0.0, 300.0, capacity_adjusted_max_replicas=2))[0] == 2
    assert policy(context(0.0, 10.0, capacity_adjusted_min_replicas=2))[0] == 2


def test_a_load_that_rises_is_met_before_it_is_there() -> None:
    """It rises by 10 each second; a replica that starts now serves in ten seconds."""
    policy, state, wanted = CapacityPolicy(LEVELS, startup_s=10.0), {}, []
    for second in range(16):
        replicas, state = policy(context(float(second), 10.0 * second + 5.0, state))
        wanted.append(replicas)
        assert len(state["seen"]) <= 11
    assert wanted == sorted(wanted)
    reached = next(second for second in range(16) if wanted[second] >= 2)
    assert reached <= 5  # 100 queries/s come after 9.5 s
    falling, state = [], {}
    for second in range(16):
        replicas, state = policy(context(float(second), 400.0 - 20.0 * second, state))
        falling.append(replicas)
    assert falling[5] == 4  # and one that falls is followed, not foreseen
    assert falling[-1] == 1


def test_yaml_is_what_a_parser_of_others_reads() -> None:
    document = {"a": {"b": 1, "c": [1.5, "x: y"]}, "d": [{"e": "#", "f": {"g": True}}, {"h": []}],
                "i": None, "j": {}}
    assert yaml.safe_load(yaml_text(document)) == document


def test_the_exported_file_names_the_application(run: Run, tmp_path: Path) -> None:
    make(tmp_path, workers=2)
    base = ["export", "ray-serve", tmp_path / "policies", "--variants",
            tmp_path / "variants.toml", "--out", tmp_path / "app.yaml"]
    assert run(*base).code == 0
    text = (tmp_path / "app.yaml").read_text()
    assert 'import_path: "ramsis.serving.ray:application"' in text
    assert f'policies: "{tmp_path / "policies"}"' in text
    assert "num_replicas: 2" in text
    assert "autoscaling" not in text


def test_workers_for_loads_are_capacity_answers(run: Run, tmp_path: Path) -> None:
    from ramsis.profiles import save

    make(tmp_path, workers=3, loads=(20.0, 500.0))
    save(profile(), tmp_path / "profile.json")
    ran = run("export", "ray-serve", tmp_path / "policies", "--variants",
              tmp_path / "variants.toml", "--out", tmp_path / "app.yaml", "--autoscale",
              tmp_path / "profile.json", "--min-accuracy", 0.8)
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0] == "up to 20 QPS: 1 workers"
    assert lines[1].startswith("up to 500 QPS: ")
    text = (tmp_path / "app.yaml").read_text()
    assert 'policy_function: "ramsis.serving.ray_scaling:CapacityPolicy"' in text
    assert "levels: [[20.0, 1], [500.0, " in text


def test_what_does_not_fit_is_refused(run: Run, tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "other.toml").write_text('[[variants]]\nname = "x"\nmodel = "m:f"\n'
                                         'backend = "callable"\n')
    out = tmp_path / "app.yaml"
    refused(run("export", "ray-serve", tmp_path / "policies", "--variants",
                tmp_path / "other.toml", "--out", out), 3, "no variant")
    refused(run("export", "ray-serve", tmp_path / "none", "--variants",
                tmp_path / "variants.toml", "--out", out), 3, "none")
    assert not out.exists()
    assert cli.get_command(None, "export") is not None  # type: ignore[arg-type]


def post(port: int, body: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", "/v2/models/sums/infer", body)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read() or b"null")


@pytest.mark.slow
def test_serve_run_of_the_exported_file_answers(run: Run, tmp_path: Path) -> None:
    """Ray's own command starts it; it takes a minute."""
    pytest.importorskip("ray")
    make(tmp_path, workers=1)
    file, port = tmp_path / "app.yaml", 18_000
    ran = run("export", "ray-serve", tmp_path / "policies", "--variants",
              tmp_path / "variants.toml", "--out", file)
    assert ran.code == 0, ran.err
    file.write_text(file.read_text().replace("port: 8000", f"port: {port}"))
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 3],
                                   "data": [1, 2, 3, 4, 5, 6]}],
                       "parameters": {"deadline_ms": 10_000}})
    with subprocess.Popen([str(Path(sys.executable).parent / "serve"), "run", str(file)],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            status, answer, ends = 0, None, time.monotonic() + 180.0
            while status != 200 and time.monotonic() < ends:
                time.sleep(1.0)
                try:
                    status, answer = post(port, body)
                except (OSError, ValueError):
                    continue
            assert status == 200
            sums = next(one for one in answer["outputs"] if one["name"] == "sum")
            assert sums["data"] == [6.0, 15.0]
            assert answer["parameters"]["in_time"]
            # what cannot be in time is refused at once, as by `ramsis serve`
            assert post(port, body.replace("10000", "0.001"))[0] == 503
            assert post(port, "{}")[0] == 400
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
