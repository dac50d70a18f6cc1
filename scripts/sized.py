"""Cells for requests with a size: two back ends, their sizes and loads.

- ``cpu``: a small encoder on one core, fitted to measured times: 2.2 ms + 0.268 ms for each token
  of count x longest, more beyond 64 tokens as attention grows; 300 ms, up to 256 tokens.
- ``gpu``: 6 ms, and 1 ms for each 400 tokens beyond 1,024; 60 ms, up to 512 tokens. ``flash`` is
  the same without padding.

Sizes are those of short texts: round(X) + 2 with X lognormal (median 9, sigma 1.88), clipped to
3 … the largest size.

python scripts/sized.py --play docs/results/sized.csv   # 60,000 requests a cell, five seeds
python scripts/sized.py docs/results/sized.csv          # only the table, of kept rows

Both write the table of docs/sizes.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm
from study import markdown, parser_of, write_part, write_rows

from ramsis.arrays import FloatArray
from ramsis.arrivals.sizes import SizeDistribution
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.profiles.sized import Law, SizedTimes
from ramsis.sim import ConstantLoad
from ramsis.sized import SizedProblem, SizedScheduler, sized_scheduler
from ramsis.sized.policy import generate_sized
from ramsis.sized.schedulers import ReplannedDP, TokenBudget, TurboDP
from ramsis.sized.simulate import run_sized

MAX_BATCH = 64
_MOST = 512
REQUESTS, SEEDS = 60_000, 5
PAGE = Path(__file__).resolve().parents[1] / "docs/sizes.md"
POLICY = "ramsis"  # the policy of `ramsis generate --sizes`, made for each load
SCHEDULERS = {
    "tei:max_batch=4": "TEI on CPU",
    "tei": "TEI",
    "infinity": "infinity",
    "token-budget": "budget",
    "token-budget:order=size": "budget, shortest first",
    "turbo-dp": "TurboTransformers",
    "replanned-dp": "replanned",
    "replanned-dp:order=dense": "replanned, dense",
    POLICY: "policy",
}
"""Schedulers by name, and the heads of their columns."""
_MEDIAN, _SIGMA, _ADDED, _LEAST = 9.0, 1.88, 2, 3


def _cpu_ms(count: FloatArray, size: FloatArray) -> FloatArray:
    return 2.2 + 0.268 * count * size * (1.0 + 0.15 * np.maximum(0.0, size - 64.0) / 192.0)


def _gpu_ms(count: FloatArray, size: FloatArray) -> FloatArray:
    return 6.0 + np.maximum(0.0, count * size - 1024.0) / 400.0


@dataclass(frozen=True)
class Cell:
    """A back end with its deadline, and the loads that it is tried at."""

    name: str
    law: Law
    time_ms: Callable[[FloatArray, FloatArray], FloatArray]
    slo_ms: float
    max_size: int
    loads_qps: tuple[float, ...]

    def profile(self) -> ProfileSet:
        """Return the back end as a profile of one model, exact up to a count of 64."""
        counts = np.append(np.arange(1.0, MAX_BATCH + 1), np.arange(MAX_BATCH + 8.0, _MOST + 1, 8))
        sizes = np.arange(1.0, self.max_size + 1)
        times = self.time_ms(counts[:, None], sizes[None, :])
        sized = SizedTimes.of(times, counts.astype(int).tolist(), sizes.astype(int).tolist(),
                              law=self.law, unit="tokens")
        batches = tuple(BatchProfile(int(b), p95_ms=float(row[-1]))
                        for b, row in zip(counts, times, strict=True))
        return ProfileSet(self.name, (ModelProfile("encoder", 1.0, batches, sized=sized),))

    def sizes(self) -> SizeDistribution:
        """Return the distribution of sizes."""
        return short_texts(self.max_size)

    def problem(
        self, *, sizes: SizeDistribution | None = None, workers: int = 1,
        edges: tuple[int, ...] | None = None, weights: tuple[float, ...] | None = None,
        max_batch: int = MAX_BATCH,
    ) -> SizedProblem:
        """Return the problem of the cell."""
        return SizedProblem.of(_profile(self.name), sizes or self.sizes(), slo_ms=self.slo_ms,
                               workers=workers, max_batch=max_batch, edges=edges, weights=weights)


CELLS = {cell.name: cell for cell in (
    Cell("cpu", "padded", _cpu_ms, 300.0, 256, (30.0, 60.0, 90.0, 120.0)),
    Cell("gpu", "padded", _gpu_ms, 60.0, 512, (2400.0, 3600.0, 4800.0)),
    Cell("flash", "packed", _gpu_ms, 60.0, 512, (7200.0, 9600.0)),
)}


@lru_cache
def _profile(name: str) -> ProfileSet:
    return CELLS[name].profile()


def short_texts(max_size: int) -> SizeDistribution:
    """Return the exact distribution of round(X) + 2, X lognormal, clipped to 3 … ``max_size``."""
    values = np.arange(_LEAST, max_size + 1)
    upper = norm.cdf(np.log((values - _ADDED + 0.5) / _MEDIAN) / _SIGMA)
    upper[-1] = 1.0
    return SizeDistribution(values, np.diff(upper, prepend=0.0))


def played(
    cells: Sequence[str] = tuple(CELLS), *, seeds: int = SEEDS, highest: bool = False,
    schedulers: Sequence[str] = tuple(SCHEDULERS),
) -> Iterator[dict[str, Any]]:
    """Yield a row for each cell, load, scheduler and seed: shares in time, in all and by class.

    ``highest`` plays only the highest load of each cell.
    """
    for cell in map(CELLS.__getitem__, cells):
        for text in schedulers:
            scheduler: SizedScheduler | None = None
            most = MAX_BATCH if cell.law == "padded" else _MOST  # 64 short ones do not fill it
            if text != POLICY:
                scheduler = sized_scheduler(text)
                if cell.law == "packed" and isinstance(
                        scheduler, TokenBudget | TurboDP | ReplannedDP):
                    scheduler = replace(scheduler, max_batch=most)
                most = max(MAX_BATCH, scheduler.max_batch)
            problem = cell.problem(max_batch=most)
            for load_qps in cell.loads_qps[-1:] if highest else cell.loads_qps:
                load = ConstantLoad(load_qps, 1000.0 * REQUESTS / load_qps)
                if text == POLICY:
                    scheduler = generate_sized(problem, _profile(cell.name), load_qps).scheduler
                assert scheduler is not None
                for seed in range(seeds):
                    sized_run = run_sized(problem, scheduler, load, seed)
                    in_time, size_class = sized_run.run.in_time, problem.class_of(sized_run.size)
                    yield {"cell": cell.name, "load_qps": load_qps, "scheduler": text,
                           "seed": seed, "in_time": in_time.mean(),
                           "padding": sized_run.padding, **{
                               f"class_{i + 1}": in_time[size_class == i].mean()
                               for i in range(len(problem.edges))}}


def table_of(rows: pd.DataFrame) -> str:
    """Return the share in time by cell, load and scheduler as a table in Markdown."""
    means = rows.groupby(["cell", "load_qps", "scheduler"])["in_time"].mean()
    return markdown(["cell", "requests/s", *SCHEDULERS.values()], [
        [f"`{cell.name}`", f"{load_qps:,.0f}", *(f"{means[cell.name, load_qps, text]:.3f}"
                                                 for text in SCHEDULERS)]
        for cell in CELLS.values() for load_qps in cell.loads_qps])


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the cells, if asked to, and write the table of their rows."""
    parser = parser_of(__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--play", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.play:
        write_rows(chosen.rows, played())
    write_part(PAGE, "sized", table_of(pd.read_csv(chosen.rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
