"""The texts of the kit's files; those of other programs are samples of other tests."""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ramsis.files import canonical_json
from tests.arrivals.test_trace_formats import SAMPLES as TRACE_SAMPLES
from tests.logs.samples import LAYOUTS, LOCUST_HISTORY, SUMMARIES, TORCHSERVE_METRICS
from tests.placement.samples import document as placement_problem
from tests.placement.samples import shared_problem, value_row
from tests.profiles import samples
from tests.profiles.reports import REPORTS
from tests.profiles.test_run_importers import FILES, SAMPLES
from tests.scenario.samples import document as scenario
from tests.scenario.samples import model, stream
from tests.studies.agents import urgent_first


class Sample(NamedTuple):
    """A file of another program: its text, its syntax, and options that go with it."""

    text: str
    syntax: str
    options: tuple[str, ...] = ()


def _syntax(text: str) -> str:
    """How a text is damaged as its program would."""
    try:
        json.loads(text)
    except ValueError:
        return "csv" if "," in text.partition("\n")[0] and text[0] != "{" else "lines"
    return "json"


_MODEL = ("--model-name", "m")
_BATCH = (*_MODEL, "--batch", "1")
_RUNS = {name: Sample(text, _syntax(text),
                      _MODEL if name in ("clockwork", "prometheus", "vllm-embedding") else _BATCH)
         for name, text in ((name, text.replace('sequences": 800', 'sequences": 200'))
                            for name, (_, text) in SAMPLES.items())}
IMPORTED: Mapping[str, Sample] = {
    **_RUNS,
    "perf-analyzer-of-the-tool": Sample(
        (FILES / "perf-analyzer" / "profile_export.json").read_text(), "json", _BATCH),
    "model-analyzer": Sample(samples.MODEL_ANALYZER_CSV, "csv"),
    "timm": Sample(samples.TIMM_CSV, "csv"),
}
"""Files that are imported."""

REPORTED: Mapping[str, Sample] = {
    re.sub(r"\W+", "-", f"report {name}"): Sample(
        report.text, _syntax(report.text), report.options)
    for name, report in REPORTS.items()}
"""A report of each benchmark tool."""

TRACES: Mapping[str, Sample] = {
    name: Sample(text, _syntax(text),
                 {"jsonl": ("--trace-format", "jsonl", "--time-column", "at", "--unit", "s"),
                  "timestamps": ("--trace-format", "timestamps", "--time-column", "seen_ms"),
                  "per-second-rates": ("--trace-format", "per-second-rates")}.get(name, ()))
    for name, text in TRACE_SAMPLES.items()}
"""A file of each format of traces."""

LOGS: Mapping[str, Sample] = {
    re.sub(r"\W+", "-", name): Sample(text, _syntax(text)) for name, text in {
        **{name: layout.text() for name, layout in LAYOUTS.items()}, **SUMMARIES,
        "locust's history": LOCUST_HISTORY, "TorchServe's metrics": TORCHSERVE_METRICS}.items()}
"""A log of each layout, and summaries of load tests."""

_LONG_CSV = "model,batch,latency_ms,accuracy\n" + "".join(
    f"{name},{batch},{base * (1 + 0.5 * (batch - 1)) + 0.1 * i:.3f},{accuracy}\n"
    for name, base, accuracy in (("a", 10, 0.7), ("b", 20, 0.8))
    for batch in (1, 2, 4) for i in range(12))
