"""Requests and answers of the Open Inference Protocol over HTTP: parsing and encoding.

A request is a JSON document, optionally followed by data of tensors as bytes (the *binary tensor
data extension*): the header ``Inference-Header-Content-Length`` is the length of the document.
Data are in the order of the inputs, little-endian, row by row. The first dimension of every input
is the number of queries. An answer has the same form.

The deadline is the first of these: the parameter ``deadline_ms``; ``timeout``, in microseconds, as
Triton's clients send it; the header ``X-Deadline-Ms``; the SLO.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from ramsis.errors import POSITIVE, InvalidValueError, Rule
from ramsis.serving.tensors import MOST_QUERIES, TensorSpec

_MOST_PARTS = 30_000  # lists and objects, which take more memory and time than numbers
_LONGEST_ID = 1024  # characters of the id, which the answer repeats
_LONG = 1 << 16  # size in bytes from which a document's values are counted before parsing
_SHORT, _HEADS = 1 << 11, 256  # largest size in bytes, and number, of cached documents
# Kinds of NumPy arrays that JSON numbers make, and that data types take; whole numbers, else.
_KINDS = {"BOOL": "b", **dict.fromkeys(("FP16", "FP32", "FP64"), "fiu")}


class RequestLimits(NamedTuple):
    """Limits that a server puts on an inference request."""

    queries: int = MOST_QUERIES  # largest number of queries
    json_bytes: int = 1 << 22  # largest JSON document
    wait_ms: float = 600_000.0  # longest deadline
    size: int = 1  # largest size


class InferRequest(NamedTuple):
    """Inference request that has been parsed and checked."""

    id: str  # id that the answer repeats; empty without one
    inputs: list[NDArray[Any]]  # arrays of shape (n, …) in the order of the model's inputs
    queries: int  # n, >= 1
    deadline_ms: float | None  # relative to the arrival; None for the SLO
    outputs: dict[str, bool]  # requested outputs by name, and whether to send them as bytes
    parameters: Mapping[str, Any] = {}


class Answer(NamedTuple):
    """Answer to an inference request."""

    outputs: Mapping[str, NDArray[Any]]  # arrays of shape (n, …) by name
    parameters: Mapping[str, Any]  # records of how the queries were served
    finish_ms: float = math.nan  # end of its last batch, on the front end's clock


_LIMITS = RequestLimits()


def parse_request(
    body: bytes, header_length: str | None, deadline: str | None, inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec], limits: RequestLimits = _LIMITS,
) -> InferRequest:
    """Parse and check a request.

    ``body`` is that of the HTTP request; ``header_length`` and ``deadline`` are its headers
    ``Inference-Header-Content-Length`` and ``X-Deadline-Ms``, if any; ``inputs`` and ``outputs``
    are the tensors of the model.
    """
    length: int | None = len(body)
    if header_length is not None:
        length = whole_number(header_length)
    if length is None or length > len(body):
        raise _wrong("Inference-Header-Content-Length", "not a length within the body",
                     header_length, allowed=f"0 to {len(body)}")
    read = _read_again if length <= _SHORT and length < len(body) else _read
    head = read(body[:length], len(body) - length, deadline, tuple(inputs), tuple(outputs), limits)
    arrays = [part if isinstance(part, np.ndarray) else
              np.frombuffer(body, part.dtype, part.numbers, length + part.start)
              .reshape(part.shape) for part in head.parts]
    return InferRequest(head.id, arrays, len(arrays[0]), head.deadline_ms, head.outputs,
                        head.parameters)


class _Bytes(NamedTuple):
    """Position of a tensor's data in the bytes after the document."""

    start: int
    numbers: int
    shape: list[int]
    dtype: np.dtype[Any]


class _Head(NamedTuple):
    """Parsed JSON head, shared by all requests with the same document."""

    id: str
    parts: list[NDArray[Any] | _Bytes]
    deadline_ms: float | None
    outputs: dict[str, bool]
    parameters: Mapping[str, Any]


def _read(
    text: bytes, byte_count: int, deadline: str | None, inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...], limits: RequestLimits,
) -> _Head:
    """Parse and check a JSON document that ``byte_count`` bytes follow."""
    if len(text) > limits.json_bytes:
        raise _wrong("body", "a JSON document that is too long", len(text),
                     allowed=f"up to {limits.json_bytes} bytes; tensors may follow it as bytes")
    # Count before parsing: a document with many small parts takes far more memory than its size.
    if text.count(b"[") + text.count(b"{") > _MOST_PARTS:
        raise _wrong("body", "too many lists and objects", allowed=f"up to {_MOST_PARTS}")
    if len(text) > _LONG:
        most = limits.queries * sum(math.prod(spec.at(limits.size).shape) for spec in inputs)
        if text.count(b",") > most + _MOST_PARTS:
            raise _wrong("body", "too many values",
                         allowed=f"up to {most}, for {limits.queries} queries")
    try:
        document = orjson.loads(text)
    except ValueError as error:
        raise _wrong("body", f"not JSON ({error})") from None
    _check_object(document, "body")
    request_id = document.get("id", "")
    if not isinstance(request_id, str) or len(request_id) > _LONGEST_ID:
        raise _wrong("id", "not a text", request_id, allowed=f"up to {_LONGEST_ID} characters")
    parameters = document.get("parameters", {})
    _check_object(parameters, "parameters")
    deadline_ms = stated_deadline_ms(parameters, deadline, limits.wait_ms)
    parts = _inputs(document.get("inputs"), inputs, byte_count, limits.queries)
    return _Head(request_id, parts, deadline_ms,
                 _outputs(document.get("outputs"), parameters, outputs), parameters)


