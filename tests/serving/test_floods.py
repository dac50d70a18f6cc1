"""Workers do not stand idle while the front end reads a flood of requests."""

import asyncio
import time

import numpy as np
import pytest

from tests.serving.servers import make

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)


def test_the_end_of_a_batch_is_heard_among_requests_that_are_read_in_one_turn(tmp_path):
    """The event loop has no turn between the first request and the last."""
    from ramsis.errors import RamsisError  # the server's extra may be missing
    from ramsis.serving.policies import read_policies
    from ramsis.serving.protocol import Answer, InferRequest
    from ramsis.serving.server import Server
    from ramsis.serving.variants import read_variants

    folder = make(tmp_path)
    told: list[Answer | RamsisError] = []

    async def flooded() -> int:
        server = Server(read_policies(folder / "policies"),
                        read_variants(folder / "variants.toml"), log=lambda event, **more: None)
        await server.start()
        try:
            sent, ends_s = 0, time.monotonic() + 30.0
            # The first is decided on with the second; a batch takes 5 to 10 ms.
            while len(told) < 2 and time.monotonic() < ends_s:
                x = np.ones((1, 3), np.float32)
                server.submit(InferRequest("", [x], 1, None, {"sum": False}),
                              server.front.now_ms(), told.append)
                sent += 1
                time.sleep(0.05)
            heard = len(told)
            while len(told) < sent:
                await asyncio.sleep(0.01)
            return heard
        finally:
            await server.stop()

    assert asyncio.run(flooded()) >= 2
    assert all(isinstance(one, Answer) for one in told)