_SWEEP = """profiles = "{kit}/profile.json"
workers = [2, 4]
slo_ms = 100
load_qps = "100:200:100"
scheduler = ["jellyfish-plus", "model-switching"]
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
_VARIANTS = """name = "digits"
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
_SCENARIO = """format = "ramsis.scenario/1"
name = "copies"
duration_s = 2
[[worker_types]]
name = "gpu"
count = 2
memory_mb = 900
load_mb_per_s = 2000
[[models]]
name = "resnet"
copies = 4
memory_mb = 400
latency = [
  { worker_type = "gpu", batch = 1, latency_ms = 10 },
  { worker_type = "gpu", batch = 4, latency_ms = 25 },
]
[[streams]]
name = "users"
model = "resnet"
slo_ms = 300
shares = [8, 6, 4, 2]
workload = { load_qps = 60 }
[[start]]
worker = "gpu"
models = ["resnet-1"]
"""
_RICH_SCENARIO = """format = "ramsis.scenario/1"
name = "two worker types"
duration_s = 0.5
[[worker_types]]
name = "gpu"
count = 2
memory_mb = 500
max_models = 3
lanes = 2
load_mb_per_s = 5000
loading = "blocking"
loads_at_a_time = 2
scale_up_ms = 20
active = 1
[[worker_types]]
name = "cpu"
count = 1
cores = 4
[[models]]
name = "resnet"
copies = 2
memory_mb = 200
first_load_ms = 40
family = "images"
accuracy = 0.8
load = [{ worker_type = "gpu", load_ms = 15 }]
[[models.latency]]
worker_type = "gpu"
batch = 1
latency_ms = 4
[[models.latency]]
worker_type = "gpu"
batch = 4
quantiles_ms = [8, 9, 12]
[[models]]
name = "chat"
inference = { batching = "continuous", output_tokens = [2, 5] }
[[models.latency]]
worker_type = "cpu"
batch = 8
latency_ms = 2
[[streams]]
name = "users"
model = "resnet"
slo_ms = 100
shares = [2, 1]
earliest_ms = 1
[streams.workload]
load_qps = 40
arrivals = "renewal:2"
[[streams]]
name = "trace"
model = "resnet-1"
slo_ms = 50
tenant = "b"
[streams.workload]
file = "{kit}/times.csv"
scale = 2
[[streams]]
name = "chats"
model = "chat"
slo_ms = 500
after = "users"
[streams.workload]
users = 2
think_ms = 5
requests = 6
[[streams]]
name = "bins"
model = "resnet"
slo_ms = 80
[streams.workload]
minutes = [3000, 40]
within = "poisson"
[[start]]
worker = "gpu-1"
models = ["resnet-1"]
"""
_SCENARIOS = """scenario = "{kit}/scenario.toml"
scheduler = ["clockwork", "lru:max_ongoing=2"]
seeds = 1
bound = "on"
"""
TEXTS: Mapping[str, str] = {
    "long.csv": _LONG_CSV,
    "latency.csv": _LONG_CSV.replace(",accuracy", "").replace(",0.7\n", "\n").replace(
        ",0.8\n", "\n"),
    "stats.csv": "model,accuracy,batch,p95_s\na,70,1,0.01\na,70,2,0.015\nb,80,1,0.02\n"
                 "b,80,2,0.03\n",
    "quantiles.csv": "model,batch,q0_ms,q1_ms,q2_ms,q3_ms\na,1,3,4,5,6\na,2,5,6,7,9\n",
    "accuracy.csv": "model,accuracy_percent\na,70\nb,80\n",
    "accuracy.json": '{"unit": "percent", "accuracy": {"a": 70.5, "b": 80}}\n',
    "three.csv": "model,accuracy_percent\nsmall,60\nmedium,75\nlarge,90\n",
    "one.json": '{"measured": 0.9}\n',
    "imported.json": '{"m": 0.7, "small": 0.6, "medium": 0.7, "large": 0.8}\n',
    "times.csv": "id,arrival_ms\n" + "".join(
        f"{i},{13.5 * i + 7 * i % 11}\n" for i in range(120)),
    "times.txt": "".join(f"{0.013 * i:.3f}\n" for i in range(120)),
    "times.jsonl": "".join(json.dumps({"id": i, "t": 0.02 * i + 0.01 * (i % 3)}) + "\n"
                           for i in range(120)),
    "burst.csv": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                 + "".join(f"{3 * i + i % 5},ChatGPT,100,50,150,API log\n" for i in range(120)),
    "rates.txt": "0 120\n1 80\n2 200\n3 90\n",
    "sweep.toml": _SWEEP, "variants.toml": _VARIANTS, "scenario.toml": _SCENARIO,
    "rich.toml": _RICH_SCENARIO, "scenarios.toml": _SCENARIOS,
    **{f"imports/{name}": one.text for name, one in {**IMPORTED, **REPORTED}.items()},
    "imports/loadgen": (FILES / "loadgen" / "Server.txt").read_text().replace(
        "20000000", "100000000"),
    **{f"traces/{name}": one.text for name, one in TRACES.items()},
    **{f"logs/{name}": one.text for name, one in LOGS.items()},
}
"""The texts by file name; ``{kit}`` stands for the folder."""


def documents() -> dict[str, str]:
    """The JSON documents by file name."""
    names = ("a", "b", "c")
    crowded = scenario(
        worker_types=[{"name": "gpu", "count": 2, "memory_mb": 250, "load_mb_per_s": 4000}],
        models=[model(name) for name in names],
        streams=[stream(f"of {name}", name) for name in names],
        start=[{"worker": "gpu-1", "models": ["a", "b"]}])
    values: dict[str, Any] = {"format": "ramsis.value-table/1",
                              "rows": [value_row(), value_row(workers=2)]}
    return {name: canonical_json(document) for name, document in (
        ("problem.json", placement_problem()), ("values.json", values),
        ("shared-problem.json", shared_problem().to_document()), ("scenario.json", crowded),
        ("agent.json", urgent_first().to_document()))}
