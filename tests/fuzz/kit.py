"""A folder with a valid file of every kind that the commands read, and what reads each."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ramsis import profiles
from ramsis.files import canonical_json
from tests.placement.samples import document as placement_problem
from tests.placement.samples import value_row
from tests.synthesis.samples import tiny_profile

__all__ = ["COMMANDS", "READERS", "Kind", "make_kit", "measured"]

SMALL = ["--slo-ms", "100", "--workers", "4", "--grid", "fixed:8", "--max-queue", "4",
         "--headroom", "0"]
CLUSTER = ["--profiles", "{kit}/profile.json", "--slo-ms", "100", "--workers", "4"]
SHORT = ["--load", "100", "--duration-s", "0.2"]

LONG_CSV = "model,batch,latency_ms,accuracy\n" + "".join(
    f"{model},{batch},{base * (1 + 0.5 * (batch - 1)) + 0.1 * i:.3f},{accuracy}\n"
    for model, base, accuracy in (("a", 10, 70), ("b", 20, 80))
    for batch in (1, 2, 4) for i in range(12))
STATS_CSV = ("model,accuracy,batch,p95_s\na,70,1,0.01\na,70,2,0.015\nb,80,1,0.02\n"
             "b,80,2,0.03\n")
QUANTILES_CSV = "model,accuracy,batch,q0_ms,q1_ms,q2_ms,q3_ms\na,70,1,3,4,5,6\na,70,2,5,6,7,9\n"
TIMES_CSV = "id,arrival_ms\n" + "".join(f"{i},{13.5 * i + 7 * i % 11}\n" for i in range(120))
JSON_LINES = "".join(json.dumps({"id": i, "t": 0.02 * i}) + "\n" for i in range(40))
BURST_GPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" + "".join(
    f"{3 * i},ChatGPT,100,50,150,API log\n" for i in range(20))
SWEEP = """profiles = "{kit}/profile.json"
workers = [2, 4]
slo_ms = 100
load_qps = "100:200:100"
scheme = ["jellyfish-plus", "model-switching"]
duration_s = 0.2
seeds = 1
[model_sets]
few = ["small", "large"]
[[grid]]
models = "few"
[[grid]]
arrivals = "renewal:2"
workers = 2
"""
VARIANTS = """name = "digits"
outputs = ["label"]
threads = 1
[[variants]]
name = "small"
model = "small.onnx"
[[variants]]
name = "medium"
model = "medium.onnx"
accuracy = 0.75
[[variants]]
name = "large"
model = "large.onnx"
[[inputs]]
name = "image"
datatype = "FP32"
shape = [64]
"""


def measured(batch: int) -> int:
    """A model to measure."""
    return sum(range(100 * batch))


@dataclass(frozen=True)
class Kind:
    """A kind of file: its place in the kit, its syntax, and the command lines that read it."""

    file: str
    syntax: str
    commands: Sequence[Sequence[str]]


READERS: Mapping[str, Kind] = {
    "profile": Kind("profile.json", "json", [
        ["profile", "check", "{file}"], ["profile", "show", "{file}"], ["validate", "{file}"],
        ["bound", "--profiles", "{file}", "--slo-ms", "100", "--workers", "4", "--load", "100"],
        ["simulate", "--profiles", "{file}", "--slo-ms", "100", "--workers", "2", *SHORT,
         "--scheme", "jellyfish-plus"],
        ["generate", "--profiles", "{file}", *SMALL, "--load", "100", "--out", "{out}"]]),
    "long CSV": Kind("long.csv", "csv", [
        ["profile", "import", "{file}", "--format", "long-csv", "--out", "{out}"],
        ["profile", "import", "{file}", "--out", "{out}"]]),
    "statistics": Kind("stats.csv", "csv", [["profile", "import", "{file}", "--out", "{out}"]]),
    "quantiles": Kind("quantiles.csv", "csv", [
        ["profile", "import", "{file}", "--out", "{out}"]]),
    "accuracies": Kind("accuracy.csv", "csv", [
        ["profile", "import", "{kit}/latency.csv", "--accuracy", "{file}", "--format",
         "long-csv", "--out", "{out}"]]),
    "policy": Kind("policy.json", "json", [
        ["validate", "{file}"], ["analyze", "{file}"], ["policy", "show", "{file}"],
        ["verify", "{file}"],
        ["simulate", *CLUSTER, *SHORT, "--policy", "{file}"]]),
    "central policy": Kind("central.json", "json", [
        ["validate", "{file}"], ["analyze", "{file}"], ["policy", "show", "{file}"],
        ["simulate", *CLUSTER, *SHORT, "--policy", "{file}"]]),
    "manifest": Kind("set/manifest.json", "json", [
        ["validate", "{folder}"], ["analyze", "{folder}"], ["validate", "{file}"],
        ["simulate", *CLUSTER, *SHORT, "--policy", "{folder}"],
        ["export", "ray-serve", "{folder}", "--variants", "{kit}/variants.toml", "--out",
         "{out}"],
        ["generate", "--profiles", "{kit}/profile.json", *SMALL, "--load", "300", "--out",
         "{folder}"]]),
    "placement problem": Kind("problem.json", "json", [
        ["place", "{file}", "--out", "{out}"], ["validate", "{file}"]]),
    "placement": Kind("placement.json", "json", [
        ["simulate", "--placement", "{file}", "--duration-s", "0.2"]]),
    "value table": Kind("values.json", "json", [["validate", "{file}"]]),
    "sweep": Kind("sweep.toml", "toml", [
        ["sweep", "{file}", "--out", "{out}", "--processes", "1"]]),
    "variants": Kind("variants.toml", "toml", [
        ["export", "ray-serve", "{kit}/set", "--variants", "{file}", "--out", "{out}"]]),
    "timestamps": Kind("times.txt", "lines", [
        ["arrivals", "fit", "{file}", "--unit", "s"],
        ["simulate", *CLUSTER, "--trace", "{file}", "--unit", "s", "--scheme",
         "jellyfish-plus", "--duration-s", "0.2"]]),
    "times in a table": Kind("times.csv", "csv", [
        ["arrivals", "fit", "{file}"],
        ["simulate", *CLUSTER, "--trace", "{file}", "--scheme", "jellyfish-plus",
         "--duration-s", "0.2"]]),
    "rates": Kind("rates.txt", "lines", [
        ["simulate", *CLUSTER, "--trace", "{file}", "--scheme", "jellyfish-plus",
         "--duration-s", "0.2"]]),
    "JSON lines": Kind("times.jsonl", "lines", [
        ["arrivals", "fit", "{file}", "--trace-format", "jsonl", "--time-column", "t", "--unit",
         "s"]]),
    "public trace": Kind("burst.csv", "csv", [["arrivals", "fit", "{file}"]]),
    "compressed trace": Kind("times.txt.gz", "bytes", [
        ["arrivals", "fit", "{file}", "--unit", "s"]]),
    "request log": Kind("log.csv", "csv", [
        ["audit", "{file}", "--profiles", "{kit}/profile.json", "--workers", "4", "--seeds",
         "1"],
        ["profile", "import", "{file}", "--format", "request-log", "--accuracy",
         "{kit}/three.csv", "--out", "{out}"]]),
    "data to send": Kind("data.npz", "bytes", [
        ["load", "http://127.0.0.1:9/v2/models/x", "--slo-ms", "100", "--load", "10",
         "--duration-s", "0.1", "--timeout-s", "1", "--data", "{file}"]]),
}

COMMANDS: Mapping[str, Sequence[str]] = {
    "profile check": ["profile", "check", "{kit}/profile.json"],
    "profile show": ["profile", "show", "{kit}/profile.json"],
    "profile import": ["profile", "import", "{kit}/long.csv", "--out", "{out}"],
    "profile measure": ["profile", "measure", "tests.fuzz.kit:measured", "--backend", "callable",
                        "--batches", "1", "--seconds-per-batch", "0.01", "--min-samples", "2",
                        "--max-samples", "3", "--accuracy", "{kit}/one.json", "--out", "{out}"],
    "arrivals fit": ["arrivals", "fit", "{kit}/times.csv"],
    "generate": ["generate", "--profiles", "{kit}/profile.json", *SMALL, "--load", "100",
                 "--out", "{out}"],
    "analyze": ["analyze", "{kit}/set"],
    "simulate": ["simulate", *CLUSTER, *SHORT, "--scheme", "jellyfish-plus"],
    "simulate policy": ["simulate", *CLUSTER, *SHORT, "--policy", "{kit}/set"],
    "simulate placement": ["simulate", "--placement", "{kit}/placement.json", "--duration-s",
                           "0.2"],
    "sweep": ["sweep", "{kit}/sweep.toml", "--out", "{out}", "--processes", "1"],
    "capacity": ["capacity", "--profiles", "{kit}/profile.json", "--slo-ms", "100", *SHORT,
                 "--scheme", "jellyfish-plus", "--seeds", "1", "--max-violation", "0.5"],
    "frontier": ["frontier", *CLUSTER, "--load", "100", "--points", "2", "--queries", "100",
                 "--max-queue", "4"],
    "bound": ["bound", *CLUSTER, "--load", "100"],
    "place": ["place", "{kit}/problem.json", "--out", "{out}"],
    "policy show": ["policy", "show", "{kit}/policy.json"],
    "validate": ["validate", "{kit}/set"],
    "verify": ["verify", "{kit}/policy.json"],
    "audit": ["audit", "{kit}/log.csv", "--profiles", "{kit}/profile.json", "--workers", "4",
              "--seeds", "1"],
    "export ray-serve": ["export", "ray-serve", "{kit}/set", "--variants",
                         "{kit}/variants.toml", "--out", "{out}"],
    "load": ["load", "http://127.0.0.1:9/v2/models/x", "--slo-ms", "100", "--load", "10",
             "--duration-s", "0.1", "--timeout-s", "1"],
    "serve": ["serve", "{kit}/set", "--variants", "{kit}/variants.toml", "--check"],
}
"""A valid command line of each command; ``serve`` fails, as its models do not exist."""


def make_kit(folder: Path, run: Callable[[list[str]], int]) -> Path:
    """Write the files; ``run`` runs a command line in this process and gives its exit code."""
    folder.mkdir(parents=True, exist_ok=True)

    def write(name: str, text: str) -> None:
        (folder / name).write_text(text.replace("{kit}", str(folder)))

    profiles.save(tiny_profile(), folder / "profile.json")
    for name, text in (("long.csv", LONG_CSV), ("stats.csv", STATS_CSV), ("times.csv", TIMES_CSV),
                       ("quantiles.csv", QUANTILES_CSV), ("times.jsonl", JSON_LINES),
                       ("burst.csv", BURST_GPT), ("sweep.toml", SWEEP),
                       ("variants.toml", VARIANTS),
                       ("latency.csv", LONG_CSV.replace(",accuracy", "").replace(",70\n", "\n")
                        .replace(",80\n", "\n")),
                       ("accuracy.csv", "model,accuracy\na,70\nb,80\n"),
                       ("three.csv", "model,accuracy\nsmall,60\nmedium,75\nlarge,90\n"),
                       ("one.json", '{"measured": 0.9}\n'),
                       ("rates.txt", "0 120\n1 80\n2 200\n3 90\n"),
                       ("times.txt", "".join(f"{0.013 * i:.3f}\n" for i in range(40)))):
        write(name, text)
    with gzip.GzipFile(folder / "times.txt.gz", "wb", mtime=0) as stream:
        stream.write((folder / "times.txt").read_bytes())
    write("problem.json", canonical_json(placement_problem()))
    write("values.json", canonical_json({"format": "ramsis.value-table/1",
                                         "rows": [value_row(), value_row(workers=2)]}))
    import numpy as np

    np.savez(folder / "data.npz", image=np.zeros((3, 64), dtype=np.float32))
    lines = [
        ["generate", "--profiles", "{kit}/profile.json", *SMALL, "--load", "100,200", "--out",
         "{kit}/set"],
        ["generate", "--profiles", "{kit}/profile.json", "--slo-ms", "100", "--workers", "2",
         "--dispatch", "central-queue", "--max-queue", "4", "--headroom", "0", "--load", "100",
         "--out", "{kit}/centrals"],
        ["place", "{kit}/problem.json", "--out", "{kit}/placement.json"],
        ["simulate", *CLUSTER, *SHORT, "--scheme", "jellyfish-plus", "--request-log",
         "{kit}/log.csv"],
    ]
    for line in lines:
        code = run([word.replace("{kit}", str(folder)) for word in line])
        assert code == 0, line
    shutil.copy(folder / "set" / "round-robin-00100qps.json", folder / "policy.json")
    shutil.copy(folder / "centrals" / "central-queue-00100qps.json", folder / "central.json")
    return folder
