"""Models of another server, such as Triton, called by the Open Inference Protocol over HTTP.

Tensors travel as bytes where the server has the binary extension, else as JSON. Each opened model
has one connection, with one request at a time.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InvalidValueError
from ramsis.profiles.measure.backends.backend import (
    Backend,
    LoadedModel,
    ModelLostError,
    Options,
)

_ALLOWED = "http://HOST:PORT/v2/models/NAME"
_JSON_LENGTH = "Inference-Header-Content-Length"
# Numeric types of the protocol; texts (BYTES) and BF16 have no fixed type of NumPy.
_TYPES = {kind.upper().replace("FLOAT", "FP"): kind for kind in (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16",
    "float32", "float64")}
# Statuses of a server that has not got the model now, or takes no request. Others concern the
# batch: 400 a wrong tensor, 500 a model that fails on it.
_LOST = frozenset({404, 429, 502, 503, 504})
_NOT_FOUND = "unknown model"  # Triton answers 400 where a model is gone

Arrays = Mapping[str, NDArray[Any]]


class Upstream(Backend):
    """Back end whose models are URLs of a server, ``http://HOST:PORT/v2/models/NAME``."""

    def __init__(self, options: Options) -> None:
        if options.device != "cpu":
            raise InvalidValueError("the upstream chooses its device itself", where="device",
                                    value=options.device, allowed="cpu")
        self._options = options
        self.notes = {"latency": "from sending a batch to another server to its whole answer"}

    def name(self, model: str) -> str:
        """Return the model's name in the profile, the last part of the URL."""
        return unquote(_parts(model)[2].rpartition("/")[2])

    def open(self, model: str) -> LoadedModel:
        """Connect to the server, and read the tensors of its model."""
        connection = _Connection(model, self._options.timeout_s)
        # A server without the extension reads no bytes, and one without this page has none.
        with contextlib.suppress(InvalidValueError, KeyError):
            connection.binary = "binary_tensor_data" in connection.get("/v2")["extensions"]
        tensors = connection.get(connection.path)["inputs"]
        inputs = {tensor["name"]: _input(tensor, model) for tensor in tensors}
        fixed = all(size > 0 for _, shape in inputs.values() for size in shape)
        return LoadedModel(
            prepare=lambda batch: _drawn(inputs, batch, model),
            run=connection.infer,
            input_shape={name: ["batch", *shape] for name, (_, shape) in inputs.items()},
            inputs=inputs if fixed else None,
            feed=dict,
            fetch=dict,
        )


def _parts(model: str) -> tuple[str, str, str]:
    """Return scheme, authority and path of a model's URL."""
    try:
        parts = urlsplit(model)
        good = (parts.scheme in ("http", "https") and parts.hostname is not None
                and (parts.port is None or parts.port > 0))
    except ValueError:
        good = False
    path = parts.path.rstrip("/") if good else ""
    if not good or "/v2/models/" not in path or parts.query or parts.fragment:
        raise InvalidValueError("not the URL of a model", where="model", value=model,
                                allowed=_ALLOWED)
    return parts.scheme, parts.netloc.rpartition("@")[2], path


def _input(tensor: Mapping[str, Any], model: str) -> tuple[str, tuple[int, ...]]:
    """Return type and shape of an input; sizes that vary are -1."""
    where = f"{model}: input {tensor['name']}"
    if tensor["datatype"] not in _TYPES:
        raise InvalidValueError("a type that is not served", where=where,
                                value=tensor["datatype"], allowed=", ".join(_TYPES))
    shape = [int(size) for size in tensor["shape"]]
    if shape[:1] != [-1]:
        raise InvalidValueError("the model takes no batches", where=where, value=shape,
                                allowed="[-1, …]; in Triton max_batch_size above 0")
    return _TYPES[tensor["datatype"]], tuple(shape[1:])


def _drawn(
    inputs: Mapping[str, tuple[str, tuple[int, ...]]], batch: int, model: str
) -> dict[str, NDArray[Any]]:
    """Draw inputs: normal numbers, and 0 or 1 for whole numbers."""
    rng, arrays = np.random.default_rng(0), {}
    for name, (kind, shape) in inputs.items():
        if min(shape, default=1) < 1:
            raise InvalidValueError("an input of no fixed size", where=f"{model}: input {name}",
                                    value=list(shape), allowed="sizes above 0")
        size = (batch, *shape)
        arrays[name] = (rng.standard_normal(size) if kind.startswith("float")
                        else rng.integers(0, 2, size)).astype(kind)
    return arrays


