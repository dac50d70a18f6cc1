"""Model for the Python backend of Triton Inference Server that serves by policies.

It is the server of ``ramsis serve`` with Triton's HTTP and gRPC as the front end. Requests are
queued and batched by table and deadline, and run on its worker processes. ``execute`` queues
requests and returns at once; answers are sent when ready. So one instance has all requests,
Triton's own batching is not used, and the model need not be *decoupled*: HTTP, gRPC and gRPC
streams all work. Triton supports this from 24.06 (2.47).

``ramsis export triton`` writes the model repository, whose ``model.py`` imports this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import c_python_backend_utils as backend
import numpy as np
import triton_python_backend_utils as triton
from numpy.typing import NDArray

from ramsis.errors import InputFileError, InvalidValueError, RamsisError
from ramsis.plugins import trust
from ramsis.runtime.dispatcher import DispatchSettings
from ramsis.serving.calls import Call, OverloadedError
from ramsis.serving.event_loop import event_loop
from ramsis.serving.policies import read_policies
from ramsis.serving.protocol import Answer, InferRequest, stated_deadline_ms
from ramsis.serving.server import Server, ServerSettings
from ramsis.serving.tensors import TensorSpec
from ramsis.serving.variants import read_variants

_OLD = "this Triton takes no answer after execute() has returned; allowed: 24.06 (2.47) or later"
_OTHER_NUMPY = (f"this Triton does not read arrays of NumPy {np.__version__}; "
                "allowed: numpy<2 in the Python of Triton")
_SETTINGS = ("policies", "variants", "code", "overhead_ms", "load_qps")
# Interpreter's switch interval: time that the dispatcher waits for the lock while requests are
# read; Python's default is 5 ms.
_SWITCH_S = 0.0005
_SENDERS = 4  # number of threads that send answers, as sending blocks until Triton has the answer
# Shell script with the processes of Triton and of the model as arguments.
_WATCH = "while kill -0 $1 && kill -0 $2; do sleep 1; done; kill -9 $2"
_CLIENTS_S = 0.1  # interval of checks for disconnected clients, and least age of checked requests


class _Taken(NamedTuple):
    """Request received from Triton, with the object that sends its answer."""

    request: InferRequest
    sender: Any
    arrival_ms: float


class _Sends:
    """Threads that send answers, as sending blocks until Triton has the answer.

    Answers are sent after the event loop's turn, when idle workers have their batches.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._ready: list[Callable[[], object]] = []
        # Answers that are held back while Triton checks their client.
        self._held: list[Callable[[], object]] = []
        self._asked: Any = None
        self._threads = [threading.Thread(target=self._run, daemon=True, name="ramsis-answers")
                         for _ in range(_SENDERS)]
        for thread in self._threads:
            thread.start()

    def add(self, sender: Any, send: Callable[[], object]) -> None:
        """Queue an answer for sending."""
        if sender is self._asked:
            self._held.append(send)
            return
        if not self._ready:
            self._loop.call_soon(self._hand_over)
        self._ready.append(send)

    async def is_cancelled(self, sender: Any) -> bool:
        """Return whether a client has disconnected; hold back its answer during the check.

        From 24.08 on Triton deletes the request with its answer, and would crash in the check.
        """
        self._asked, gone = sender, False
        with contextlib.suppress(triton.TritonModelException):  # Triton does not know
            gone = bool(await asyncio.to_thread(sender.is_cancelled))
        self._asked = None
        for send in self._held:
            self.add(sender, send)
        self._held.clear()
        return gone

    def stop(self) -> None:
        """Send the remaining answers, and end the threads."""
        self._hand_over()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _hand_over(self) -> None:
        for send in self._ready:
            self._queue.put(send)
        self._ready.clear()

    def _run(self) -> None:
        for send in iter(self._queue.get, None):
            with contextlib.suppress(triton.TritonModelException):  # Triton takes no more
                send()


