"""Commands that are interrupted at random moments, as by Ctrl-C, and what they left.

Each is a process of its own, so that its beginning and its end are interrupted, too. It must end
with exit code 130, or 0 where it was done; say so in one line; leave no processes, no temporary
files and nothing half-written; and the same command must then succeed.
"""

import contextlib
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.faults.kills import (
    PATIENCE_S,
    TABLES,
    WRITERS,
    Finding,
    Writer,
    begun,
    content,
    differences,
    ended,
    half_written,
    made_ready,
    settled,
    whole_run,
    words_of,
)
from tests.fuzz.commands import CLUSTER

ALLOWED = (0, 130)
_SERVES_S = 2.5

_CENTRAL = [*CLUSTER[:-1], "2", "--load", "100,150", "--duration-s", "60"]
INTERRUPTED: dict[str, Writer] = {
    **{name: WRITERS[name] for name in (
        "generate", "generate of two processes", "sweep", "sweep of two processes",
        "capacity --keep")},
    "generate of a central queue": Writer(
        ["generate", "--profiles", "{kit}/profile.json", "--slo-ms", "100", "--workers", "2",
         "--dispatch", "central-queue", "--max-queue", "4", "--load", "100,150,200,250,300",
         "--out", "{work}/set"]),
    "simulate": Writer(["simulate", *TABLES, "--duration-s", "600", "--csv", "{work}/s.csv"]),
    "simulate of a central queue": Writer(
        ["simulate", *_CENTRAL, "--scheduler", "central-queue", "--csv", "{work}/s.csv"]),
    "capacity of a central queue": Writer(
        ["capacity", *CLUSTER[:-2], "--load", "100", "--duration-s", "1", "--scheduler",
         "central-queue", "--seeds", "1", "--max-violation", "0.5", "--keep", "{work}/kept"]),
    "serve": Writer(["serve", "{kit}/serving/policies", "--variants",
                     "{kit}/serving/variants.toml", "--port", "0",
                     "--code", "summing:fast,summing:slow"]),
}
"""The commands; all end by themselves but ``serve``."""


_EVENT = '{"time": '  # of the log of a server


def interrupted_often(
    name: str, kit: Path, root: Path, interrupts: int, seed: int, seconds: float = math.inf
) -> Iterator[list[Finding]]:
    """Interrupt a command that often, as time allows, and find what is wrong after each time."""
    writer, rng = INTERRUPTED[name], random.Random(f"{seed} {name}")
    until = time.monotonic() + seconds
    ends = name != "serve"
    old, wanted, _ = whole_run(writer, kit, root) if ends else ({}, {}, 0.0)
    work = root / "work"
    words = words_of(writer.words, kit, work)
    made_ready(work, old)
    start = time.monotonic()
    length_s = _SERVES_S
    if ends:
        assert interrupted(words, math.inf)[0] == 0
        length_s = time.monotonic() - start
    for _ in range(interrupts):
        if time.monotonic() > until:
            return
        made_ready(work, old)
        after_s = rng.uniform(0.0, length_s)
        code, said, stays = interrupted(words, after_s)
        found = [] if code in ALLOWED else [f"exit code {code}: {said}"]
        lines = [line for line in said.splitlines() if line and not line.startswith(_EVENT)]
        found += [f"it says {said!r}"] if len(lines) > (code == 130) else []
        found += stays
        found += [f"left {one}" for one in content(work) if "/." in f"/{one}"]
        found += half_written(work, old, wanted, writer)
        if ends:
            if code := ended(begun(words)):
                found.append(f"the same command then exits with {code}")
            elif wrong := differences(content(work), wanted, writer):
                found.append(f"after the same command: {wrong}")
        yield [Finding(what, after_s) for what in found]


def interrupted(words: Sequence[str], after_s: float) -> tuple[int, str, list[str]]:
    """Exit code and words on stderr of a command interrupted so long after it began.

    And, if they do, that processes stay.
    """
    with subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "ramsis", *words], text=True,
            start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE) as process:
        try:
            _wait_until_handled(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(min(after_s, PATIENCE_S))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return -signal.SIGKILL, "it goes on", []
    return process.returncode, said, [] if settled(process.pid) else ["processes stay"]


def _wait_until_handled(process: subprocess.Popen[str]) -> None:
    """Until the interrupts of a process that begins are ours to handle.

    Then it also handles SIGALRM. Before, Python ends by the signal itself.
    """
    until = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{process.pid}/status").read_text()
            caught = int(status.partition("SigCgt:")[2].split()[0], 16)
            if caught >> (signal.SIGALRM - 1) & 1:
                return
        time.sleep(0.001)
