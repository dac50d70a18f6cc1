"""The variants file: which models answer to the names that policies give them.

A TOML file of one task, whose variants all take the same tensors::

    name = "digits"                    # of the model in URLs; "model" by default
    outputs = ["label", "scores"]      # of ONNX models; all by default
    confidence = "max"                 # for second opinions: max or margin of the scores, or an
                                       # output; without it there are none

    [[variants]]
    name = "svm-poly-400"              # as in the policies
    model = "svm-poly-400.onnx"        # a path from here, a name, or module:function
    backend = "onnx"                   # or callable, torchvision, transformers, upstream
    weights = "trained.pt"             # of torchvision and transformers; random by default
    accuracy = 0.82                    # for the profile that calibration writes

    [[inputs]]                         # where a back end does not know them: callables
    name = "image"
    datatype = "FP32"
    shape = [4096]                     # without the batch's dimension

The model of the back end ``upstream`` is a URL, ``http://HOST:PORT/v2/models/NAME``.

``threads``, ``device``, ``tokens`` and the table ``dimensions`` are as of ``profile measure``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ramsis.errors import FRACTION, InvalidValueError
from ramsis.files import read_toml
from ramsis.profiles.measure.backends import BACKENDS, Options
from ramsis.reprs import dataclass
from ramsis.runtime.fields import Fields
from ramsis.serving.tensors import DATATYPES, TensorSpec

_KEYS = ("name", "outputs", "confidence", "variants", "inputs", "threads", "device", "tokens",
         "dimensions")


@dataclass(frozen=True)
class ServedVariant:
    """A model that can be run, under the name that policies give it."""

    name: str  # as in the policies
    backend: str  # one of :data:`~ramsis.profiles.measure.backends.BACKENDS`
    model: str  # as the back end names it
    options: Options  # options of the back end
    accuracy: float | None = None  # a fraction; None where it is not stated


@dataclass(frozen=True)
class VariantsFile:
    """Contents of a variants file."""

    path: Path  # the file
    name: str  # of the model in URLs
    variants: tuple[ServedVariant, ...]  # one or more
    inputs: tuple[TensorSpec, ...] = ()  # where the file states them, else empty
    confidence: str | None = None  # max or margin of the scores, or an output; None for none

    @property
    def run_here(self) -> bool:
        """Whether some variant takes a core of this machine."""
        return any(variant.backend != "upstream" for variant in self.variants)

    @property
    def described_by(self) -> tuple[str, ...]:
        """Names of the texts that describe an answer: its variant and, with confidences, stage."""
        return ("variant",) if self.confidence is None else ("variant", "stage")

    @property
    def folder(self) -> Path:
        """Folder that functions are imported from."""
        return self.path.resolve().parent


def read_variants(path: str | os.PathLike[str]) -> VariantsFile:
    """Read a variants file."""
    file = Path(path)
    fields = Fields(read_toml(path), str(path))
    fields.only(_KEYS)
    variants: list[ServedVariant] = []
    for table in fields.children("variants"):
        variant = _variant(table, fields, file.resolve().parent)
        if variant.name in [other.name for other in variants]:
            raise table.refusal("name", "variant appears twice", value=variant.name)
        variants.append(variant)
    inputs = [_input(table) for table in fields.children("inputs")] if "inputs" in fields else []
    name = fields.text("name") if "name" in fields else "model"
    if "/" in name:
        raise fields.refusal("name", "not a part of a URL", value=name, allowed="a text without /")
    confidence = fields.text("confidence") if "confidence" in fields else None
    return VariantsFile(file, name, tuple(variants), tuple(inputs), confidence)


def upstream_variants(url: str, names: Iterable[str]) -> VariantsFile:
    """Return variants that a server runs under the names that policies give them."""
    if not re.fullmatch(r"https?://[^/?#\s]+/?", url):
        raise InvalidValueError("not the URL of a server", where="--upstream", value=url,
                                allowed="http://HOST:PORT")
    return VariantsFile(Path("--upstream"), "model", tuple(
        ServedVariant(name, "upstream", f"{url.rstrip('/')}/v2/models/{quote(name, safe='')}",
                      Options()) for name in names))


def _variant(table: Fields, file: Fields, folder: Path) -> ServedVariant:
    table.only(("name", "backend", "model", "weights", "accuracy"))
    backend = table.text("backend", BACKENDS) if "backend" in table else next(iter(BACKENDS))
    model = table.text("model")
    if backend == "onnx" or (folder / model).exists():
        model = str(folder / model)
    weights = str(folder / table.text("weights")) if "weights" in table else None
    accuracy = table.number("accuracy", FRACTION) if "accuracy" in table else None
    return ServedVariant(table.text("name"), backend, model, _options(file, weights), accuracy)


def _options(file: Fields, weights: str | None) -> Options:
    default = Options()
    dimensions: dict[str, int] = {}
    if "dimensions" in file:
        sizes = file.child("dimensions")
        dimensions = {name: sizes.whole(name, 1) for name in sizes}
    outputs = tuple(map(str, file.items("outputs"))) if "outputs" in file else ()
    return Options(
        threads=file.whole("threads", 1) if "threads" in file else default.threads,
        device=file.text("device", ("cpu", "cuda")) if "device" in file else default.device,
        dimensions=dimensions,
        tokens=file.whole("tokens", 1) if "tokens" in file else default.tokens,
        outputs=outputs, weights=weights,
    )


def _input(table: Fields) -> TensorSpec:
    table.only(("name", "datatype", "shape"))
    shape: list[Any] = table.value("shape")
    if not isinstance(shape, list) or any(type(n) is not int or n < 1 for n in shape):
        raise table.refusal("shape", "not a shape", value=shape,
                            allowed="a list of whole numbers >= 1, without the batch's")
    return TensorSpec(table.text("name"), table.text("datatype", DATATYPES), tuple(shape))
