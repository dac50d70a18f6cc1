"""Non-blocking structured logs on stderr, one JSON object a line.

A background thread writes the lines, so that a reader that stops reading blocks only this thread.
Lines that wait for too long, and those of very frequent events, which a client might cause, are
dropped and counted. The log reports the counts as soon as possible.
"""

from __future__ import annotations

import atexit
import datetime
import json
import logging
import math
import os
import select
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Log = Callable[..., None]  # ``log(event, **fields)``

_MOST_LINES = 1000  # largest number of waiting lines, to limit memory
_BURST, _PER_S = 100, 1.0  # allowed lines per event: at once, and per second
_MOST_TEXT = 4000  # longest field in characters; the middle of longer ones is left out
_REPORT_EACH_S = 10.0  # interval of reports on dropped lines
_LAST_LINES_S = 1.0  # time for writing the last lines at the end of the process


class LogWriter:
    """Queue of log lines for stderr, with the thread that writes them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines = deque[tuple[str, Counter[str]]]()  # and what is left out without them
        self._left_out = Counter[str]()  # lines by event, since the log said so
        self._reported_s = -math.inf
        self._allowance = dict[str, tuple[float, float]]()  # lines of an event, and as of when
        self._thread: threading.Thread | None = None
        self._writes = False

    def write(self, event: str, fields: dict[str, object]) -> None:
        """Queue a line, unless too many wait or the event comes too often."""
        with self._changed:
            if len(self._lines) >= _MOST_LINES or not self._allows(event):
                self._left_out[event] += 1
            else:
                self._lines.append((_line(event, fields), Counter({event: 1})))
            if self._thread is None or not self._thread.is_alive():  # as after a fork
                thread = threading.Thread(target=self._run, name="log", daemon=True)
                with suppress(RuntimeError):  # no thread to be had now: the next line tries again
                    thread.start()
                    self._thread = thread
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all lines are written, for at most a second."""
        with self._changed:
            self._reported_s = -math.inf
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: not (self._lines or self._writes or self._is_report_due()), _LAST_LINES_S)

    def _allows(self, event: str) -> bool:
        now_s = time.monotonic()
        lines, as_of_s = self._allowance.get(event, (_BURST, now_s))
        lines = min(lines + _PER_S * (now_s - as_of_s), _BURST)
        self._allowance[event] = max(lines - 1.0, 0.0) if lines >= 1.0 else lines, now_s
        return lines >= 1.0

    def _is_report_due(self) -> bool:
        """Return whether it is time to report the dropped lines."""
        return bool(self._left_out) and time.monotonic() >= self._reported_s + _REPORT_EACH_S

    def _run(self) -> None:
        while True:
            line, lines = self._next()
            try:
                _write(line)
            except (OSError, ValueError):  # a full disk, a reader that is gone
                with self._changed:
                    self._left_out.update(lines)

    def _next(self) -> tuple[str, Counter[str]]:
        """Wait for the next line, and return it with counts of dropped lines that it reports."""
        with self._changed:
            self._writes = False
            self._changed.notify_all()
            while not self._lines:
                if self._is_report_due():
                    left_out, self._left_out = self._left_out, Counter()
                    self._reported_s = time.monotonic()
                    self._lines.append((_line("lines left out", {
                        "count": left_out.total(), "events": left_out}), left_out))
                else:
                    self._changed.wait(_REPORT_EACH_S if self._left_out else None)
            self._writes = True
            return self._lines.popleft()


class _Records(logging.Handler):
    """Logging handler that forwards libraries' records to the structured log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log(record.levelname.lower(), logger=record.name, message=self.format(record))


@contextmanager
def records_in(log: Log) -> Iterator[None]:
    """Context in which libraries' log records go to the non-blocking structured log."""
    root, handler = logging.getLogger(), _Records(log)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


def _line(event: str, fields: dict[str, object]) -> str:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    shown = {name: _shortened(value) if isinstance(value, str) else value
             for name, value in fields.items()}
    return json.dumps({"time": now, "event": event, **shown}, default=str) + "\n"


def _shortened(text: str) -> str:
    half = _MOST_TEXT // 2
    return text if len(text) <= _MOST_TEXT else f"{text[:half]} ... {text[-half:]}"


def _write(line: str) -> None:
    """Write to stderr's file descriptor, without its buffer, which can deadlock at exit."""
    try:
        stderr = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # no file, as in a notebook
        if sys.stderr is not None:
            sys.stderr.write(line)
        return
    data = memoryview(line.encode())
    while data:
        with suppress(BlockingIOError):
            data = data[os.write(stderr, data):]
            continue
        select.select([], [stderr], [])


_WRITER = LogWriter()
atexit.register(_WRITER.flush)


def log_line(event: str, **fields: object) -> None:
    """Log an event with its fields to stderr, without blocking; failures are ignored."""
    _WRITER.write(event, fields)
