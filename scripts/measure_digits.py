"""Train, score and time the models of the shipped profile set ``digits-cpu``.

    python -m pip install -e '.[measure]'
    python scripts/measure_digits.py --out profiles/digits-cpu.json

The task: handwritten digits (scikit-learn's ``digits``) rotated, scaled and moved on a canvas
of 64 by 64 pixels, with noise. The models: support vector machines fitted to ever more
training images; more support vectors make them more accurate and slower. A polynomial kernel
is one matrix product, which batches well; a radial kernel is computed image by image, which
does not. Accuracy is measured on distorted copies of digits that training never saw; latency
is the wall time of one ``run`` of onnxruntime on one CPU core, after warming up.

It takes about 20 minutes on one core and 4 GB of memory; keep the machine otherwise idle.

Confidences come from further copies of the held-out digits: the margin of a model's answer to the
runner-up, by the votes of its pairwise classifiers, each clipped to [-1, 1]. ``--answers FILE``
keeps them. ``--keep PROFILE`` makes only the confidences, for a profile set as it is:

    python scripts/measure_digits.py --keep digits-cpu --out profiles/digits-cpu.json
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import skl2onnx
from numpy.typing import NDArray
from scipy.ndimage import affine_transform
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC
from study import parser_of, say

from ramsis.profiles import ModelProfile, ProfileSet, load, save
from ramsis.profiles.measure import StopRule, hardware, sample_batches, versions

SIDE = 64
"""Width and height of an image, in pixels."""
NOISE = 0.15
"""Standard deviation of the noise on every pixel, where ink is 1 and paper 0."""
TRAIN_COPIES, TEST_COPIES, CONFIDENCE_COPIES = 10, 4, 20
"""Distorted copies of each digit."""
CONFIDENCE_SEED = 99
"""Seed of the copies for confidences, which are others than those for accuracies."""
ANSWERS = Path(__file__).resolve().parents[1] / "docs" / "results" / "digits-answers.npz"
"""Answers to these copies."""
MODELS = [("poly", 400), ("poly", 800), ("poly", 1600), ("poly", 3200), ("poly", 6400),
          ("poly", 12000), ("rbf", 9000), ("rbf", 12000)]
"""Kernel and number of training images of each model."""
BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)
"""Batch sizes, in ascending order."""
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


@dataclass(frozen=True)
class Copies:
    """Further distorted copies of the held-out digits."""

    images: Images
    labels: Labels
    digits: Labels  # which digit each is a copy of


def main() -> None:
    """Write the profile set."""
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="profile file to write")
    parser.add_argument("--samples", type=int, default=200, help="samples per batch size")
    parser.add_argument("--models", type=int, default=len(MODELS), help="only the first N models")
    parser.add_argument("--answers", type=Path, default=ANSWERS,
                        help="file for the answers that confidences come from")
    parser.add_argument("--keep", metavar="PROFILE",
                        help="profile file or shipped set whose accuracies and latencies to keep")
    options = parser.parse_args()

    data = make_data()
    found = load(options.keep) if options.keep else measured(options, data)
    answers = answer(MODELS[: options.models], data, make_copies())
    np.savez_compressed(options.answers, allow_pickle=False, **answers)
    save(with_confidences(found, answers), options.out)
    say(f"wrote {options.answers} and {options.out}")


def measured(options: argparse.Namespace, data: Data) -> ProfileSet:
    """Train, score and time the models."""
    trained = [train(kernel, size, data) for kernel, size in MODELS[: options.models]]
    take_one_core()
    models = [profile(f"svm-{kernel}-{size}", onnx, data, options.samples)
              for (kernel, size), onnx in zip(MODELS, trained, strict=False)]
    return ProfileSet("digits-cpu", tuple(models), hardware(threads=1), measurement(data))


def make_data() -> Data:
    """Distorted digits; the split is made before the copies, so no digit is on both sides."""
    train, test, train_labels, test_labels = split_digits()
    rng = np.random.default_rng(0)
    order = rng.permutation(TRAIN_COPIES * len(train))
    return Data(
        distort(np.repeat(train, TRAIN_COPIES, axis=0)[order], rng),
        np.repeat(train_labels, TRAIN_COPIES)[order],
        distort(np.repeat(test, TEST_COPIES, axis=0), rng),
        np.repeat(test_labels, TEST_COPIES),
    )


def make_copies() -> Copies:
    """Make further copies of the held-out digits."""
    _, test, _, test_labels = split_digits()
    return Copies(
        distort(np.repeat(test, CONFIDENCE_COPIES, axis=0),
                np.random.default_rng(CONFIDENCE_SEED)),
        np.repeat(test_labels, CONFIDENCE_COPIES),
        np.repeat(np.arange(len(test)), CONFIDENCE_COPIES))


def split_digits() -> list[NDArray[Any]]:
    """Return training and held-out digits, 8 by 8, and the labels of either."""
    digits = load_digits()
    parts: list[NDArray[Any]] = train_test_split(
        digits.images / 16, digits.target, test_size=0.3, stratify=digits.target, random_state=0
    )
    return parts


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


def answer(
    models: list[tuple[str, int]], data: Data, copies: Copies
) -> dict[str, NDArray[Any]]:
    """Return correctness and margin of each model on the copies, as :data:`ANSWERS` keeps them.

    The arrays are ``digit``, and for each model ``NAME/correct`` and ``NAME/margin``, in 1e-3.
    """
    answers: dict[str, NDArray[Any]] = {"digit": copies.digits.astype(np.int16)}
    for kernel, size in models:
        name = f"svm-{kernel}-{size}"
        right, margin = answered(kernel, size, data, copies)
        say(f"{name}: {right.mean():.4f} right on {len(right)} further copies")
        answers[f"{name}/correct"] = right
        answers[f"{name}/margin"] = np.round(1000 * margin).astype(np.int16)
    return answers


def answered(
    kernel: str, size: int, data: Data, copies: Copies
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return whether a machine answers each copy correctly, and its margin to the runner-up.

    It is the machine of :func:`train`, fitted to products of matrices, which is faster.
    """
    images = data.train[:size]
    gamma = 1 / (images.shape[1] * images.var())
    machine = SVC(kernel="precomputed", C=10.0, cache_size=500, decision_function_shape="ovo")
    machine.fit(kernel_matrix(kernel, gamma, images, images), data.train_labels[:size])
    votes, clipped = [], []
    for part in np.array_split(copies.images, 10):
        decisions = machine.decision_function(kernel_matrix(kernel, gamma, part, images))
        votes.append(sum_of_pairs(np.where(decisions > 0, 1.0, -1.0)))
        clipped.append(sum_of_pairs(np.clip(decisions, -1, 1)))
    answers, sums = np.concatenate(votes).argmax(axis=1), np.concatenate(clipped)
    rows = np.arange(len(sums))
    chosen = sums[rows, answers]
    sums[rows, answers] = -np.inf
    return answers == copies.labels, chosen - sums.max(axis=1)


