"""Tables of docs/evaluation.md: the RAMSIS paper's figures of its own models, and our gains.

    python scripts/paper.py      # the tables again, from the rows kept in docs/results
    python scripts/paper.py --image image.json --text text.json --trace twitter.txt [--only fig12]

The second form computes the rows first, in about twenty minutes on a core. Profiles and trace are
those of the paper's public artifact, which are not shipped. Tables of the shipped profiles come
from the rows of their figures, docs/evaluation/*.csv, and from docs/results. No table is edited by
hand; a test holds the page to the rows.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.command import csv_text
from evaluation.overload import RULES, overload_rows
from evaluation.savings import gains as accuracy_gains
from evaluation.savings import savings, setting, summary
from evaluation.specs import CENTRAL, POLICIES, WORKER, label
from study import markdown, write_part

from ramsis.files import write_atomic

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "evaluation.md"
ROWS = ROOT / "docs" / "results" / "paper.csv"
PRINTED = ROOT / "docs" / "results" / "paper-table3.csv"
TIMES = ROOT / "docs" / "results" / "paper-table2.csv"
SHIPPED = ("image-cpu", "text-cpu")
PAPER, DEFAULT, SLIM = "round-robin:paper", "round-robin", "round-robin:headroom=0"
JELLYFISH, SWITCHING = "jellyfish-plus:headroom=1.05", "model-switching"
OVERLOAD = 0.05  # the paper leaves points with more violations out of its figures
_LOADS = "--loads 400:4000:400"
_TRACE = ("--trace {trace} --trace-scale 1 "
          f"--schedulers {PAPER} {DEFAULT} {JELLYFISH} {SWITCHING}")
RUNS = {
    "fig5-image": f"fig5 --profiles {{image}} --slo-ms 150,300,500 {_TRACE}",
    "fig5-text": f"fig5 --profiles {{text}} --slo-ms 100,200,300 {_TRACE}",
    "fig6": f"fig6 --profiles {{image}} --slo-ms 150,300,500 {_LOADS} "
            f"--schedulers {PAPER} {DEFAULT} {CENTRAL} {SLIM},batching=variable {JELLYFISH} "
            f"jellyfish-plus {SWITCHING}",
    "fig10": f"fig10 --profiles {{image}} --slo-ms 150,300,500 {_LOADS} "
             f"--schedulers {PAPER} {DEFAULT} --grid fixed:2,fixed:10,fixed:100,model",
    "fig11": f"fig11 --profiles {{image}} --slo-ms 150,300,500 {_LOADS} "
             f"--schedulers {PAPER} {DEFAULT}",
    "fig12": f"fig12 --profiles {{image}} --slo-ms 150,300,500 {_LOADS} "
             "--three shufflenet_v2_x0_5,efficientnet_b2,efficientnet_v2_s "
             f"--schedulers {PAPER} {DEFAULT} {JELLYFISH}",
    "table2": f"table2 --profiles {{image}} --paper-size --grid fixed:100,model "
              f"--schedulers {PAPER}",
}
"""Arguments of scripts/evaluate.py and scripts/table2.py, by the name of the rows."""


class Row(NamedTuple):
    """A cell of an experiment, simulated."""

    run: str  # a key of RUNS
    slo_ms: float
    workers: int
    load_qps: float  # 0 on the trace
    scheduler: str
    accuracy: float  # of the answers in time
    violation_rate: float
    effective_accuracy: float


Cells = Mapping[tuple[float, int, float], Mapping[str, Row]]


def read_rows(path: Path = ROWS) -> list[Row]:
    """Read the kept rows."""
    with path.open(encoding="utf-8", newline="") as stream:
        return [Row(row["run"], float(row["slo_ms"]), int(row["workers"]), float(row["load_qps"]),
                    row["scheduler"], float(row["accuracy"]), float(row["violation_rate"]),
                    float(row["effective_accuracy"])) for row in csv.DictReader(stream)]


def cells(rows: Iterable[Row], run: str) -> Cells:
    """Return the rows of a run by SLO, workers and load, and then by scheduler."""
    by_cell: dict[tuple[float, int, float], dict[str, Row]] = {}
    for row in rows:
        if row.run == run:
            cell = row.slo_ms, row.workers, row.load_qps
            by_cell.setdefault(cell, {})[row.scheduler] = row
    return by_cell


def gains(by_cell: Cells, policy: str, baseline: str, most_violations: float) -> list[float]:
    """Return the points of accuracy that a policy gains in each cell that is not overloaded."""
    pairs = [(row[policy], row[baseline]) for row in by_cell.values()]
    return [100.0 * (ours.accuracy - other.accuracy) for ours, other in pairs
            if max(ours.violation_rate, other.violation_rate) <= most_violations]


def mean_and_largest(values: Sequence[float]) -> str:
    """Return a mean, and the largest value in brackets."""
    return f"{sum(values) / len(values):.2f} ({max(values):.2f})"


def render_gains(rows: Sequence[Row]) -> str:
    """Fig. 5: accuracy gained on the trace."""
    image, text = cells(rows, "fig5-image"), cells(rows, "fig5-text")
    artifact = {cell: row for cell, row in image.items()
                if cell[0] == 150.0 and cell[1] in (60, 70, 80)}
    lines = []
    for case, by_cell, most, printed in (
        ("images, 150 ms, 60 to 80 workers (the paper's artifact)", artifact, 1.0,
         ("5.70 (8.07)", "3.48 (4.63)")),
        ("images, three SLOs (the paper's prototype)", image, OVERLOAD,
         ("4.35 (15.08)", "4.43 (15.09)")),
        ("text, three SLOs (the paper's prototype)", text, OVERLOAD,
         ("2.01 (4.55)", "1.93 (3.85)")),
    ):
        lines += [[case, title, figure, *(
            mean_and_largest(gains(by_cell, policy, baseline, most))
            for policy in (PAPER, DEFAULT))]
            for (title, baseline), figure in zip(
                (("Jellyfish+", JELLYFISH), ("ModelSwitching", SWITCHING)), printed, strict=True)]
    return markdown(["task", "over", "printed", f"`{PAPER}`", "per-worker policies"], lines)


def render_headline(rows: Sequence[Row]) -> str:
    """Fig. 6 at 150 ms: accuracy of the answers in time gained, over ten loads."""
    by_cell = {cell: row for cell, row in cells(rows, "fig6").items() if cell[0] == 150.0}
    return markdown(
        ["over", "paper", f"`{PAPER}`", "per-worker policies", "central-queue policies"],
        [[title, printed, *(mean_and_largest(gains(by_cell, policy, baseline, 1.0))
                            for policy in (PAPER, DEFAULT, CENTRAL))]
         for title, baseline, printed in (
             ("Jellyfish+ with 5 % of headroom", JELLYFISH, "3.70 (15.04)"),
             ("Jellyfish+", "jellyfish-plus", ""), ("ModelSwitching", SWITCHING, "1.84 (6.71)"))])


def below_baselines(rows: Sequence[Row], policy: str) -> Cells:
    """Return the cells of Fig. 6 in which a policy is below a baseline, by 0.0005 or more."""
    return {cell: row for cell, row in cells(rows, "fig6").items()
            if row[policy].effective_accuracy <= max(
                row[name].effective_accuracy for name in ("jellyfish-plus", SWITCHING)) - 5e-4}


def render_below(rows: Sequence[Row]) -> str:
    """Fig. 6: where per-worker policies are below a baseline."""
    def figure(row: Row) -> str:
        late = f" ({100.0 * row.violation_rate:.2g} %)" if row.violation_rate >= 5e-4 else ""
        return f"{row.effective_accuracy:.4f}{late}"

    schedulers = {CENTRAL: "central-queue policies", DEFAULT: "per-worker policies",
                  SLIM: "without headroom", f"{SLIM},batching=variable": "and variable batching",
                  "jellyfish-plus": "Jellyfish+", SWITCHING: "ModelSwitching"}
    return markdown(["SLO (ms)", "load (QPS)", *schedulers.values()],
                    [[f"{slo_ms:g}", f"{load_qps:g}", *(figure(row[name]) for name in schedulers)]
                     for (slo_ms, _, load_qps), row in below_baselines(rows, DEFAULT).items()])


def render_savings(rows: Sequence[Row]) -> str:
    """Fig. 5: workers saved on the trace at the effective accuracy of a baseline."""
    lines = []
    for task, title, printed in (
        ("image", "images", {JELLYFISH: "17.53 (42.86)", SWITCHING: "20.01 (50.00)"}),
        ("text", "text", {JELLYFISH: "31.25 (75.00)", SWITCHING: "25.31 (44.44)"}),
    ):
        at_load = [{**row._asdict(), "trace": row.run} for row in rows
                   if row.run == f"fig5-{task}" and row.violation_rate <= OVERLOAD]
        saved = {(row["scheduler"], row["baseline"]): row
                 for row in summary(savings(at_load, [DEFAULT]), "saved")
                 if row["slo_ms"] is None}
        lines += [[title, label(baseline), figure, *(
            f"{100.0 * row['average']:.2f} ({100.0 * row['largest']:.2f})"
            for row in (saved[policy, baseline] for policy in (PAPER, DEFAULT)))]
            for baseline, figure in printed.items()]
    return markdown(["task", "against", "printed", f"`{PAPER}`", "per-worker policies"], lines)


def render_violations(rows: Sequence[Row]) -> str:
    """Table 3 for images, where the profile's capacity is near: violations in percent."""
    by_cell, printed = cells(rows, "fig5-image"), printed_percent("image")
    names = {PAPER: "policies", JELLYFISH: "Jellyfish+", SWITCHING: "ModelSwitching"}
    slos_ms = sorted({slo_ms for slo_ms, _, _ in by_cell})
    lines = [[workers, *(
        f"{_percent(printed[slo_ms, workers, name])} / "
        f"{_percent(100.0 * by_cell[slo_ms, workers, 0.0][name].violation_rate)}"
        for slo_ms in slos_ms for name in names)]
        for workers in sorted({workers for _, workers, _ in by_cell if workers >= 60})]
    return markdown(["workers", *(f"{slo_ms:g} ms: {title}" for slo_ms in slos_ms
                                  for title in names.values())], lines)


