"""Small profile sets and sources for tests."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet

STATISTICS_CSV = """\
task,model,accuracy,batch,n,mean_s,std_s,min_s,p50_s,p90_s,p95_s,p99_s,max_s
image,small,70.25,1,200,0.011,0.001,0.009,0.011,0.012,0.0125,0.014,0.02
image,small,70.25,2,200,0.016,0.001,0.014,0.016,0.017,0.018,0.019,0.03
image,large,81.5,1,200,0.031,0.002,0.027,0.03,0.034,0.035,0.039,0.05
image,large,81.5,4,200,0.091,0.002,0.08,0.09,0.095,0.1,0.11,0.12
"""
QUANTILES_CSV = """\
model,batch,n,q0_ms,q1_ms,q2_ms,q3_ms
small,1,200,9.5,10.5,11.5,12.5
small,2,200,14,15,17,18
large,1,200,28,30,31,36
"""
LONG_CSV = """\
model,batch,latency_ms,accuracy,statistic,n
small,1,9.8,0.7025,p50,200
small,1,12.5,,p95,200
small,2,18,,p95,150
large,1,35,0.815,p95,
"""
MODEL_ANALYZER_CSV = """\
Model,Batch,Concurrency,Model Config Path,Instance Group,Satisfies Constraints,\
Throughput (infer/sec),Avg Latency (ms),p95 Latency (ms),p99 Latency (ms)
small,1,1,small_config_default,1:GPU,Yes,99.0,10.1,12.5,14.0
small,1,4,small_config_default,1:GPU,Yes,99.5,40.2,44.5,48.0
small,2,1,small_config_default,1:GPU,No,120.0,16.2,18.0,19.0
large,1,1,large_config_default,2:GPU,Yes,30.0,31.0,35.0,39.0

