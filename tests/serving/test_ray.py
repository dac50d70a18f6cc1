"""The Ray Serve adapter: what it exports, how it scales, and an application that answers."""

import contextlib
import http.client
import importlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from ramsis.cli.main import cli
from ramsis.errors import InputFileError
from ramsis.serving.export.ray_configuration import yaml_text
from ramsis.serving.ray_scaling import LOAD_METRIC, ScalingPolicy
from tests.cli.command import refused
from tests.serving import servers
from tests.serving.servers import Load, body, make, until
from tests.serving.test_scaling import scaling_policy


def context(now_s: float, load_qps: float | None, **other: Any) -> Any:
    metrics = {} if load_qps is None else {LOAD_METRIC: {"a": load_qps, "b": load_qps - 5.0}}
    return SimpleNamespace(**{
        "aggregated_metrics": metrics, "current_time": now_s,
        "target_num_replicas": 3, "capacity_adjusted_min_replicas": 1,
        "capacity_adjusted_max_replicas": 4, **other})


def test_replicas_follow_the_scaling_table(tmp_path):
    """It decides once in 0.7 s; what has not started yet is kept at 20 QPS, but not at 4."""
    policy = ScalingPolicy(str(scaling_policy(tmp_path) / "policies" / "scaling.json"))
    asked: list[int] = []

    def ask(now_s: float, load_qps: float | None, running: int, **other: Any) -> int:
        target = asked[-1] if asked else 1
        replicas, state = policy(context(now_s, load_qps, current_num_replicas=running,
                                         target_num_replicas=target, **other))
        assert state == {}
        asked.append(replicas)
        return replicas

    assert ask(0.0, None, 1) == 1  # no worker has said anything
    assert ask(0.1, 3.0, 1) == 1
    assert ask(0.7, 130.0, 1) == 1  # too early
    assert ask(0.8, 130.0, 1) == 2
    assert ask(1.1, 4.0, 1) == 2
    assert ask(1.6, 19.0, 1) == 2
    assert ask(2.4, 4.0, 1) == 1
    assert ask(3.2, 130.0, 1) == 2
    assert ask(4.0, 130.0, 2, capacity_adjusted_max_replicas=1) == 1
    with pytest.raises(InputFileError, match=r"none\.json"):
        ScalingPolicy(str(tmp_path / "none.json"))


def test_the_file_for_a_scaling_policy_names_it(run, tmp_path):
    scaling_policy(tmp_path)
    base = ("export", "ray-serve", tmp_path / "policies", "--variants",
            tmp_path / "variants.toml", "--out", tmp_path / "app.yaml")
    assert run(*base).code == 0
    (application,) = yaml.safe_load((tmp_path / "app.yaml").read_text())["applications"]
    file = str(tmp_path / "policies" / "scaling.json")
    assert application["args"]["policies"] == file
    scaled = application["deployments"][0]["autoscaling_config"]
    assert [scaled[f"{which}_replicas"] for which in ("min", "initial", "max")] == [1, 1, 3]
    assert scaled["policy"]["policy_kwargs"] == {"scaling": file}
    function = scaled["policy"]["policy_function"]
    module, _, name = function.partition(":")
    assert getattr(importlib.import_module(module), name) is ScalingPolicy


def test_yaml_is_what_a_parser_of_others_reads():
    document = {"a": {"b": 1, "c": [1.5, "x: y"]}, "d": [{"e": "#", "f": {"g": True}}, {"h": []}],
                "i": None, "j": {}}
    assert yaml.safe_load(yaml_text(document)) == document


def test_the_exported_file_names_the_application(run, tmp_path):
    make(tmp_path, workers=2)
    base = ["export", "ray-serve", tmp_path / "policies", "--variants",
            tmp_path / "variants.toml", "--out", tmp_path / "app.yaml"]
    assert run(*base).code == 0
    text = (tmp_path / "app.yaml").read_text()
    assert 'import_path: "ramsis.serving.ray:application"' in text
    assert f'policies: "{tmp_path / "policies"}"' in text
    assert "num_replicas: 2" in text
    assert "autoscaling" not in text


def test_what_does_not_fit_is_refused(run, tmp_path):
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


@contextlib.contextmanager
def ray_serves(file: Path, port: int) -> Iterator[None]:
    """Ray's own command runs an exported file."""
    file.write_text(file.read_text().replace("port: 8000", f"port: {port}"))
    with (file.parent / "ray.txt").open("w") as said, subprocess.Popen(
            [str(Path(sys.executable).parent / "serve"), "run", str(file)],
            stdout=said, stderr=said) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def first_answer(port: int, document: Any) -> Any:
    """What is answered once it serves."""
    ends = time.monotonic() + 240.0
    while time.monotonic() < ends:
        time.sleep(1.0)
        try:
            status, answer = post(port, document)
        except (OSError, ValueError):
            continue
        if status == 200:
            return answer
    raise AssertionError("no answer")


def post(port: int, document: Any) -> tuple[int, Any]:
    return servers.ask(port, "/v2/models/sums/infer", document)


@pytest.mark.slow
def test_serve_run_of_the_exported_file_answers(run, tmp_path):
    """Ray's own command starts it; it takes a minute."""
    pytest.importorskip("ray")
    make(tmp_path, workers=1)
    file, port = tmp_path / "app.yaml", 18_000
    ran = run("export", "ray-serve", tmp_path / "policies", "--variants",
              tmp_path / "variants.toml", "--out", file)
    assert ran.code == 0, ran.err
    file.write_text(file.read_text().replace("port: 8000", f"port: {port}"))
    with ray_serves(file, port):
        answer = first_answer(port, body(2.0, 5.0, deadline_ms=10_000))
        sums = next(one for one in answer["outputs"] if one["name"] == "sum")
        assert sums["data"] == [6.0, 15.0]
        assert answer["parameters"]["in_time"]
        # what cannot be in time is refused at once, as by `ramsis serve`
        assert post(port, body(2.0, deadline_ms=0.001))[0] == 503
        assert post(port, {})[0] == 400


@pytest.mark.slow
def test_replicas_of_ray_follow_the_scaling_table(run, tmp_path):
    """One at a low load, two at a high one, and one again; each request is answered."""
    pytest.importorskip("ray")
    scaling_policy(tmp_path, interval_s=3.0, startup_s=3.0)
    file, port = tmp_path / "app.yaml", 18_001
    ran = run("export", "ray-serve", tmp_path / "policies", "--variants",
              tmp_path / "variants.toml", "--out", file)
    assert ran.code == 0, ran.err
    document = body(1.0, deadline_ms=20_000)

    def running() -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            told = connection.getresponse().read().decode()
        return int(float(re.search(r"^ramsis_workers_up (\S+)", told, re.M)[1]))

    with ray_serves(file, port):
        first_answer(port, document)
        until(lambda: running() == 1)
        server: Any = SimpleNamespace(host="127.0.0.1", port=port)
        with Load(server, document=document) as load:
            for load_qps, replicas in ((3.0, 1), (60.0, 2), (3.0, 1)):
                load.at(load_qps)
                time.sleep(5.0)
                until(lambda wanted=replicas: running() == wanted, 120.0)
        assert load.answered == {200: load.sent}
