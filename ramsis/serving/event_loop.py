"""The event loop of servers and load generators."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def event_loop() -> Iterator[asyncio.Runner]:
    """Context with a runner of the fastest installed event loop, which is closed at the end.

    An interrupt during the creation of the loop is deferred until the loop exists; otherwise the
    loop would stay open, which uvloop reports on stderr.
    """
    with contextlib.ExitStack() as stack:
        with _interrupts_deferred():
            runner = stack.enter_context(asyncio.Runner(loop_factory=_new_loop))
        yield runner


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


@contextlib.contextmanager
def _interrupts_deferred() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    came = list[int]()
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)
