"""Creating and saving figures, without a display.

A look is a number. Colours, dashes and markers repeat after 8, 7 and 7 numbers, so that the first
56 looks differ; in grey print and for every eye dashes and markers tell lines apart.
"""

from __future__ import annotations

import importlib.util
import io
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ramsis.errors import InvalidValueError, install
from ramsis.files import written_whole

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

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

_SUFFIXES = (".png", ".pdf", ".svg")
# Without a date the same figure is the same file, byte by byte.
_NO_DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def check_figure(path: str | os.PathLike[str], where: str = "plot") -> None:
    """Refuse a file that no figure can be saved to, before the figure is computed.

    Parameters
    ----------
    where : str
        Name of the option or argument, for messages.
    """
    if Path(path).suffix not in _SUFFIXES:
        raise InvalidValueError("unknown kind of figure", where=where, value=Path(path).name,
                                allowed="a file name that ends in " + ", ".join(_SUFFIXES))
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidValueError("figures need matplotlib", where=where, allowed=install("plot"))


_CAPTURED: ContextVar[list[Figure] | None] = ContextVar("captured", default=None)


@contextmanager
def captured() -> Iterator[list[Figure]]:
    """Collect the figures that are drawn within the block, which are not saved."""
    figures: list[Figure] = []
    token = _CAPTURED.set(figures)
    try:
        yield figures
    finally:
        _CAPTURED.reset(token)


@cache
def _shown_figure() -> type[Figure]:
    """Return a class of figures that show themselves in notebooks."""
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        """Figure with an image of itself."""

        def _repr_png_(self) -> bytes:
            with io.BytesIO() as stream:
                self.savefig(stream, format="png", dpi=110)
                return stream.getvalue()

    return ShownFigure


@contextmanager
def saved_figure(
    path: str | os.PathLike[str], *, framed: bool = False, **settings: Any
) -> Iterator[Figure]:
    """Yield a figure to draw on, saved to ``path`` when the block ends without an error.

    Its axes have no line above and at the right, unless it is ``framed``.
    """
    target = Path(path)
    check_figure(target)
    from matplotlib import matplotlib_fname, rc_context, rcdefaults, rcParams
    from matplotlib.figure import Figure

    kept = _CAPTURED.get()
    with rc_context():
        if not os.path.isabs(matplotlib_fname()):  # anybody's, in the current folder
            rcdefaults()
        rcParams["text.parse_math"] = False  # two dollar signs of a name make no formula
        if not framed:
            rcParams["axes.spines.top"] = rcParams["axes.spines.right"] = False
        figure = (Figure if kept is None else _shown_figure())(layout="constrained", **settings)
        yield figure
        if kept is not None:
            kept.append(figure)
            return
        form = target.suffix.lower().lstrip(".")
        with (written_whole(target, binary=True) as stream,
              rc_context({"svg.hashsalt": "ramsis"})):
            figure.savefig(stream, dpi=150, format=form, metadata=_NO_DATE.get(form))


def plain_numbers(axis: Axis) -> None:
    """Write the numbers of a logarithmic axis without powers of ten, which would be formulas."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        """Formatter of the places that LogFormatter chooses."""

        def __call__(self, x: float, pos: int | None = None) -> str:
            return plain(x) if super().__call__(x, pos) else ""

    def plain(x: float, _: float | None = None) -> str:
        return f"{x:.10f}".rstrip("0").rstrip(".")

    axis.set_major_formatter(plain)
    axis.set_minor_formatter(Plain(minor_thresholds=(2, 0.5)))


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
