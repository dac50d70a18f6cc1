"""The event loop of servers and load generators is closed, whatever comes."""

import asyncio
import signal
from threading import Thread

import pytest

from ramsis.serving import event_loop as module
from ramsis.serving.event_loop import event_loop


async def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_an_interrupt_while_the_loop_is_made_closes_it(monkeypatch):
    """The interrupt is put off; else the new loop would be lost while it is open."""
    made = list[asyncio.AbstractEventLoop]()
    make = module._new_loop

    def interrupted() -> asyncio.AbstractEventLoop:
        made.append(make())
        signal.raise_signal(signal.SIGINT)
        return made[0]

    monkeypatch.setattr(module, "_new_loop", interrupted)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), event_loop():
        pytest.fail("the interrupt is lost")
    assert made[0].is_closed()
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_loop_runs_and_is_closed_in_any_thread():
    found = list[asyncio.AbstractEventLoop]()

    def run() -> None:
        with event_loop() as runner:
            found.append(runner.run(_loop()))

    run()
    thread = Thread(target=run)
    thread.start()
    thread.join()
    assert [one.is_closed() for one in found] == [True, True]