# Cached, as clients that send data as bytes repeat the same document.
_read_again = lru_cache(maxsize=_HEADS)(_read)


def _wrong(where: str, what: str, *value: object, allowed: str | None = None) -> InvalidValueError:
    if value:
        return InvalidValueError(what, where=where, value=value[0], allowed=allowed)
    return InvalidValueError(what, where=where, allowed=allowed)


def _check_object(value: object, where: str) -> None:
    if not isinstance(value, dict):
        raise _wrong(where, "not an object", value, allowed="a JSON object")


def whole_number(text: str) -> int | None:
    """Parse a non-negative integer from a header; None for anything else.

    >>> whole_number("0012"), whole_number("-1"), whole_number("9" * 5000)
    (12, None, None)
    """
    digits = text.lstrip("0") or text[:1]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None


def _inputs(
    tensors: object, specs: Sequence[TensorSpec], byte_count: int, most: int
) -> list[NDArray[Any] | _Bytes]:
    """Return the data of the inputs, in the model's order.

    ``byte_count`` bytes follow the document; a request has at most ``most`` queries.
    """
    names = [spec.name for spec in specs]
    if not isinstance(tensors, list) or not tensors:
        raise _wrong("inputs", "not a list of tensors", tensors, allowed=f"the inputs {names}")
    by_name = {spec.name: spec for spec in specs}
    parts: dict[str, NDArray[Any] | _Bytes] = {}
    queries, start = set[int](), 0  # numbers of queries, and where the next binary data begin
    for i, tensor in enumerate(tensors):
        where = f"inputs[{i}]"
        _check_object(tensor, where)
        name = tensor.get("name")
        if not isinstance(name, str) or name not in by_name or name in parts:
            raise _wrong(f"{where}.name", "not an input of the model, each once", name,
                         allowed=", ".join(names))
        part = parts[name] = _part(tensor, by_name[name], where, start, byte_count, most)
        queries.add(part.shape[0])
        if isinstance(part, _Bytes):
            start += part.numbers * part.dtype.itemsize
    if byte_count > start:
        raise _wrong("body", "bytes after the data of the inputs", byte_count - start, allowed="0")
    missing = [name for name in names if name not in parts]
    if missing:
        raise _wrong("inputs", "inputs are missing", missing)
    if len(queries) > 1:
        raise _wrong("inputs", "inputs for different numbers of queries",
                     [parts[name].shape[0] for name in names])
    return [parts[name] for name in names]


def _part(
    tensor: Mapping[str, Any], spec: TensorSpec, where: str, start: int, byte_count: int, most: int
) -> NDArray[Any] | _Bytes:
    """Return the data of a tensor, or their position in the bytes after the document.

    Binary data of the tensor begin at the byte ``start`` of ``byte_count``.
    """
    if tensor.get("datatype") != spec.datatype:
        raise _wrong(f"{where}.datatype", "not the input's type", tensor.get("datatype"),
                     allowed=spec.datatype)
    shape = tensor.get("shape")
    # Compare types, as Python's booleans are integers.
    if not isinstance(shape, list) or any(type(n) is not int for n in shape) \
            or not shape or not 1 <= shape[0] < 2**31 or not spec.fits(shape[1:]):
        raise _wrong(f"{where}.shape", "not the input's shape", shape,
                     allowed=str(["n", *spec.shape]))
    if shape[0] > most:
        raise _wrong(f"{where}.shape", "more queries than the server holds", shape[0],
                     allowed=f"up to {most}")
    parameters = tensor.get("parameters", {})
    _check_object(parameters, f"{where}.parameters")
    if "binary_data_size" in parameters:
        size = parameters["binary_data_size"]
        size_needed = math.prod(shape) * spec.dtype.itemsize
        if type(size) is not int or size != size_needed:
            raise _wrong(f"{where}.parameters.binary_data_size", "not the size of the tensor",
                         size, allowed=str(size_needed))
        if byte_count - start < size:
            raise _wrong("body", "data of the inputs end early", byte_count - start,
                         allowed=str(size))
        return _Bytes(start, math.prod(shape), shape, spec.dtype.newbyteorder("<"))
    if "data" not in tensor:
        raise _wrong(where, "a tensor without data", allowed="data or binary_data_size")
    numbers = _flat(tensor["data"], math.prod(shape), spec, where)
    return _from_json(numbers, spec, where).reshape(shape)


