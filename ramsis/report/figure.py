"""Creating and saving figures, without a display."""

from __future__ import annotations

import importlib.util
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ramsis.errors import InvalidValueError, install
from ramsis.files import written_whole

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

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
