"""``ramsis export mig``: layouts for nvidia-mig-parted and Kubernetes."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.command import Run, refused
from tests.placement.samples import cut_document

Document = dict[str, Any]


@pytest.fixture
def placed(run, tmp_path):
    return place(run, tmp_path, cut_document())


def place(run: Run, folder: Path, document: Document) -> Path:
    (folder / "problem.json").write_text(json.dumps(document))
    assert run("place", folder / "problem.json", "--out", folder / "placement.json").code == 0
    return folder / "placement.json"


def test_the_yaml_has_what_the_placement_says(run, placed, tmp_path):
    ran = run("export", "mig", placed, "--out", tmp_path / "mig.yaml", "--gpus-per-node", 1,
              "--kubernetes", tmp_path / "resources.yaml")
    assert (ran.code, ran.err) == (0, "")
    document = yaml.safe_load((tmp_path / "mig.yaml").read_text())
    assert document["version"] == "v1"
    gpus = json.loads(placed.read_text())["gpus"]
    assert len(gpus) == 2
    for i, gpu in enumerate(gpus, 1):
        (device,) = document["mig-configs"][f"a100-node-{i}"]
        assert (device["devices"], device["mig-enabled"]) == ([0], True)
        assert sorted(name for name, count in device["mig-devices"].items()
                      for _ in range(count)) == sorted(
            instance.rpartition("@")[0] for instance in gpu["instances"])
        assert f"nvidia-mig-parted apply -f {tmp_path / 'mig.yaml'} -c a100-node-{i}" in ran.out
    resources = yaml.safe_load((tmp_path / "resources.yaml").read_text())
    total = {name: sum(node.get(name, 0) for node in resources["nodes"].values())
             for name in ("nvidia.com/mig-3g.40gb", "nvidia.com/mig-1g.10gb")}
    assert total == {"nvidia.com/mig-3g.40gb": 3, "nvidia.com/mig-1g.10gb": 1}
    assert {"models": ["n"], "replicas": 1, "processes": 2,
            "resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}}} in resources["replicas"]


def test_names_can_say_node_and_index(run, tmp_path):
    gpus = {"workers": ["rack1.n1:0", "rack1.n1:5", "n2:1", "n2:2"]}
    document = cut_document()
    document["worker_types"][0] |= gpus
    placed = place(run, tmp_path, document)
    assert run("export", "mig", placed, "--out", tmp_path / "mig.yaml").code == 0
    configs = yaml.safe_load((tmp_path / "mig.yaml").read_text())["mig-configs"]
    assert {(node, index) for node, devices in configs.items() for device in devices
            for index in device["devices"]} == {("rack1.n1", 0), ("rack1.n1", 5)}


def test_what_is_refused(run, tmp_path):
    out = tmp_path / "mig.yaml"
    whole = cut_document(worker_types=[{"name": "l4", "count": 9, "memory_mb": 900}], variants=[
        {"name": name, "family": name, "accuracy": 1, "memory_mb": 100, "latency": [
            {"worker_type": "l4", "batch": 8, "latency_ms": 20}]} for name in "ab"])
    refused(run("export", "mig", place(run, tmp_path, whole), "--out", out), 3,
            "no GPU of the placement is cut")
    own = cut_document(worker_types=[{"name": "a100", "count": 4, "partitions": {
        "name": "x", "compute_slices": 1, "memory_slices": 1, "instances": [
            {"name": "half", "compute_slices": 1, "memory_slices": 1, "memory_mb": 900,
             "starts": [0]}]}}], variants=[
        {"name": name, "family": name, "accuracy": 1, "memory_mb": 100, "latency": [
            {"worker_type": "a100/half", "batch": 32, "latency_ms": 20}]} for name in "ab"])
    refused(run("export", "mig", place(run, tmp_path, own), "--out", out), 3, "half")
    document = cut_document()
    document["worker_types"][0]["workers"] = ["a b:0", "a b:1", "a b:2", "a b:3"]
    refused(run("export", "mig", place(run, tmp_path, document), "--out", out), 3, "'a b'")
    document["worker_types"][0]["workers"] = ["a:1", "a:01", "a:001", "a:0001"]
    refused(run("export", "mig", place(run, tmp_path, document), "--out", out), 3,
            "two GPUs have one index: got 'a:1, a:01'")
    assert not out.exists()


def test_a_node_of_any_name_is_a_text_in_the_yaml(run, tmp_path):
    document = cut_document()
    document["worker_types"][0]["workers"] = ["1e3:0", "no:0", "n2:1", "n2:2"]
    placed = place(run, tmp_path, document)
    assert run("export", "mig", placed, "--out", tmp_path / "mig.yaml").code == 0
    configs = yaml.safe_load((tmp_path / "mig.yaml").read_text())["mig-configs"]
    assert set(configs) == {"1e3", "no"}
