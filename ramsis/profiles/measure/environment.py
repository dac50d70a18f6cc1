"""Description of a measurement's environment: processor, cores, versions, other load."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import ramsis

MUCH = 0.5
"""Other work, in processors, from which measured latencies are doubtful."""


def hardware(threads: int = 1) -> dict[str, object]:
    """Describe the processor, and how much of it this process may use.

    ``pinned_core`` is the number of the core when there is only one.
    """
    found: dict[str, object] = {
        "cpu": _cpu(), "cores": os.cpu_count() or 1, "threads": threads,
        "system": platform.system(), "machine": platform.machine(),
    }
    if hasattr(os, "sched_getaffinity"):
        usable = sorted(os.sched_getaffinity(0))
        found["cores_used"] = len(usable)
        if len(usable) == 1:
            found["pinned_core"] = usable[0]
    if hasattr(os, "getpriority"):
        found["raised_priority"] = os.getpriority(os.PRIO_PROCESS, 0) < 0
    return found


def _cpu() -> str:
    """Return the processor's name, as the system gives it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions(libraries: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python, ramsis, NumPy and the installed ones of ``libraries``."""
    found = {"python": platform.python_version(), "ramsis": ramsis.__version__}
    for name in ("numpy", *libraries):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def foreign_load(own: float) -> float | None:
    """Return the number of processors busy with other work in the last minute, or None."""
    try:
        busy = os.getloadavg()[0]
    except (AttributeError, OSError):
        return None
    return max(0.0, busy - own)
