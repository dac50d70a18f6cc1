"""Models to serve: a small one and those of digits-cpu, as ONNX files, with test images."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from measure_digits import Data, make_data, open_session, train
from study import say

from ramsis.profiles import ProfileSet, load
from ramsis.profiles.measure import MeasureSettings, StopRule, measure_profile

__all__ = ["Served", "prepared"]

BATCHES = (1, 2, 4, 8)
"""Larger ones would have a capacity that one front end, or this load generator, does not."""
IMAGES = 400
"""Test images: so few that short runs send each of them, and differ by serving alone."""
SMALL = "svm-rbf-1600"
"""Computed image by image: fast alone, not in batches."""


@dataclass(frozen=True)
class Served:
    """What a server needs.

    Attributes
    ----------
    variants, data : Path
        The variants file, and the test images with their labels for `ramsis load`.
    profile : ProfileSet
        Measured on this machine in a process of its own, accuracies on the test images.
    """

    variants: Path
    data: Path
    profile: ProfileSet


def prepared(folder: Path, sizes: Sequence[int], samples: int) -> Served:
    """Train what the folder lacks, and measure it.

    Parameters
    ----------
    folder : Path
        Keeps the models from one call to the next.
    sizes : sequence of int
        Training images of the support vector machines.
    samples : int
        Of each batch size.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = [SMALL, *(f"svm-poly-{size}" for size in sizes)]
    data_file, accuracy_file = folder / "test.npz", folder / "accuracy.json"
    accuracy = json.loads(accuracy_file.read_text()) if accuracy_file.exists() else {}
    missing = [name for name in names if not (folder / f"{name}.onnx").exists()
               or name not in accuracy]
    if missing or not data_file.exists():
        data = make_data()
        data = replace(data, test=data.test[:IMAGES], test_labels=data.test_labels[:IMAGES])
        np.savez(data_file, X=data.test, label=data.test_labels)
        for name in missing:
            _, kernel, count = name.split("-")
            content = train(kernel, int(count), data)
            (folder / f"{name}.onnx").write_bytes(content)
            accuracy[name] = _accuracy(content, data)
        accuracy_file.write_text(json.dumps(accuracy))
    variants = folder / "variants.toml"
    variants.write_text('name = "digits"\noutputs = ["label"]\n' + "".join(
        f'\n[[variants]]\nname = "{name}"\nmodel = "{name}.onnx"\naccuracy = {accuracy[name]}\n'
        for name in names))
    profile_file = folder / f"profile-{samples}-{'-'.join(names)}.json"
    if not profile_file.exists():
        say("measuring service times")
        settings = MeasureSettings(batches=BATCHES, stop=StopRule(
            min_samples=samples, max_samples=samples, seconds_per_batch=1.0))
        measure_profile([str(folder / f"{name}.onnx") for name in names], settings,
                        name="fidelity", accuracy={name: accuracy[name] for name in names},
                        accuracy_source="the test images", out=profile_file)
    return Served(variants, data_file, load(str(profile_file)))


def _accuracy(content: bytes, data: Data) -> float:
    """Share of right labels among the test images."""
    session = open_session(content)
    entry = session.get_inputs()[0].name
    right = [session.run(["label"], {entry: part})[0] == labels for part, labels in zip(
        np.array_split(data.test, 40), np.array_split(data.test_labels, 40), strict=True)]
    return round(float(np.concatenate(right).mean()), 6)
