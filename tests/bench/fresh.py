"""A case solved in processes of its own, so that memory is its own and nothing is warm."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.cases import Work
from tests.bench.timing import Timing, process


@dataclass(frozen=True)
class Fresh:
    """Work of one process, median times from problem to promise, median peak of memory."""

    work: Work
    timing: Timing
    peak_mb: float


def solved_freshly(
    benchmark: Any,
    profile: Path,
    models: int,
    slo_ms: float,
    grid: str,
    load_qps: float,
    *,
    rounds: int,
) -> Fresh:
    """Run ``cases.py`` a number of times."""
    found: list[dict[str, Any]] = []

    def once() -> None:
        printed, _ = process("tests/bench/cases.py", str(profile), str(models), f"{slo_ms:g}",
                             grid, f"{load_qps:g}")
        found.append(json.loads(printed))

    benchmark.pedantic(once, rounds=rounds)
    return Fresh(
        work=Work(**found[-1]["work"]),
        timing=Timing.of([Timing(**each["timing"]) for each in found]),
        peak_mb=median(each["peak_mb"] for each in found),
    )
