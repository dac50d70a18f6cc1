"""Stand-ins for the parts of Triton and Ray that the adapters call, for tests without either.

Run as a program, this serves a model repository as Triton would, prints the answers to requests on
its standard input, one JSON list of samples a line, and ends. It is a program of its own because
the model ends its process with its parent's.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import numpy as np


class Handle:
    """Handle of a deployment of Ray with one replica, in a thread for each call."""

    def __init__(self, replica: Any) -> None:
        self._replica = replica

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._replica, name)

        async def remote(*arguments: Any) -> Any:
            if asyncio.iscoroutinefunction(method):
                return await method(*arguments)
            return await asyncio.to_thread(method, *arguments)

        return type("Method", (), {"remote": staticmethod(remote)})


class Tensor:
    """Tensor of Triton."""

    def __init__(self, name: str, array: np.ndarray[Any, Any]) -> None:
        self.name, self.array = name, array

    @classmethod
    def from_dlpack(cls, name: str, array: np.ndarray[Any, Any]) -> Tensor:
        return cls(name, array)

    def as_numpy(self) -> np.ndarray[Any, Any]:
        return self.array


class Request:
    """Request of Triton, whose answer comes to a queue."""

    def __init__(self, samples: list[list[float]], answers: SimpleQueue[Any]) -> None:
        self.inputs, self._answers = [Tensor("x", np.array(samples, np.float32))], answers

    def get_response_sender(self) -> Request:
        return self

    def send(self, response: Any, flags: int) -> None:
        self._answers.put(response)

    def is_cancelled(self) -> bool:
        return False

    def parameters(self) -> str:
        return json.dumps({"deadline_ms": 60_000})

    def timeout(self) -> int:
        return 0


def stand_in() -> None:
    """Put modules in the place of those that Triton's Python backend has."""
    utils = ModuleType("triton_python_backend_utils")
    utils.__dict__.update(
        Tensor=Tensor, TritonModelException=type("TritonModelException", (Exception,), {}),
        TritonError=type("TritonError", (), {
            "__init__": lambda self, text, code: setattr(self, "text", text),
            **{name: k for k, name in enumerate(("INVALID_ARG", "INTERNAL", "UNAVAILABLE",
                                                 "CANCELLED"))}}),
        InferenceResponse=lambda tensors, error=None: (tensors, error),
        get_input_tensor_by_name=lambda request, name: next(
            tensor for tensor in request.inputs if tensor.name == name),
        TRITONSERVER_RESPONSE_COMPLETE_FINAL=1)
    backend = ModuleType("c_python_backend_utils")
    backend.__dict__["async_event_future_done_callback"] = None
    sys.modules[utils.__name__], sys.modules[backend.__name__] = utils, backend


def arguments_of(repository: Path, name: str) -> Mapping[str, str]:
    """What Triton passes to a model's ``initialize``, read from its ``config.pbtxt``."""
    text = (repository / name / "config.pbtxt").read_text()
    tensors = {kind: [
        {"name": tensor, "data_type": data_type, "dims": [int(size) for size in dims.split(",")]}
        for tensor, data_type, dims in re.findall(
            r'name: "(\w+)" data_type: (\w+) dims: \[ ([\d, ]+) \]', body)]
        for kind, body in re.findall(r"^(input|output) \[\n(.*?)^\]", text, re.M | re.S)}
    parameters = {key: {"string_value": value} for key, value in re.findall(
        r'key: "(\w+)" value: \{ string_value: "(.*?)" \}', text)}
    config = {**tensors, "parameters": parameters, "instance_group": [{"count": 1}]}
    return {"model_name": name, "model_repository": str(repository / name),
            "model_version": "1", "model_config": json.dumps(config)}


def main(repository: str, name: str) -> None:
    """Print the outputs of each request, by name, or the error."""
    stand_in()
    from ramsis.serving.triton import TritonPythonModel

    model = TritonPythonModel()
    try:
        model.initialize(arguments_of(Path(repository), name))
    except Exception as error:
        print(json.dumps(str(error)))
        return
    for line in sys.stdin:
        answers = SimpleQueue[Any]()
        model.execute([Request(json.loads(line), answers)])
        tensors, error = answers.get(timeout=30)
        print(json.dumps(error.text if error is not None else {
            tensor.name: [value.decode() if isinstance(value, bytes) else value
                          for value in tensor.array.ravel().tolist()] for tensor in tensors}))
    model.finalize()


if __name__ == "__main__":
    main(*sys.argv[1:])
