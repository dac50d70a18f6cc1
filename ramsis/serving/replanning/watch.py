"""Watches the folder of policies while serving, and exchanges policies after a change.

The manifest of a set is written last, so a changed manifest means a complete new set. If the set
cannot be read, or does not fit the variants and workers, this is reported, and the current set
kept.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from ramsis.errors import RamsisError
from ramsis.runtime.manifest import MANIFEST_NAME
from ramsis.serving.policies import read_policies
from ramsis.serving.server import Server

_INTERVAL_S = 1.0  # interval of checks


def _state(path: Path) -> tuple[int, ...] | None:
    """Return values that change when a file is written; None without a file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


async def watch_policies(server: Server, path: str) -> None:
    """Serve by each new policy set that is written to a path, until cancelled.

    Parameters
    ----------
    server
        Server with the policies that are at the path now.
    path
        Folder with a manifest, or policy file.
    """
    file = Path(path) / MANIFEST_NAME if Path(path).is_dir() else Path(path)
    before = _state(file)
    while True:
        await asyncio.sleep(_INTERVAL_S)
        now = _state(file)
        if now == before:
            continue
        # A refused set is read again only after another change.
        before = now
        try:
            policies = await asyncio.get_running_loop().run_in_executor(None, read_policies, path)
            server.swap(policies, path)
        except RamsisError as error:
            server.metrics.bad_sets.inc()
            server.log("policies refused", source=path, reason=str(error))
