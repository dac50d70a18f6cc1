"""Structured logs: one JSON object a line, on stderr."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable

__all__ = ["Log", "log_line"]

Log = Callable[..., None]
"""``log(event, **fields)``."""


def log_line(event: str, **fields: object) -> None:
    """Write an event with its fields to stderr."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    print(json.dumps({"time": now, "event": event, **fields}, default=str), file=sys.stderr,
          flush=True)