"""
TIMM_CSV = """\
model,infer_img_size,infer_samples_per_sec,infer_step_time,infer_batch_size,param_count,\
infer_gmacs,infer_macts
small,224,100.0,10.01,1,3.4,0.3,6.7
small,224,125.0,16.0,2,3.4,,
large,288,32.0,31.2,1,25.6,4.1,11.1
"""
TIMM_RESULTS_CSV = """\
model,top1,top1_err,top5,top5_err,param_count,img_size,crop_pct,interpolation
small,70.250,29.750,90.000,10.000,3.4,224,0.875,bicubic
large,81.500,18.500,95.000,5.000,"1,025.6",288,1.000,bicubic
"""
FUNCTIONS = """\
def small(batch): return sum(range(2000 * batch))
def large(batch): return sum(range(5000 * batch))
"""
ACCURACY = {"unit": "percent", "accuracy": {"small": 70.25, "large": 81.5}}


def model(name: str, accuracy: float, p95_ms: dict[int, float]) -> ModelProfile:
    """A model with these values of p95 by batch size."""
    batches = tuple(BatchProfile(batch, p95_ms=value) for batch, value in p95_ms.items())
    return ModelProfile(name, accuracy, batches)


def profile_set(*models: ModelProfile) -> ProfileSet:
    """A set of these models."""
    return ProfileSet("a-set", models)


def document() -> dict[str, Any]:
    """A valid profile file that uses every field."""
    return {
        "format": "ramsis.profile/1",
        "name": "a-set",
        "hardware": {"cpu": "a processor", "threads": 1},
        "measurement": {"date": "2024-05-01", "notes": ["warm", None]},
        "models": [
            {
                "name": "small", "accuracy": 0.75, "memory_mb": 12.5, "load_ms": 30.0,
                "batches": [
                    {"batch": 1, "n": 200, "mean_ms": 10.0, "std_ms": 0.5, "min_ms": 9.0,
                     "p50_ms": 10.0, "p90_ms": 11.0, "p95_ms": 12.0, "p99_ms": 13.0,
                     "max_ms": 20.0, "quantiles_ms": [9.5, 10.0, 12.5], "relative_error": 0.02},
                    {"batch": 2, "p95_ms": 15.0},
                ],
            },
            {"name": "large", "accuracy": 0.8, "batches": [{"batch": 1, "p95_ms": 40}]},
        ],
        "confidences": {
            "chosen_samples": 300, "stated_samples": 200, "items": 100, "source": "pictures",
            "models": [
                {"name": "small", "thresholds": [0.5, 0.75], "share": [0.25, 0.25, 0.5],
                 "accuracy": [0.5, 0.75, 0.875]},
                {"name": "large", "thresholds": [0.5], "share": [0.5, 0.5],
                 "accuracy": [0.7, 0.9]},
            ],
            "pairs": [{"first": "small", "second": "large", "accuracy": [0.75, 0.75, 0.85],
                       "expected_increment": [0.2, 0.1, -0.01],
                       "gain_error": [0.01, 0.02, 0.005]}],
        },
    }


def drawn_samples(
    size: int = 4000, seed: int = 1, groups: int | None = None
) -> dict[str, tuple[NDArray[np.bool_], NDArray[np.float64]]]:
    """Correctness and confidence of two models on items of drawn difficulty; large is better."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(size=groups or size)
    hard = hard if groups is None else np.repeat(hard, size // groups)
    drawn = {}
    for name, skill in (("small", 1.0), ("large", 2.5)):
        logit = skill - 1.5 * hard
        drawn[name] = (rng.random(size) < 1 / (1 + np.exp(-logit)),
                       np.round(logit + rng.normal(size=size), 6))
    return drawn


def samples_csv(samples: Mapping[str, tuple[NDArray[np.bool_], NDArray[np.float64]]]) -> str:
    """A file of samples for ``--confidences``."""
    return "sample,model,correct,confidence\n" + "".join(
        f"{i},{name},{int(right)},{sure}\n" for name, answers in samples.items()
        for i, (right, sure) in enumerate(zip(*answers, strict=True)))


def trtexec_times(latency_ms: list[float]) -> str:
    """A file of ``trtexec --exportTimes`` after its published layout."""
    return "[\n" + ", ".join(
        f'{{ "startEnqMs" : {10.0 * i}, "endEnqMs" : {10.0 * i + 0.01}, "h2dMs" : 0.25, '
        f'"computeMs" : {value - 0.5:.4f}, "d2hMs" : 0.25, "latencyMs" : {value:.4f} }}\n'
        for i, value in enumerate(latency_ms)) + "]\n"


def write_trtexec_runs(folder: Path) -> None:
    """Runs of batch sizes 1 and 4."""
    folder.mkdir()
    for batch in (1, 4):
        (folder / f"b{batch}.json").write_text(
            trtexec_times([5.0 * batch + i / 100 for i in range(120)]))


def written(folder: Path, text: str, name: str = "source.csv") -> Path:
    """A file of this text in a folder."""
    path = folder / name
    path.write_text(text)
    return path


def write_sources(folder: Path) -> None:
    """Files that the examples of ``ramsis profile --help`` pages name."""
    (folder / "mine.py").write_text(FUNCTIONS)
    (folder / "statistics.csv").write_text(STATISTICS_CSV)
    (folder / "quantiles.csv").write_text(QUANTILES_CSV)
    (folder / "latencies.csv").write_text(LONG_CSV)
    (folder / "benchmark.csv").write_text("model,items,p95,accuracy\nsmall,1,6200,70.5\n")
    (folder / "samples.csv").write_text(samples_csv(drawn_samples(1000)))
    (folder / "accuracy.json").write_text(json.dumps(ACCURACY))
    write_trtexec_runs(folder / "runs")
    for name, seconds in (("small", [0.010, 0.011, 0.012]), ("large", [0.03, 0.04])):
        (folder / "samples" / name).mkdir(parents=True)
        (folder / "samples" / name / f"{name}_bsize-1_profile.json").write_text(
            json.dumps(seconds)
        )


def embedder(path: Path, shape: list[object], stated: list[object] | None = None) -> Path:
    """An ONNX model of whole numbers and a mask, both of a shape, and the stated output shape."""
    onnx = pytest.importorskip("onnx", reason="without the package onnx: pip install "
                               "'ramsis[measure]'")
    ids = onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, shape)
    mask = onnx.helper.make_tensor_value_info("mask", onnx.TensorProto.FLOAT, shape)
    out = onnx.helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, stated)
    nodes = [onnx.helper.make_node("Cast", ["ids"], ["cast"], to=onnx.TensorProto.FLOAT),
             onnx.helper.make_node("Mul", ["cast", "mask"], ["out"])]
    graph = onnx.helper.make_graph(nodes, "g", [ids, mask], [out])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.save(model, str(path))
    return path
