"""Workers for traces that were written by coarse clocks, beside those for the exact times.

Traces of several shapes (Poisson arrivals, a load that moves, bursts, a constant rate) are written
with clocks from 1 µs to 1 min, as several kinds of files, and read back. For each the fewest
workers of a simple scheduler are found with the exact times and with those that were read. Printed
are, for each clock, how many answers are the same, within one, and said to be certain.

    python scripts/trace_clocks.py --traces 300
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.arrivals import MarkovModulated
from ramsis.arrivals.reading import read_any_trace
from ramsis.arrivals.trace import RateTrace, Recorded
from ramsis.bounds import Targets
from ramsis.errors import InfeasibleError
from ramsis.profiles import ModelProfile, ProfileSet
from ramsis.profiles.batch import BatchProfile
from ramsis.synthesis.capacity import Capacity, fewest_workers

CLOCKS_MS = (0.001, 1.0, 10.0, 100.0, 1000.0, 60_000.0)
_BEGIN = datetime(2026, 5, 6, 7, 0, tzinfo=UTC)


def poisson(rate_qps: float, duration_ms: float, rng: np.random.Generator) -> FloatArray:
    """Arrivals at a steady load."""
    return np.sort(rng.random(rng.poisson(rate_qps * duration_ms / 1000.0)) * duration_ms)


def moving(rate_qps: float, duration_ms: float, rng: np.random.Generator) -> FloatArray:
    """Poisson arrivals whose load swings by half of its mean, in five minutes."""
    steps = np.arange(int(duration_ms / 1000.0))
    return RateTrace(1000.0 * steps, rate_qps * (1.0 + 0.5 * np.sin(2 * np.pi * steps / 300.0)),
                     duration_ms).arrivals_ms(rng)


def bursts(rate_qps: float, duration_ms: float, rng: np.random.Generator) -> FloatArray:
    """Bursts of 5 s at three times the load of quiet times."""
    return MarkovModulated(rate_qps, 3.0, 5000.0, 0.2).sample(duration_ms, rng)


def constant(rate_qps: float, duration_ms: float, rng: np.random.Generator) -> FloatArray:
    """A load test."""
    return np.arange(0.0, duration_ms, 1000.0 / rate_qps) + rng.random()


SHAPES: dict[str, Callable[[float, float, np.random.Generator], FloatArray]] = {
    one.__name__: one for one in (poisson, moving, bursts, constant)}


def _iso(times_us: list[int]) -> list[str]:
    return [(_BEGIN + timedelta(microseconds=t)).isoformat() for t in times_us]


def _lines(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


_SINCE_US = int(_BEGIN.timestamp()) * 10**6
READERS: dict[str, Callable[[list[int]], str]] = {
    "ISO, a line each": lambda us: _lines(_iso(us)),
    "CSV, ISO": lambda us: _lines(["id,timestamp", *(
        f"{i},{text}" for i, text in enumerate(_iso(us)))]),
    "CSV, ms": lambda us: _lines(["arrival_ms,model", *(f"{t / 1000.0:.3f},a" for t in us)]),
    "Unix seconds": lambda us: _lines([f"{(_SINCE_US + t) / 1e6:.6f}" for t in us]),
    "Unix milliseconds": lambda us: _lines([f"{(_SINCE_US + t) / 1e3:.3f}" for t in us]),
    "JSON lines": lambda us: _lines([json.dumps({"ts": text, "n": 1}) for text in _iso(us)]),
    "JSON lines, Unix": lambda us: _lines([json.dumps({"ts": (_SINCE_US + t) / 1e6}) for t in us]),
}


def written_and_read(
    times_ms: FloatArray, clock_ms: float, reader: str, folder: Path
) -> Recorded:
    """The times as a clock has them, in a file of a kind, and what is read from it."""
    tick_us = round(1000.0 * clock_ms)
    times_us = (np.floor(times_ms * 1000.0).astype(np.int64) // tick_us * tick_us).tolist()
    path = folder / ("trace.jsonl" if reader.startswith("JSON") else "trace.csv")
    path.write_text(READERS[reader](times_us))
    read = read_any_trace(path).workload
    if not isinstance(read, Recorded):
        raise TypeError(f"{reader}: read as loads")
    return read


def compare(index: int, folder: Path, seed: int = 0) -> dict[str, object]:
    """One trace, by its number: the workers for the exact times, and for those that were read."""
    rng = np.random.default_rng([seed, index])
    shape = list(SHAPES)[index % len(SHAPES)]
    clock_ms = CLOCKS_MS[index // len(SHAPES) % len(CLOCKS_MS)]
    reader = list(READERS)[index % len(READERS)]
    service_ms = float(rng.choice([8.0, 30.0, 120.0]))
    slo_ms = service_ms * float(rng.uniform(2.0, 5.0))
    rate_qps = float(rng.uniform(0.6, 3.5)) * 1000.0 / service_ms
    # A clock of minutes needs several of them.
    duration_ms = max(600_000.0 if clock_ms >= 60_000.0 else 120_000.0, 1.5e6 / rate_qps)
    times = SHAPES[shape](rate_qps, min(duration_ms, 4e7 / rate_qps), rng)
    profile = ProfileSet("one", (
        ModelProfile("one", 0.9, (BatchProfile(1, p95_ms=service_ms),)),))

    def fewest(workload: Recorded) -> Capacity | None:
        try:
            return fewest_workers(profile, workload, Targets(0.01, None, None), slo_ms=slo_ms,
                                  scheduler="greedy:late=drop", seeds=(0, 1))
        except InfeasibleError:
            return None

    exact = fewest(Recorded(times))
    read = fewest(written_and_read(times, clock_ms, reader, folder))
    return {
        "shape": shape, "clock_ms": clock_ms, "reader": reader, "service_ms": service_ms,
        "slo_ms": slo_ms, "rate_qps": rate_qps, "requests": len(times),
        "exact": None if exact is None else exact.workers,
        "read": None if read is None else read.workers,
        "certain": None if read is None else read.clear,
        "exact_certain": None if exact is None else exact.clear,
    }


def main() -> None:
    """Compare so many traces, and print a line for each miss and a row for each clock."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts: dict[float, Counter[str]] = {clock: Counter() for clock in CLOCKS_MS}
    with tempfile.TemporaryDirectory() as folder:
        for index in range(given.traces):
            row = compare(index, Path(folder), given.seed)
            found = counts[float(str(row["clock_ms"]))]
            exact, read = row["exact"], row["read"]
            found["traces"] += 1
            found["same"] += exact == read
            near = exact == read or (isinstance(exact, int) and isinstance(read, int)
                                     and abs(exact - read) <= 1)
            found["within one"] += near
            found["uncertain"] += row["certain"] is False
            found["uncertain, exact"] += row["exact_certain"] is False
            if not near:
                print(f"missed: {row}", flush=True)
    for clock_ms, found in counts.items():
        print(f"{clock_ms:g} ms: {dict(found)}")


if __name__ == "__main__":
    main()
