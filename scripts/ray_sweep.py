"""A sweep on Ray against the same sweep in processes: tables, overhead, kills, scaling.

    python scripts/ray_sweep.py --out FOLDER [--cells 2000] [--workers 2] [--json]

Each step keeps its figures in FOLDER and is not done twice. Needs the extra ``ray``.

- ``tables``: the same cells in processes and on local Ray; the tables must be equal byte for byte.
- ``overhead``: jobs that do nothing, through both; milliseconds for each beyond the processes'.
- ``worker``: a process of Ray is ended (SIGKILL) again and again while the sweep runs.
- ``driver``: the sweep itself is ended (SIGKILL) and started again.
- ``scaling``: cells a second with 1, 2, … local workers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study import family_of, parser_of

from ramsis.sweep import Sweep, SweepSpec
from ramsis.sweep.engines import Engine, runner
from ramsis.sweep.jobs import CellJob

TABLES = ("results.csv", "seeds.csv", "models.csv", "failures.csv")
_KILLS = 3


@dataclass(frozen=True)
class Nothing:
    """A job that does nothing, but is as large as that of a cell."""

    cell: CellJob

    @property
    def path(self) -> Path:
        """That of the cell."""
        return self.cell.path

    @property
    def needs(self) -> Sequence[Any]:
        """None."""
        return ()

    def done(self) -> bool:
        """Never."""
        return False

    def run(self) -> None:
        """Nothing."""
        return None


def specification(cells: int) -> str:
    """Small cells: loads by steps, two numbers of workers, two schedulers."""
    loads = ", ".join(str(100 + i) for i in range(max(1, cells // 4)))
    return (f'profiles = "digits-cpu"\nslo_ms = 25\nworkers = [1, 2]\nload_qps = [{loads}]\n'
            'scheduler = ["greedy", "jellyfish-plus"]\nduration_s = 0.2\n')


def command(folder: Path, out: Path, workers: int, engine: str) -> list[str]:
    return [sys.executable, "-m", "ramsis", "sweep", str(folder / "spec.toml"), "--out", str(out),
            "--processes", str(workers), "--engine", engine]


def sweep(folder: Path, name: str, workers: int, engine: str) -> dict[str, Any]:
    """Run to the end; seconds by the clock, and what it says of itself."""
    begun = time.perf_counter()
    ran = subprocess.run(command(folder, folder / name, workers, engine), text=True,
                         capture_output=True, check=True)
    return {"wall_s": round(time.perf_counter() - begun, 1), "said": ran.stdout.splitlines()[0]}


def equal(folder: Path, one: str, other: str) -> bool:
    return all((folder / one / name).read_bytes() == (folder / other / name).read_bytes()
               for name in TABLES)


def finished(out: Path) -> int:
    return len(list((out / "cells").glob("*.json"))) if (out / "cells").exists() else 0


def computing(pid: int) -> list[int]:
    """Processes below one that run a chunk of jobs."""
    found = []
    for one in family_of(pid)[1:]:
        try:
            title = Path(f"/proc/{one}/cmdline").read_text()
        except OSError:
            continue
        if title.startswith("ray::_run_chunk"):
            found.append(one)
    return found


def tables(folder: Path, cells: int, workers: int) -> dict[str, Any]:
    processes = sweep(folder, "processes", workers, "processes")
    on_ray = sweep(folder, "ray", workers, "ray")
    return {"processes": processes, "ray": on_ray, "equal": equal(folder, "processes", "ray"),
            "cells": finished(folder / "ray")}


def overhead(folder: Path, cells: int, workers: int) -> dict[str, Any]:
    """Milliseconds for a job that does nothing, once the engine has started."""
    jobs = [Nothing(job) for job in Sweep(SweepSpec.load(folder / "spec.toml"),
                                          folder / "none").jobs]
    each = {}
    for name in ("processes", "ray"):
        with runner(Engine(name, workers), cells) as run:
            list(run(jobs[:2 * workers]))  # all processes are up
            begun = time.perf_counter()
            assert len(list(run(jobs))) == len(jobs)
            each[name] = 1000.0 * (time.perf_counter() - begun) / len(jobs)
    return {"ms_per_job": each, "beyond_ms": each["ray"] - each["processes"]}


def worker_killed(folder: Path, cells: int, workers: int) -> dict[str, Any]:
    out, killed = folder / "worker", 0
    running = subprocess.Popen(command(folder, out, workers, "ray"), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for share in range(1, _KILLS + 1):
        while running.poll() is None and finished(out) < share * cells // (_KILLS + 1):
            time.sleep(0.1)
        for one in computing(running.pid)[:1]:
            os.kill(one, signal.SIGKILL)
            killed += 1
    said, error = running.communicate()
    return {"killed": killed, "rc": running.returncode, "said": said.splitlines()[:1],
            "stderr": error[-300:], "equal": equal(folder, "processes", "worker")}


def driver_killed(folder: Path, cells: int, workers: int) -> dict[str, Any]:
    out, left = folder / "driver", []
    for share in range(1, _KILLS + 1):
        running = subprocess.Popen(command(folder, out, workers, "ray"),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while running.poll() is None and finished(out) < share * cells // (_KILLS + 1):
            time.sleep(0.1)
        below = family_of(running.pid)[1:]
        running.kill()
        running.wait()
        time.sleep(10.0)
        left.append(sum(Path(f"/proc/{one}").exists() for one in below))
    there = finished(out)
    last = sweep(folder, "driver", workers, "ray")
    return {"finished_before_the_last": there, "processes_left": left, "last": last,
            "equal": equal(folder, "processes", "driver")}


def scaling(folder: Path, cells: int, workers: int) -> dict[str, Any]:
    """Cells a second by the number of workers, a fresh folder each."""
    found = {}
    for count in range(1, workers + 1):
        ran = sweep(folder, f"scaling{count}", count, "ray")
        found[str(count)] = {**ran, "cells_per_s": cells / ran["wall_s"]}
    return found


STEPS: dict[str, Callable[[Path, int, int], dict[str, Any]]] = {
    "tables": tables, "overhead": overhead, "worker": worker_killed, "driver": driver_killed,
    "scaling": scaling,
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "spec.toml").write_text(specification(chosen.cells))
    kept = chosen.out / "figures.json"
    figures = json.loads(kept.read_text()) if kept.exists() else {}
    for name in chosen.steps.split(","):
        if name not in figures:
            figures[name] = STEPS[name](chosen.out, chosen.cells, chosen.workers)
            kept.write_text(json.dumps(figures, indent=1))
        if not chosen.json:
            print(name, json.dumps(figures[name]), flush=True)
    if chosen.json:
        print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
