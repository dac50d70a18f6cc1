"""Back ends, which load models and create inputs for them.

A back end is a class with the interface :class:`~.backend.Backend`, registered in :data:`BACKENDS`
by its name. Its libraries are imported only when the class is instantiated.
"""

from __future__ import annotations

import importlib

from ramsis.errors import check_known
from ramsis.profiles.measure.backends.backend import (
    Backend,
    LoadedModel,
    ModelLostError,
    Options,
    Published,
)

__all__ = ["BACKENDS", "Backend", "LoadedModel", "ModelLostError", "Options", "Published",
           "open_backend"]

BACKENDS = {
    "onnx": "onnx:Onnx",
    "torchvision": "torch:Torchvision",
    "transformers": "torch:Transformers",
    "callable": "backend:Callables",
    "upstream": "upstream:Upstream",
}
"""Name to module and class; the first is the default."""


def open_backend(name: str, options: Options) -> Backend:
    """Create the back end of a name, which loads and runs models."""
    check_known("no such back end", name, BACKENDS, "backend")
    module, _, attribute = BACKENDS[name].partition(":")
    backend: Backend = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)(options)
    return backend
