"""A real Triton in a process of its own, for tests.

``RAMSIS_TRITONSERVER`` is a command that starts ``tritonserver`` and passes options on; by default
it is looked for on the path. The Python of its Python backend needs what ``ramsis[serve]`` needs;
``PYTHONPATH`` has this folder, to which the command may add.
"""

import contextlib
import json
import os
import random
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.serving.servers import ROOT, ask, body, started

NEEDS = "needs tritonserver"


def triton_command() -> list[str]:
    """How Triton is started here; a test that has none is skipped."""
    said = shlex.split(os.environ.get("RAMSIS_TRITONSERVER", "")) or [
        shutil.which("tritonserver") or ""]
    if not said[0]:
        pytest.skip(NEEDS)
    return said


def export(folder: Path) -> Path:
    """The model repository of what :func:`tests.serving.servers.make` wrote."""
    out = folder / "repository"
    subprocess.run(
        [sys.executable, "-m", "ramsis", "export", "triton", folder / "policies", "--variants",
         folder / "variants.toml", "--code", "summing:fast", "--code", "summing:slow", "--out",
         out], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return out


@dataclass
class Triton:
    """A Triton that runs."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path

    @property
    def grpc(self) -> str:
        """Where its gRPC listens."""
        return f"127.0.0.1:{self.port + 1}"

    def post(self, path: str, document: Any) -> tuple[int, Any]:
        """Status and document of an answer."""
        return ask(self.port, path, document)

    def infer(self, *numbers: float, **parameters: Any) -> tuple[int, Any]:
        """Status, and outputs by name or the error, of queries that have a number thrice."""
        status, document = self.post("/v2/models/sums/infer", body(*numbers, **parameters))
        if status != 200:
            return status, document["error"]
        return status, {one["name"]: one["data"] for one in document["outputs"]}

    def log(self) -> str:
        """What it has written."""
        return (self.folder / f"triton-{self.port}.txt").read_text(errors="replace")

    def workers(self) -> list[int]:
        """The worker processes that the model started with when it was last loaded."""
        ready = [json.loads(line) for line in self.log().splitlines()
                 if line.startswith('{') and '"ready"' in line]
        return list(ready[-1]["processes"])


def _ports() -> int:
    """The first of three ports that are free; any, since others may look for some now, too."""
    for first in random.sample(range(18_400, 19_400, 3), 300):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in range(first, first + 3):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise AssertionError("no port is free")


@contextlib.contextmanager
def triton(repository: Path, *options: str, port: int | None = None) -> Iterator[Triton]:
    """Triton on a model repository, when it is ready or has ended; at any ports by default."""
    command, port = triton_command(), port or _ports()
    places = [f"--{kind}-port={port + i}" for i, kind in enumerate(("http", "grpc", "metrics"))]
    line = [*command, f"--model-repository={repository}", "--http-address=127.0.0.1",
            "--grpc-address=127.0.0.1", *places, *options]
    log = repository.parent / f"triton-{port}.txt"
    with started(line, log, port, "/v2/health/ready") as process:
        yield Triton(process, port, repository.parent)
