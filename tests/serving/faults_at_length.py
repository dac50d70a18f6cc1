"""Faults of a serving fleet at full length: ``python -m tests.serving.faults_at_length``.

Two workers serve an open-loop load at about half of what they can; meanwhile workers are killed,
hang or run out of memory, policies are exchanged, clients are slow or send nonsense, or ten times
the capacity comes. Of each fault: every request must have an answer, the server must go on, and
the accuracy must be back within five seconds.
"""

import argparse
import asyncio
import contextlib
import datetime
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ramsis.policy import Policy, write_set
from ramsis.policy.policy_set import set_of
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.synthesis import SynthesisSettings, generate_policy
from tests.serving.servers import VARIANTS, Running, running
from tests.serving.test_faults import mutated

SLO_MS, CAPACITY_QPS, BACK_S = 500.0, 130.0, 5.0
SWAPPED = (30.0, 65.0, 150.0), (31.0, 65.0, 151.0)
"""Loads of the policies that are exchanged, the first at the start."""
STEADY_S = 15.0
"""For how long the accuracy is taken, before and after: it varies with the arrivals."""
ACCURACY = {"fast": 0.6, "slow": 0.9}
FUNCTIONS = '''
import os, time
import numpy as np

def answered(x, first_s, each_s):
    if x.max() == 666: os.abort()
    if x.max() == 777: time.sleep(60)
    if x.max() == 888: np.ones((1 << 34,), np.uint8)
    time.sleep(first_s + each_s * len(x))
    return {"sum": x.sum(axis=1)}

def fast(x): return answered(x, 0.04, 0.01)
def slow(x): return answered(x, 0.06, 0.02)
'''


def _profile() -> ProfileSet:
    def model(name: str, first_ms: float, each_ms: float) -> ModelProfile:
        return ModelProfile(name, ACCURACY[name], tuple(
            BatchProfile(b, p95_ms=first_ms + each_ms * b) for b in (1, 2, 4, 8)))
    return ProfileSet("sums", (model("fast", 44.0, 10.5), model("slow", 64.0, 21.0)))


@cache
def _policy(load_qps: float) -> Policy:
    return generate_policy(_profile(), load_qps, SynthesisSettings(
        slo_ms=SLO_MS, grid="fixed:20", max_queue=8, workers=2, late="drop",
        dispatch="central-queue"))


def _write_set(folder: Path, *loads: float) -> None:
    write_set(folder, set_of([_policy(load) for load in loads]), created_by="tests")


class Answer(NamedTuple):
    """What became of a request; the status is 0 without an answer and -1 for a wrong one."""

    sent_s: float
    status: int
    variant: str = ""
    in_time: bool = False
    error: str = ""
    sums: Sequence[float] = ()

    @property
    def accuracy(self) -> float:
        """What it contributes to the effective accuracy."""
        return ACCURACY.get(self.variant, 0.0) * self.in_time


