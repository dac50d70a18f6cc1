"""Any Python function, named ``module:function``: called with the batch size, or with an input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ramsis.errors import InvalidValueError
from ramsis.plugins import own
from ramsis.profiles.measure.backends.backend import LoadedModel, Options, Published


class Callables:
    """Functions found by import; they have no load time, and their memory is not known."""

    libraries: tuple[str, ...] = ()
    hardware: Mapping[str, object] = {}

    def __init__(self, options: Options) -> None:
        if options.device != "cpu":
            raise InvalidValueError("functions choose their device themselves", where="device",
                                    value=options.device, allowed="cpu")
        self._inputs = _found(options.inputs) if options.inputs else None
        self.notes = {"latency": "wall time of one call",
                      "input": options.inputs or "the batch size"}

    def name(self, model: str) -> str:
        """Return the function's name, which is that in the profile."""
        _found(model)
        return model.partition(":")[2]

    def open(self, model: str) -> LoadedModel:
        """Load a function and the one that makes its input, of a batch size or of sizes."""
        return LoadedModel(self._inputs or int, _found(model), ["batch"],
                           prepare_sizes=self._inputs or list)

    def published(self, model: str) -> Published | None:
        """Return None: no accuracies are published for functions."""
        return None


def _found(name: str) -> Callable[[Any], Any]:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise InvalidValueError("not the name of a function", where="model", value=name,
                                allowed="module:function")
    function = own(name, "function", where="model", error=InvalidValueError,
                   option="--code")
    if not callable(function):
        raise InvalidValueError("not callable", where="model", value=name,
                                allowed="module:function")
    result: Callable[[Any], Any] = function
    return result
