"""Models to serve: two small ones and those of digits-cpu, as ONNX files, with test images."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import skl2onnx
from measure_digits import Data, make_data, open_session
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

from ramsis.profiles import ProfileSet, load
from ramsis.profiles.measure import MeasureSettings, StopRule, measure_profile

__all__ = ["Served", "prepared"]

BATCHES = (1, 2, 3, 4, 6, 8, 12, 16)
SMALL = {"linear": LogisticRegression(max_iter=60, C=0.01),
         "mlp-64": MLPClassifier((64,), max_iter=12, random_state=0, early_stopping=False)}
"""Small models of the same task, well below a millisecond."""
_SMALL_IMAGES = 3000


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
    names = [*SMALL, *(f"svm-poly-{size}" for size in sizes)]
    data_file, accuracy_file = folder / "test.npz", folder / "accuracy.json"
    accuracy = json.loads(accuracy_file.read_text()) if accuracy_file.exists() else {}
    missing = [name for name in names if not (folder / f"{name}.onnx").exists()
               or name not in accuracy]
    if missing or not data_file.exists():
        data = make_data()
        np.savez(data_file, X=data.test, label=data.test_labels)
        for name in missing:
            content = _trained(name, data)
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


def _trained(name: str, data: Data) -> bytes:
    """A model, fitted and converted."""
    say(f"training {name}")
    kind, _, size = name.rpartition("-")
    if kind == "svm-poly":
        model, count = SVC(kernel="poly", degree=3, coef0=1.0, C=10.0, cache_size=500), int(size)
    else:
        model, count = SMALL[name], _SMALL_IMAGES
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data.train[:count], data.train_labels[:count])
        graph = skl2onnx.to_onnx(model, data.train[:1], options={"zipmap": False})
    for output, wanted in zip(graph.graph.output, ("label", "probabilities"), strict=True):
        _rename(graph, output.name, wanted)
    return bytes(graph.SerializeToString())


def _rename(graph: object, name: str, wanted: str) -> None:
    """Call an output by the name that all variants share."""
    if name == wanted:
        return
    for node in graph.graph.node:  # type: ignore[attr-defined]
        for i, output in enumerate(node.output):
            if output == name:
                node.output[i] = wanted
    for output in graph.graph.output:  # type: ignore[attr-defined]
        if output.name == name:
            output.name = wanted


def _accuracy(content: bytes, data: Data) -> float:
    """Share of right labels among the test images."""
    session = open_session(content)
    entry = session.get_inputs()[0].name
    right = [session.run(["label"], {entry: part})[0] == labels for part, labels in zip(
        np.array_split(data.test, 40), np.array_split(data.test_labels, 40), strict=True)]
    return round(float(np.concatenate(right).mean()), 6)


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)
