"""Any Python function, named ``module:function``: called with the batch size, or with an input."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from ramsis.errors import InvalidValueError, describe
from ramsis.profiles.measure.backends.backend import (
    LoadedModel,
    Options,
    Published,
    unknown_model,
)

__all__ = ["Callables"]


class Callables:
    """Functions found by import; they have no load time, and their memory is not known."""

    libraries: tuple[str, ...] = ()
    hardware: Mapping[str, object] = {}

    def __init__(self, options: Options) -> None:
        if options.device != "cpu":
            raise InvalidValueError(
                describe("functions choose their device themselves", where="device",
                         value=options.device, allowed="cpu")
            )
        self._inputs = _found(options.inputs) if options.inputs else None
        self.notes = {"latency": "wall time of one call",
                      "input": options.inputs or "the batch size"}

    def name(self, model: str) -> str:
        """The name in the profile."""
        _found(model)
        return model.partition(":")[2]

    def open(self, model: str) -> LoadedModel:
        """Load it."""
        return LoadedModel(self._inputs or _batch_size, _found(model), ["batch"])

    def published(self, model: str) -> Published | None:
        """No accuracies are published for these."""
        return None


def _batch_size(batch: int) -> int:
    return batch


def _found(name: str) -> Callable[[Any], Any]:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise InvalidValueError(describe("not the name of a function", where="model", value=name,
                                         allowed="module:function"))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise InvalidValueError(
            describe(f"module cannot be imported ({reason})", where="model", value=name,
                     allowed="module:function, found from the current folder or installed")
        ) from error
    try:
        function = attrgetter(attribute)(module)
    except AttributeError as error:
        raise unknown_model(f"function in {module_name}", attribute,
                            (key for key, value in vars(module).items() if callable(value))
                            ) from error
    if not callable(function):
        raise InvalidValueError(describe("not callable", where="model", value=name,
                                         allowed="module:function"))
    result: Callable[[Any], Any] = function
    return result
