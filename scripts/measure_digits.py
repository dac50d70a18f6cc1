"""Train, score and time the models of the shipped profile set ``digits-cpu``.

    python -m pip install -e '.[measure]'
    python scripts/measure_digits.py --out profiles/digits-cpu.json

The task: handwritten digits (scikit-learn's ``digits``) rotated, scaled and moved on a canvas
of 64 by 64 pixels, with noise. The models: support vector machines fitted to ever more
training images; more support vectors make them more accurate and slower. A polynomial kernel
is one matrix product, which batches well; a radial kernel is computed image by image, which
does not. Accuracy is measured on distorted copies of digits that training never saw; latency
is the wall time of one ``run`` of onnxruntime on one CPU core, after warming up.

It takes about 20 minutes on one core and 2 GB of memory; keep the machine otherwise idle.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import skl2onnx
import sklearn
from numpy.typing import NDArray
from scipy.ndimage import affine_transform
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet, save

SIDE = 64
"""Width and height of an image, in pixels."""
NOISE = 0.15
"""Standard deviation of the noise on every pixel, where ink is 1 and paper 0."""
TRAIN_COPIES, TEST_COPIES = 10, 4
"""Distorted copies of each digit."""
MODELS = [("poly", 400), ("poly", 800), ("poly", 1600), ("poly", 3200), ("poly", 6400),
          ("poly", 12000), ("rbf", 9000), ("rbf", 12000)]
"""Kernel and number of training images of each model."""
BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)
"""Batch sizes, in ascending order."""
ROUNDS = 10
"""Rounds that the samples are spread over."""
LONGEST_MS = 250.0
"""A model's larger batch sizes are not measured once one takes longer than this."""

Images = NDArray[np.float32]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Data:
    """Images, one per row, and their labels."""

    train: Images
    train_labels: Labels
    test: Images
    test_labels: Labels


def main() -> None:
    """Write the profile set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="profile file to write")
    parser.add_argument("--samples", type=int, default=200, help="samples per batch size")
    parser.add_argument("--models", type=int, default=len(MODELS), help="only the first N models")
    options = parser.parse_args()

    data = make_data()
    trained = [train(kernel, size, data) for kernel, size in MODELS[: options.models]]
    core = take_one_core()
    models = [profile(f"svm-{kernel}-{size}", onnx, data, options.samples)
              for (kernel, size), onnx in zip(MODELS, trained, strict=False)]
    found = ProfileSet("digits-cpu", tuple(models), hardware(core), measurement(data))
    save(found, options.out)
    say(f"wrote {options.out}")


def make_data() -> Data:
    """Distorted digits; the split is made before the copies, so no digit is on both sides."""
    digits = load_digits()
    train, test, train_labels, test_labels = train_test_split(
        digits.images / 16, digits.target, test_size=0.3, stratify=digits.target, random_state=0
    )
    rng = np.random.default_rng(0)
    order = rng.permutation(TRAIN_COPIES * len(train))
    return Data(
        distort(np.repeat(train, TRAIN_COPIES, axis=0)[order], rng),
        np.repeat(train_labels, TRAIN_COPIES)[order],
        distort(np.repeat(test, TEST_COPIES, axis=0), rng),
        np.repeat(test_labels, TEST_COPIES),
    )


def distort(images: NDArray[np.float64], rng: np.random.Generator) -> Images:
    """Each image (8 by 8) rotated, scaled, moved on the canvas, with noise; flattened."""
    centre = np.full(2, SIDE / 2 - 0.5)
    canvas = np.empty((len(images), SIDE, SIDE), dtype=np.float32)
    for image, target in zip(images, canvas, strict=True):
        angle = np.deg2rad(rng.uniform(-20, 20))
        zoom = rng.uniform(0.8, 1.1) * 8 / (0.8 * SIDE)
        turn = zoom * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        start = 3.5 - turn @ (centre + rng.uniform(-0.06, 0.06, 2) * SIDE)
        affine_transform(image, turn, start, output=target, order=1)
    canvas += rng.normal(0, NOISE, canvas.shape).astype(np.float32)
    return canvas.reshape(len(images), -1)


def train(kernel: str, size: int, data: Data) -> bytes:
    """A support vector machine fitted to the first ``size`` training images, as ONNX."""
    say(f"training svm-{kernel}-{size}")
    machine = SVC(kernel=kernel, degree=3, coef0=1.0, C=10.0, cache_size=500)
    machine.fit(data.train[:size], data.train_labels[:size])
    graph = skl2onnx.to_onnx(machine, data.train[:1], options={"zipmap": False})
    return bytes(graph.SerializeToString())


def profile(name: str, onnx: bytes, data: Data, samples: int) -> ModelProfile:
    """Accuracy, load time and latencies of one model."""
    session, load_ms = timed(lambda: open_session(onnx))
    entry = session.get_inputs()[0].name

    def answer(images: Images) -> Labels:
        labels: Labels = session.run(["label"], {entry: images})[0]
        return labels

    parts = np.array_split(np.arange(len(data.test)), len(data.test) // 32)
    right = sum(int((answer(data.test[part]) == data.test_labels[part]).sum()) for part in parts)
    accuracy = right / len(data.test)
    say(f"{name}: accuracy {accuracy:.4f}")
    latencies_ms = measure(answer, data.test, samples)
    batches = tuple(BatchProfile.from_samples(batch, np.round(latencies_ms[batch], 4), 64)
                    for batch in latencies_ms)
    say(f"{name}: p95 " + ", ".join(f"{item.p95_ms:.2f}" for item in batches) + " ms")
    return ModelProfile(name, round(accuracy, 6), batches,
                        memory_mb=round(len(onnx) / 1e6, 3), load_ms=round(load_ms, 3))


def open_session(onnx: bytes) -> onnxruntime.InferenceSession:
    """A session on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])


