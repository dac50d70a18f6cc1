"""Program of a worker process: loads all variants, and runs batches.

The front end starts it as ``python -m ramsis.serving.workers.worker FILE``, where FILE is its end
of a socket pair. It reports the tensors of the variants, gets the shared memory, runs each variant
a few times as a warm-up, reports that it is ready, and then runs batch by batch. It exits when the
front end has closed the socket.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402 - the threads are set first
from numpy.typing import NDArray  # noqa: E402

from ramsis.errors import InputFileError  # noqa: E402
from ramsis.plugins import trust  # noqa: E402
from ramsis.profiles.measure.backends import (  # noqa: E402
    LoadedModel,
    ModelLostError,
    Options,
    open_backend,
)
from ramsis.serving.tensors import (  # noqa: E402
    ANY,
    TensorSpec,
    datatype_of,
    specs_from_json,
    specs_to_json,
)
from ramsis.serving.workers.messages import (  # noqa: E402  # noqa: E402
    Block,
    Ended,
    RunBatch,
    arrays_in,
    framed,
    receive,
    receive_json,
    send_json,
    size_of,
)

_WARM_SIZE = 16  # request size of warm-up batches, as the largest may take long

Arrays = Mapping[str, NDArray[Any]]


class Runner:
    """Runner of a worker's loaded variants.

    ``variants`` are name, back end, model and options of each, as JSON-serialisable values;
    ``inputs`` the input tensors in the variants file, empty if not stated; ``max_size`` the
    largest size of a request.
    """

    def __init__(
        self, variants: Sequence[Mapping[str, Any]], inputs: Sequence[TensorSpec],
        max_size: int = 1,
    ) -> None:
        self.max_size = max_size
        self.models: list[LoadedModel] = []
        # Tensors, which are equal for all variants.
        self.inputs, self.outputs = tuple(inputs), tuple[TensorSpec, ...]()
        for number, variant in enumerate(variants):
            where = f"variant {variant['name']}"
            model = _opened(variant, where)
            specs = _stated(model) or self.inputs
            if not specs:
                raise InputFileError("its inputs are not known", where=where,
                                     allowed="[[inputs]] in the variants file")
            self.inputs = self.inputs or specs
            _same(specs, self.inputs, f"{where}: inputs")
            self.models.append(model)
            outputs = self._outputs(model, where)
            self.outputs = self.outputs or outputs
            if number:
                _same(outputs, self.outputs, f"{where}: outputs")

    def _outputs(self, model: LoadedModel, where: str) -> tuple[TensorSpec, ...]:
        """Determine the output tensors from a batch of 1."""
        answer = self._answer(model, where, self.max_size)
        if any(ANY in spec.shape for spec in self.inputs) and self.max_size > 1:
            shorter = self._answer(model, where, self.max_size - 1)
            for name, array in answer.items():
                if shorter[name].shape != array.shape:
                    raise InputFileError("an output whose shape depends on the size",
                                         where=f"{where}: {name}", value=array.shape,
                                         allowed="outputs that do not, as by outputs = [NAME] in "
                                         "the variants file")
        for name, array in answer.items():
            if array.ndim < 1 or array.shape[0] != 1:
                raise InputFileError("an output without the batch's dimension",
                                     where=f"{where}: {name}", value=array.shape,
                                     allowed="(batch, …)")
        return tuple(TensorSpec(name, datatype_of(array, f"{where}: {name}"), array.shape[1:])
                     for name, array in answer.items())

    def _answer(self, model: LoadedModel, where: str, size: int) -> Arrays:
        """Return the outputs of a batch of one request of a size."""
        blank = {spec.name: np.zeros((1, *spec.at(size).shape), spec.dtype)
                 for spec in self.inputs}
        try:
            return model.fetch(model.run(model.feed(blank)))
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise InputFileError(f"it does not run ({reason})", where=where) from error

    def run(self, batch: RunBatch, inputs: Arrays, outputs: Arrays) -> None:
        """Run a batch, and write its outputs to the first rows of ``outputs``."""
        model, count = self.models[batch.variant], len(batch.slots)
        rows = [*batch.slots, *[batch.slots[-1]] * (batch.run_as - count)]
        if batch.longest:
            places = {spec.name: tuple(slice(batch.longest) if n == ANY else slice(None)
                                       for n in spec.shape) for spec in self.inputs}
            fed = {name: array[rows, *places[name]] for name, array in inputs.items()}
        else:
            fed = {name: array[rows] for name, array in inputs.items()}
        answer = model.fetch(model.run(model.feed(fed)))
        for spec in self.outputs:
            output = answer[spec.name]
            if output.shape != (batch.run_as, *spec.shape):
                raise ValueError(f"output {spec.name} has the shape {output.shape}")
            outputs[spec.name][:count] = output[:count]


def _opened(variant: Mapping[str, Any], where: str) -> LoadedModel:
    options = dict(variant["options"])
    options["outputs"] = tuple(options["outputs"])
    try:
        return open_backend(variant["backend"], Options(**options)).open(variant["model"])
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise InputFileError(f"{where}: not loaded: {reason}") from error


def _stated(model: LoadedModel) -> tuple[TensorSpec, ...]:
    """Return the specifications of the inputs that a model declares."""
    return tuple(TensorSpec(name, datatype_of(np.empty(0, kind), name), tuple(shape))
                 for name, (kind, shape) in (model.inputs or {}).items())


def _same(specs: Sequence[TensorSpec], first: Sequence[TensorSpec], where: str) -> None:
    if tuple(specs) != tuple(first):
        raise InputFileError("not those of the first variant", where=where,
                             value=specs_to_json(specs), allowed=str(specs_to_json(first)))


def serve(channel: socket.socket) -> None:
    """Load the variants and run batches until the front end closes the socket.

    It raises :class:`EOFError` or :class:`ConnectionError` then. If a variant cannot be loaded or
    run, it reports this and returns.
    """
    config, _ = receive_json(channel)
    _settle(config)
    try:
        runner = Runner(config["variants"], specs_from_json(config["inputs"]), config["max_size"])
    except Exception as error:
        send_json(channel, {"failed": " ".join(str(error).split())})
        return
    send_json(channel, {"inputs": specs_to_json(runner.inputs),
                        "outputs": specs_to_json(runner.outputs)})
    sizes, files = receive_json(channel)
    slots, most = sizes["slots"], sizes["max_batch"]
    specs = [spec.at(runner.max_size) for spec in runner.inputs]
    inputs = arrays_in(Block(size_of(specs, slots), files[0]), specs, slots)
    outputs = arrays_in(Block(size_of(runner.outputs, most), files[1]), runner.outputs, most)
    blank = {spec.name: np.zeros((1, *spec.shape), spec.dtype) for spec in specs}
    shortest = min(runner.max_size, _WARM_SIZE) if specs != list(runner.inputs) else 0
    for variant, batch in config["warm_up"]:
        ended = run_timed(runner, RunBatch(0, variant, batch, [0] * batch, shortest), blank,
                          outputs)
        if ended.error:
            name = config["variants"][variant]["name"]
            send_json(channel, {"failed": f"variant {name}: a batch of {batch} does not run: "
                                          f"{ended.error}"})
            return
    send_json(channel, {"ready": True})
    while True:
        batch_to_run = RunBatch.unpacked(receive(channel))
        channel.sendall(framed(run_timed(runner, batch_to_run, inputs, outputs).packed()))


def run_timed(runner: Runner, batch: RunBatch, inputs: Arrays, outputs: Arrays) -> Ended:
    """Run a batch, and return the message with its time or its error."""
    begun = time.perf_counter()
    try:
        runner.run(batch, inputs, outputs)
    except ModelLostError as error:
        return Ended(batch.number, 1000.0 * (time.perf_counter() - begun), str(error), lost=True)
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return Ended(batch.number, 1000.0 * (time.perf_counter() - begun), text)
    return Ended(batch.number, 1000.0 * (time.perf_counter() - begun))


def _settle(config: Mapping[str, Any]) -> None:
    """Apply the front end's configuration: core, memory limit, and folder of functions."""
    if config["core"] is not None and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {config["core"]})
    if config["memory_mb"] is not None:
        import resource

        most = int(config["memory_mb"] * 1e6)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    sys.path.append(config["folder"])
    trust(*config["trusted"])


def main() -> None:
    """Run as a worker process until the front end closes the socket."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)  # not for child processes of a model
    try:
        with contextlib.suppress(EOFError, ConnectionError):
            serve(channel)
    finally:
        channel.detach()  # closed on exit, so that the exit code is available soon after


if __name__ == "__main__":
    main()
