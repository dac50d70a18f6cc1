"""HTTP server process: socket, uvicorn, signals, and graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import uvicorn

from ramsis.errors import InvalidValueError
from ramsis.serving.app import application
from ramsis.serving.connections import ConnectionLimits, Connections
from ramsis.serving.logs import records_in
from ramsis.serving.server import Server

_BACKLOG = 2048  # connections that wait to be accepted; the kernel caps it (net.core.somaxconn)
_LAST_ANSWERS_S = 0.1  # time for sending the last answers before connections are closed
# Open files besides connections: standard streams, libraries, logs; and sockets, memory and pidfd
# of each worker. Both are generous, as a missing file would refuse a connection.
_FILES, _FILES_OF_A_WORKER = 64, 8


@dataclass(frozen=True)
class HttpSettings:
    """Settings of the HTTP front end."""

    # address to listen on; port 0 is any free port
    host: str = "127.0.0.1"
    port: int = 8000
    # largest body of a request, and largest JSON document in it
    max_body_bytes: int = 1 << 24
    max_json_bytes: int = 1 << 22
    # limits on connections
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)


def bound_socket(settings: HttpSettings) -> socket.socket:
    """Return a listening socket."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        with contextlib.ExitStack() as undo:
            listening = undo.enter_context(socket.socket(family, kind, proto))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_BACKLOG)
            undo.pop_all()
    except OSError as error:
        raise InvalidValueError(f"cannot listen there ({error.strerror})", where="host and port",
                                value=f"{settings.host}:{settings.port}",
                                allowed="a free port of this machine") from error
    listening.setblocking(False)
    return listening


def _with_files(limits: ConnectionLimits, workers: int) -> ConnectionLimits:
    """Raise the limit on open files, and reduce the connections to what it allows."""
    try:
        import resource
    except ImportError:  # there are no such limits here
        return limits
    others = _FILES + _FILES_OF_A_WORKER * workers
    soft, hard = (math.inf if limit == resource.RLIM_INFINITY else limit
                  for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    files = min(limits.connections + others, hard)
    if soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (
            int(files), resource.RLIM_INFINITY if math.isinf(hard) else int(hard)))
    return replace(limits, connections=max(int(files) - others, 1))


class _Uvicorn(uvicorn.Server):
    """Uvicorn server without signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def serve(
    server: Server, listening: socket.socket, settings: HttpSettings,
    started: Callable[[str], object] = lambda url: None,
    beside: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    give_end: Callable[[Callable[[], None]], object] = lambda end: None,
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP; then drain, and end.

    A second signal ends it at once. A SIGHUP that the process ignores, as under ``nohup``, stays
    ignored.

    The server has not been started, and the socket is from :func:`bound_socket`. ``started`` is
    called with the URL once the server is ready; ``beside`` are coroutine functions that run
    concurrently until it ends; ``give_end`` is called with a function that ends it like a signal.
    """
    try:
        await server.start()
        app = application(server, max_body_bytes=settings.max_body_bytes,
                          max_json_bytes=settings.max_json_bytes,
                          max_waiting_bytes=settings.connections.pending_bytes,
                          body_timeout_s=settings.connections.request_s)
        connections = Connections(_with_files(settings.connections, server.workers),
                                  app.state.at_once)
        http = _Uvicorn(uvicorn.Config(
            app, http=connections.protocol(), ws="none", log_config=None, log_level="error",
            access_log=False, proxy_headers=False, lifespan="off", backlog=_BACKLOG))
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(connections.watch())]

        async def drain() -> None:
            await server.drain()
            # The last answers are still being sent to the clients.
            await asyncio.sleep(_LAST_ANSWERS_S)
            http.force_exit = True
            for connection in list(http.server_state.connections):
                connection.transport.abort()

        def end() -> None:
            if http.should_exit:
                server.wait_no_longer()
            else:
                http.should_exit = True
                server.log("stopping", drain_s=server.settings.drain_s)
                tasks.append(loop.create_task(drain()))

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                loop.add_signal_handler(number, end)
        give_end(end)
        host, port = listening.getsockname()[:2]
        started(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        tasks += [loop.create_task(run()) for run in beside]
        try:
            with records_in(server.log):
                await http.serve(sockets=[listening])
        finally:
            for task in tasks:
                task.cancel()
            await server.stop()
    finally:
        listening.close()
