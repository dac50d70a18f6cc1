"""How objects show themselves in notebooks: what draws a kind of object, by name.

What draws stands above what holds the data, so it is found by its name when a figure is asked for,
as the commands are; nothing here imports it before.
"""

from __future__ import annotations

import importlib
from typing import Any

_DRAWS = "ramsis.report.objects"


def figure_of(kind: str, shown: object, **terms: Any) -> Any:
    """Draw the figure of an object by the function ``kind``, which takes the terms."""
    return getattr(importlib.import_module(_DRAWS), kind)(shown, **terms)
