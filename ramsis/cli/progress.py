"""Progress on stderr: a bar on a terminal, or lines for the command that runs this one.

`plan` runs other commands. On a terminal it sets an environment variable that makes them print
progress as JSON lines (after :data:`MARK`), and shows one bar for each command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

MARK = "@progress "
"""Prefix of a line of progress, before its JSON."""
_ASKED = "RAMSIS_PROGRESS"
"""Environment variable that requests such lines from a command."""


class Advance(Protocol):
    """Function that reports steps done, interim results (``text``), and ``more`` total steps."""

    def __call__(self, steps: float = 1, *, text: str = "", more: float = 0) -> None:
        """Report steps."""


@contextmanager
def progress(what: str, total: float | None, *, shown: bool = True) -> Iterator[Advance]:
    """Show the progress of a task; yield a function that reports its steps.

    ``total`` is None for an unknown number of steps. Nothing is shown if stderr is not a terminal,
    nor by the processes of a pool, whose output would be mixed.
    """
    if shown and os.environ.get(_ASKED):
        with _line_writer(what, total) as writer:
            yield writer
        return
    if not (shown and on_terminal()):
        yield lambda steps=1, *, text="", more=0: None
        return
    with _bars(transient=True) as bar:
        task = bar.add_task(what, total=total)

        def advance(steps: float = 1, *, text: str = "", more: float = 0) -> None:
            bar.advance(task, steps)
            if more and total is not None:
                bar.update(task, total=(bar.tasks[task].total or 0.0) + more)
            if text:
                bar.update(task, description=f"{what}: {text}")

        yield advance


def on_terminal() -> bool:
    """Return whether progress is shown: stderr is a terminal, and this is no child process."""
    return sys.stderr.isatty() and parent_process() is None


def run_with_bar(
    arguments: Sequence[str], title: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with a bar of its progress on a terminal; return its output."""
    shown = on_terminal()
    environment = {**os.environ, **({_ASKED: "1"} if shown else {})}
    lines: list[str] = []
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output, subprocess.Popen(
        arguments, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE,
        text=True, encoding="utf-8", env=environment,
    ) as process:
        assert process.stderr is not None
        try:
            with _bar_of_lines(title, shown=shown) as tell:
                for line in process.stderr:
                    if line.startswith(MARK):
                        tell(json.loads(line.removeprefix(MARK)))
                    else:
                        lines.append(line)
        except BaseException:
            process.kill()
            raise
        code = process.wait()
        output.seek(0)
        return subprocess.CompletedProcess(arguments, code, output.read(), "".join(lines))


@contextmanager
def _bar_of_lines(title: str, *, shown: bool) -> Iterator[Any]:
    """Yield a function that shows progress lines, of one or several processes, in one bar."""
    if not shown:
        yield lambda line: None
        return
    tasks: dict[str, Mapping[str, Any]] = {}
    with _bars(transient=False) as bar:
        task = bar.add_task(title, total=None)

        def tell(line: Mapping[str, Any]) -> None:
            tasks[line["what"]] = line
            counted = [each for each in tasks.values() if each["total"]]
            texts = "; ".join(f"{each['what']}: {each['text']}" for each in tasks.values()
                              if each["text"])
            bar.update(task, description=f"{title}: {texts or line['what']}",
                       total=sum(each["total"] for each in counted) or None,
                       completed=sum(each["done"] for each in counted))

        yield tell
        bar.update(task, total=1, completed=1)


@contextmanager
def _line_writer(what: str, total: float | None) -> Iterator[Advance]:
    """Yield a function that writes a line for each report of progress."""
    state: dict[str, Any] = {"what": what, "done": 0.0, "total": total, "text": ""}

    def advance(steps: float = 1, *, text: str = "", more: float = 0) -> None:
        state["done"] += steps
        state["text"] = text or state["text"]
        if total is not None:
            state["total"] += more
        sys.stderr.write(f"{MARK}{json.dumps(state)}\n")
        sys.stderr.flush()

    advance(0)
    yield advance
    state["total"] = total and state["done"]  # no more steps than there were
    advance(0)


@contextmanager
def _bars(*, transient: bool) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import (  # imported only on a terminal
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (MofNCompleteColumn(), TimeRemainingColumn()) if transient else (
        TimeElapsedColumn(), TimeRemainingColumn())
    bar = Progress(TextColumn("{task.description}"), BarColumn(bar_width=20), *columns,
                   console=Console(stderr=True), transient=transient)
    with bar, _log_of_compiling(bar.console):
        yield bar


@contextmanager
def _log_of_compiling(console: Console) -> Iterator[None]:
    """Print the log of :mod:`ramsis.compiling` on a console."""
    import logging  # imported only on a terminal

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
