"""A load generator's connections, against servers that answer as few do."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

pytest.importorskip("httptools")

from ramsis.serving.load.connections import ConnectionPool, Response

Server = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Name: a\r\n\r\nok"


class Listening:
    """A server on localhost, and a client's connections to it; all are over at the end."""

    def __init__(self, server: Server, timeout_s: float = 60.0) -> None:
        self.server, self.timeout_s = server, timeout_s
        self.opened = self.open = 0

    async def __aenter__(self) -> ConnectionPool:
        self.listening = await asyncio.start_server(self._served, "127.0.0.1", 0)
        port = self.listening.sockets[0].getsockname()[1]
        self.connections = ConnectionPool(f"http://127.0.0.1:{port}/v2", self.timeout_s)
        return self.connections

    async def __aexit__(self, *_: object) -> None:
        self.connections.close()
        self.listening.close()
        while self.open:
            await asyncio.sleep(0.005)

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self.open += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self.server(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.open -= 1


def asked(server: Server, count: int = 1, timeout_s: float = 60.0, closes: bool = False
          ) -> tuple[list[Response], int]:
    """What requests, one after the other, are told; and how many connections there were.

    Each waits until the server has closed the connection of the one before, where it ``closes``.
    """
    async def run() -> list[Response]:
        found = []
        async with listening as connections:
            for _ in range(count):
                found.append(await connections.get("/v2"))
                while closes and connections.idle:
                    await asyncio.sleep(0.005)
        return found

    listening = Listening(server, timeout_s)
    return asyncio.run(run()), listening.opened


def saying(*parts: bytes, times: int = 100, stays: bool = True) -> Server:
    """A server that answers each request by these parts, one after the other."""
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(times):
            await reader.readuntil(b"\r\n\r\n")
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.002)
        if stays:
            await reader.read()

    return server


def test_a_connection_is_kept_and_bytes_may_come_one_by_one():
    found, opened = asked(saying(*(WHOLE[i : i + 1] for i in range(len(WHOLE)))), count=3)
    assert [(one.status, one.body, one.headers["x-name"], one.failure) for one in found] == [
        (200, b"ok", "a", "")] * 3
    assert opened == 1
    assert found[0].at_s < found[1].at_s < found[2].at_s


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE,
])
def test_answers_in_chunks_and_after_interim_ones_are_whole(answer):
    found, opened = asked(saying(answer), count=2)
    assert [(one.status, one.body) for one in found] == [(200, b"ok")] * 2
    assert opened == 1


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.0 200 OK\r\n\r\nok",
])
def test_a_server_that_closes_gets_another_connection(answer):
    found, opened = asked(saying(answer, times=1, stays=False), count=2)
    assert [(one.status, one.body, one.failure) for one in found] == [(200, b"ok", "")] * 2
    assert opened == 2


def test_an_answer_that_does_not_come_fails_after_its_time_and_its_connection_with_it():
    found, opened = asked(saying(b""), count=2, timeout_s=0.15)
    assert ["no answer within 0.15 s" in one.failure for one in found] == [True, True]
    assert opened == 2


def test_a_connection_that_the_server_closed_meanwhile_is_not_used_again():
    found, opened = asked(saying(WHOLE, times=1, stays=False), count=2, closes=True)
    assert [one.status for one in found] == [200, 200]
    assert opened == 2


def test_many_at_once_have_a_connection_each():
    asking = 0

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asking
        await reader.readuntil(b"\r\n\r\n")
        asking += 1
        while asking < 50:
            await asyncio.sleep(0.005)
        writer.write(WHOLE)
        await reader.read()

    async def run() -> list[Response]:
        async with listening as connections:
            return await asyncio.gather(*(connections.get("/") for _ in range(50)))

    listening = Listening(server)
    assert [one.body for one in asyncio.run(run())] == [b"ok"] * 50
    assert listening.opened == 50
