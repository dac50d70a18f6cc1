"""System calls of a server that fail, one after the other, while a worker dies under load.

``python -m tests.faults.system_calls`` lets each call of each kind fail once, in turn: first those
of the front end from the death of a worker until another is ready and requests are answered, then
some of those of the worker that starts. It needs strace, which makes the calls fail.

Each request must have an answer, or its connection an end, and all workers must be back soon.
"""

import argparse
import contextlib
import http.client
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.serving.servers import Running, make, running

RECOVERY_S = 2.0
"""From the death of a worker until all are ready, besides what starting twice takes."""
PATIENCE_S = 5.0
WORKERS = 2
CALLS: dict[str, tuple[str, ...]] = {
    "socketpair": ("EMFILE",), "pipe2": ("EMFILE",), "vfork": ("EAGAIN", "ENOMEM"),
    "pidfd_open": ("EMFILE",), "accept4": ("EMFILE", "ECONNABORTED"), "openat": ("EMFILE", "EIO"),
    "sendto": ("ENOBUFS",), "sendmsg": ("ENOBUFS",), "recvfrom": ("ENOMEM",), "write": ("ENOSPC",),
    "poll": ("ENOMEM",), "newfstatat": ("EIO",), "setsockopt": ("ENOMEM",),
    "getsockname": ("ENOBUFS",), "getpeername": ("ENOTCONN",), "kill": ("EPERM",),
    "close": ("EIO",),
}
"""What they fail with. Left out is what the event loop's library ends the process for: failures of
``epoll_ctl`` and of reads of its own pipes."""
IN_WORKERS = {"openat": "EMFILE", "read": "EIO", "mmap": "ENOMEM", "recvmsg": "ENOMEM",
              "newfstatat": "EIO"}
_TRACE_S, _NEVER, _TRIES = 10.0, 65535, 4


class Fault(NamedTuple):
    """The n-th call of a name fails; of the front end, or of the workers that it starts."""

    call: str
    error: str
    number: int
    in_workers: bool = False

    def __str__(self) -> str:
        where = "a worker" if self.in_workers else "the front end"
        return f"{self.call} number {self.number} of {where} fails with {self.error}"


def can_trace() -> bool:
    """Whether strace is here, and may trace."""
    return shutil.which("strace") is not None and subprocess.run(
        ["strace", "-qq", "-o", os.devnull, "true"], capture_output=True).returncode == 0


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Running]:
    """A server of two workers, on which nothing has failed yet."""
    if not (folder / "policies").exists():
        make(folder, workers=WORKERS, slo_ms=500.0)
    with running(folder, "--overhead-ms", "1", "--request-log", str(folder / "log.csv"),
                 "--batch-timeout-s", "1") as server:
        yield server


