"""Public names of a package that are loaded when they are first used.

>>> __getattr__ = names_from(globals(), {"Fraction": "fractions"})
>>> __getattr__("Fraction")(1, 2)
Fraction(1, 2)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def names_from(namespace: dict[str, Any], modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's ``__getattr__``, which loads each name from the module that defines it.

    Parameters
    ----------
    namespace : dict
        The package's ``globals()``, in which what was loaded is kept.
    modules : mapping of str to str
        The module of each name.
    """
    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(modules[name]), name)
        namespace[name] = value
        return value

    return load
