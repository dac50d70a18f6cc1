"""Interface of back ends, their options and helpers, and the back end of any Python function.

Such a function, named ``module:function``, is called with the batch size, or with an input.
"""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InvalidValueError, install
from ramsis.plugins import own


class ModelLostError(ConnectionError):
    """Error of a model that cannot be reached now, whatever its input."""


MIG = "MIG-"
"""What the names of MIG instances begin with."""


@dataclass(frozen=True)
class Options:
    """Options of back ends; each refuses those that do not apply."""

    threads: int = 1  # threads of one run, from 1
    device: str = "cpu"  # ``"cpu"``, ``"cuda"``, or the name of a MIG instance, ``"MIG-UUID"``
    # sizes of an ONNX model's named dimensions, the batch's aside
    dimensions: Mapping[str, int] = field(default_factory=dict)
    tokens: int = 128  # length of the texts, from 1
    # ``module:function`` that makes the input of a callable, given the batch size
    inputs: str | None = None
    # dimension of an ONNX model's inputs that is the size of a request; empty where it is the
    # only one of no fixed size. None: models are run without sizes
    size_dimension: str | None = None
    outputs: tuple[str, ...] = ()  # outputs of an ONNX model to compute; all by default
    # file of trained weights for PyTorch back ends, as ``torch.save(model.state_dict(), …)``
    # makes them; random ones by default, which are as fast
    weights: str | None = None
    timeout_s: float = 10.0  # longest answer of an upstream

    def seen_device(self) -> str:
        """Return ``"cpu"`` or ``"cuda"``; make a MIG instance the only GPU that CUDA sees.

        Has to be called before CUDA starts.
        """
        if not self.device.startswith(MIG):
            return self.device
        os.environ["CUDA_VISIBLE_DEVICES"] = self.device
        return "cuda"


def _by_name(answer: Any) -> Mapping[str, NDArray[Any]]:
    """Return a mapping of arrays unchanged, and any other answer as the array ``output``."""
    if isinstance(answer, Mapping):
        return {str(name): np.asarray(value) for name, value in answer.items()}
    return {"output": np.asarray(answer)}


@dataclass(frozen=True)
class LoadedModel:
    """Loaded model with functions to create inputs and to run it."""

    prepare: Callable[[int], Any]  # batch size → input
    run: Callable[[Any], Any]  # input → answer; returns when the answer is there
    input_shape: object  # shape of the input, or of each input by name; JSON values
    memory_mb: float | None = None  # memory of its parameters, in 10^6 bytes
    # type of NumPy and shape, without the batch's dimension, of each input by name; None where
    # the model does not say
    inputs: Mapping[str, tuple[str, tuple[int, ...]]] | None = None
    # arrays by name, each with the batch's dimension first → input; that of one array is the array
    feed: Callable[[Mapping[str, NDArray[Any]]], Any] = lambda arrays: (
        next(iter(arrays.values())) if len(arrays) == 1 else dict(arrays))
    fetch: Callable[[Any], Mapping[str, NDArray[Any]]] = _by_name  # answer → arrays by name
    # sizes of requests → input, where requests have a size
    prepare_sizes: Callable[[Sequence[int]], Any] | None = None
    size_unit: str = "units"  # unit of sizes, such as tokens


class Published(NamedTuple):
    """A published accuracy: a fraction in [0, 1], and its source."""

    accuracy: float
    source: str


class Backend(Protocol):
    """Interface of a back end, which loads models by name."""

    notes: Mapping[str, object]
    """What the profile's ``measurement`` says of this back end."""
    hardware: Mapping[str, object] = {}
    """What the profile's ``hardware`` says of the device, beside the processor."""
    libraries: tuple[str, ...] = ()
    """Distributions whose versions are recorded."""

    def name(self, model: str) -> str:
        """Return the model's name in the profile; refuse a model that does not exist."""

    def open(self, model: str) -> LoadedModel:
        """Load a model."""

    def published(self, model: str) -> Published | None:
        """Return a model's published accuracy; None by default, where none is known."""
        return None


def library(name: str, extra: str) -> Any:
    """Import an optional library; refuse one that cannot be imported."""
    try:
        return importlib.import_module(name)
    except Exception as error:  # a library beside another's wrong version raises anything
        reason = " ".join(str(error).split())[:120]
        raise InvalidValueError(f"this back end needs {name}, which cannot be imported ({reason})",
                                where="backend", allowed=install(extra)) from error


def unknown_model(what: str, value: str, known: Iterable[str]) -> InvalidValueError:
    """Return the error for an unknown name, with similar known ones."""
    names = sorted(known)
    near = difflib.get_close_matches(value, names, n=5, cutoff=0.5) or names[:10]
    return InvalidValueError(f"no such {what}", where="model", value=value,
                             allowed=", ".join(near) or None)


class Callables(Backend):
    """Functions found by import; they have no load time, and their memory is not known."""

    def __init__(self, options: Options) -> None:
        if options.device != "cpu":
            raise InvalidValueError("functions choose their device themselves", where="device",
                                    value=options.device, allowed="cpu")
        self._inputs = _found(options.inputs) if options.inputs else None
        self.notes = {"latency": "wall time of one call",
                      "input": options.inputs or "the batch size"}

    def name(self, model: str) -> str:
        """Return the function's name, by which the profile calls the model."""
        _found(model)
        return model.partition(":")[2]

    def open(self, model: str) -> LoadedModel:
        """Load a function and the one that makes its input, of a batch size or of sizes."""
        return LoadedModel(self._inputs or int, _found(model), ["batch"],
                           prepare_sizes=self._inputs or list)


def _found(name: str) -> Callable[[Any], Any]:
    """Import the function that ``module:function`` names."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise InvalidValueError("not the name of a function", where="model", value=name,
                                allowed="module:function")
    function: Callable[[Any], Any] = own(name, "function", where="model",
                                         error=InvalidValueError, option="--code")
    if not callable(function):
        raise InvalidValueError("not callable", where="model", value=name,
                                allowed="module:function")
    return function
