"""Structured logs: one JSON object a line, on stderr."""

from __future__ import annotations

import contextlib
import datetime
import json
import sys
from collections.abc import Callable

Log = Callable[..., None]
"""``log(event, **fields)``."""


def log_line(event: str, **fields: object) -> None:
    """Write an event with its fields to stderr; serving goes on where nothing can be written."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    with contextlib.suppress(OSError, ValueError):  # a full disk, a reader that is gone
        print(json.dumps({"time": now, "event": event, **fields}, default=str), file=sys.stderr,
              flush=True)
