"""Milliseconds that a job of a sweep takes on Ray beyond those in processes of this machine.

    python scripts/ray_sweep.py [--jobs 2000] [--workers 2]

The jobs do nothing, but are as large as those of cells. Needs the extra ``ray``.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study import parser_of

from ramsis.sweep import Sweep, SweepSpec
from ramsis.sweep.engines import Engine, runner
from ramsis.sweep.jobs import CellJob


@dataclass(frozen=True)
class Nothing:
    """A job that carries a cell's job and does nothing."""

    cell: CellJob
    needs: Sequence[Any] = ()

    @property
    def path(self) -> Path:
        """The file that the cell's job would write."""
        return self.cell.path

    def done(self) -> bool:
        """Tell that the job is still to be run."""
        return False

    def run(self) -> None:
        """Do nothing."""


def main() -> None:
    """Time the jobs on both engines, once all of their processes are up."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args()
    spec = SweepSpec.of({
        "profiles": "digits-cpu", "slo_ms": 25, "scheduler": "greedy", "duration_s": 0.2,
        "load_qps": [100 + i for i in range(chosen.jobs)]}, "nothing")
    with tempfile.TemporaryDirectory() as folder:
        jobs = [Nothing(job) for job in Sweep(spec, Path(folder)).jobs]
        for name in ("processes", "ray"):
            with runner(Engine(name, chosen.workers), len(jobs)) as run:
                list(run(jobs[:2 * chosen.workers]))
                begun = time.perf_counter()
                count = len(list(run(jobs)))
                print(f"{name}: {1000.0 * (time.perf_counter() - begun) / count:.3f} ms a job")


if __name__ == "__main__":
    main()
