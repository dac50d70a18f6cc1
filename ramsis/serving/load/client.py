"""Client of the Open Inference Protocol: encoding of requests, and parsing of answers.

Tensors are sent as numbers in the JSON, or as bytes after it (the *binary tensor data
extension*). Answers have either form, and may be compressed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from ramsis.errors import InputFileError, InvalidValueError, check_known, printable
from ramsis.profiles.measure.labels import GROUP, LABEL
from ramsis.profiles.sized import MAX_SIZE
from ramsis.serving.tensors import ANY, DATATYPES, TensorSpec

HEAD_LENGTH = "Inference-Header-Content-Length"  # header: where the JSON of a body ends

Array = NDArray[Any]

_LARGEST_JSON = 1 << 24  # bytes of JSON in an answer; parsed JSON takes far more memory
_LARGEST_SAMPLE, _SAMPLES_BYTES = 1 << 26, 1 << 28  # bytes of one sample, and of all random ones
STAGES = ("first", "second")  # stages of answers with second opinions
_LONGEST_NAME = 200  # characters of a variant's name, which the log stores for each request


@dataclass(frozen=True)
class Samples:
    """Samples to send, with the correct answers if known."""

    inputs: Mapping[str, Array]  # by the names of the model's inputs, shape (n, ...)
    # correct answers by the name of the output; at most one, shape (n, ...)
    right: Mapping[str, Array] = field(default_factory=dict)
    size: Array | None = None  # size of each sample, to which inputs are cut, shape (n,)

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def size_of(self, place: int) -> int | None:
        """Return the size of a sample; None if samples have no size."""
        return None if self.size is None else int(self.size[place])


@dataclass(frozen=True)
class RemoteModel:
    """Model on a server, described by the server's metadata."""

    url: str  # URL of inference requests
    # dimensions of any size are ANY
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    # whether tensors are sent as bytes to the server, and returned as bytes
    binary: bool
    binary_answers: bool

    @classmethod
    def of(cls, url: str, metadata: Any, extensions: Sequence[str], tensors: str) -> RemoteModel:
        """Create a model from its metadata.

        ``tensors`` is one of :data:`~ramsis.serving.load.settings.TENSORS`.
        """
        try:
            inputs, outputs = (
                tuple(TensorSpec(str(tensor["name"]), str(tensor["datatype"]),
                                 tuple(int(n) if int(n) > 0 else ANY
                                       for n in tensor["shape"][1:]))
                      for tensor in metadata[kind]) for kind in ("inputs", "outputs"))
        except (LookupError, TypeError, ArithmeticError, ValueError) as error:
            raise InputFileError(f"not the metadata of a model ({error!r})", where=url,
                                 value=metadata) from None
        if not inputs:
            raise InputFileError("a model without inputs", where=url, value=metadata)
        for spec in inputs:
            check_known("a type that is not sent", spec.datatype, DATATYPES, url, InputFileError)
        size = sum(spec.at(1).nbytes for spec in inputs)
        if size > _LARGEST_SAMPLE:
            raise InputFileError("a request would be too large", where=url, value=f"{size} bytes",
                                 allowed=f"at most {_LARGEST_SAMPLE} bytes")
        binary = tensors == "binary" or (tensors == "auto" and "binary_tensor_data" in extensions)
        return cls(f"{url}/infer", inputs, outputs, binary, tensors == "binary")

    def random_samples(self, count: int, rng: np.random.Generator) -> Samples:
        """Draw random samples: normal numbers, 0 or 1 for integers; fewer if they are large."""
        specs = [spec.at(1) for spec in self.inputs]
        each = sum(spec.nbytes for spec in specs)
        count = min(count, max(_SAMPLES_BYTES // each, 1))

        def drawn(spec: TensorSpec) -> Array:
            shape = (count, *spec.shape)
            if spec.dtype.kind == "f":
                return rng.standard_normal(shape).astype(spec.dtype)
            return rng.integers(0, 2, shape).astype(spec.dtype)

        return Samples({spec.name: drawn(spec) for spec in specs})

    def samples(self, arrays: Mapping[str, Array], where: str) -> Samples:
        """Check a file's arrays: inputs of samples, and optional sizes and correct answers.

        The array ``size`` has the size of each sample, to which inputs are cut along the
        dimensions of any size. Files of labelled samples for measurements are read alike: their
        ``label`` is the class with the largest score in the only output of scores, and ``group``
        is left out.
        """
        specs = {spec.name: spec for spec in self.inputs}
        size = None
        arrays = self._named_as_outputs(arrays)
        if "size" in arrays and "size" not in specs:
            size, arrays = arrays["size"], {name: array for name, array in arrays.items()
                                            if name != "size"}
        # Arrays that are no inputs are the correct answers: one output of the model.
        inputs = {name: array for name, array in arrays.items() if name in specs}
        right = {name: array for name, array in arrays.items() if name not in specs}
        outputs = [spec.name for spec in self.outputs]
        for name, spec in specs.items():
            if name not in inputs:
                raise InputFileError("input is missing", where=where, value=name)
            if not spec.fits(inputs[name].shape[1:]):
                raise InputFileError("not the input's shape", where=f"{where}: {name}",
                                     value=list(inputs[name].shape),
                                     allowed=str(["n", *spec.shape]))
        for name in right:
            if name not in outputs or len(right) > 1:
                raise InputFileError("neither an input nor the one output to compare", where=where,
                                     value=name, allowed=", ".join([*specs, *outputs]))
        lengths = {len(array) for array in (*inputs.values(), *right.values(),
                                            *([] if size is None else [size]))}
        if len(lengths) != 1 or 0 in lengths:
            raise InputFileError("not as many samples of each array", where=where,
                                 value=sorted(lengths), allowed="one number, from 1")
        typed = {name: array.astype(specs[name].dtype) for name, array in inputs.items()}
        if size is not None:
            most = min((inputs[spec.name].shape[spec.shape.index(ANY) + 1]
                        for spec in self.inputs if ANY in spec.shape), default=MAX_SIZE)
            if size.ndim != 1 or size.dtype.kind not in "iu" or not (
                    size.min() >= 1 and size.max() <= most):
                raise InputFileError("not the sizes of the samples", where=f"{where}: size",
                                     value=size.tolist()[:4],
                                     allowed=f"whole numbers from 1 to {most}, one for each")
        return Samples(typed, right, size)

    def _named_as_outputs(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return arrays with labels under the name of the output of scores, without groups."""
        known = {spec.name for spec in (*self.inputs, *self.outputs)}
        scores = [spec.name for spec in self.outputs
                  if spec.datatype.startswith("FP") and spec.shape[-1:] not in ((), (1,))]
        named = {LABEL: scores[0]} if LABEL not in known and len(scores) == 1 else {}
        return {named.get(name, name): array for name, array in arrays.items()
                if name != GROUP or name in known}

    def body(self, samples: Samples, place: int, deadline_ms: float | None) -> Body:
        """Encode the inference request for one sample."""
        tensors, data = [], []
        for spec in self.inputs:
            array = samples.inputs[spec.name][place : place + 1]
            if samples.size is not None:
                size = int(samples.size[place])
                # Cut the dimensions of any size to the size of the sample.
                array = array[0:1, *(slice(size if n == ANY else None) for n in spec.shape)]
            tensor: dict[str, Any] = {"name": spec.name, "datatype": spec.datatype,
                                      "shape": list(array.shape)}
            if self.binary:
                data.append(np.ascontiguousarray(array, spec.dtype.newbyteorder("<")).tobytes())
                tensor["parameters"] = {"binary_data_size": len(data[-1])}
            else:
                tensor["data"] = array.ravel().tolist()
            tensors.append(tensor)
        document: dict[str, Any] = {"inputs": tensors}
        if deadline_ms is not None:
            document["parameters"] = {"deadline_ms": deadline_ms}
        if self.binary:
            document["outputs"] = [
                {"name": spec.name, "parameters": {
                    "binary_data": self.binary_answers and spec.datatype in DATATYPES}}
                for spec in self.outputs]
        head = orjson.dumps(document)
        headers = {"Content-Type": "application/json"}
        if self.binary:
            headers = {"Content-Type": "application/octet-stream",
                       HEAD_LENGTH: str(len(head))}
        return Body(b"".join((head, *data)), headers)


class Body(NamedTuple):
    """Encoded body and headers of an inference request."""

    data: bytes
    headers: Mapping[str, str]


class Heard(NamedTuple):
    """What a server's answer states about how a request was served."""

    model: str  # variant that answered, or the model's name if the server states no variant
    # None if the answer does not state them
    batch: int | None
    run_as: int | None
    worker: int | None
    correct: bool | None  # None if the correct answer is unknown
    stage: str | None  # ``first`` or ``second`` answer; None if the server states none


def heard(body: bytes, samples: Samples, place: int, head: str | None = None) -> Heard:
    """Parse an answer.

    ``head`` is the header with the length of its JSON; None if the whole body is JSON.
    """
    try:
        end = len(body) if head is None else int(head)
        if not 0 <= end <= min(len(body), _LARGEST_JSON):
            raise ValueError(f"JSON of {end} bytes")
        document = orjson.loads(body[:end])
        parameters = document.get("parameters") or {}
        outputs: dict[str, Any] = {}
        for output in document["outputs"]:
            size = (output.get("parameters") or {}).get("binary_data_size")
            if size is None:
                outputs[output["name"]] = output["data"]
            else:
                kind = DATATYPES[output["datatype"]].newbyteorder("<")
                if not 0 <= size <= len(body) - end:
                    raise ValueError(f"a tensor of {size} bytes")
                outputs[output["name"]] = np.frombuffer(body[end : end + size], kind)
                end += size
        correct = None
        for name, right in samples.right.items():
            correct = _same(np.asarray(outputs[name]), right[place])
        batch, run_as, worker = (_whole(parameters.get(name))
                                 for name in ("batch", "run_as", "worker"))
        # Triton's answers have no parameters; variant and stage are outputs.
        variant, stage = (parameters.get(text) or next(iter(outputs.get(text, ())), None)
                          for text in ("variant", "stage"))
        name = printable(str(variant or document.get("model_name") or "model"))
        if len(name) > _LONGEST_NAME:
            raise ValueError(f"a name of {len(name)} characters")
    except (LookupError, TypeError, ArithmeticError, ValueError, AttributeError,
            RecursionError) as error:
        raise InvalidValueError(f"not an answer ({error!r})", where="answer",
                                value=body[:60]) from None
    return Heard(name, batch, run_as, worker, correct, stage if stage in STAGES else None)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _same(data: Array, right: Array) -> bool:
    """Return whether an output is correct: equal values, or equal class of the largest score."""
    right_values = np.asarray(right).ravel()
    if data.size > 1 and right_values.size == 1 and np.issubdtype(right_values.dtype, np.integer):
        return int(np.argmax(data)) == int(right_values[0])
    if data.size != right_values.size:
        return False
    if data.dtype.kind == "f":
        return all(math.isclose(x, y, rel_tol=1e-5, abs_tol=1e-6)
                   for x, y in zip(data.ravel().tolist(), right_values.tolist(), strict=True))
    return bool((data.ravel() == right_values).all())
