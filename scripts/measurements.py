"""Write the table of docs/measurements.md anew: promise, simulation and bound at today's defaults.

Run from the repository's root: `python scripts/measurements.py`. It takes some minutes on a core,
prints each setting as it is done, and puts the table between the page's two marks.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from acceptance.pages import write_part

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements.md"
SETTINGS = (("digits-cpu", 25, 4, "800,1600,3200,6400"), ("text-cpu", 95, 20, "1000,2000,3000"),
            ("image-cpu", 350, 20, "450,1100,1700"))
SCHEMES = {"central-queue": "common queue", "round-robin": "a queue each",
           "jellyfish-plus": "Jellyfish+", "model-switching": "ModelSwitching",
           "greedy": "greedy"}
PROMISED = ("central-queue", "round-robin")


def measured(profile: str, slo_ms: float, workers: int, loads: str) -> list[dict[str, Any]]:
    """The rows of all schedulers at some loads."""
    command = ["simulate", "--profiles", profile, "--slo-ms", str(slo_ms), "--workers",
               str(workers), "--load", loads, "--seeds", "3", "--duration-s", "20", "--json",
               *(word for one in SCHEMES for word in ("--scheduler", one))]
    done = subprocess.run([sys.executable, "-m", "ramsis", *command], check=True, text=True,
                          capture_output=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return found


def cell(row: Mapping[str, Any]) -> str:
    """Promise and simulation of a row, violations in brackets where they reach 0.001 %."""
    late = row["violation_rate"]
    promise = row.get("expected_effective_accuracy")
    words = f"{row['effective_accuracy']:.4f}" + (f" ({late:.2g})" if late >= 1e-5 else "")
    return words if promise is None else f"{promise:.4f}, {words}"


def table(done: Sequence[tuple[tuple[str, float, int, str], Sequence[Mapping[str, Any]]]]) -> str:
    """The table as Markdown."""
    heads = [f"{words}: promised, simulated" if name in PROMISED else words
             for name, words in SCHEMES.items()]
    lines = ["| profile, SLO, workers | load (QPS) | bound | " + " | ".join(heads) + " |",
             "|---" * (3 + len(heads)) + "|"]
    for (profile, slo_ms, workers, _), rows in done:
        for load in sorted({row["load_qps"] for row in rows}):
            own = {row["scheduler"]: row for row in rows if row["load_qps"] == load}
            bound = next(iter(own.values()))["upper_bound"]
            lines.append(f"| `{profile}`, {slo_ms:g} ms, {workers} | {load:,g} | {bound:.4f} | "
                         + " | ".join(cell(own[name]) for name in SCHEMES) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, default=PAGE)
    page = parser.parse_args().page
    done = []
    for setting in SETTINGS:
        done.append((setting, measured(*setting)))
        print(table(done[-1:]), flush=True)
    write_part(page, "measurements", f"\n{table(done)}\n")


if __name__ == "__main__":
    main()
