"""Looks of lines by name: a scheduler has the same colour in every figure and on every page.

A look is a number. Colours, dashes and markers repeat after 8, 7 and 7 numbers, so that the first
56 looks differ; in grey print and for every eye dashes and markers tell lines apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count
from typing import Any

# At least 3:1 against white; page.css has the same, and lighter ones for dark screens.
COLOURS = ("#0072b2", "#c44f00", "#007f5f", "#a8447f", "#8a6100", "#3b97d3", "#6a4fb3", "#5b6b2f")
_DASHES = ("-", "--", "-.", (0, (4, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (6, 2)), (0, (8, 2, 2, 2)))
_MARKERS = "osv^DxP"
# Names in one entry are of one scheduler. Neighbours often stand in one figure.
_SCHEDULERS = (
    "central-queue", "per-worker round-robin", "jellyfish jellyfish-plus",
    "modelswitching model-switching", "greedy", "shortest-queue", "symphony", "clipper",
    "bentoml", "delay", "fixed", "infaas", "duty-cycle", "clockwork", "lru", "planned", "random",
    "queue-aware", "usher", "igniter", "ao-milp", "wsm-milp", "wao-usher",
    "scaling", "hpa", "keda", "knative", "rule", "ramsis", "triton", "ray",
    "slackfit", "cascade-serve", "fixed-threshold",
)
_PLACE = {name: place for place, names in enumerate(_SCHEDULERS) for name in names.split()}


def look_numbers(names: Iterable[str]) -> dict[str, int]:
    """Return the number of the look of each name, all different.

    A name that begins with that of a scheduler, such as ``round-robin:paper``, has the scheduler's
    colour. Other names have the first looks that are left, in their order.
    """
    looks: dict[str, int] = {}
    ordered, others = dict.fromkeys(names), []
    for name in ordered:
        word = re.match(r"[a-z]+(-[a-z]+)*", name.lower())
        place = _PLACE.get(word[0]) if word else None
        if place is None:
            others.append(name)
            continue
        while place in looks.values():
            place += len(COLOURS)
        looks[name] = place
    taken = set(looks.values())
    unused = (place for place in count() if place not in taken)
    looks |= dict(zip(others, unused, strict=False))
    return {name: looks[name] for name in ordered}


def line_look(number: int) -> dict[str, Any]:
    """Return colour, dashes and marker of a look as Matplotlib takes them."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": _DASHES[number % len(_DASHES)],
            "marker": _MARKERS[number % len(_MARKERS)]}
