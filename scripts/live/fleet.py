"""A server and a load generator as processes of their own, and what live runs show of times."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from study import ROOT, family_of

from ramsis.audit.request_log import RequestLog, read_request_log
from ramsis.cluster import ServiceTimes
from ramsis.policy import Policy, write_set
from ramsis.policy.policy_set import set_of
from ramsis.profiles import ProfileSet

__all__ = ["Endpoint", "Live", "Load", "host_times", "live_run", "longer", "running", "send",
           "serving", "slower_ms", "stolen_share"]

RAMSIS = (sys.executable, "-u", "-m", "ramsis")  # whose output is not buffered
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_SERVING = re.compile(r"serving (\S+) at (\S+)")
_ENDS_S = 15.0
FEW_BATCHES = 50
# Lines of a log that say why a server ended: errors of Python, and of Triton (glog's E and F).
_REASON = re.compile(r"^[EF]\d{4} |\w*Error\b|\bUNAVAILABLE\b|\berror:", re.MULTILINE)
_MOST_REASONS, _LAST_LINES, _LONGEST_LINE = 10, 3, 500


@dataclass(frozen=True)
class Endpoint:
    """A model of a server that runs: its URL, and the server's process."""

    url: str
    process: int


@dataclass(frozen=True)
class Load:
    """A Poisson load, as `ramsis load` takes it."""

    load_qps: float
    duration_s: float
    seed: int
    slo_ms: float


@dataclass(frozen=True)
class Live:
    """What a live run showed."""

    row: dict[str, Any]  # of `ramsis load`, by the client's clock
    client: RequestLog  # by the client's clock
    server: RequestLog  # by the server's clock
    stolen: float  # share of the machine's time that its host took; 0 where that is unknown