@contextlib.contextmanager
def _traced(server: Running, file: Path, options: Sequence[str]) -> Iterator[Callable[[], None]]:
    """Trace; the function that comes ends that once a call has failed."""
    with subprocess.Popen(["strace", "-o", str(file), *options, "-p", str(server.process.pid)],
                          stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr is not None
        line = strace.stderr.readline()
        assert "attached" in line, line

        def end_if_failed() -> None:
            if strace.poll() is None and "(INJECTED)" in file.read_text():
                strace.kill()  # at once; it lets go of each process one by one, else

        try:
            yield end_if_failed
        finally:
            strace.send_signal(signal.SIGINT)
            strace.communicate(timeout=_TRACE_S)


def counted(server: Running, *options: str) -> dict[str, int]:
    """How often each call comes in a scenario; with ``-f`` those of workers as well."""
    file = server.folder / "counts.txt"
    with _traced(server, file, ["-c", *options]):
        _scenario(server)
    rows = [line.split() for line in file.read_text().splitlines()]
    return {row[-1]: int(row[3]) for row in rows if len(row) >= 5 and row[3].isdigit()}


def usual_s(server: Running, *, in_workers: bool = False) -> float:
    """From the death of a worker until all are ready, when it is traced and nothing fails."""
    return max(_borne(server, Fault("openat", "EIO", _NEVER, in_workers))[1] for _ in range(2))


def failing(server: Running, fault: Fault, usual: float) -> tuple[bool, list[str]]:
    """Whether the fault has come, and what is wrong with how it is borne."""
    wrong, came = list[str](), False
    for _ in range(_TRIES):
        outcomes, took_s, has_come = _borne(server, fault)
        came |= has_come
        wrong += [f"{count} requests: {outcome}" for outcome, count in outcomes.items()
                  if outcome in ("no answer", "wrong answer")]
        # A worker whose start fails late starts twice.
        is_slow = took_s > 2.0 * usual + RECOVERY_S
        if not is_slow or server.process.poll() is not None:
            break
        usual = max(usual, usual_s(server, in_workers=fault.in_workers))  # a busy machine?
    if server.process.poll() is not None:
        wrong.append(f"the server has ended: {server.process.returncode}")
    elif is_slow:
        wrong.append(f"all workers were ready after {took_s:.1f} s; usual are {usual:.1f}")
    errors = server.errors.read_text()
    if "Traceback" in errors and not fault.in_workers:
        wrong.append(errors[errors.index("Traceback"):][:2000])
    return came, wrong if came else []


def _borne(server: Running, fault: Fault) -> tuple[Counter[str], float, bool]:
    """Outcomes of requests, seconds until all workers were ready, and whether the fault came."""
    file = server.folder / "trace.txt"
    options = ["-e", f"trace={fault.call}", "-e",
               f"inject={fault.call}:error={fault.error}:when={fault.number}"]
    with _traced(server, file, ["-f", *options] if fault.in_workers else options) as once:
        # Each process has a count of its own, so that the next worker would fail as well.
        outcomes, took_s = _scenario(server, once)
    return outcomes, took_s, "(INJECTED)" in file.read_text()


def _scenario(
    server: Running, meanwhile: Callable[[], object] = int
) -> tuple[Counter[str], float]:
    """Kill a worker under load: outcomes of requests, and seconds until all were ready."""
    outcomes, stop, lock = Counter[str](), threading.Event(), threading.Lock()

    def ask(least: int) -> None:
        asked = 0
        while asked < least or not stop.is_set():
            asked += 1
            outcome = _outcome(server)
            with lock:
                outcomes[outcome] += 1
            time.sleep(0.01)

    clients = [threading.Thread(target=ask, args=(5,)) for _ in range(2)]
    for client in clients:
        client.start()
    begun_s = time.monotonic()
    restarts = _metric(server, "ramsis_worker_restarts_total")
    for child in _children(server)[:1]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    while server.process.poll() is None and time.monotonic() < begun_s + 4 * PATIENCE_S:
        if (_metric(server, "ramsis_worker_restarts_total") > restarts
                and _metric(server, "ramsis_workers_up") == WORKERS):
            break
        meanwhile()
        time.sleep(0.05)
    took_s = time.monotonic() - begun_s
    stop.set()
    for client in clients:
        client.join()
    return outcomes, took_s


def _outcome(server: Running) -> str:
    """What becomes of a request over a connection of its own."""
    try:
        status, answer = server.infer([[1, 2, 3]])
    except TimeoutError:
        return "no answer"
    except (OSError, http.client.HTTPException):
        return "connection closed"
    if status == 200 and answer["outputs"][0]["data"] != [6.0]:
        return "wrong answer"
    return str(status)


def _metric(server: Running, name: str) -> float:
    try:
        return server.metric(name)
    except (OSError, http.client.HTTPException):
        return -1.0


def _children(server: Running) -> list[int]:
    """Processes of the workers."""
    task = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    workers = []
    for child in task.read_text().split():
        with contextlib.suppress(OSError):  # it has just ended
            if b"ramsis.serving.workers" in Path(f"/proc/{child}/cmdline").read_bytes():
                workers.append(int(child))
    return workers


def main() -> int:
    """Let calls fail; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--most", type=int, default=12, help="calls of a name, at random if more")
    parser.add_argument("--in-workers", type=int, default=30, help="calls of workers that start")
    parser.add_argument("--only", nargs="*", choices=list(CALLS), default=list(CALLS))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng, found, faults = random.Random(given.seed), 0, 0
    with tempfile.TemporaryDirectory(prefix="ramsis-calls-") as name:
        folder = Path(name)
        with served(folder) as server:
            usual = {also: usual_s(server, in_workers=also) for also in (False, True)}
            counts, with_workers = counted(server), counted(server, "-f")
        print(f"usual recovery {usual} s; calls {counts}", flush=True)
        wanted = [Fault(call, error, number) for call in given.only for error in CALLS[call]
                  for number in sorted(rng.sample(range(1, counts.get(call, 0) + 1),
                                                  min(given.most, counts.get(call, 0))))]
        # The front end counts as well: only later calls are a worker's for certain.
        ranges = {call: range(counts.get(call, 0) + 1, with_workers.get(call, 0) + 1)
                  for call in IN_WORKERS}
        for _ in range(given.in_workers):
            call = rng.choice([call for call, numbers in ranges.items() if numbers])
            wanted.append(Fault(call, IN_WORKERS[call], rng.choice(ranges[call]), True))
        while wanted:
            with served(folder) as server:
                while wanted and server.process.poll() is None:
                    fault = wanted.pop(0)
                    came, wrong = failing(server, fault, usual[fault.in_workers])
                    faults += came
                    for line in wrong:
                        print(f"{fault}: {line}", flush=True)
                    found += len(wrong)
                    if wrong:
                        break  # a server on which nothing has failed
    print(f"{faults} calls failed: {found} findings", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
