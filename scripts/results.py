"""Measure what docs/results.md states, keep the rows, and write its tables from them.

    python scripts/results.py promises     # minutes on a core: promise, simulation and bound
    python scripts/results.py solvers      # discounted solvers at 10^7 and 10^8 non-zeros, 20 GB
    python scripts/results.py batching     # batching of serving systems beside policies
    python scripts/results.py --write      # the tables again, from the rows kept in docs/results

The table of batching is printed, as docs/evaluation.md has a sentence of it. No table is edited by
hand; a test holds the page to the rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import solvers
from study import ROOT, answer_of, markdown, parser_of, with_part

from ramsis import SynthesisSettings, generate_policy, load_profile
from ramsis.bounds import realised_bound
from ramsis.cluster import Cluster
from ramsis.files import write_atomic
from ramsis.profiles import pareto_front
from ramsis.sim import (
    BentoML,
    Clipper,
    ConstantLoad,
    Fleet,
    FleetScheduler,
    Greedy,
    Policies,
    SimulationSettings,
    Symphony,
    simulate,
)

PAGE = ROOT / "docs" / "results.md"
ROWS = ROOT / "docs" / "results"
SETTINGS = (("digits-cpu", 25, 4, (800, 1600, 3200, 6400)),
            ("text-cpu", 95, 20, (1000, 2000, 3000)), ("image-cpu", 350, 20, (450, 1100, 1700)))
SCHEDULERS = {"central-queue": "central queue: promised, simulated",
              "round-robin": "round robin: promised, simulated", "jellyfish-plus": "Jellyfish+",
              "model-switching": "ModelSwitching", "greedy": "greedy"}
_FEWEST_VIOLATIONS = 1e-5  # smaller rates are a handful of requests of these runs

Row = Mapping[str, Any]


class Part(NamedTuple):
    """A table, which the page has between marks, or which is printed."""

    measure: Callable[[], list[Row]]
    render: Callable[[Sequence[Row]], str]
    on_page: bool = True


def measure_promises() -> list[Row]:
    """Simulate the settings under each scheduler; rows are those of ``ramsis simulate --json``."""
    kept = ("scheduler", "load_qps", "upper_bound", "effective_accuracy", "violation_rate",
            "expected_effective_accuracy", "expected_violation_rate")
    return [{"profile": profile, "slo_ms": slo_ms, "workers": workers,
             **{name: row.get(name) for name in kept}}
            for profile, slo_ms, workers, loads in SETTINGS for row in answer_of(
                "simulate", "--profiles", profile, "--slo-ms", slo_ms, "--workers", workers,
                "--load", ",".join(map(str, loads)), "--seeds", 3, "--duration-s", 20,
                *(word for name in SCHEDULERS for word in ("--scheduler", name)))["rows"]]


def by_setting(
    rows: Sequence[Row], cell: Callable[[Row], str]
) -> Mapping[tuple[str, ...], Mapping[str, str]]:
    """Return a cell for each scheduler, by setting, load and bound as they are written."""
    settings: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        key = (f"`{row['profile']}`, {row['slo_ms']:g} ms, {row['workers']}",
               f"{row['load_qps']:,g}", f"{row['upper_bound']:.4f}")
        settings.setdefault(key, {})[row["scheduler"]] = cell(row)
    return settings


def render_promises(rows: Sequence[Row]) -> str:
    """Return a Markdown table with a line for each setting and load."""
    def figures(row: Row) -> str:
        late, promise = row["violation_rate"], row["expected_effective_accuracy"]
        text = "" if promise is None else f"{promise:.4f}, "
        return f"{text}{row['effective_accuracy']:.4f}" + (
            f" ({late:.2g})" if late >= _FEWEST_VIOLATIONS else "")

    return markdown(["profile, SLO, workers", "load (QPS)", "bound", *SCHEDULERS.values()],
                    [[*setting, *map(cells.__getitem__, SCHEDULERS)]
                     for setting, cells in by_setting(rows, figures).items()])


def measure_batching() -> list[Row]:
    """Simulate the batching of serving systems, greedy and policies on the same arrivals.

    BentoML's adaptive batching, deferred batches as in Symphony, and Clipper run one model each.
    Every model of the front and every objective of a list is simulated, and the best of them is
    kept: what an operator could have reached who knew the load.
    """
    return [row for profile, slo_ms, workers, loads in SETTINGS for load_qps in loads
            for row in _of_batching(profile, slo_ms, workers, load_qps)]


def _of_batching(name: str, slo_ms: float, workers: int, load_qps: float) -> Iterator[Row]:
    profile = load_profile(name)
    fleet = Fleet.of(profile, workers=workers, slo_ms=slo_ms, service="distribution")

    def run(spec: FleetScheduler, **chosen: object) -> dict[str, Any]:
        result = simulate(
            Cluster.of(profile, workers=workers, slo_ms=slo_ms), spec,
            ConstantLoad(load_qps, 5_000.0),
            SimulationSettings(service="distribution", seeds=range(2)))
        bound = realised_bound(
            [fleet.service_times], slo_ms=slo_ms, workers=[workers], max_batch=fleet.max_batch,
            duration_ms=result.duration_ms, counts=tuple(one.queries for one in result.metrics))
        return {"profile": name, "slo_ms": slo_ms, "workers": workers, "load_qps": load_qps,
                "scheduler": spec.name, "model": None, "objective": None, **chosen,
                "effective_accuracy": round(result.effective_accuracy, 6),
                "violation_rate": round(result.violation_rate, 6),
                "upper_bound": round(bound or 0.0, 6)}

    front = [model for model in pareto_front(fleet.table, 1)
             if fleet.largest_batch(fleet.models.index(model), slo_ms)]
    for kind in (BentoML, Symphony, Clipper):
        yield max((run(kind(model, objective=objective), model=model, objective=objective)
                   for model in front for objective in (1.0, 0.75, 0.5)),
                  key=lambda row: float(row["effective_accuracy"]))
    yield run(Greedy())
    policy = generate_policy(profile, load_qps, SynthesisSettings(
        slo_ms=slo_ms, workers=workers, dispatch="central-queue", service="distribution"))
    yield run(Policies((policy,)), scheduler="central-queue")


def render_batching(rows: Sequence[Row]) -> str:
    """Return a Markdown table of distances to the bound."""
    names = ("bentoml", "symphony", "clipper", "greedy", "central-queue")

    def distance(row: Row) -> str:
        late = f" ({100.0 * row['violation_rate']:.2g} %)" if row["violation_rate"] else ""
        return f"{row['upper_bound'] - row['effective_accuracy']:.4f}{late}"

    return markdown(["profile, SLO, workers", "load (QPS)", "bound",
                     *(f"`{name}`" for name in names)],
                    [[*setting, *map(cells.__getitem__, names)]
                     for setting, cells in by_setting(rows, distance).items()])


def render_solvers(rows: Sequence[Row]) -> str:
    """Return a Markdown table with a line for each problem and a column for each solver."""
    problems: dict[str, dict[str, str]] = {}
    for row in rows:
        problem = f"{row['kind']}, {row['non_zeros']:.0e}, {row['discount']:g}"
        problems.setdefault(problem, {})[row["solver"]] = (
            f"{row['seconds']:.3g} s, {row['peak_gb']:.3g} GB")
    return markdown(["successors, non-zeros, discount", *solvers.SOLVERS],
                    [[problem, *(cells.get(name, f"over {solvers.LIMIT_S:g} s")
                                 for name in solvers.SOLVERS)]
                     for problem, cells in problems.items()])


PARTS = {"promises": Part(measure_promises, render_promises),
         "solvers": Part(solvers.measure, render_solvers),
         "batching": Part(measure_batching, render_batching, on_page=False)}


def page_with_tables(page: str, folder: Path = ROWS) -> str:
    """Return the page with each table made from its rows in a folder."""
    for name, part in PARTS.items():
        if part.on_page:
            page = with_part(page, f"\n{table_of(name, folder)}\n", name)
    return page


def table_of(name: str, folder: Path = ROWS) -> str:
    """Return the table of a part from its rows in a folder."""
    return PARTS[name].render(json.loads((folder / f"{name}.json").read_text("utf-8")))


def main() -> None:
    """Measure the parts that are named, print their tables, and write the page."""
    parser = parser_of(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--write", action="store_true", help="only write the page")
    arguments = parser.parse_args()
    if (not arguments.write and not arguments.parts) or set(arguments.parts) - set(PARTS):
        parser.error(f"name what to measure, of {', '.join(PARTS)}, or pass --write")
    for name in arguments.parts:
        if not arguments.write:
            write_atomic(ROWS / f"{name}.json", json.dumps(PARTS[name].measure(), indent=1) + "\n")
        print(table_of(name))
    write_atomic(PAGE, page_with_tables(PAGE.read_text("utf-8")))


if __name__ == "__main__":
    main()
