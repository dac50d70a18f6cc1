"""Arrival processes that repeat recorded requests, scaled to any load.

The trace is circular: after its end it continues at its beginning. A sample begins at a random
position, with time stretched to the wanted load. So a run as long as the stretched trace contains
each burst of the trace exactly once. Requests keep their sizes.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals.process import check_sample
from ramsis.errors import InputFileError, InvalidValueError

PROCESS = "trace"
"""Name of the process on the command line and in policy files."""


@dataclass(frozen=True, eq=False)
class RepeatedRequests:
    """Arrivals that repeat recorded requests, stretched in time to a given load.

    Parameters
    ----------
    load_qps : float
        Requests per second, finite and > 0.
    times_ms : ndarray, shape (n,)
        Times of the requests within [0, duration_ms), non-decreasing.
    duration_ms : float
        Length of the recording, > 0.
    sizes : ndarray of int, shape (n,), optional
        Sizes of the requests.
    """

    load_qps: float
    times_ms: FloatArray
    duration_ms: float
    sizes: IntArray | None = None

    @property
    def rate_per_ms(self) -> float:
        """Mean arrivals per millisecond."""
        return self.load_qps / 1000.0

    def sample(self, duration_ms: float, rng: np.random.Generator) -> FloatArray:
        """Return non-decreasing arrival times in ms within [0, duration_ms).

        The recording is stretched to the process's rate and repeated from a random instant of it.
        """
        return self.sample_sized(duration_ms, rng)[0]

    def sample_sized(
        self, duration_ms: float, rng: np.random.Generator
    ) -> tuple[FloatArray, IntArray | None]:
        """Return the times of :meth:`sample` and the sizes of these requests, shape (n,) each.

        Sizes are None if the process has none.
        """
        check_sample(self.rate_per_ms, duration_ms)
        period_ms = len(self.times_ms) / self.rate_per_ms
        times = self.times_ms * (period_ms / self.duration_ms)
        start_ms = rng.random() * period_ms
        first = int(np.searchsorted(times, start_ms))
        times = np.concatenate([times[first:], times[:first] + period_ms]) - start_ms
        rounds = math.ceil(duration_ms / period_ms)
        every = (np.arange(rounds)[:, None] * period_ms + times).ravel()
        count = int(np.searchsorted(every, duration_ms))
        sizes = None if self.sizes is None else np.resize(np.roll(self.sizes, -first), count)
        return np.asarray(every[:count]), sizes


@dataclass(frozen=True, eq=False)
class RecordedProcess:
    """Arrivals of a recorded trace, stretched in time to a given load.

    Parameters
    ----------
    load_qps : float
        Requests per second, finite and > 0.
    file : str
        Path of the trace, or the name of a shipped one.
    requests : int, optional
        Expected number of requests of the trace.
    digest : str, optional
        Expected digest of the trace's times and sizes, as :meth:`describe` returns it.
    size : str, optional
        Column or key of the request sizes, for :meth:`sample_sized`; detected by its name if
        empty.

    Raises
    ------
    InputFileError
        The file cannot be read, holds loads in place of requests, has no such column, or is
        another trace.
    """

    load_qps: float
    file: str
    requests: int | None = None
    digest: str | None = None
    size: str | None = None

    def __post_init__(self) -> None:
        trace = self._trace
        requests = len(trace.times_ms)
        if self.requests is not None and (self.requests, self.digest) != (requests, trace.digest):
            raise InputFileError("not the trace that is named", where=f"arrivals {self.file}",
                                 value=f"{requests} requests, digest {trace.digest}",
                                 allowed=f"{self.requests} requests, digest {self.digest}")
        object.__setattr__(self, "requests", requests)
        object.__setattr__(self, "digest", trace.digest)

    @property
    def rate_per_ms(self) -> float:
        """Mean arrivals per millisecond."""
        return self.load_qps / 1000.0

    def describe(self) -> dict[str, Any]:
        """Return the process and its trace for a policy file, without the load."""
        return {"process": PROCESS, "file": self.file, "requests": self.requests,
                "digest": self.digest, **({} if self.size is None else {"size": self.size})}

    def sample(self, duration_ms: float, rng: np.random.Generator) -> FloatArray:
        """Return arrival times, as :meth:`RepeatedRequests.sample`."""
        return self.sample_sized(duration_ms, rng)[0]

    def sample_sized(
        self, duration_ms: float, rng: np.random.Generator
    ) -> tuple[FloatArray, IntArray | None]:
        """Return times and sizes, as :meth:`RepeatedRequests.sample_sized`."""
        trace = self._trace
        return RepeatedRequests(self.load_qps, trace.times_ms, trace.duration_ms,
                                trace.sizes).sample_sized(duration_ms, rng)

    @property
    def _trace(self) -> _Trace:
        return _read(self.file, _changed(self.file), self.size)


@dataclass(frozen=True, eq=False)
class _Trace:
    times_ms: FloatArray  # non-decreasing, from 0
    duration_ms: float
    sizes: IntArray | None  # request sizes
    digest: str  # digest of the times and sizes


def _changed(file: str) -> tuple[int, int]:
    """Return modification time and size of a file, as a cache key that changes on rewrites."""
    try:
        state = os.stat(file)
    except OSError:  # a shipped trace by its name, or none: reading tells
        return 0, 0
    return state.st_mtime_ns, state.st_size


@lru_cache(maxsize=4)
def _read(file: str, changed: tuple[int, int], size: str | None) -> _Trace:
    # Import late: readers of rate traces import processes, and only this process needs a reader.
    trace = import_module("ramsis.arrivals.reading").read_any_trace(file, size=size).workload
    if not hasattr(trace, "times_ms"):
        raise InvalidValueError("the trace holds loads, and no times of requests",
                                where="arrivals", value=file,
                                allowed="a trace of requests; for loads make policies with --load")
    digest = hashlib.sha256(np.round(trace.times_ms, 6).tobytes())
    if trace.sizes is not None:
        digest.update(trace.sizes.tobytes())
    return _Trace(trace.times_ms, trace.duration_ms, trace.sizes, digest.hexdigest()[:16])