def kernel_matrix(kernel: str, gamma: float, images: Images, others: Images) -> NDArray[Any]:
    """Return the kernel of each image with each other one."""
    products = (images @ others.T).astype(np.float64)
    if kernel == "poly":
        return np.asarray((gamma * products + 1.0) ** 3)
    squares, of_others = (np.square(rows, dtype=np.float64).sum(axis=1)
                          for rows in (images, others))
    return np.asarray(np.exp(-gamma * (squares[:, None] + of_others - 2 * products)))


def sum_of_pairs(decisions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums of pairwise decisions for each of ten classes."""
    sums = np.zeros((len(decisions), 10))
    for (first, second), decision in zip(combinations(range(10), 2), decisions.T, strict=True):
        sums[:, first] += decision
        sums[:, second] -= decision
    return sums


def with_confidences(profile_set: ProfileSet, answers: Mapping[str, NDArray[Any]]) -> ProfileSet:
    """Return a profile set with the confidences of answers as :func:`answer` returns them."""
    names = [name.removesuffix("/correct") for name in answers if name.endswith("/correct")]
    samples = {name: (answers[f"{name}/correct"], answers[f"{name}/margin"] / 1000)
               for name in names}
    return profile_set.with_confidences(samples, groups=answers["digit"], source=(
        f"{CONFIDENCE_COPIES} further copies of each held-out digit; margin to the runner-up, in "
        "votes of the pairwise classifiers clipped to [-1, 1]"))


@dataclass
class Reader:
    """A session that reads images drawn at random."""

    session: onnxruntime.InferenceSession
    images: Images
    rng: np.random.Generator = field(default_factory=partial(np.random.default_rng, 0))

    def prepare(self, batch: int) -> Images:
        """Images to read."""
        return self.images[self.rng.choice(len(self.images), batch, replace=False)]

    def run(self, prepared: Images) -> Labels:
        """Read them."""
        entry = self.session.get_inputs()[0].name
        labels: Labels = self.session.run(["label"], {entry: prepared})[0]
        return labels


def profile(name: str, onnx: bytes, data: Data, samples: int) -> ModelProfile:
    """Accuracy, load time and latencies of one model."""
    start = time.perf_counter()
    reader = Reader(open_session(onnx), data.test)
    load_ms = (time.perf_counter() - start) * 1000
    parts = np.array_split(np.arange(len(data.test)), len(data.test) // 32)
    right = sum(int((reader.run(data.test[part]) == data.test_labels[part]).sum())
                for part in parts)
    accuracy = right / len(data.test)
    say(f"{name}: accuracy {accuracy:.4f}")
    rule = StopRule(min_samples=samples, max_samples=samples, max_latency_ms=LONGEST_MS)
    batches = sample_batches(reader, BATCHES, rule, quantiles=64).batches
    say(f"{name}: p95 " + ", ".join(f"{item.p95_ms:.2f}" for item in batches) + " ms")
    return ModelProfile(name, round(accuracy, 6), batches,
                        memory_mb=round(len(onnx) / 1e6, 3), load_ms=round(load_ms, 3))


def open_session(onnx: bytes) -> onnxruntime.InferenceSession:
    """A session on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])


def take_one_core() -> None:
    """Keep this process on one core and before all others there, where the system allows it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with contextlib.suppress(AttributeError, PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)


def measurement(data: Data) -> dict[str, object]:
    """How the profile set was measured."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "generator": "scripts/measure_digits.py",
        "task": f"10 handwritten digits (scikit-learn's digits), rotated, scaled and moved on "
                f"{SIDE}x{SIDE} pixels, noise {NOISE}",
        "accuracy": f"share of right labels among {len(data.test)} images of held-out digits",
        "latency": "wall time of one onnxruntime run, warm, on inputs drawn at random, "
                   "in ten rounds over the batch sizes",
        "memory_mb": "size of the ONNX model in 10^6 bytes",
        "load_ms": "time to create the session",
        "input_shape": ["batch", SIDE * SIDE],
        "versions": versions(("onnxruntime", "skl2onnx", "scikit-learn")),
    }


if __name__ == "__main__":
    main()
