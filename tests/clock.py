"""An event loop whose time passes when a test says so."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Clock(asyncio.SelectorEventLoop):
    """Event loop with a clock of its own, so that no test depends on the speed of a machine."""

    now_s = 1000.0

    def time(self) -> float:
        return self.now_s

    def settle(self) -> None:
        """Run what is due now."""
        while True:
            self.now_s += 2e-5  # a turn takes time, as code may rely on
            self.call_soon(self.stop)
            self.run_forever()
            if not self._ready:  # type: ignore[attr-defined]
                return

    def advance(self, seconds: float) -> None:
        """Let time pass, from timer to timer."""
        end_s = self.now_s + seconds
        self.settle()
        while True:
            due = [timer.when() for timer in self._scheduled  # type: ignore[attr-defined]
                   if not timer.cancelled()]
            if min(due, default=end_s) >= end_s:
                break
            self.now_s = max(self.now_s, min(due))
            self.settle()
        self.now_s = end_s
        self.settle()

    def do(self, call: Callable[[], T]) -> T:
        """Call in the loop."""
        async def called() -> T:
            return call()

        result = self.run_until_complete(called())
        self.settle()
        return result
