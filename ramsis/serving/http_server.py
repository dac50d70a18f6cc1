"""Running the server over HTTP: the socket, uvicorn, signals, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import uvicorn

from ramsis.errors import InvalidValueError, describe
from ramsis.serving.app import application
from ramsis.serving.server import Server

__all__ = ["HttpSettings", "bound_socket", "serve"]

_BACKLOG = 2048
_IDLE_S = 75
"""After which a connection without requests is closed; longer than clients keep theirs, or one
could send a request just as the server closes it, and get no answer."""


@dataclass(frozen=True)
class HttpSettings:
    """The front end.

    Parameters
    ----------
    host, port
        Where it listens; port 0 is any that is free.
    max_body_bytes
        Largest body of a request.
    body_timeout_s
        Within which a request must be here whole.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    max_body_bytes: int = 1 << 24
    body_timeout_s: float = 30.0


def bound_socket(settings: HttpSettings) -> socket.socket:
    """A socket that listens.

    Raises
    ------
    InvalidValueError
        The port is in use, or the host is none of this machine.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, proto)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        raise InvalidValueError(describe(f"cannot listen there ({error.strerror})",
                                         where="host and port",
                                         value=f"{settings.host}:{settings.port}",
                                         allowed="a free port of this machine")) from error
    listening.setblocking(False)
    return listening


class _Uvicorn(uvicorn.Server):
    """A server whose signals others handle."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave them."""
        yield


async def serve(
    server: Server, listening: socket.socket, settings: HttpSettings,
    started: Callable[[str], object] = lambda url: None,
    beside: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    give_end: Callable[[Callable[[], None]], object] = lambda end: None,
) -> None:
    """Serve until SIGINT or SIGTERM; then answer what is under way, and end.

    Parameters
    ----------
    server
        Not yet started.
    listening
        As of :func:`bound_socket`.
    settings
    started
        Called with the URL once requests are answered.
    beside
        What runs beside it, until it ends.
    give_end
        Handed a function that ends it, as a signal does.

    Raises
    ------
    InputFileError
        As of :meth:`Server.start`.
    """
    try:
        await server.start()
        app = application(server, max_body_bytes=settings.max_body_bytes,
                          body_timeout_s=settings.body_timeout_s)
        http = _Uvicorn(uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", backlog=_BACKLOG,
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=max(int(server.settings.drain_s), 1)))
        loop = asyncio.get_running_loop()

        def end() -> None:
            http.force_exit, http.should_exit = http.should_exit, True

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, end)
        give_end(end)
        host, port = listening.getsockname()[:2]
        started(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        tasks = [loop.create_task(one()) for one in beside]
        try:
            await http.serve(sockets=[listening])
        finally:
            for task in tasks:
                task.cancel()
            await server.stop()
    finally:
        listening.close()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The fastest loop there is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