def printed_percent(task: str) -> Mapping[tuple[float, int, str], float]:
    """Return the violations in percent that Table 3 prints, by SLO, workers and scheduler."""
    with PRINTED.open(encoding="utf-8", newline="") as stream:
        return {(float(row["slo_ms"]), int(row["workers"]), row["scheduler"]):
                float(row["percent"]) for row in csv.DictReader(stream) if row["task"] == task}


def _percent(percent: float) -> str:
    return f"{percent:.2f}" if percent < 10.0 else f"{percent:.1f}"


def render_grids(rows: Sequence[Row]) -> str:
    """Fig. 10: effective accuracy of coarse slack grids below the model-based one."""
    lines = []
    for policy, separator in ((PAPER, ","), (DEFAULT, ":")):
        def loss(row: Mapping[str, Row], grid: str, prefix: str = policy + separator) -> float:
            best = row[f"{prefix}grid=model"].effective_accuracy
            return 1000.0 * (best - row[f"{prefix}grid={grid}"].effective_accuracy)

        prefix = policy + separator
        for slo_ms in (150.0, 300.0, 500.0):
            fair = [row for (slo, _, _), row in cells(rows, "fig10").items() if slo == slo_ms
                    and all(cell.violation_rate <= OVERLOAD for name, cell in row.items()
                            if name.startswith(f"{prefix}grid="))]
            lines.append([f"`{policy}`", f"{slo_ms:g}", len(fair), *(
                mean_and_largest([loss(row, grid) for row in fair])
                for grid in ("fixed:2", "fixed:10", "fixed:100"))])
    return markdown(["policies", "SLO (ms)", "loads", "D = 2", "D = 10", "D = 100"], lines)