def measure(
    answer: Callable[[Images], Labels], images: Images, samples: int
) -> dict[int, list[float]]:
    """Wall times in ms by batch size, on images drawn at random.

    They are taken in rounds over the batch sizes, so that what disturbs the machine for a
    while does not fall on one size. The first call of each turn is not counted.
    """
    rng = np.random.default_rng(0)

    def run(batch: int) -> float:
        chosen = images[rng.choice(len(images), batch, replace=False)]
        return timed(partial(answer, chosen))[1]

    found: dict[int, list[float]] = {}
    for batch in BATCHES:
        found[batch] = []
        if statistics.median(run(batch) for _ in range(3)) > LONGEST_MS:
            break
    gc.disable()
    for _ in range(ROUNDS):
        for batch, latencies_ms in found.items():
            run(batch)
            latencies_ms += [run(batch) for _ in range(samples // ROUNDS)]
    gc.enable()
    return found


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What ``call`` returns, and how long it took in ms."""
    start = time.perf_counter()
    result = call()
    return result, (time.perf_counter() - start) * 1000


def take_one_core() -> dict[str, bool]:
    """Keep this process on one core and before all others there, where the system allows it."""
    pinned = hasattr(os, "sched_setaffinity")
    if pinned:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    except (AttributeError, PermissionError):
        return {"pinned_to_core": pinned, "raised_priority": False}
    return {"pinned_to_core": pinned, "raised_priority": True}


def hardware(core: dict[str, bool]) -> dict[str, object]:
    """What the measurement ran on."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        cpu = next((line.partition(":")[2].strip() for line in lines
                    if line.startswith("model name")), cpu)
    return {"cpu": cpu, "cores_used": 1, "threads": 1, **core,
            "system": platform.system(), "machine": platform.machine()}


def measurement(data: Data) -> dict[str, object]:
    """How the profile set was measured."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "generator": "scripts/measure_digits.py",
        "task": f"10 handwritten digits (scikit-learn's digits), rotated, scaled and moved on "
                f"{SIDE}x{SIDE} pixels, noise {NOISE}",
        "accuracy": f"share of right labels among {len(data.test)} images of held-out digits",
        "latency": "wall time of one onnxruntime run, warm, on inputs drawn at random, "
                   f"in {ROUNDS} rounds over the batch sizes",
        "memory_mb": "size of the ONNX model in 10^6 bytes",
        "load_ms": "time to create the session",
        "input_shape": ["batch", SIDE * SIDE],
        "versions": {"python": platform.python_version(), "numpy": np.__version__,
                     "onnxruntime": onnxruntime.__version__, "skl2onnx": skl2onnx.__version__,
                     "scikit-learn": sklearn.__version__},
    }


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
