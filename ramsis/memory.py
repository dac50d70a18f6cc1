"""Memory that this process can still have, and work without Python's collector of cycles.

Linux grants memory that is not there and ends the process, or another one, when it is used: no
``MemoryError`` tells of it. So what is about to hold one entry for each of many things asks first,
and work that needs more is refused at once.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ramsis.errors import InvalidValueError

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_FILES = {"": ("", "memory.max", "memory.current"),
          "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes")}
"""Of the second and the first version of control groups: their folder, a limit, what is used."""
_CACHE = "inactive_file "
_LITTLE = 1 << 24  # bytes that are there

_processes = 1


def share_memory(processes: int) -> None:
    """Say that this is one of so many processes that do the same from now on, >= 1."""
    global _processes
    _processes = processes


def available_bytes() -> float:
    """Return the bytes that this process can still allocate; infinite where not known.

    It is the least of what the system has available, what is left of the control group's limit,
    and what is left of the limit on address space, divided by the processes that
    :func:`share_memory` told of.
    """
    return max(min(_of_system(), _of_group(), _of_process()), 0.0) / _processes


def check_memory(what: str, where: str, count: float, bytes_each: float) -> None:
    """Refuse more of something than there is memory for.

    Parameters
    ----------
    what, where : str
        For the message: what there are too many of, and the option or field that says how many.
    count : float
    bytes_each : float
        What each takes at the least.
    """
    if count * bytes_each < _LITTLE:
        return
    available = available_bytes()
    if not count * bytes_each <= available:
        raise InvalidValueError(
            f"too many {what} for the memory", where=where, value=f"{count:.4g}",
            allowed=f"at most {available / bytes_each:.3g} in the {available / 1e9:.1f} GB that "
            "are free")


def _of_system() -> float:
    """Return the bytes that all processes together can still allocate."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    with suppress(OSError, ValueError, AttributeError):  # no such file, or no such names
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return float("inf")


def _of_group() -> float:
    """Return the bytes left in the control group and its ancestors; caches count as free."""
    left = float("inf")
    with suppress(OSError, ValueError):
        for line in _OWN_GROUPS.read_text().splitlines():
            _, kind, place = line.split(":", 2)
            if kind not in _FILES:
                continue
            below, limit, used = _FILES[kind]
            group_path = Path(place.lstrip("/"))
            for group in (group_path, *group_path.parents):
                left = min(left, _of_folder(_GROUPS / below / group, limit, used))
    return left


def _of_folder(folder: Path, limit: str, used: str) -> float:
    with suppress(OSError, ValueError):  # of no group here, or without a limit: the word max
        cached = sum(int(line.split()[1]) for line
                     in (folder / "memory.stat").read_text().splitlines()
                     if line.startswith(_CACHE))
        return float(int((folder / limit).read_text()) - int((folder / used).read_text())
                     + cached)
    return float("inf")


def _of_process() -> float:
    """Return the bytes left of the limit on the address space."""
    with suppress(ImportError, OSError, ValueError):  # there is no such limit, or no such file
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            return float(limit - pages * resource.getpagesize())
    return float("inf")


@contextmanager
def without_collection() -> Iterator[None]:
    """Leave the collector aside; afterwards it is as before."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