def render_batchings(rows: Sequence[Row]) -> str:
    """Fig. 11: effective accuracy that variable batching gains over maximal batching."""
    lines = []
    for policy, separator in ((PAPER, ","), (DEFAULT, ":")):
        for slo_ms in (150.0, 300.0, 500.0):
            pairs = [(row[f"{policy}{separator}batching=variable"],
                      row[f"{policy}{separator}batching=maximal"])
                     for (slo, _, _), row in cells(rows, "fig11").items() if slo == slo_ms]
            gained = [1000.0 * (variable.effective_accuracy - maximal.effective_accuracy)
                      for variable, maximal in pairs
                      if max(variable.violation_rate, maximal.violation_rate) <= OVERLOAD]
            lines.append([f"`{policy}`", f"{slo_ms:g}", len(gained), f"{min(gained):.1f}",
                          f"{sum(gained) / len(gained):.1f}", f"{max(gained):.1f}"])
    return markdown(["policies", "SLO (ms)", "loads", "least", "mean", "most"], lines)


def render_three(rows: Sequence[Row]) -> str:
    """Fig. 12: effective accuracy with three models."""
    by_cell = cells(rows, "fig12")

    def figure(row: Row) -> str:
        return "" if row.violation_rate > OVERLOAD else f"{row.effective_accuracy:.4f}"

    schedulers = {PAPER: f"`{PAPER}`", DEFAULT: "per-worker policies", JELLYFISH: "Jellyfish+"}
    return markdown(
        ["load (QPS)", *(f"{slo_ms:g} ms: {title}" for slo_ms in (150, 300, 500)
                         for title in schedulers.values())],
        [[f"{load_qps:g}", *(figure(by_cell[slo_ms, 60, load_qps][name])
                             for slo_ms in (150.0, 300.0, 500.0) for name in schedulers)]
         for load_qps in sorted({load_qps for _, _, load_qps in by_cell})])