@contextlib.contextmanager
def running(
    command: Sequence[str], folder: Path, more: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A process, ended with all that it has started."""
    log = folder / "log.txt"
    with log.open("w") as errors, subprocess.Popen(
        list(command), stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder,
        env={**os.environ, **ONE_THREAD, **(more or {})}, start_new_session=True,
    ) as process:
        try:
            yield process
        except TimeoutError as error:
            raise RuntimeError(f"{error}\n{reasons_in(log.read_text())}") from error
        finally:
            family = family_of(process.pid)
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=_ENDS_S)
            for one in family:
                with contextlib.suppress(OSError):
                    os.kill(one, signal.SIGKILL)


def reasons_in(log: str) -> str:
    """Return the lines of a log that hold errors, and its last ones, in their order.

    Triton ends with lines on its shutdown; the reason of it stands before them, once for each try.
    """
    lines = log.splitlines()
    kept = [number for number, line in enumerate(lines) if _REASON.search(line)][:_MOST_REASONS]
    shown = dict.fromkeys([*kept, *range(max(len(lines) - _LAST_LINES, 0), len(lines))])
    return "\n".join(lines[number][:_LONGEST_LINE] for number in sorted(shown))


@contextlib.contextmanager
def serving(
    arguments: Sequence[object], folder: Path, command: Sequence[str] = RAMSIS
) -> Iterator[Endpoint]:
    """Run `ramsis serve`, or another command in the place of ``ramsis``, until the end."""
    words = [*command, "serve", *map(str, arguments), "--port", "0"]
    with running(words, folder, {"PYTHONPATH": str(ROOT / "scripts")}) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if found := _SERVING.search(line):
                yield Endpoint(f"{found[2]}/v2/models/{found[1]}", process.pid)
                return
        raise TimeoutError("ramsis serve does not start")


def live_run(
    policy: Policy, variants: Path, data: Path, load: Load, *, overhead_ms: float = 0.0,
    code: Sequence[str] = (),
) -> Live:
    """Serve by a policy, send the load, and stop.

    The server takes the overhead from slacks; the variants file may name the functions ``code``.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_set(folder / "policies", set_of([policy]), created_by="scripts/fidelity.py")
        with serving([folder / "policies", "--variants", variants.resolve(), "--load",
                      repr(load.load_qps), "--overhead-ms", f"{overhead_ms:.6g}", "--request-log",
                      folder / "server.csv", *(["--code", ",".join(code)] if code else [])],
                     folder) as endpoint:
            # The first requests meet caches that are cold.
            send(endpoint.url, data, Load(load.load_qps, 1.0, load.seed + 1000, load.slo_ms),
                 folder / "warm.csv", policy.workers)
            before = host_times()
            row = send(endpoint.url, data, load, folder / "client.csv", policy.workers)
            stolen = stolen_share(before, host_times())
        client = read_request_log(folder / "client.csv")
        log = read_request_log(folder / "server.csv")
        if row["failed"]:
            raise RuntimeError(f"{row['failed']} requests failed")
        after_warm_up = np.arange(len(log) - len(client), len(log))
        return Live(row, client, log.only(after_warm_up), stolen or 0.0)


def host_times() -> list[int] | None:
    """Return the time of all cores so far, by what it went to (Linux, ``man 5 proc_stat``)."""
    try:
        with open("/proc/stat", encoding="ascii") as stream:
            return [int(word) for word in stream.readline().split()[1:]]
    except OSError:
        return None


def stolen_share(before: list[int] | None, after: list[int] | None) -> float | None:
    """Return the share of the machine's time in between that its host gave to others."""
    if before is None or after is None:
        return None
    spent = [b - a for a, b in zip(before, after, strict=True)][:8]  # guests count as user time
    return spent[7] / max(1, sum(spent))


def send(
    url: str, data: Path, load: Load, log: Path, workers: int, options: Sequence[str] = ()
) -> dict[str, Any]:
    """Send a load to a model by `ramsis load` with further options; return its row."""
    done = subprocess.run(
        [*RAMSIS, "load", url, "--slo-ms", str(load.slo_ms), "--load", repr(load.load_qps),
         "--duration-s", str(load.duration_s), "--seed", str(load.seed), "--data", str(data),
         "--request-log", str(log), "--json", *options],
        check=True, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: _leave_cores(workers))
    row: dict[str, Any] = json.loads(done.stdout)["rows"][0]
    return row


def _leave_cores(workers: int) -> None:
    """Keep this process off the cores that a server gives its workers, where there are others."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > workers:
        os.sched_setaffinity(0, [cores[0], *cores[workers + 1:]])


def longer(profile: ProfileSet, logs: list[RequestLog]) -> dict[str, float]:
    """How much longer each model's batches take than in the profile, as a ratio of means.

    What a worker waits between two batches counts for the first. Of a model with few batches the
    ratio is that of all batches.
    """
    times = ServiceTimes.of_all(profile, "distribution", 33)
    number = {name: i for i, name in enumerate(times.models)}
    took, alone, count = (np.zeros(len(number)) for _ in range(3))
    pauses = np.concatenate([pauses_ms(log) for log in logs])
    pause_ms = float(np.median(pauses)) if len(pauses) else 0.0
    for log in logs:
        known = np.isfinite(log.start_s) & log.answered
        model = np.array([number[name] for name in log.model[known]])
        size = np.where(log.run_as[known] > 0, log.run_as[known], log.batch[known])
        once = 1.0 / log.batch[known]  # a batch counts once, however many requests it has
        took_ms = 1000.0 * (log.finish_s - log.start_s)[known] + pause_ms
        np.add.at(took, model, once * took_ms)
        np.add.at(alone, model, once * times.mean_ms[model, size - 1])
        np.add.at(count, model, once)
    of_all = took.sum() / alone.sum()
    return {name: float(took[i] / alone[i]) if count[i] >= FEW_BATCHES else float(of_all)
            for name, i in number.items()}


def pauses_ms(log: RequestLog) -> NDArray[np.float64]:
    """From the end of each batch to the start of its worker's next, where that had waited."""
    found = [np.zeros(0)]
    for worker in np.unique(log.worker[log.worker >= 0]):
        mine = np.flatnonzero(log.answered & (log.worker == worker))
        start_s, first = np.unique(log.start_s[mine], return_index=True)
        finish_s, arrival_s = log.finish_s[mine][first], log.arrival_s[mine][first]
        waited = arrival_s[1:] < finish_s[:-1]
        found.append(1000.0 * (start_s[1:] - finish_s[:-1])[waited])
    return np.maximum(np.concatenate(found), 0.0)


def slower_ms(live: Live) -> float:
    """What a request takes for the client beyond the server's time: the 95th percentile."""
    client, server = live.client, live.server
    both = client.answered & server.answered  # both by arrival, so the same requests
    beyond = (client.finish_s - client.arrival_s - server.finish_s + server.arrival_s)[both]
    return max(0.0, float(np.quantile(1000.0 * beyond, 0.95)))
