"""Watching the folder of policies while they serve, and serving by a new set.

Whoever writes a set writes its manifest last, so a manifest that has changed stands for a whole
new set. One that cannot be read, or is not for these variants and workers, is reported, and the
set that serves stays.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from ramsis.errors import RamsisError
from ramsis.runtime.manifest import MANIFEST_NAME
from ramsis.serving.policies import read_policies
from ramsis.serving.server import Server

_INTERVAL_S = 1.0  # from one look to the next


def _state(path: Path) -> tuple[int, ...] | None:
    """Return values that change when a file is written; None where there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


async def watch_policies(server: Server, path: str) -> None:
    """Serve by each new set that is written to a path, for ever.

    Parameters
    ----------
    server
        A server that serves by the policies that are at the path now.
    path
        A folder with a manifest, or a policy file.
    """
    file = Path(path) / MANIFEST_NAME if Path(path).is_dir() else Path(path)
    before = _state(file)
    while True:
        await asyncio.sleep(_INTERVAL_S)
        now = _state(file)
        if now == before:
            continue
        # A set that is refused is looked at again only when it has changed.
        before = now
        try:
            policies = await asyncio.get_running_loop().run_in_executor(None, read_policies, path)
            server.swap(policies, path)
        except RamsisError as error:
            server.metrics.bad_sets.inc()
            server.log("policies refused", source=path, reason=str(error))
