"""What a client of the Open Inference Protocol says and hears: bodies of requests, answers.

Tensors go as bytes after the JSON where the server knows the *binary tensor data extension*, as
numbers in the JSON elsewhere. The outputs come back as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from ramsis.errors import InputFileError, InvalidValueError, describe
from ramsis.serving.tensors import DATATYPES, TensorSpec

__all__ = ["Heard", "RemoteModel", "Samples", "heard"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Samples:
    """What is sent, and the right answers where they are known.

    Attributes
    ----------
    inputs : mapping of str to ndarray, shape (n, ...)
        By the names of the model's inputs.
    right : mapping of str to ndarray, shape (n, ...)
        By the names of outputs; at most one.
    """

    inputs: Mapping[str, Array]
    right: Mapping[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))


@dataclass(frozen=True)
class RemoteModel:
    """A model of a server.

    Attributes
    ----------
    url : str
        Of its inference requests.
    inputs, outputs : tuple of TensorSpec
        Sizes of dimensions that may be any are 1.
    binary : bool
        Whether the server takes tensors as bytes.
    """

    url: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    binary: bool

    @classmethod
    def of(cls, url: str, metadata: Any, extensions: Sequence[str]) -> RemoteModel:
        """A model by its metadata.

        Raises
        ------
        InputFileError
            The metadata are not those of the protocol, or hold a type that is not sent.
        """
        try:
            inputs, outputs = (
                tuple(TensorSpec(one["name"], one["datatype"],
                                 tuple(max(int(n), 1) for n in one["shape"][1:]))
                      for one in metadata[kind]) for kind in ("inputs", "outputs"))
        except (KeyError, TypeError, ValueError) as error:
            raise InputFileError(describe(f"not the metadata of a model ({error!r})", where=url,
                                          value=metadata)) from None
        for spec in inputs:
            if spec.datatype not in DATATYPES:
                raise InputFileError(describe("a type that is not sent", where=url,
                                              value=spec.datatype, allowed=", ".join(DATATYPES)))
        return cls(f"{url}/infer", inputs, outputs, "binary_tensor_data" in extensions)

    def random_samples(self, count: int, rng: np.random.Generator) -> Samples:
        """Normal numbers; 0 or 1 where whole numbers are wanted."""
        def drawn(spec: TensorSpec) -> Array:
            shape = (count, *spec.shape)
            if spec.dtype.kind == "f":
                return rng.standard_normal(shape).astype(spec.dtype)
            return rng.integers(0, 2, shape).astype(spec.dtype)

        return Samples({spec.name: drawn(spec) for spec in self.inputs})

    def samples(self, arrays: Mapping[str, Array], where: str) -> Samples:
        """The arrays of a file as samples, and at most one of right answers.

        Raises
        ------
        InputFileError
            An input is missing or of another shape, or an array is neither input nor output.
        """
        wanted = {spec.name: spec for spec in self.inputs}
        given = {name: array for name, array in arrays.items() if name in wanted}
        right = {name: array for name, array in arrays.items() if name not in wanted}
        known = [spec.name for spec in self.outputs]
        for name, spec in wanted.items():
            if name not in given:
                raise InputFileError(describe("input is missing", where=where, value=name))
            if given[name].shape[1:] != spec.shape:
                raise InputFileError(describe("not the input's shape", where=f"{where}: {name}",
                                              value=list(given[name].shape),
                                              allowed=str(["n", *spec.shape])))
        for name in right:
            if name not in known or len(right) > 1:
                raise InputFileError(describe("neither an input nor the one output to compare",
                                              where=where, value=name,
                                              allowed=", ".join([*wanted, *known])))
        lengths = {len(array) for array in (*given.values(), *right.values())}
        if len(lengths) != 1 or 0 in lengths:
            raise InputFileError(describe("not as many samples of each array", where=where,
                                          value=sorted(lengths), allowed="one number, from 1"))
        typed = {name: array.astype(wanted[name].dtype) for name, array in given.items()}
        return Samples(typed, right)

    def body(self, samples: Samples, place: int, deadline_ms: float | None) -> Body:
        """A request for one sample."""
        tensors, data = [], []
        for spec in self.inputs:
            array = samples.inputs[spec.name][place : place + 1]
            tensor: dict[str, Any] = {"name": spec.name, "datatype": spec.datatype,
                                      "shape": [1, *spec.shape]}
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
            document["outputs"] = [{"name": spec.name, "parameters": {"binary_data": False}}
                                   for spec in self.outputs]
        head = orjson.dumps(document)
        headers = {"Content-Type": "application/json"}
        if self.binary:
            headers = {"Content-Type": "application/octet-stream",
                       "Inference-Header-Content-Length": str(len(head))}
        return Body(b"".join((head, *data)), headers)


class Body(NamedTuple):
    """A request's bytes and its headers."""

    data: bytes
    headers: Mapping[str, str]


class Heard(NamedTuple):
    """What an answer says.

    Attributes
    ----------
    model
        The variant that answered, or the model's name where the server names none.
    batch, run_as, worker
        None where it does not say.
    correct
        None where the right answer is not known.
    """

    model: str
    batch: int | None
    run_as: int | None
    worker: int | None
    correct: bool | None


def heard(body: bytes, samples: Samples, place: int) -> Heard:
    """Read an answer.

    Raises
    ------
    InvalidValueError
        It is not one of the protocol, or the output to compare is missing.
    """
    try:
        document = orjson.loads(body)
        parameters = document.get("parameters") or {}
        outputs = {one["name"]: one for one in document["outputs"]}
        correct = None
        for name, right in samples.right.items():
            correct = _same(np.asarray(outputs[name]["data"]), right[place])
        batch, run_as, worker = (_whole(parameters.get(name))
                                 for name in ("batch", "run_as", "worker"))
        name = str(parameters.get("variant") or document.get("model_name") or "model")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidValueError(describe(f"not an answer ({error!r})", where="answer",
                                         value=body[:60])) from None
    return Heard(name, batch, run_as, worker, correct)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _same(data: Array, right: Array) -> bool:
    """Whether an output is right: the same values, or the class of the largest score."""
    wanted = np.asarray(right).ravel()
    if data.size > 1 and wanted.size == 1 and np.issubdtype(wanted.dtype, np.integer):
        return int(np.argmax(data)) == int(wanted[0])
    if data.size != wanted.size:
        return False
    if data.dtype.kind == "f":
        return all(math.isclose(x, y, rel_tol=1e-5, abs_tol=1e-6)
                   for x, y in zip(data.ravel().tolist(), wanted.tolist(), strict=True))
    return bool((data.ravel() == wanted).all())