def _flat(values: Any, count: int, spec: TensorSpec, where: str) -> list[Any]:
    """Flatten a nested list of ``count`` numbers; refuse texts before NumPy allocates memory."""
    flat: list[Any] = values
    good = type(flat) is list
    while good and flat and type(flat[0]) is list:
        good = set(map(type, flat)) == {list} and len(set(map(len, flat))) == 1
        flat = list(chain.from_iterable(flat)) if good else flat
    if good and len(flat) != count:
        raise _wrong(f"{where}.data", "not as many numbers as the shape says", len(flat),
                     allowed=str(count))
    if not good or not set(map(type, flat)) <= {int, float, bool}:
        raise _wrong(f"{where}.data", "not numbers of the input's type", values,
                     allowed=f"a list of {spec.datatype}")
    return flat


def _from_json(values: list[Any], spec: TensorSpec, where: str) -> NDArray[Any]:
    try:
        plain = np.asarray(values)
        good = plain.dtype.kind in _KINDS.get(spec.datatype, "iu")
        if good and spec.datatype not in _KINDS:
            limits = np.iinfo(spec.dtype)
            good = plain.size == 0 or (plain.min() >= limits.min and plain.max() <= limits.max)
        with np.errstate(over="ignore"):
            array = plain.astype(spec.dtype) if good else plain
    except (ValueError, TypeError, OverflowError):
        good = False
    if not good:
        raise _wrong(f"{where}.data", "not numbers of the input's type", values,
                     allowed=f"a list of {spec.datatype}")
    return array


def stated_deadline_ms(
    parameters: Mapping[str, Any], header: str | None, most_ms: float
) -> float | None:
    """Return the deadline that a request states; None for the SLO."""
    if "deadline_ms" in parameters:
        return _time(parameters["deadline_ms"], "parameters.deadline_ms", POSITIVE, most_ms)
    if parameters.get("timeout"):
        return _time(parameters["timeout"], "parameters.timeout", POSITIVE,
                     1000.0 * most_ms) / 1000.0
    if header is not None:
        try:
            value: object = float(header)
        except ValueError:
            value = header
        return _time(value, "X-Deadline-Ms", POSITIVE, most_ms)
    return None


def _time(value: object, where: str, rule: Rule, most: float) -> float:
    number = rule.number(value)
    if number is None or number > most:
        raise _wrong(where, "not a length of time", value,
                     allowed=f"{rule.allowed}, up to {most:g}")
    return number


def _outputs(
    outputs: object, parameters: Mapping[str, Any], specs: Sequence[TensorSpec]
) -> dict[str, bool]:
    """Return the requested outputs, and whether to send them as bytes."""
    default = parameters.get("binary_data_output", False)
    if not isinstance(default, bool):
        raise _wrong("parameters.binary_data_output", "not a truth value", default)
    if outputs is None or outputs == []:
        return {spec.name: default for spec in specs}
    if not isinstance(outputs, list):
        raise _wrong("outputs", "not a list", outputs)
    names = [spec.name for spec in specs]
    binary_of: dict[str, bool] = {}
    for i, output in enumerate(outputs):
        _check_object(output, f"outputs[{i}]")
        name = output.get("name")
        if not isinstance(name, str) or name not in names or name in binary_of:
            raise _wrong(f"outputs[{i}].name", "not an output of the model, each once", name,
                         allowed=", ".join(names))
        options = output.get("parameters", {})
        _check_object(options, f"outputs[{i}].parameters")
        if options.get("classification"):
            raise _wrong(f"outputs[{i}].parameters.classification", "not served",
                         options["classification"])
        binary = options.get("binary_data", default)
        if not isinstance(binary, bool):
            raise _wrong(f"outputs[{i}].parameters.binary_data", "not a truth value", binary)
        binary_of[name] = binary
    return binary_of


def answer_body(
    name: str, request: InferRequest, answer: Answer, specs: Sequence[TensorSpec]
) -> tuple[bytes, int | None]:
    """Encode the body of an answer; return it, and the length of its JSON if bytes follow."""
    outputs, data = [], []
    for spec in specs:
        if spec.name not in request.outputs:
            continue
        array = answer.outputs[spec.name]
        output: dict[str, Any] = {"name": spec.name, "datatype": spec.datatype,
                                  "shape": list(array.shape)}
        if request.outputs[spec.name]:
            data.append(np.ascontiguousarray(array, spec.dtype.newbyteorder("<")).tobytes())
            output["parameters"] = {"binary_data_size": len(data[-1])}
        else:
            output["data"] = array.ravel().tolist()
        outputs.append(output)
    document: dict[str, Any] = {"model_name": name, "model_version": "1"}
    if request.id:
        document["id"] = request.id
    document["parameters"], document["outputs"] = answer.parameters, outputs
    head = orjson.dumps(document)
    return (b"".join((head, *data)), len(head)) if data else (head, None)