def render_shipped(policies: str) -> Callable[[Sequence[Row]], str]:
    """Return what renders the gains of policies over baselines with the shipped profiles.

    Those of central-queue policies are of the smallest SLO, which alone has them on the trace.
    """
    def render(_: Sequence[Row]) -> str:
        heads, columns = [""], []
        for profile in SHIPPED:
            trace, constant = (_figure_rows(profile, name) for name in ("headline", "fig6"))
            slo_ms = min(row["slo_ms"] for row in trace) if policies == CENTRAL else None
            for baseline in ("jellyfish-plus", "model-switching"):
                heads.append(f"`{profile}`, {label(baseline)}" if len(heads) % 2 else
                             label(baseline))
                columns.append([_gain(rows, policies, baseline, slo_ms, figure)
                                for rows, figure in (
                                    (trace, "saved"), (trace, "gained"), (constant, "gained"))])
        return markdown(heads, zip((
            "workers saved on the trace, %", "accuracy gained on the trace, points",
            "accuracy gained at constant loads, points"), *columns, strict=True))
    return render


def _csv(path: Path) -> list[dict[str, Any]]:
    """Read kept rows, with numbers as such."""
    def value(text: str) -> Any:
        try:
            return float(text)
        except ValueError:
            return text or None

    with path.open(encoding="utf-8", newline="") as stream:
        return [{name: value(text) for name, text in row.items()}
                for row in csv.DictReader(stream)]


def _figure_rows(profile: str, figure: str) -> list[dict[str, Any]]:
    """Read the kept rows of a figure of a shipped profile."""
    return _csv(PAGE.parent / "evaluation" / f"{profile}-{figure}.csv")


def _gain(rows: Sequence[Mapping[str, Any]], policies: str, baseline: str, slo_ms: float | None,
          figure: str) -> str:
    """Return the mean gain of policies over a baseline, and the largest, in hundredths."""
    compared = (savings if figure == "saved" else accuracy_gains)(rows, POLICIES)
    row = next(row for row in summary(compared, figure) if row["slo_ms"] == slo_ms
               and (row["scheduler"], row["baseline"]) == (policies, baseline))
    return f"{100.0 * row['average']:.2f} ({100.0 * row['largest']:.2f})"


def render_times(_: Sequence[Row]) -> str:
    """Table 2: seconds to generate a policy, beside the paper's."""
    printed = {("D = 100", "maximal"): ("132", "1,355"),
               ("D = 100", "variable"): ("3,015", "more than a day"),
               ("model-based", "maximal"): ("116", "more than a day"),
               ("model-based", "variable"): ("3,694", "more than a day")}

    def seconds(taken: Any) -> str:
        return f"{taken:.2g}" if isinstance(taken, float) else taken

    return markdown(
        ["slack grid", "batching", "9 models", "paper", "60 models", "paper"],
        [[grid, batching, seconds(row["9 models"]), few, seconds(row["60 models"]), many]
         for row in _csv(TIMES)
         for grid, batching in [(row["slack grid"], row["batching"])]
         for few, many in [printed[grid, batching]]])


def render_figures(_: Sequence[Row]) -> str:
    """Figures 7, 8, 10, 11 and 12 with the shipped profiles, in thousandths."""
    columns = [_differences(profile) for profile in SHIPPED]
    return markdown(["figure", "× 1000", *(f"`{profile}`" for profile in SHIPPED)],
                    [[*head, *(f"{sum(one) / len(one):.2f} ({min(one):.2f} to {max(one):.2f})"
                               for one in (column[head] for column in columns))]
                     for head in columns[0]])