class TritonPythonModel:
    """Model of Triton's Python backend."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the variants; raise a one-line error if this fails."""
        if not hasattr(backend, "async_event_future_done_callback"):
            raise triton.TritonModelException(_OLD)
        if not _reads_arrays():
            raise triton.TritonModelException(_OTHER_NUMPY)
        try:
            self._server = _server(args)
            self._start(args)
        except RamsisError as error:
            raise triton.TritonModelException(str(error)) from None

    def _start(self, args: Mapping[str, str]) -> None:
        """Run the server in an event loop in another thread."""
        sys.setswitchinterval(_SWITCH_S)
        _end_with_triton()
        begun = threading.Event()
        self._failed: RamsisError | None = None

        def run() -> None:
            with event_loop() as runner:
                runner.run(self._serve(args, begun))

        self._thread = threading.Thread(target=run, daemon=True, name="ramsis-dispatcher")
        self._thread.start()
        begun.wait()
        if self._failed is not None:
            self._thread.join()
            raise self._failed

    async def _serve(self, args: Mapping[str, str], begun: threading.Event) -> None:
        """Serve until :meth:`finalize`."""
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._asked: dict[Any, Call] = {}  # unanswered calls by Triton's response sender
        try:
            await self._server.start()
            _check(args, self._server)
        except RamsisError as error:
            self._failed = error
            return
        else:
            self._sends = _Sends()
        finally:
            begun.set()
        watch = self._loop.create_task(self._watch_clients())
        await self._stopping.wait()
        await watch
        await self._server.stop()
        self._sends.stop()

    def execute(self, requests: Sequence[Any]) -> None:
        """Queue requests; their answers are sent later."""
        arrival_ms, taken = self._server.front.now_ms(), []
        for request in requests:
            try:
                sender = request.get_response_sender()
            except triton.TritonModelException:
                raise triton.TritonModelException(_OLD) from None
            try:
                taken.append(_Taken(self._read(request), sender, arrival_ms))
            except InvalidValueError as error:
                _send(sender, _refusal(error, triton.TritonError.INVALID_ARG))
        self._loop.call_soon_threadsafe(self._take, taken)

    def finalize(self) -> None:
        """Drain waiting requests, and end the workers."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def _read(self, request: Any) -> InferRequest:
        arrays = [triton.get_input_tensor_by_name(request, spec.name).as_numpy().copy()
                  .reshape(-1, *spec.shape) for spec in self._server.pool.inputs]
        parameters = json.loads(request.parameters() or "{}")
        if request.timeout():
            parameters.setdefault("timeout", request.timeout())
        deadline_ms = stated_deadline_ms(parameters, None,
                                         1000.0 * self._server.settings.max_wait_s)
        if len({len(array) for array in arrays}) > 1:
            raise InvalidValueError("inputs for different numbers of queries", where="inputs",
                                    value=list(map(len, arrays)))
        return InferRequest("", arrays, len(arrays[0]), deadline_ms, {})

    def _take(self, taken: Sequence[_Taken]) -> None:
        for request in taken:
            tell = partial(self._answered, request)
            try:
                call = self._server.submit(request.request, request.arrival_ms, tell)
            except OverloadedError as error:
                tell(error)
            else:
                if call.queries:  # else it is over already
                    self._asked[request.sender] = call

    def _answered(self, taken: _Taken, result: Answer | RamsisError) -> None:
        """Pass the result of a request to a sending thread."""
        self._asked.pop(taken.sender, None)
        self._sends.add(taken.sender, partial(self._answer, taken.sender, result))

    def _answer(self, sender: Any, result: Answer | RamsisError) -> None:
        """Send the answer or the error; the time from the batch to the answer is overhead."""
        if isinstance(result, OverloadedError):
            _send(sender, _refusal(result, triton.TritonError.UNAVAILABLE))
        elif isinstance(result, RamsisError):
            _send(sender, _refusal(result, triton.TritonError.INTERNAL))
        else:
            server = self._server
            try:
                response = _response(result, server.pool.outputs, server.variants.described_by)
            except Exception as error:  # whatever a variant's outputs are, others are answered
                server.log("answer failed", error=repr(error))
                response = _refusal(error, triton.TritonError.INTERNAL)
            _send(sender, response)
            server.overhead.answered(server.front.now_ms() - result.finish_ms)

    async def _watch_clients(self) -> None:
        """Abandon the requests of disconnected clients."""
        while not self._stopping.is_set():
            await asyncio.sleep(_CLIENTS_S)
            before_ms = self._server.front.now_ms() - 1000.0 * _CLIENTS_S
            for sender, call in list(self._asked.items()):
                if (sender in self._asked and call.arrival_ms < before_ms
                        and await self._sends.is_cancelled(sender)
                        and self._asked.pop(sender, None) is not None):
                    self._server.abandon(call)
                    self._sends.add(sender, partial(_send, sender, _refusal(
                        "the client is gone", triton.TritonError.CANCELLED)))


def _end_with_triton() -> None:
    """Start a shell that ends this process, and so its workers, when Triton has ended.

    A thread could not, as sending an answer may hold Python's lock while it waits for Triton.
    """
    subprocess.Popen(["/bin/sh", "-c", _WATCH, "sh", str(os.getppid()), str(os.getpid())],
                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                     stderr=subprocess.DEVNULL, start_new_session=True)


def _reads_arrays() -> bool:
    """Return whether the backend supports NumPy 2; an old one reads wrong numbers."""
    if np.__version__.startswith("1."):
        return True
    sent = np.array([1.0, 2.0], np.float32)
    return bool((triton.Tensor.from_dlpack("probe", sent).as_numpy() == sent).all())


def _where(args: Mapping[str, str]) -> str:
    return f"{args['model_name']}/config.pbtxt"


def _server(args: Mapping[str, str]) -> Server:
    """Create the server by the settings in ``config.pbtxt``."""
    config, where = json.loads(args["model_config"]), _where(args)
    instances = sum(int(group.get("count", 1)) for group in config["instance_group"])
    if instances != 1:
        raise InputFileError("more than one dispatcher", where=f"{where}: instance_group",
                             value=instances, allowed="count: 1")
    parameters = {name: parameter["string_value"]
                  for name, parameter in config.get("parameters", {}).items()}
    missing = sorted({"policies", "variants"} - set(parameters))
    if missing:
        raise InputFileError("settings are missing", where=f"{where}: parameters", value=missing,
                             allowed=", ".join(_SETTINGS))
    folder = Path(args["model_repository"], args["model_version"])
    trust(*parameters.get("code", "").split())
    dispatch = DispatchSettings(timer_ms=1.0, load_qps=_number(parameters, "load_qps", where),
                                overhead_ms=_number(parameters, "overhead_ms", where) or 0.0)
    settings = ServerSettings(dispatch, pin=False,
                              measure_overhead="overhead_ms" not in parameters)
    variants = read_variants(folder / parameters["variants"])
    variants.refuse_sizes("Triton")
    return Server(read_policies(folder / parameters["policies"]), variants, settings)


def _number(parameters: Mapping[str, str], name: str, where: str) -> float | None:
    """Read a numeric setting; None if it is not stated."""
    try:
        return float(parameters[name]) if name in parameters else None
    except ValueError:
        raise InputFileError("not a number", where=f"{where}: {name}",
                             value=parameters[name]) from None


def _check(args: Mapping[str, str], server: Server) -> None:
    """Refuse variants whose tensors differ from ``config.pbtxt``."""
    config = json.loads(args["model_config"])
    stated = {tensor["name"]: (tensor["data_type"], [int(size) for size in tensor["dims"]])
              for tensor in config["input"]}
    expected = {spec.name: (f"TYPE_{spec.datatype}", list(spec.shape or (1,)))
                for spec in server.pool.inputs}
    if expected != stated:
        raise InputFileError("not the inputs of the variants",
                             where=f"{_where(args)}: input", value=stated,
                             allowed=f"{expected}; export once more")
    outputs = {tensor["name"] for tensor in config["output"]}
    texts = server.variants.described_by
    if not outputs.issuperset(texts):
        raise InputFileError("not the outputs of the variants",
                             where=f"{_where(args)}: output", value=sorted(outputs),
                             allowed=f"{', '.join(texts)} among them; export once more")


def _response(answer: Answer, specs: Sequence[TensorSpec], texts: Sequence[str]) -> Any:
    """Convert an answer to Triton's response, with the parameters in ``texts`` as outputs."""
    outputs = [triton.Tensor(spec.name, _column(answer.outputs[spec.name], spec))
               for spec in specs]
    for name in texts:
        values = [[value.encode()] for value in str(answer.parameters[name]).split(",")]
        outputs.append(triton.Tensor(name, np.array(values, object)))
    return triton.InferenceResponse(outputs)


def _column(array: NDArray[Any], spec: TensorSpec) -> NDArray[Any]:
    """Add the dimension besides the batch's that Triton requires, if it is missing."""
    return np.ascontiguousarray(array, spec.dtype).reshape(len(array), *(spec.shape or (1,)))


def _refusal(reason: object, code: Any) -> Any:
    return triton.InferenceResponse([], triton.TritonError(str(reason), code))


def _send(sender: Any, response: Any) -> None:
    sender.send(response, flags=triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
