"""Description of a measurement's environment: processor, cores, versions, other load.

For slow spells, the latency of every run is divided by the median of its model and batch size. A
run with a ratio above :data:`SLOW` is slow; consecutive slow runs are a spell. Then

    share       time of the slow runs divided by the time of all runs;
    factor      mean ratio of the slow runs;
    length_ms   time of the slow runs divided by the number of spells.

The autocorrelation of the ratios of successive runs states whether slow runs occur in spells: it
is near 0 if they are independent.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import ramsis

SLOW = 1.5
"""A run is slow that takes so many times the median, or more."""

_FEWEST = 20  # runs

MUCH = 0.5
"""Other work, in processors, from which measured latencies are doubtful."""


def hardware(threads: int = 1) -> dict[str, object]:
    """Describe the processor, and how much of it this process may use.

    ``pinned_core`` is the number of the core when there is only one.
    """
    description: dict[str, object] = {
        "cpu": _cpu(), "cores": os.cpu_count() or 1, "threads": threads,
        "system": platform.system(), "machine": platform.machine(),
    }
    if hasattr(os, "sched_getaffinity"):
        usable = sorted(os.sched_getaffinity(0))
        description["cores_used"] = len(usable)
        if len(usable) == 1:
            description["pinned_core"] = usable[0]
    if hasattr(os, "getpriority"):
        description["raised_priority"] = os.getpriority(os.PRIO_PROCESS, 0) < 0
    return description


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
    by_library = {"python": platform.python_version(), "ramsis": ramsis.__version__}
    for name in ("numpy", *libraries):
        try:
            by_library[name] = version(name)
        except PackageNotFoundError:
            continue
    return by_library


def foreign_load(own: float) -> float | None:
    """Return the number of processors busy with other work in the last minute, or None."""
    try:
        busy = os.getloadavg()[0]
    except (AttributeError, OSError):
        return None
    return max(0.0, busy - own)


def spells_of(
    keys: Sequence[tuple[str, int]], latency_ms: Sequence[float]
) -> dict[str, Any] | None:
    """Compute the statistics of slow spells for a profile's ``measurement``; None if too few runs.

    ``keys`` are model and batch size of each run, in the order of time.
    """
    if len(keys) < _FEWEST:
        return None
    times = np.asarray(latency_ms, dtype=float)
    ratio = np.empty(len(times))
    _, key_of = np.unique([f"{name}/{batch}" for name, batch in keys], return_inverse=True)
    for key in range(int(key_of.max()) + 1):
        ratio[key_of == key] = times[key_of == key] / np.median(times[key_of == key])
    slow = ratio >= SLOW
    away = ratio - ratio.mean()
    variance = float(away @ away)
    correlation = float(away[1:] @ away[:-1]) / variance if variance > 0 else 0.0  # at lag 1
    statistics: dict[str, Any] = {"autocorrelation": round(correlation, 4)}
    if slow.any() and not slow.all():
        spells = int(np.count_nonzero(slow & ~np.append(False, slow[:-1])))
        busy_ms = float(times[slow].sum())
        statistics |= {
            "share": round(busy_ms / float(times.sum()), 6),
            "factor": round(float(ratio[slow].mean()), 4),
            "length_ms": round(busy_ms / spells, 4),
        }
    return statistics
