"""Memory that this process can still have, and work without Python's collector of cycles.

Linux grants memory that it does not have, and kills this process or another one when the memory is
used; no ``MemoryError`` is raised. So code that is about to fill large arrays calls
:func:`check_memory` first, which refuses work that needs more memory than is available.
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
"""Folder, file of the limit and file of the usage, for control groups of version 2 and 1."""
_CACHE = "inactive_file "
_LITTLE = 1 << 24  # bytes that are granted without a check

_processes = 1


def share_memory(processes: int) -> None:
    """Let :func:`available_bytes` divide the memory among ``processes`` equal processes, >= 1."""
    global _processes
    _processes = processes


def available_bytes() -> float:
    """Return the bytes that this process can still allocate; infinite where not known.

    That is the least of three amounts: the memory that the system has available, what is left of
    the control group's limit, and what is left of the limit on address space. It is divided by the
    number of processes given to :func:`share_memory`.
    """
    return max(min(_of_system(), _of_group(), _of_process()), 0.0) / _processes


def check_memory(what: str, where: str, count: float, bytes_each: float) -> None:
    """Refuse a number of objects of at least ``bytes_each`` that the available memory cannot hold.

    ``what`` and ``where`` are for the message: the objects in the plural, and the option or field
    that sets their number.
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
    with suppress(OSError, ValueError):  # no such group, or no limit (the file holds "max")
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
    """Disable Python's collector of reference cycles within the block."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
