"""Measure what docs/results.md states, keep the rows, and write its tables from them.

    python scripts/results.py promises     # minutes on a core: promise, simulation and bound
    python scripts/results.py solvers      # discounted solvers at 10^7 and 10^8 non-zeros, 20 GB
    python scripts/results.py --write      # the tables again, from the rows kept in docs/results

No table of that page is edited by hand; a test holds the page to the rows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import solvers
from acceptance.pages import with_part
from study import ROOT, answer_of

from ramsis.files import write_atomic

PAGE = ROOT / "docs" / "results.md"
ROWS = ROOT / "docs" / "results"
SETTINGS = (("digits-cpu", 25, 4, "800,1600,3200,6400"), ("text-cpu", 95, 20, "1000,2000,3000"),
            ("image-cpu", 350, 20, "450,1100,1700"))
SCHEDULERS = {"central-queue": "central queue", "round-robin": "round robin",
              "jellyfish-plus": "Jellyfish+", "model-switching": "ModelSwitching",
              "greedy": "greedy"}
_WITH_PROMISE = ("central-queue", "round-robin")
_FEWEST_VIOLATIONS = 1e-5  # smaller rates are a handful of requests of these runs

Row = Mapping[str, Any]


class Part(NamedTuple):
    """A table of the page."""

    measure: Callable[..., list[Row]]
    render: Callable[[Sequence[Row]], str]


def measure_promises() -> list[Row]:
    """Simulate the settings under each scheduler; rows are those of ``ramsis simulate --json``."""
    rows: list[Row] = []
    for profile, slo_ms, workers, loads in SETTINGS:
        command = ["simulate", "--profiles", profile, "--slo-ms", str(slo_ms), "--workers",
                   str(workers), "--load", loads, "--seeds", "3", "--duration-s", "20",
                   *(word for name in SCHEDULERS for word in ("--scheduler", name))]
        kept = ("scheduler", "load_qps", "upper_bound", "effective_accuracy", "violation_rate",
                "expected_effective_accuracy", "expected_violation_rate")
        setting = {"profile": profile, "slo_ms": slo_ms, "workers": workers}
        rows += ({**setting, **{name: row.get(name) for name in kept}}
                 for row in answer_of(*command)["rows"])
    return rows


def render_promises(rows: Sequence[Row]) -> str:
    """Return a Markdown table with a line for each setting and load."""
    titles = [f"{title}: promised, simulated" if name in _WITH_PROMISE else title
              for name, title in SCHEDULERS.items()]
    lines = [_line(["profile, SLO, workers", "load (QPS)", "bound", *titles]),
             "|---" * (3 + len(titles)) + "|"]
    settings: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        setting = row["profile"], row["slo_ms"], row["workers"], row["load_qps"]
        settings.setdefault(setting, {})[row["scheduler"]] = row
    for (profile, slo_ms, workers, load_qps), by_scheduler in settings.items():
        bound = next(iter(by_scheduler.values()))["upper_bound"]
        lines.append(_line([f"`{profile}`, {slo_ms:g} ms, {workers}", f"{load_qps:,g}",
                            f"{bound:.4f}", *(_figures(by_scheduler[name])
                                              for name in SCHEDULERS)]))
    return "\n".join(lines)


def _figures(row: Row) -> str:
    """Promise and simulation of a row, the violation rate in brackets where there is one."""
    late = row["violation_rate"]
    text = (f"{row['effective_accuracy']:.4f}"
            + (f" ({late:.2g})" if late >= _FEWEST_VIOLATIONS else ""))
    promise = row["expected_effective_accuracy"]
    return text if promise is None else f"{promise:.4f}, {text}"


def render_solvers(rows: Sequence[Row]) -> str:
    """Return a Markdown table with a line for each problem and a column for each solver."""
    problems: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        key = row["kind"], row["non_zeros"], row["discount"]
        problems.setdefault(key, {})[row["solver"]] = row
    lines = [_line(["successors, non-zeros, discount", *solvers.SOLVERS]), "|---|---:|---:|---:|"]
    for (kind, non_zeros, discount), by_solver in problems.items():
        cells = (f"{by_solver[name]['seconds']:.3g} s, {by_solver[name]['peak_gb']:.3g} GB"
                 if name in by_solver else f"over {solvers.LIMIT_S:g} s"
                 for name in solvers.SOLVERS)
        lines.append(_line([f"{kind}, {non_zeros:.0e}, {discount:g}", *cells]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


PARTS = {"promises": Part(measure_promises, render_promises),
         "solvers": Part(solvers.measure, render_solvers)}


def page_with_tables(page: str, folder: Path = ROWS) -> str:
    """Return the page with each table made from its rows in a folder."""
    for name, part in PARTS.items():
        rows = json.loads((folder / f"{name}.json").read_text("utf-8"))
        page = with_part(page, f"\n{part.render(rows)}\n", f"<!-- {name}:begin -->",
                         f"<!-- {name}:end -->")
    return page


def main() -> None:
    """Measure the parts that are named, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--write", action="store_true", help="only write the page")
    arguments = parser.parse_args()
    if (not arguments.write and not arguments.parts) or set(arguments.parts) - set(PARTS):
        parser.error(f"name what to measure, of {', '.join(PARTS)}, or pass --write")
    for name in arguments.parts:
        rows = PARTS[name].measure()
        write_atomic(ROWS / f"{name}.json", json.dumps(rows, indent=1) + "\n")
    write_atomic(PAGE, page_with_tables(PAGE.read_text("utf-8")))


if __name__ == "__main__":
    main()
