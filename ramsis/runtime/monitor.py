"""Load monitor: moving average of the arrival rate over half a second (EuroSys '24, §6)."""

from __future__ import annotations

import math
from collections import deque

from ramsis.errors import InvalidValueError, check_positive

WINDOW_MS = 500.0
"""Length of the window by default."""
SHORTEST_SPAN = 0.1
"""Least share of the window that a load is averaged over while the first window fills."""


class LoadMonitor:
    """Load monitor with a moving average, as the anticipated load.

    At time t the load is the number of arrivals in ``(t - window_ms, t]`` divided by
    ``window_ms``. The clock starts with the first call of either method. Until a whole window has
    passed, the number is divided by the time since then, but at least by a tenth of the window,
    so that the first arrivals do not look like a burst. Times must not go back between calls.

    Examples
    --------
    >>> monitor = LoadMonitor()
    >>> for now_ms in range(0, 1000, 10):
    ...     monitor.record(now_ms)
    >>> monitor.load_qps(1000)
    98.0
    """

    __slots__ = ("_count", "_latest_ms", "_recent", "_start_ms", "window_ms")

    def __init__(self, window_ms: float = WINDOW_MS) -> None:
        check_positive("not a length of time", window_ms=window_ms)
        self.window_ms = window_ms
        self._recent: deque[tuple[float, int]] = deque()
        self._count = 0
        self._start_ms: float | None = None
        self._latest_ms = -math.inf

    def record(self, now_ms: float, count: int = 1) -> None:
        """Record ``count`` arrivals, 1 or more."""
        if not count >= 1:
            raise InvalidValueError("not a number of arrivals", where="count", value=count,
                                    allowed="1 or more")
        self._advance(now_ms)
        self._recent.append((now_ms, count))
        self._count += count

    def load_qps(self, now_ms: float) -> float:
        """Return the mean load over the window, in requests per second."""
        start_ms = self._advance(now_ms)
        window_ms = self.window_ms
        span_ms = min(window_ms, max(now_ms - start_ms, SHORTEST_SPAN * window_ms))
        return 1000.0 * self._count / span_ms

    def _advance(self, now_ms: float) -> float:
        """Advance the window to a time; return the time of the first call of any method."""
        if now_ms == self._latest_ms and self._start_ms is not None:
            return self._start_ms  # common case: ``load_qps`` right after ``record``
        if not (now_ms >= self._latest_ms and math.isfinite(now_ms)):
            raise InvalidValueError("time goes back or is not finite", where="now_ms",
                                    value=now_ms, allowed=f"a finite number >= {self._latest_ms}")
        if self._start_ms is None:
            self._start_ms = now_ms
        self._latest_ms = now_ms
        oldest_ms = now_ms - self.window_ms
        recent = self._recent
        while recent and recent[0][0] <= oldest_ms:
            self._count -= recent.popleft()[1]
        return self._start_ms
