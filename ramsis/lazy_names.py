"""Public names of a package, loaded at first use; ``dir`` lists these names only.

>>> import types
>>> numbers = types.ModuleType("numbers")
>>> numbers.__getattr__, numbers.__dir__ = names_from(
...     vars(numbers), {"fractions": "Fraction", "decimal": "Decimal getcontext"})
>>> numbers.Fraction(1, 2)
Fraction(1, 2)
>>> [name for name in dir(numbers) if not name.startswith("_")]
['Decimal', 'Fraction', 'getcontext']
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def names_from(
    namespace: dict[str, Any], modules: Mapping[str, str] | None = None, submodules: str = "",
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__``, which loads public names, and its ``__dir__``.

    ``namespace`` is the package's ``globals()``, in which loaded values are stored. ``modules``
    has the public names that each module defines, separated by spaces; ``name=other`` offers the
    module's ``other`` as ``name``. They are added to ``__all__``. ``submodules`` are names of
    subpackages and modules that can be used without importing them; only ``dir`` lists them.
    """
    homes = {}
    for module, names in (modules or {}).items():
        for text in names.split():
            name, _, attribute = text.partition("=")
            homes[name] = (module, attribute or name)
    public = namespace.setdefault("__all__", [])
    public += [name for name in homes if name not in public]
    below = submodules.split()

    def load(name: str) -> Any:
        if name in below:
            return importlib.import_module(f"{namespace['__name__']}.{name}")
        if name not in homes:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        module, attribute = homes[name]
        value = getattr(importlib.import_module(module), attribute)
        namespace[name] = value
        return value

    def listed() -> list[str]:
        return sorted({*public, *below, *(name for name in namespace if name.startswith("__"))})

    return load, listed
