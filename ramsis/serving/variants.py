"""The variants file: which models answer to the names that policies give them.

A TOML file of one task, whose variants all take the same tensors::

    name = "digits"                    # of the model in URLs; "model" by default
    outputs = ["label", "scores"]      # of ONNX models; all by default
    confidence = "max"                 # for second opinions: max or margin of the scores, or an
                                       # output; without it there are none
    size = "input_ids:1"               # of a request: the length of an input along a dimension,
                                       # a mask, an input of one number, or parameters.NAME;
                                       # without it all requests have one size
    max_size = 256                     # largest size that is served

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

from ramsis.errors import FRACTION, InputFileError, InvalidValueError
from ramsis.fields import Fields
from ramsis.files import read_toml
from ramsis.profiles.measure.backends import BACKENDS, Options
from ramsis.profiles.sized import MAX_SIZE
from ramsis.reprs import dataclass
from ramsis.serving.tensors import ANY, DATATYPES, TensorSpec

_KEYS = ("name", "outputs", "confidence", "size", "max_size", "variants", "inputs", "threads",
         "device", "tokens", "dimensions")


@dataclass(frozen=True)
class ServedVariant:
    """Model of a variants file, by its name in policies."""

    name: str  # as in the policies
    backend: str  # one of :data:`~ramsis.profiles.measure.backends.BACKENDS`
    model: str  # name or path of the model for the back end
    options: Options  # options of the back end
    accuracy: float | None = None  # a fraction; None if not stated


@dataclass(frozen=True)
class VariantsFile:
    """Contents of a variants file: the models that a server runs, and their tensors."""

    path: Path  # the file
    name: str  # name of the model in URLs
    variants: tuple[ServedVariant, ...]  # one or more
    inputs: tuple[TensorSpec, ...] = ()  # empty if not stated
    confidence: str | None = None  # max or margin of the scores, or an output; None for none
    size: str | None = None  # source of request sizes; None without sizes
    max_size: int = 1  # largest size

    @property
    def run_here(self) -> bool:
        """Whether any variant runs on this machine."""
        return any(variant.backend != "upstream" for variant in self.variants)

    @property
    def described_by(self) -> tuple[str, ...]:
        """Parameters that describe an answer: its variant and, with confidences, its stage."""
        return ("variant",) if self.confidence is None else ("variant", "stage")

    def refuse_sizes(self, server: str) -> None:
        """Refuse a source of request sizes, for servers that do not pad inputs."""
        if self.size is not None:
            raise InputFileError(f"{server} serves requests of one size only",
                                 where=f"{self.path}: size", value=self.size,
                                 allowed="ramsis serve or MLServer; or no size, and inputs of a "
                                 "fixed shape")

    @property
    def folder(self) -> Path:
        """Folder from which functions are imported."""
        return self.path.resolve().parent


def read_variants(path: str | os.PathLike[str]) -> VariantsFile:
    """Read a variants file, which states the models that a server runs."""
    file = Path(path)
    fields = Fields(read_toml(path), str(path))
    fields.only(_KEYS)
    if ("size" in fields) != ("max_size" in fields):
        raise fields.refusal("max_size" if "size" in fields else "size", "missing",
                             allowed="size and max_size, or neither")
    variants: list[ServedVariant] = []
    for table in fields.children("variants"):
        variant = _variant(table, fields, file.resolve().parent)
        if variant.name in [other.name for other in variants]:
            raise table.refusal("name", "variant appears twice", value=variant.name)
        variants.append(variant)
    least = ANY if "size" in fields else 1
    inputs = [_input(table, least) for table in fields.children("inputs")] if (
        "inputs" in fields) else []
    name = fields.text("name") if "name" in fields else "model"
    if "/" in name:
        raise fields.refusal("name", "not a part of a URL", value=name, allowed="a text without /")
    confidence = fields.text("confidence") if "confidence" in fields else None
    size = fields.text("size") if "size" in fields else None
    max_size = 1 if size is None else fields.whole("max_size", 1)
    if max_size > MAX_SIZE:
        raise fields.refusal("max_size", "size is too large", value=max_size,
                             allowed=f"at most {MAX_SIZE}")
    return VariantsFile(file, name, tuple(variants), tuple(inputs), confidence, size, max_size)


def upstream_variants(url: str, names: Iterable[str]) -> VariantsFile:
    """Return variants that run on an upstream server, with their names in policies."""
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
        size_dimension="" if "size" in file else None,
    )


def _input(table: Fields, least: int) -> TensorSpec:
    table.only(("name", "datatype", "shape"))
    shape: list[Any] = table.value("shape")
    if not isinstance(shape, list) or any(
            type(n) is not int or n < least or n == 0 for n in shape):
        raise table.refusal("shape", "not a shape", value=shape,
                            allowed="a list of whole numbers >= 1, without the batch's"
                            + (", or -1 for the size" if least == ANY else ""))
    return TensorSpec(table.text("name"), table.text("datatype", DATATYPES), tuple(shape))