class Clients:
    """An open-loop load, and other requests beside it."""

    def __init__(self, server: Running, session: Any) -> None:
        self.server, self.session = server, session
        self.url = f"http://{server.host}:{server.port}/v2/models/sums/infer"
        self.answers: list[Answer] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._sent = 0

    async def load(
        self, qps: float, seconds: float = math.inf, stop: asyncio.Event | None = None
    ) -> None:
        """Send at random times, until then or until it is to stop; not wait for answers."""
        begun, rng, at = time.monotonic(), random.Random(0), 0.0
        while (at := at + rng.expovariate(qps)) < seconds and not (stop and stop.is_set()):
            wait = begun + at - time.monotonic()
            await asyncio.sleep(max(wait, 0.0))
            self._sent += 1
            task = asyncio.create_task(self.ask([[self._sent % 500, 2, 3]]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def all_answers(self) -> None:
        """Wait for what is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def ask(self, data: Any) -> None:
        """Send a request, and note what becomes of it."""
        document = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [len(data), 3],
                                "data": data}], "outputs": [{"name": "sum"}]}
        answer = await self.send(json.dumps(document).encode())
        if answer.status == 200 and answer.sums != [sum(row) for row in data]:
            answer = answer._replace(status=-1, error=f"{answer.sums} for {data}")
        self.answers.append(answer)

    async def send(self, body: bytes, headers: dict[str, str] | None = None) -> Answer:
        """Send bytes."""
        import aiohttp

        sent_s = time.monotonic()
        try:
            async with self.session.post(self.url, data=body, headers=headers) as response:
                length = response.headers.get("Inference-Header-Content-Length")
                body = await response.read()
                found = json.loads(body[:int(length)] if length else body)
                terms = found.get("parameters", {})
                return Answer(sent_s, response.status, terms.get("variant", ""),
                              terms.get("in_time", False), found.get("error", ""),
                              next((one["data"] for one in found.get("outputs", [])
                                    if "data" in one), ()))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return Answer(sent_s, 0, error=f"{type(error).__name__}: {error}")


Fault = Callable[[Clients, float], Awaitable[None]]


async def kills(clients: Clients, seconds: float) -> None:
    """A worker is killed every three seconds."""
    processes, until, number = clients.server.wait_for("ready")["processes"], _in(seconds), 0
    while time.monotonic() < until:
        await asyncio.sleep(3.0)
        for back in (one for one in clients.server.events() if one["event"] == "worker back"):
            processes[back["worker"]] = back["process"]
        with contextlib.suppress(ProcessLookupError):
            os.kill(processes[number % 2], signal.SIGKILL)
        number += 1


async def _poison(clients: Clients, seconds: float, number: int) -> None:
    until = _in(seconds)
    while time.monotonic() < until:
        await asyncio.sleep(2.0)
        await clients.ask([[number, 0, 0]])


async def hangs(clients: Clients, seconds: float) -> None:
    """A request makes its worker hang, again and again."""
    await _poison(clients, seconds, 777)


async def memory(clients: Clients, seconds: float) -> None:
    """A request makes its worker take more memory than it may."""
    await _poison(clients, seconds, 888)


async def swaps(clients: Clients, seconds: float) -> None:
    """Policies are exchanged whenever the server has taken them over."""
    folder, number, until = clients.server.folder / "policies", 0, _in(seconds)
    while time.monotonic() < until:
        number += 1
        _write_set(folder, *SWAPPED[number % 2])
        while time.monotonic() < until and clients.server.metric(
                "ramsis_policy_swaps_total") < number:
            await asyncio.sleep(0.1)


async def slow_clients(clients: Clients, seconds: float) -> None:
    """Three hundred clients send a byte a second, and as many none at all."""
    async def one(number: int) -> None:
        _, writer = await asyncio.open_connection(clients.server.host, clients.server.port)
        with contextlib.suppress(OSError):
            text = (b"POST /v2/models/sums/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n"
                    b"\r\n{\"inputs\"")
            if number % 2:
                writer.write(text[:60 + number % 40])
            until = _in(seconds)
            while time.monotonic() < until:
                if not number % 2:
                    writer.write(text[:1])
                    text = text[1:]
                await asyncio.sleep(1.0)
            writer.close()

    await asyncio.gather(*(one(number) for number in range(600)))


async def malformed(clients: Clients, seconds: float) -> None:
    """Two thousand bodies, lengths and deadlines of any form."""
    good = {"id": "a", "parameters": {"deadline_ms": 500.0, "binary_data_output": True},
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}],
            "outputs": [{"name": "sum", "parameters": {"binary_data": False}}]}
    rng, found = random.Random(1), Counter[int]()
    for _ in range(2000):
        head = json.dumps(mutated(rng, good)).encode()
        if rng.random() < 0.2:
            head = bytes(rng.randrange(256) if rng.random() < 0.05 else one for one in head)
        headers = {"Content-Type": "application/octet-stream"}
        if rng.random() < 0.5:
            headers["Inference-Header-Content-Length"] = rng.choice(
                [str(len(head)), str(len(head) // 2), "-1", "x", "9" * 30])
        if rng.random() < 0.3:
            headers["X-Deadline-Ms"] = rng.choice(["5", "-5", "inf", "nan", "x", "1e400"])
        answer = await clients.send(head + b"\x07" * rng.choice([0, 0, 1, 12]), headers)
        found[answer.status] += 1
        clients.answers += [answer] * (answer.status not in (200, 400, 503))
    print(f"  malformed: answers {dict(found)}")


async def flood(clients: Clients, seconds: float) -> None:
    """Ten times the capacity."""
    await clients.load(10 * CAPACITY_QPS, seconds)


FAULTS: dict[str, tuple[Fault, float, tuple[str, ...]]] = {
    "kills": (kills, 30.0, ()),
    "kills, run once more": (kills, 30.0, ("--retry",)),
    "hangs": (hangs, 15.0, ("--batch-timeout-s", "1")),
    "memory": (memory, 15.0, ("--worker-memory-mb", "4000")),
    "swaps": (swaps, 130.0, ()),
    "slow clients": (slow_clients, 15.0, ()),
    "malformed": (malformed, 15.0, ()),
    "flood": (flood, 10.0, ()),
}


def _in(seconds: float) -> float:
    return time.monotonic() + seconds


@contextlib.contextmanager
def _made() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ramsis-faults-") as name:
        folder = Path(name)
        (folder / "summing.py").write_text(FUNCTIONS)
        (folder / "variants.toml").write_text(VARIANTS)
        for loads in (*SWAPPED, SWAPPED[0]):  # both made before clients keep time
            _write_set(folder / "policies", *loads)
        yield folder


@contextlib.asynccontextmanager
async def _clients(server: Running) -> AsyncIterator[Clients]:
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0),
                                     timeout=aiohttp.ClientTimeout(total=30.0)) as session:
        yield Clients(server, session)


async def _run(name: str, server: Running, least_s: float) -> list[str]:
    """What is wrong with how a fault is borne."""
    fault, seconds, _ = FAULTS[name]
    seconds = max(seconds, least_s)
    qps = CAPACITY_QPS / 2
    async with _clients(server) as clients:
        await clients.load(qps, 2.0 + STEADY_S)
        begun = time.monotonic()
        stop = asyncio.Event()
        beside = asyncio.create_task(clients.load(qps, stop=stop))
        await fault(clients, seconds)
        ended = time.monotonic()
        await asyncio.sleep(BACK_S + STEADY_S)
        stop.set()
        await beside
        await clients.all_answers()
    answers = clients.answers
    before = [one for one in answers if begun - STEADY_S <= one.sent_s < begun]
    during = [one for one in answers if begun <= one.sent_s < ended]
    after = [one for one in answers if one.sent_s >= ended + BACK_S]
    was, now = (sum(one.accuracy for one in some) / len(some) for some in (before, after))
    print(f"{name}: {len(answers)} requests, during the fault "
          f"{dict(Counter(one.status for one in during))}; effective accuracy {was:.3f} before, "
          f"{sum(one.accuracy for one in during) / max(len(during), 1):.3f} during, {now:.3f} "
          f"from {BACK_S:g} s after", flush=True)
    print(f"  longest from the loss of a worker until it is back: {_longest_gap_s(server):.1f} s",
          flush=True)
    wrong = [f"status {one.status}: {one.error}" for one in answers
             if one.status not in (200, 500, 503)]
    if server.process.poll() is not None:
        wrong.append("the server has ended")
    if now < was - 0.05:
        wrong.append("the accuracy is not back")
    if fault is kills:
        count = server.metric("ramsis_queries_total")
        print(f"  {len(answers)} requests, {count:g} ends, "
              f"{server.metric('ramsis_worker_restarts_total'):g} losses of workers")
        if count != len(answers):
            wrong.append("a request has ended twice, or never")
    if name == "swaps":
        count = server.metric("ramsis_policy_swaps_total")
        print(f"  {count:g} swaps")
        if count < 100:
            wrong.append("fewer than 100 swaps")
    errors = server.errors.read_text()
    if "Traceback" in errors:
        wrong.append(errors[errors.index("Traceback"):][:2000])
    return wrong


def _longest_gap_s(server: Running) -> float:
    """From a worker's loss to when it was back, at most."""
    lost, longest_s = dict[int, datetime.datetime](), 0.0
    for one in server.events():
        when = datetime.datetime.fromisoformat(one["time"])
        if one["event"] == "worker lost":
            lost.setdefault(one["worker"], when)
        elif one["event"] == "worker back" and one["worker"] in lost:
            longest_s = max(longest_s, (when - lost.pop(one["worker"])).total_seconds())
    return longest_s


def main() -> int:
    """Run the faults; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="*", choices=list(FAULTS), default=list(FAULTS))
    parser.add_argument("--least-s", type=float, default=0.0, help="seconds of each, at least")
    given, count = parser.parse_args(), 0
    for name in given.only:
        with _made() as folder, running(folder, *FAULTS[name][2]) as server:
            wrong = asyncio.run(_run(name, server, given.least_s))
            for one in wrong[:5]:
                print(f"  {one}", flush=True)
            count += len(wrong)
        print(f"{name}: {len(wrong)} findings", flush=True)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
