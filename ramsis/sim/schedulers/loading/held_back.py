"""Requests that are held back until their answers would not come too early.

A stream's ``earliest_ms`` makes answers before that time worthless. A request is held from its
arrival until its earliest time less the time of a batch of one on the fastest worker type; then it
is scheduled like an arrival. Every batch takes at least as long, so no answer is too early, except
with service times that are drawn or slowed.
"""

from __future__ import annotations

from typing import NamedTuple

from ramsis.sim.engine import Engine


class Release(NamedTuple):
    """Timer token: the request is to be scheduled now."""

    request: int


class HeldBack:
    """Requests held back until their answers would not come before ``earliest_ms``."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.needed = any(stream.earliest_ms > 0.0 for stream in engine.world.streams)
        self._shortest_ms = [min(row[0] for row in rows)
                             for rows in zip(*engine.times.rows, strict=True)]

    def hold(self, request: int) -> bool:
        """Return whether a request must be held back; if so, set a timer for its release."""
        engine = self.engine
        release_ms = (engine.requests.earliest_ms[request]
                      - self._shortest_ms[engine.requests.model[request]])
        if not engine.now_ms < release_ms:
            return False
        engine.wake_at(release_ms, Release(request))
        return True
