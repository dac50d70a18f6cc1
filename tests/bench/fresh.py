"""A case solved in processes of its own, so that memory is its own and nothing is warm."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Generic, TypeVar

from tests.bench.cases import Work
from tests.bench.timing import Timing, process

_Work = TypeVar("_Work")


@dataclass(frozen=True)
class Fresh(Generic[_Work]):
    """Work of one process, median times from problem to promise, median peak of memory."""

    work: _Work
    timing: Timing
    peak_mb: float


def program_freshly(
    benchmark: Any, rounds: int, work: type[_Work], program: str, *arguments: str
) -> Fresh[_Work]:
    """Run a program of tests/bench a number of times; without a benchmark, nothing watches."""
    found: list[dict[str, Any]] = []

    def once() -> None:
        found.append(json.loads(process(f"tests/bench/{program}", *arguments)[0]))

    if benchmark is None:
        for _ in range(rounds):
            once()
    else:
        benchmark.pedantic(once, rounds=rounds)
    return Fresh(work(**found[-1]["work"]),
                 Timing.of([Timing(**each["timing"]) for each in found]),
                 median(each["peak_mb"] for each in found))


def solved_freshly(
    benchmark: Any, profile: Path, models: int, slo_ms: float, grid: str, load_qps: float,
    *, rounds: int,
) -> Fresh[Work]:
    """Run ``cases.py`` a number of times."""
    return program_freshly(benchmark, rounds, Work, "cases.py", str(profile), str(models),
                           f"{slo_ms:g}", grid, f"{load_qps:g}")
