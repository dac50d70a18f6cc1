"""Progress on stderr, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def progress(what: str, total: float | None) -> Iterator[Any]:
    """Show a progress bar on a terminal, nothing elsewhere; yield ``advance(steps=1)``.

    ``total`` None is for a number of steps that is not known.
    """
    if not sys.stderr.isatty():
        yield lambda steps=1: None
        return
    from rich.console import Console
    from rich.progress import (  # which commands without a terminal do without
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )
    with bar, _log_of_compiling(bar.console):
        task = bar.add_task(what, total=total)
        yield lambda steps=1: bar.advance(task, steps)


@contextmanager
def _log_of_compiling(console: Console) -> Iterator[None]:
    """Print the log of :mod:`ramsis.compiling` on a console."""
    import logging  # which commands without a terminal do without

    log, handler = logging.getLogger("ramsis.compiling"), logging.Handler()
    handler.emit = lambda record: console.print(record.getMessage())  # type: ignore[method-assign]
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(before)
        log.removeHandler(handler)