class _Connection:
    """A connection to a model of another server, opened anew where it is lost."""

    def __init__(self, model: str, timeout_s: float) -> None:
        scheme, authority, self.path = _parts(model)
        kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
        self._http = kind(authority, timeout=timeout_s)
        self._url, self._timeout_s, self._used = model, timeout_s, False
        self.binary = False  # whether the server takes and gives tensors as bytes

    def __del__(self) -> None:
        """Close the connection with the model that it belongs to."""
        http_connection = getattr(self, "_http", None)  # none where the URL is wrong
        if http_connection is not None:
            http_connection.close()

    def get(self, path: str) -> dict[str, Any]:
        """Return the JSON document at a path of the server."""
        return self._document(self._ask("GET", path)[1])

    def infer(self, inputs: Arrays) -> dict[str, NDArray[Any]]:
        """Run a batch; return the outputs by name."""
        if self.binary:
            head = _head(tuple((name, array.shape, array.dtype.name)
                               for name, array in inputs.items()))
            # Little-endian, as on every machine that NumPy's wheels are made for.
            body = b"".join([head, *(np.ascontiguousarray(array).tobytes()
                                     for array in inputs.values())])
            headers = {_JSON_LENGTH: str(len(head))}
        else:
            body = json.dumps({"inputs": [
                {**_tensor(name, array.shape, array.dtype.name), "data": array.ravel().tolist()}
                for name, array in inputs.items()]}).encode()
            headers = {"Content-Type": "application/json"}
        length, content = self._ask("POST", self.path + "/infer", body, headers)
        end = len(content) if length is None else int(length)
        document, outputs = self._document(content[:end]), {}
        for tensor in document["outputs"]:
            if tensor["datatype"] not in _TYPES:
                raise self._failed(f"output {tensor['name']} is of type {tensor['datatype']}")
            kind, count = np.dtype(_TYPES[tensor["datatype"]]), math.prod(tensor["shape"])
            if "data" in tensor:
                array = np.array(tensor["data"], kind)
            else:
                array = np.frombuffer(content, kind, count, end)
                end += array.nbytes
            outputs[tensor["name"]] = array.reshape(tensor["shape"])
        return outputs

    def _ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[str | None, bytes]:
        """Send an HTTP request; return the header with the JSON length, if any, and the body."""
        while True:
            again, self._used = self._used, True
            try:
                self._http.request(method, path, body or None, dict(headers or {}))
                answer = self._http.getresponse()
                content = answer.read()
                break
            except TimeoutError:
                self._http.close()
                raise ModelLostError(
                    f"{self._url}: no answer within {self._timeout_s:g} s") from None
            except (OSError, http.client.HTTPException) as error:
                self._http.close()
                self._used = False
                # A server may close a connection that idles; a new one tells whether it is there.
                if again and isinstance(error, ConnectionError):
                    continue
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                raise ModelLostError(f"{self._url}: {reason}") from None
        if answer.status == 200:
            return answer.getheader(_JSON_LENGTH), content
        try:
            reason = str(json.loads(content)["error"])
        except (ValueError, KeyError, TypeError):
            reason = answer.reason
        text = f"status {answer.status}: {' '.join(reason.split())[:200]}"
        if answer.status in _LOST or _NOT_FOUND in reason.lower():
            raise ModelLostError(f"{self._url}: {text}")
        raise self._failed(text)

    def _document(self, content: bytes) -> dict[str, Any]:
        try:
            document: dict[str, Any] = json.loads(content)
        except ValueError:
            raise self._failed("an answer that is not JSON") from None
        return document

    def _failed(self, what: str) -> InvalidValueError:
        return InvalidValueError(what, where=self._url)


def _tensor(name: str, shape: tuple[int, ...], kind: str) -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": kind.upper().replace("FLOAT", "FP")}


@lru_cache(maxsize=256)
def _head(tensors: tuple[tuple[str, tuple[int, ...], str], ...]) -> bytes:
    """Return the document of a batch whose tensors follow as bytes; most batches share one."""
    return json.dumps({"parameters": {"binary_data_output": True}, "inputs": [
        {**_tensor(*tensor), "parameters": {
            "binary_data_size": math.prod(tensor[1]) * np.dtype(tensor[2]).itemsize}}
        for tensor in tensors]}).encode()
