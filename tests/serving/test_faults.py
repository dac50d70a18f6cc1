"""Workers that crash, hang or run out of memory, floods, slow clients, and requests of any bytes.

Whatever happens, each request has an answer, and the server goes on.
"""

import asyncio
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from typing import Any

import pytest

from tests.serving.servers import Load, Running, body, make, running, until

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)

from ramsis.errors import InvalidValueError  # noqa: E402
from ramsis.serving.protocol import parse_request  # noqa: E402
from ramsis.serving.tensors import TensorSpec  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("faults"), workers=2)


@pytest.fixture(scope="module")
def server(folder):
    with running(folder, "--batch-timeout-s", "2", "--slots", "64") as found:
        yield found


def test_a_batch_that_hangs_is_an_error_within_the_limit(server):
    status, found = server.infer([[777, 0, 0]])  # for which it would sleep a minute
    assert status == 500
    assert "a batch took longer than 2 s" in found["error"]
    assert server.infer([[1, 2, 3]])[0] == 200  # by the other worker, or this one anew


def test_a_model_without_memory_is_an_error_and_its_worker_stays(server):
    restarts = server.metric("ramsis_worker_restarts_total")
    status, found = server.infer([[888, 0, 0]])
    assert (status, "MemoryError: no room" in found["error"]) == (500, True)
    assert server.metric("ramsis_worker_restarts_total") == restarts


def test_more_queries_than_there_is_room_for_are_refused_at_once(server):
    """A flood of 192 queries: what is not answered is refused, and then all is as before."""
    with Load(server, 24, 0.0, body(*[1.0] * 8)) as load:
        until(lambda: load.answered[503] and load.answered[200])
    assert set(load.answered) == {200, 503}
    assert server.infer([[1, 2, 3]])[0] == 200
    assert server.metric("ramsis_queued") == 0


@pytest.mark.slow
def test_no_answer_is_lost_while_workers_are_killed_under_load(folder):
    """Their batches run once more."""
    with running(folder, "--retry") as server, Load(server, 4, 0.0) as load:
        processes = server.wait_for("ready")["processes"]
        for kill in range(3):
            time.sleep(0.3)
            os.kill(processes[kill % 2], signal.SIGKILL)
            back = server.wait_for("worker back", kill + 1)
            processes[back["worker"]] = back["process"]
        time.sleep(0.2)
    assert set(load.answered) <= {200, 503}
    assert load.answered[200] > 20


def test_stopping_answers_what_is_under_way(server):
    """The last test of this server."""
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(server.infer([[1, 2, 3]])[0]))
               for _ in range(6)]
    for thread in threads:
        thread.start()
    server.wait_for_batch()
    server.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join(30)
    assert server.process.wait(30) == 0
    assert server.events()[-1]["event"] == "stopped"
    assert set(answers) <= {200, 503}


SPECS = (TensorSpec("x", "FP32", (3,)), TensorSpec("n", "INT8", ()))
OUTPUTS = (TensorSpec("sum", "FP32", ()),)
VALUES: list[Any] = [None, True, -1, 0, 3, 1e400, 2**70, "", "x", [], [[]], [[1], [1, 2]], {},
                     {"data": 1}, float("nan"), "FP32", [1, 3], [2, 3], "n" * 1000]


def mutated(rng: random.Random, value: Any) -> Any:
    """A document with parts left out, exchanged or doubled."""
    if rng.random() < 0.15:
        return rng.choice(VALUES)
    if isinstance(value, dict):
        return {key: mutated(rng, item) for key, item in value.items() if rng.random() > 0.05}
    if isinstance(value, list):
        found = [mutated(rng, item) for item in value]
        return found * 2 if rng.random() < 0.05 else found
    return value


def test_requests_of_any_form_are_read_or_refused():
    good = {"id": "a", "parameters": {"deadline_ms": 5.0, "binary_data_output": True},
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]},
                       {"name": "n", "datatype": "INT8", "shape": [1],
                        "parameters": {"binary_data_size": 1}}],
            "outputs": [{"name": "sum", "parameters": {"binary_data": False}}]}
    rng, read = random.Random(0), 0
    for _ in range(2000):
        document = good if rng.random() < 0.05 else mutated(rng, good)
        head = json.dumps(document).encode()
        if rng.random() < 0.1:
            head = bytes(rng.choice(head) if rng.random() < 0.9 else rng.randrange(256)
                         for _ in head)
        length = rng.choice([None, str(len(head)), "-1", "9999", "x", str(len(head) // 2),
                             *[str(len(head))] * 6])
        header = rng.choice([None, "5", "-5", "inf", "nan", "x"])
        try:
            found = parse_request(head + b"\x07" * rng.choice([0, 1, 1, 1, 2]), length, header,
                                  SPECS, OUTPUTS)
        except InvalidValueError:
            continue
        read += 1
        assert [array.shape for array in found.inputs] == [(found.queries, 3), (found.queries,)]
        assert found.deadline_ms is None or found.deadline_ms > 0
    assert read > 20


@pytest.mark.slow
def test_a_front_end_that_stood_still_answers_all_that_came_meanwhile_and_later(tmp_path):
    """Its process is stopped for 0.2 s; requests may take longer than that."""
    rows = bytes(12)  # three zeros
    asked = json.dumps({
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3],
                    "parameters": {"binary_data_size": len(rows)}}],
        "parameters": {"deadline_ms": 5000.0}}).encode()
    sent = (f"POST /v2/models/sums/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: "
            f"{len(asked)}\r\nContent-Length: {len(asked + rows)}\r\n\r\n").encode() + asked + rows
    statuses, took_s = Counter[bytes](), dict[int, float]()

    async def ask(number: int, server: Running) -> None:
        await asyncio.sleep(0.01 * number)
        reader, writer = await asyncio.open_connection(server.host, server.port)
        begun_s = time.monotonic()
        writer.write(sent)
        statuses[(await reader.readline()).split()[1]] += 1
        took_s[number] = time.monotonic() - begun_s
        writer.close()

    async def stall(server: Running) -> None:
        await asyncio.sleep(0.5)
        server.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(0.2)
        server.process.send_signal(signal.SIGCONT)

    async def load(server: Running) -> None:
        await asyncio.gather(stall(server), *(ask(number, server) for number in range(200)))

    with running(make(tmp_path)) as server:
        asyncio.run(load(server))
        assert statuses == {b"200": 200}
        assert max(took_s[number] for number in range(45, 60)) > 0.1  # it did stand still
        assert server.metric("ramsis_queued") == 0