def _differences(profile: str) -> dict[tuple[str, str], list[float]]:
    """Return differences of effective accuracy × 1000, by figure and what is compared.

    Cells with more than 5 % of violations are left out, as in the figures.
    """
    def cells_of(figure: str, key: Callable[[dict[str, Any]], str]
                 ) -> list[dict[str, float]]:
        by_cell: dict[tuple[float, float], dict[str, float]] = {}
        for row in _figure_rows(profile, figure):
            if row["violation_rate"] <= OVERLOAD:
                by_cell.setdefault((row["slo_ms"], row["load_qps"]), {})[key(row)] = (
                    1000.0 * row["effective_accuracy"])
        return list(by_cell.values())

    def less(cells: Iterable[Mapping[str, float]], first: str, second: str) -> list[float]:
        return [cell[first] - cell[second] for cell in cells if {first, second} <= cell.keys()]

    promised = [1000.0 * (row["effective_accuracy"] - row["expected_effective_accuracy"])
                for row in _figure_rows(profile, "fig7") if row["violation_rate"] <= OVERLOAD]
    sets = cells_of("fig8", lambda row: f"{row['model_set']} {label(row['scheduler'])}")
    grids = cells_of("fig10", lambda row: setting(row["scheduler"], "grid"))
    batchings = cells_of("fig11", lambda row: setting(row["scheduler"], "batching"))
    three = cells_of("fig12", lambda row: label(row["scheduler"]))
    return {
        ("7", "simulation less promise"): promised,
        **{("8", f"gained by models in between, {name}"): less(
            sets, f"interpolate:0.005 {name}", f"pareto {name}")
           for name in ("per-worker policies", "Jellyfish+", "ModelSwitching")},
        **{("10", f"lost by D = {division} to the model-based grid"): less(
            grids, "model", f"fixed:{division}") for division in (2, 10, 100)},
        ("11", "gained by variable batching"): less(batchings, "variable", "maximal"),
        **{("12", f"gained over {name} with three models"): less(
            three, "per-worker policies", name) for name in ("Jellyfish+", "ModelSwitching")},
    }


def render_overload(_: Sequence[Row]) -> str:
    """Traces that pass the capacity, by both rules for late requests at price 1."""
    rows = overload_rows([row for row in _csv(ROWS.with_name("image-cpu-overload.csv"))
                          if not RULES.get(row["scheduler"], "").endswith("price 0")
                          and row["scheduler"] != "greedy:late=serve"])
    return markdown(list(rows[0]), [list(row.values()) for row in rows])


PARTS: Mapping[str, Callable[[Sequence[Row]], str]] = {
    "paper-headline": render_headline,
    "paper-gains": render_gains,
    "paper-savings": render_savings,
    "paper-times": render_times,
    "gains-worker": render_shipped(WORKER),
}
"""Tables of the page."""
OTHERS: Mapping[str, Callable[[Sequence[Row]], str]] = {
    "paper-table3-image": render_violations,
    "paper-grids": render_grids,
    "paper-batchings": render_batchings,
    "paper-three": render_three,
    "paper-below": render_below,
    "overload": render_overload,
    "shipped-figures": render_figures,
    "gains-central": render_shipped(CENTRAL),
}
"""Tables of which the page has one sentence each."""


def measure(run: str, files: Mapping[str, str], folder: Path) -> list[Row]:
    """Compute the rows of a run; the folder keeps what is computed."""
    words = RUNS[run].format(**files).split()
    script = ["table2.py"] if run == "table2" else ["evaluate.py", words[0]]
    subprocess.run([sys.executable, str(ROOT / "scripts" / script[0]), *script[1:], *words[1:],
                    "--out", str(folder / run)], check=True)
    table = folder / run / Path(words[words.index("--profiles") + 1]).stem / f"{words[0]}.csv"
    if run == "table2":
        write_atomic(TIMES, table.read_text("utf-8"))
        return []
    with table.open(encoding="utf-8", newline="") as stream:
        return [Row(run, float(row["slo_ms"]), int(row["workers"]), float(row["load_qps"] or 0.0),
                    row["scheduler"], *(round(float(row[name] or 0.0), 6) for name in
                                        ("accuracy", "violation_rate", "effective_accuracy")))
                for row in csv.DictReader(stream)]


def main() -> None:
    """Compute the rows if their files are named, and write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--image", metavar="FILE", help="profile of the image task")
    parser.add_argument("--text", metavar="FILE", help="profile of the text task")
    parser.add_argument("--trace", metavar="FILE", help="the artifact's Twitter trace")
    parser.add_argument("--only", action="append", choices=RUNS, help="repeat; by default all")
    parser.add_argument("--out", type=Path, default=Path("evaluation_out"), metavar="FOLDER",
                        help="folder that keeps computed cells (default: %(default)s)")
    options = parser.parse_args()
    rows = read_rows() if ROWS.exists() else []
    files = {name: getattr(options, name) for name in ("image", "text", "trace")}
    if any(files.values()):
        for run in options.only or RUNS:
            if missing := [name for name, file in files.items()
                           if file is None and f"{{{name}}}" in RUNS[run]]:
                parser.error(f"{run} needs --{missing[0]}")
            rows = [row for row in rows if row.run != run]
            rows += measure(run, files, options.out)
        write_atomic(ROWS, csv_text([row._asdict() for row in rows]))
    for name, render in PARTS.items():
        write_part(PAGE, name, render(rows))
    for name, render in OTHERS.items():
        print(f"{name}\n\n{render(rows)}\n")


if __name__ == "__main__":
    main()
