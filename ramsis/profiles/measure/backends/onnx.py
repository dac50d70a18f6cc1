"""ONNX files, run by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InputFileError, InvalidValueError, check_known
from ramsis.logs.sizes import unit_of_size
from ramsis.profiles.measure.backends.backend import (
    Backend,
    LoadedModel,
    Options,
    library,
    unknown_model,
)

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_TYPES = {f"tensor({name})": kind for name, kind in (
    ("float", np.float32), ("double", np.float64), ("float16", np.float16), ("int64", np.int64),
    ("int32", np.int32), ("int8", np.int8), ("uint8", np.uint8), ("bool", np.bool_))}

_ANY = -1  # in the place of the size of a request, in shapes

Inputs = dict[str, NDArray[Any]]


class Onnx(Backend):
    """Back end whose models are ``.onnx`` files, named after the file without its ending."""

    libraries: tuple[str, ...] = ("onnxruntime",)

    def __init__(self, options: Options) -> None:
        self._runtime = library("onnxruntime", "measure")
        self._options = options
        self._provider = _PROVIDERS[options.seen_device()]
        available = self._runtime.get_available_providers()
        if self._provider not in available:
            raise InvalidValueError("ONNX Runtime has no provider for it", where="device",
                                    value=options.device, allowed=", ".join(available))
        self.hardware: Mapping[str, object] = {"execution_provider": self._provider}
        self.notes = {
            "latency": "wall time of one onnxruntime run on random input",
            "load_ms": "time to create the session",
            "memory_mb": "size of the ONNX file in 10^6 bytes",
        }

    def name(self, model: str) -> str:
        """Return the file's stem, the name in the profile; refuse a file that does not exist."""
        path = Path(model)
        if not path.is_file():
            beside = path.parent.glob("*.onnx") if path.parent.is_dir() else ()
            raise unknown_model("ONNX file", model, map(str, beside))
        return path.stem

    def open(self, model: str) -> LoadedModel:
        """Load an ONNX file."""
        settings = self._runtime.SessionOptions()
        settings.intra_op_num_threads = self._options.threads
        settings.inter_op_num_threads = 1
        # Errors only: of outputs that have another shape than the file states, as exported models
        # often have, it would warn in every run, and writing that takes longer than a small model.
        settings.log_severity_level = 3
        try:
            session = self._runtime.InferenceSession(model, settings, providers=[self._provider])
        except Exception as error:  # onnxruntime's own errors share no other class
            reason = " ".join(str(error).split())[:200]
            raise InputFileError(f"ONNX Runtime cannot load the file ({reason})",
                                 where=model) from error
        options, inputs = self._options, session.get_inputs()
        sized = None if options.size_dimension is None else _size_dimension(
            inputs, options.size_dimension, options.dimensions, model)
        fixed = options.dimensions if sized is None else {**options.dimensions, sized: _ANY}
        for entry in inputs:
            check_known(f"input {entry.name!r} has a type that no input is made for", entry.type,
                        _TYPES, model)
        entries = {entry.name: (_shape(entry, fixed, model), _TYPES[entry.type])
                   for entry in inputs}
        rng = np.random.default_rng(0)
        known = [entry.name for entry in session.get_outputs()]
        for name in options.outputs:
            check_known("no such output", name, known, model)
        outputs = list(options.outputs) or known
        return LoadedModel(
            prepare=partial(_inputs, entries, rng),
            run=partial(session.run, outputs),
            input_shape={name: ["batch", *("size" if size == _ANY else size for size in shape)]
                         for name, (shape, _) in entries.items()},
            memory_mb=Path(model).stat().st_size / 1e6,
            inputs={name: (np.dtype(kind).name, tuple(shape))
                    for name, (shape, kind) in entries.items()},
            feed=dict,
            fetch=lambda answer: dict(zip(outputs, answer, strict=True)),
            prepare_sizes=None if sized is None else partial(_inputs_of, entries, rng),
            size_unit="units" if sized is None else unit_of_size(sized),
        )


def _size_dimension(
    inputs: Sequence[Any], wanted: str, fixed: Mapping[str, int], model: str
) -> str:
    """Return the dimension that is the size of a request: the one wanted, or the only free one."""
    free = list(dict.fromkeys(
        str(dimension) for entry in inputs for dimension in entry.shape[1:]
        if not isinstance(dimension, int) and str(dimension) not in fixed))
    if wanted and wanted not in free:
        raise InvalidValueError("no input has such a dimension of no fixed size",
                                where="--size-dim", value=wanted, allowed=", ".join(free) or None)
    if not wanted and len(free) != 1:
        raise InvalidValueError(
            "several dimensions have no fixed size" if free else
            "all dimensions have a fixed size, so that requests have one size", where=model,
            value=", ".join(free) or None,
            allowed="--size-dim with one of these, and --dim NAME=SIZE for the others" if free
            else "a model exported with a dynamic axis for the size")
    return wanted or free[0]


def _shape(entry: Any, sizes: Mapping[str, int], model: str) -> list[int]:
    """Return the sizes of an input's dimensions after the first, which is the batch's."""
    shape = []
    for dimension in entry.shape[1:]:
        size = dimension if isinstance(dimension, int) else sizes.get(str(dimension))
        if size is None:
            raise InvalidValueError(f"input {entry.name!r} has a dimension of no fixed size",
                                    where=model, value=dimension,
                                    allowed=f"--dim {dimension}=SIZE")
        shape.append(size)
    return shape


def _inputs_of(
    entries: Mapping[str, tuple[list[int], Any]], rng: np.random.Generator, sizes: Sequence[int]
) -> Inputs:
    """Draw inputs of requests with these sizes, padded by zeros; masks are 1 up to the size."""
    longest = max(sizes)
    shapes = {name: ([longest if size == _ANY else size for size in shape], kind)
              for name, (shape, kind) in entries.items()}
    arrays = _inputs(shapes, rng, len(sizes))
    within = np.arange(longest) < np.asarray(sizes)[:, None]
    for name, (shape, _) in entries.items():
        if "mask" in name.lower():
            arrays[name][...] = 1
        for axis in [i for i, size in enumerate(shape, 1) if size == _ANY]:
            mask = within.reshape([len(sizes)] + [longest if i == axis else 1
                                                  for i in range(1, len(shape) + 1)])
            arrays[name] *= mask.astype(arrays[name].dtype)
    return arrays


def _inputs(
    entries: Mapping[str, tuple[list[int], Any]], rng: np.random.Generator, batch: int
) -> Inputs:
    """Draw inputs: normal numbers, or 0 and 1 for integers, which ids and masks both allow."""
    return {
        name: (rng.standard_normal((batch, *shape)) if np.issubdtype(kind, np.floating)
               else rng.integers(0, 2, (batch, *shape))).astype(kind)
        for name, (shape, kind) in entries.items()
    }
