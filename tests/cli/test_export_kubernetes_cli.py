"""``ramsis export kubernetes``, and the files of docs/deploy."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ramsis.plugins import trusting
from tests.cli.command import Ran, Run, refused
from tests.serving.servers import make
from tests.serving.test_scaling import scaling_policy

for name in ("orjson", "prometheus_client"):
    pytest.importorskip(name)

ROOT = Path(__file__).resolve().parents[2]


def export(run: Run, folder: Path, *more: object, policies: str = "policies") -> Ran:
    with trusting(["summing:fast", "summing:slow", "summing:bent", "summing:broken"]):
        return run("export", "kubernetes", folder / policies, "--variants",
                   folder / "variants.toml", "--image", "registry.example/ramsis:1", "--out",
                   folder / "out.yaml", *more)


def parts(folder: Path) -> dict[tuple[str, str], Any]:
    documents = yaml.safe_load_all((folder / "out.yaml").read_text())
    return {(part["kind"], part["metadata"]["name"]): part for part in documents}


def test_manifests_are_valid_and_run_a_server_that_the_command_takes(run, tmp_path):
    validate = pytest.importorskip("kubernetes_validate").validate
    make(tmp_path)
    ran = export(run, tmp_path, "--name", "sums", "--drain-s", 7)
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"{tmp_path / 'out.yaml'}: kubectl apply -f ")
    (tmp_path / "a folder").mkdir()
    spaced = tmp_path / "a folder" / "out.yaml"
    assert f"kubectl apply -f '{spaced}'\n" in export(run, tmp_path, "--out", spaced).out
    assert ran.out.endswith(
        "  copy into the volume of the claim models: policies, variants.toml and summing.py\n")
    found = parts(tmp_path)
    assert set(found) == {("Deployment", "sums"), ("Service", "sums"), ("Service", "sums-pods"),
                          ("PrometheusRule", "sums")}
    for (kind, _), part in found.items():
        if kind != "PrometheusRule":  # a resource of the operator's own
            validate(part, "1.33", strict=True)
    pod = found["Deployment", "sums"]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 12
    (container,) = pod["containers"]
    args = [str(tmp_path / word.removeprefix("/models/")) if word.startswith("/models/") else word
            for word in container["args"]]
    checked = run(*args, "--check")
    assert checked.code == 0, checked.err
    assert "sums takes x" in checked.out
    broken = json.loads(json.dumps(found["Deployment", "sums"]))
    broken["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(Exception, match="livenessProb"):
        validate(broken, "1.33", strict=True)


def test_models_outside_the_folder_are_for_the_image(run, tmp_path):
    make(tmp_path)
    file = tmp_path / "variants.toml"
    text = file.read_text().split("[[inputs]]")[0]
    text = text.replace('backend = "callable"\n', "").replace("summing:fast", "nets/fast.onnx")
    file.write_text(text.replace("summing:slow", "/opt/slow.onnx"))
    lines = export(run, tmp_path).out.splitlines()
    assert lines[1].endswith("policies, variants.toml and nets/fast.onnx")
    assert lines[2] == "  not beside variants.toml, so the image has to hold /opt/slow.onnx"


def test_a_pod_is_one_worker_where_a_scaling_policy_says_how_many(run, tmp_path):
    scaling = json.loads((scaling_policy(tmp_path) / "policies" / "scaling.json").read_text())
    ran = export(run, tmp_path, "--name", "sums")
    assert ran.code == 0, ran.err
    found = parts(tmp_path)
    scaled = found["ScaledObject", "sums"]["spec"]
    assert scaled["scaleTargetRef"] == {"name": "sums"}
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (
        scaling["least"], scaling["most"])
    (trigger,) = scaled["triggers"]
    assert trigger["metadata"]["query"] == 'max(ramsis_wanted_workers{app="sums"})'
    deployment = found["Deployment", "sums"]["spec"]
    assert deployment["replicas"] == scaled["minReplicaCount"]
    args = deployment["template"]["spec"]["containers"][0]["args"]
    assert args[args.index("--peers") + 1] == "sums-pods"
    for place in (args[1], args[args.index("--advise") + 1]):
        assert (tmp_path / place.removeprefix("/models/")).exists(), place


def test_alerts_ask_for_metrics_that_the_server_has(run, tmp_path):
    make(tmp_path)
    assert export(run, tmp_path).code == 0
    rules = parts(tmp_path)["PrometheusRule", "ramsis"]["spec"]["groups"][0]["rules"]
    source = "".join(path.read_text() for path in (ROOT / "ramsis" / "serving").rglob("*.py")
                     if path.name != "kubernetes.py")
    asked = {name for rule in rules for name in re.findall(r"ramsis_[a-z_]+", rule["expr"])}
    assert len(asked) >= 4
    for metric in asked:
        assert f'"{metric.removesuffix("_total")}"' in source, metric


@pytest.mark.parametrize(("option", "value", "words"), [
    ("--name", "Digits", "a to z"), ("--name", "1st", "first a letter"),
    ("--name", "a" * 59, "up to 58"), ("--name", "a-", "last none of -"),
    ("--claim", "my_models", "0 to 9"), ("--image", "two words", "registry/name:tag"),
    ("--drain-s", "inf", "0 to 86400"), ("--drain-s", "nan", "0 to 86400")])
def test_values_that_kubernetes_refuses(run, tmp_path, option, value, words):
    make(tmp_path)
    refused(export(run, tmp_path, option, value), 2, option, value, words)
    assert not (tmp_path / "out.yaml").exists()


def test_the_image_copies_what_there_is_and_starts_the_server(run, tmp_path):
    lines = (ROOT / "docs" / "deploy" / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert copied
    assert all((ROOT / word).exists() for word in copied)
    with (ROOT / "pyproject.toml").open("rb") as file:
        wheel = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {*wheel["packages"], *wheel["force-include"], "pyproject.toml"} <= {*copied}
    (entry,) = (json.loads(line.removeprefix("ENTRYPOINT ")) for line in lines
                if line.startswith("ENTRYPOINT "))
    (command,) = (json.loads(line.removeprefix("CMD ")) for line in lines
                  if line.startswith("CMD "))
    assert entry == ["ramsis"]
    make(tmp_path)
    with trusting(["summing:fast", "summing:slow"]):
        ran = run(*(word.replace("/models", str(tmp_path)) for word in command), "--check")
    assert ran.code == 0, shlex.join(command) + ran.err
    compose = yaml.safe_load((ROOT / "docs" / "deploy" / "compose.yaml").read_text())
    build = compose["services"]["ramsis"]["build"]
    context = (ROOT / "docs" / "deploy" / build["context"]).resolve()
    assert (context / build["dockerfile"]).is_file()
