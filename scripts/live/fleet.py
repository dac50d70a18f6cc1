"""A server and a load generator as processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ramsis.audit.request_log import RequestLog, read_request_log
from ramsis.policy import Policy, write_set
from ramsis.policy.policy_set import set_of

__all__ = ["Live", "Load", "host_times", "live_run", "send", "server", "stolen_share"]

_SERVING = re.compile(r"serving (\S+) at (\S+)")
_STARTS_S = 120.0


@dataclass(frozen=True)
class Load:
    """A Poisson load, as `ramsis load` takes it."""

    load_qps: float
    duration_s: float
    seed: int
    slo_ms: float


@dataclass(frozen=True)
class Live:
    """What a live run showed.

    Attributes
    ----------
    row : dict
        Of `ramsis load`, by the client's clock.
    client, server : RequestLog
        By the clocks of both.
    stolen : float or None
        Share of the machine's time that its host gave to others; ``None`` where that is unknown.
    """

    row: dict[str, Any]
    client: RequestLog
    server: RequestLog
    stolen: float | None


def live_run(
    policy: Policy, variants: Path, data: Path, load: Load, *, overhead_ms: float = 0.0,
    code: Sequence[str] = (),
) -> Live:
    """Serve by a policy, send the load, and stop.

    Parameters
    ----------
    overhead_ms : float
        That the server takes from every slack.
    code : sequence of str
        Functions that the variants file may name.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_set(folder / "policies", set_of([policy]), created_by="scripts/fidelity.py")
        with server(folder, variants, load.load_qps, overhead_ms, code) as (model, url):
            # The first requests meet caches that are cold.
            send(url, model, data, Load(load.load_qps, 1.0, load.seed + 1000, load.slo_ms),
                 folder / "warm.csv", policy.workers)
            before = host_times()
            row = send(url, model, data, load, folder / "client.csv", policy.workers)
            stolen = stolen_share(before, host_times())
        client = read_request_log(folder / "client.csv")
        log = read_request_log(folder / "server.csv")
        if row["failed"]:
            raise RuntimeError(f"{row['failed']} requests failed")
        return Live(row, client, _last(log, len(client)), stolen)


def host_times() -> list[int] | None:
    """Time of all cores so far, by what it went to (Linux, ``man 5 proc_stat``)."""
    try:
        with open("/proc/stat", encoding="ascii") as stream:
            return [int(word) for word in stream.readline().split()[1:]]
    except OSError:
        return None


def stolen_share(before: list[int] | None, after: list[int] | None) -> float | None:
    """Share of the machine's time from one to the other that its host gave to others."""
    if before is None or after is None:
        return None
    spent = [b - a for a, b in zip(before, after, strict=True)][:8]  # guests count as user time
    return spent[7] / max(1, sum(spent))


def _last(log: RequestLog, count: int) -> RequestLog:
    """The requests after the warm-up."""
    return log.only(np.arange(len(log) - count, len(log)))


def send(
    url: str, model: str, data: Path, load: Load, log: Path, workers: int,
    options: Sequence[str] = (),
) -> dict[str, Any]:
    """Send a load by `ramsis load` with further options; return its row."""
    done = subprocess.run(
        [*_ramsis(), "load", url, "--model", model, "--slo-ms", str(load.slo_ms), "--load",
         repr(load.load_qps), "--duration-s", str(load.duration_s), "--seed", str(load.seed),
         "--data", str(data), "--request-log", str(log), "--json", *options],
        check=True, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: _leave_cores(workers))
    row: dict[str, Any] = json.loads(done.stdout)["rows"][0]
    return row


def _leave_cores(workers: int) -> None:
    """Keep this process off the cores that a server gives its workers, where there are others."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > workers:
        os.sched_setaffinity(0, [cores[0], *cores[workers + 1:]])


@contextlib.contextmanager
def server(
    folder: Path, variants: Path, load_qps: float, overhead_ms: float, code: Sequence[str] = (),
    command: Sequence[str] | None = None, options: Sequence[str] = (),
) -> Iterator[tuple[str, str]]:
    """Serve by the policies of a folder; yield the model's name and its URL.

    Parameters
    ----------
    command : sequence of str, optional
        In the place of ``ramsis``.
    options : sequence of str
        Further options of `ramsis serve`.
    """
    with (folder / "server.err").open("w") as errors, subprocess.Popen(
        [*(command or _ramsis()), "serve", str(folder / "policies"), "--variants",
         str(variants), "--port", "0", "--load", repr(load_qps), "--overhead-ms",
         f"{overhead_ms:.6g}", "--request-log", str(folder / "server.csv"), *options,
         *(["--code", ",".join(code)] if code else [])],
        stdout=subprocess.PIPE, stderr=errors, text=True,
    ) as process:
        try:
            assert process.stdout is not None
            found = None
            for line in process.stdout:
                found = _SERVING.search(line)
                if found:
                    break
            if not found:
                raise RuntimeError((folder / "server.err").read_text()[-2000:])
            yield found[1], found[2]
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()


def _ramsis() -> list[str]:
    """Return the words that run the command line, whose output is not buffered."""
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    return [sys.executable, "-m", "ramsis"]
