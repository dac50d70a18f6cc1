"""Tables of docs/evaluation.md: the RAMSIS paper's figures of its own models, and our gains.

    python scripts/paper.py      # the tables again, from the rows kept in docs/results
    python scripts/paper.py --image image.json --text text.json --trace twitter.txt [--only fig12]

The second form computes the rows first, in about twenty minutes on a core. Profiles and trace are
those of the paper's public artifact, which are not shipped. Tables of the shipped profiles come
from the rows of their figures, docs/evaluation/*.csv, and from docs/results. No table is edited by
hand; a test holds the page to the rows.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from evaluation.overload import RULES, name_of
from evaluation.savings import gains as accuracy_gains
from evaluation.savings import savings, setting, summary
from evaluation.specs import CENTRAL, POLICIES, WORKER, label
from evaluation.tables import text
from study import ROOT, markdown, parser_of, records, write_part

from ramsis.files import write_atomic

PAGE = ROOT / "docs" / "evaluation.md"
ROWS = ROOT / "docs" / "results" / "paper.csv"
PRINTED = ROOT / "docs" / "results" / "paper-table3.csv"
TIMES = ROOT / "docs" / "results" / "paper-table2.csv"
SHIPPED = ("image-cpu", "text-cpu")
PAPER, DEFAULT, SLIM = "round-robin:paper", "round-robin", "round-robin:headroom=0"
JELLYFISH, SWITCHING = "jellyfish-plus:headroom=1.05", "model-switching"
OVERLOAD = 0.05  # the paper leaves points with more violations out of its figures
SLOS_MS = (150.0, 300.0, 500.0)
SEPARATOR = {PAPER: ",", DEFAULT: ":"}  # before the next setting of a scheduler
_LOADS = "--slo-ms 150,300,500 --loads 400:4000:400"
_TRACE = ("--trace {trace} --trace-scale 1 "
          f"--schedulers {PAPER} {DEFAULT} {JELLYFISH} {SWITCHING}")
RUNS = {
    "fig5-image": f"fig5 --profiles {{image}} --slo-ms 150,300,500 {_TRACE}",
    "fig5-text": f"fig5 --profiles {{text}} --slo-ms 100,200,300 {_TRACE}",
    "fig6": f"fig6 --profiles {{image}} {_LOADS} "
            f"--schedulers {PAPER} {DEFAULT} {CENTRAL} {SLIM},batching=variable {JELLYFISH} "
            f"jellyfish-plus {SWITCHING}",
    "fig10": f"fig10 --profiles {{image}} {_LOADS} "
             f"--schedulers {PAPER} {DEFAULT} --grid fixed:2,fixed:10,fixed:100,model",
    "fig11": f"fig11 --profiles {{image}} {_LOADS} --schedulers {PAPER} {DEFAULT}",
    "fig12": f"fig12 --profiles {{image}} {_LOADS} "
             "--three shufflenet_v2_x0_5,efficientnet_b2,efficientnet_v2_s "
             f"--schedulers {PAPER} {DEFAULT} {JELLYFISH}",
    "table2": f"table2 --profiles {{image}} --paper-size --grid fixed:100,model "
              f"--schedulers {PAPER}",
}
"""Arguments of scripts/evaluate.py and scripts/table2.py, by the name of the rows."""
COLUMNS = ("run", "slo_ms", "workers", "load_qps", "scheduler", "accuracy", "violation_rate",
           "effective_accuracy")
"""Of the kept rows; the load is 0 on the trace, and accuracy is that of the answers in time."""


Table = Any
"""A DataFrame with columns by figure and scheduler, which pandas' type stubs do not know."""


def cells(rows: pd.DataFrame, run: str) -> Table:
    """Return the rows of a run by SLO, workers and load; columns by figure and scheduler."""
    return rows[rows["run"] == run].pivot_table(
        index=["slo_ms", "workers", "load_qps"], columns="scheduler",
        values=["accuracy", "violation_rate", "effective_accuracy"])


def gains(
    table: Table, policy: str, baseline: str, most_violations: float,
    figure: str = "accuracy", per: float = 100.0,
) -> pd.Series[float]:
    """Return what a policy gains in each cell that is not overloaded, in points by default."""
    fair = (table["violation_rate"][[policy, baseline]] <= most_violations).all(axis=1)
    gained: pd.Series[float] = (per * (table[figure, policy] - table[figure, baseline]))[fair]
    return gained


def mean_and_largest(values: pd.Series[float]) -> str:
    """Return a mean, and the largest value in brackets."""
    return f"{values.mean():.2f} ({values.max():.2f})"


def render_gains(rows: pd.DataFrame) -> str:
    """Fig. 5: accuracy gained on the trace."""
    image, texts = cells(rows, "fig5-image"), cells(rows, "fig5-text")
    artifact = image.loc[(150.0, [60, 70, 80]), :]
    return markdown(["task", "over", "printed", f"`{PAPER}`", "per-worker policies"], [
        [case, title, figure, *(mean_and_largest(gains(table, policy, baseline, most))
                                for policy in (PAPER, DEFAULT))]
        for case, table, most, printed in (
            ("images, 150 ms, 60 to 80 workers (the paper's artifact)", artifact, 1.0,
             ("5.70 (8.07)", "3.48 (4.63)")),
            ("images, three SLOs (the paper's prototype)", image, OVERLOAD,
             ("4.35 (15.08)", "4.43 (15.09)")),
            ("text, three SLOs (the paper's prototype)", texts, OVERLOAD,
             ("2.01 (4.55)", "1.93 (3.85)")))
        for title, baseline, figure in zip(("Jellyfish+", "ModelSwitching"),
                                           (JELLYFISH, SWITCHING), printed, strict=True)])


def render_headline(rows: pd.DataFrame) -> str:
    """Fig. 6 at 150 ms: accuracy of the answers in time gained, over ten loads."""
    table = cells(rows, "fig6").loc[[150.0]]
    return markdown(
        ["over", "paper", f"`{PAPER}`", "per-worker policies", "central-queue policies"],
        [[title, printed, *(mean_and_largest(gains(table, policy, baseline, 1.0))
                            for policy in (PAPER, DEFAULT, CENTRAL))]
         for title, baseline, printed in (
             ("Jellyfish+ with 5 % of headroom", JELLYFISH, "3.70 (15.04)"),
             ("Jellyfish+", "jellyfish-plus", ""), ("ModelSwitching", SWITCHING, "1.84 (6.71)"))])


def below_baselines(rows: pd.DataFrame, policy: str) -> Table:
    """Return the cells of Fig. 6 in which a policy is below a baseline, by 0.0005 or more."""
    table = cells(rows, "fig6")
    value = table["effective_accuracy"]
    return table[value[policy] <= value[["jellyfish-plus", SWITCHING]].max(axis=1) - 5e-4]


def render_below(rows: pd.DataFrame) -> str:
    """Fig. 6: where per-worker policies are below a baseline."""
    def figure(cell: pd.Series[float], name: str) -> str:
        late = cell["violation_rate", name]
        return f"{cell['effective_accuracy', name]:.4f}" + (
            f" ({100.0 * late:.2g} %)" if late >= 5e-4 else "")

    schedulers = {CENTRAL: "central-queue policies", DEFAULT: "per-worker policies",
                  SLIM: "without headroom", f"{SLIM},batching=variable": "and variable batching",
                  "jellyfish-plus": "Jellyfish+", SWITCHING: "ModelSwitching"}
    below = below_baselines(rows, DEFAULT)
    return markdown(["SLO (ms)", "load (QPS)", *schedulers.values()],
                    [[f"{slo_ms:g}", f"{load_qps:g}", *(figure(cell, name) for name in schedulers)]
                     for (slo_ms, _, load_qps), (_, cell) in zip(
                         below.index.tolist(), below.iterrows(), strict=True)])


def render_savings(rows: pd.DataFrame) -> str:
    """Fig. 5: workers saved on the trace at the effective accuracy of a baseline."""
    lines = []
    for task, title, printed in (
        ("image", "images", {JELLYFISH: "17.53 (42.86)", SWITCHING: "20.01 (50.00)"}),
        ("text", "text", {JELLYFISH: "31.25 (75.00)", SWITCHING: "25.31 (44.44)"}),
    ):
        fair = rows[(rows["run"] == f"fig5-{task}") & (rows["violation_rate"] <= OVERLOAD)]
        saved = {(row["scheduler"], row["baseline"]): row for row in summary(
            savings(records(fair.assign(trace=task)), [DEFAULT]), "saved")
            if row["slo_ms"] is None}
        lines += [[title, label(baseline), figure, *(
            f"{100.0 * row['average']:.2f} ({100.0 * row['largest']:.2f})"
            for row in (saved[policy, baseline] for policy in (PAPER, DEFAULT)))]
            for baseline, figure in printed.items()]
    return markdown(["task", "against", "printed", f"`{PAPER}`", "per-worker policies"], lines)


def render_violations(rows: pd.DataFrame) -> str:
    """Table 3 for images, where the profile's capacity is near: violations in percent."""
    names = {PAPER: "policies", JELLYFISH: "Jellyfish+", SWITCHING: "ModelSwitching"}
    here = 100.0 * cells(rows, "fig5-image")["violation_rate"].droplevel("load_qps")
    printed = printed_percent("image")

    def percent(value: float) -> str:
        return f"{value:.2f}" if value < 10.0 else f"{value:.1f}"

    return markdown(
        ["workers", *(f"{slo_ms:g} ms: {title}" for slo_ms in SLOS_MS
                      for title in names.values())],
        [[workers, *(f"{percent(printed[slo_ms, workers, name])} / "
                     f"{percent(here.loc[(slo_ms, workers), name])}"
                     for slo_ms in SLOS_MS for name in names)]
         for workers in here.index.unique("workers") if workers >= 60])


def printed_percent(task: str) -> Any:
    """Return the violations in percent that Table 3 prints, by SLO, workers and scheduler."""
    printed = pd.read_csv(PRINTED, index_col=["slo_ms", "workers", "scheduler"])
    return printed["percent"][printed["task"] == task]


def render_grids(rows: pd.DataFrame) -> str:
    """Fig. 10: effective accuracy of coarse slack grids below the model-based one."""
    lines = []
    for policy, separator in SEPARATOR.items():
        model, *coarse = (f"{policy}{separator}grid={grid}"
                          for grid in ("model", "fixed:2", "fixed:10", "fixed:100"))
        for slo_ms in SLOS_MS:
            table = cells(rows, "fig10").loc[[slo_ms]]
            fair = table[(table["violation_rate"][[model, *coarse]] <= OVERLOAD).all(axis=1)]
            lines.append([f"`{policy}`", f"{slo_ms:g}", len(fair), *(mean_and_largest(gains(
                fair, model, grid, 1.0, "effective_accuracy", 1000.0)) for grid in coarse)])
    return markdown(["policies", "SLO (ms)", "loads", "D = 2", "D = 10", "D = 100"], lines)


def render_batchings(rows: pd.DataFrame) -> str:
    """Fig. 11: effective accuracy that variable batching gains over maximal batching."""
    lines = []
    for policy, separator in SEPARATOR.items():
        for slo_ms in SLOS_MS:
            batching = f"{policy}{separator}batching="
            gained = gains(cells(rows, "fig11").loc[[slo_ms]], f"{batching}variable",
                           f"{batching}maximal", OVERLOAD, "effective_accuracy", 1000.0)
            lines.append([f"`{policy}`", f"{slo_ms:g}", len(gained), *(
                f"{value:.1f}" for value in (gained.min(), gained.mean(), gained.max()))])
    return markdown(["policies", "SLO (ms)", "loads", "least", "mean", "most"], lines)


def render_three(rows: pd.DataFrame) -> str:
    """Fig. 12: effective accuracy with three models."""
    table = cells(rows, "fig12").droplevel("workers")
    value = table["effective_accuracy"].where(table["violation_rate"] <= OVERLOAD)
    schedulers = {PAPER: f"`{PAPER}`", DEFAULT: "per-worker policies", JELLYFISH: "Jellyfish+"}
    return markdown(
        ["load (QPS)", *(f"{slo_ms:g} ms: {title}" for slo_ms in (150, 300, 500)
                         for title in schedulers.values())],
        [[f"{load_qps:g}", *("" if pd.isna(cell := value.loc[(slo_ms, load_qps), name])
                             else f"{cell:.4f}" for slo_ms in SLOS_MS for name in schedulers)]
         for load_qps in value.index.unique("load_qps")])


def render_shipped(policies: str, _: pd.DataFrame) -> str:
    """Gains of policies over baselines with the shipped profiles.

    Those of central-queue policies are of the smallest SLO, which alone has them on the trace.
    """
    heads, columns = [""], []
    for profile in SHIPPED:
        trace, constant = (records(_figure(profile, name)) for name in ("headline", "fig6"))
        slo_ms = min(row["slo_ms"] for row in trace) if policies == CENTRAL else None
        for baseline in ("jellyfish-plus", "model-switching"):
            heads.append(f"`{profile}`, {label(baseline)}" if len(heads) % 2 else label(baseline))
            columns.append([_gain(rows, policies, baseline, slo_ms, figure) for rows, figure in (
                (trace, "saved"), (trace, "gained"), (constant, "gained"))])
    return markdown(heads, zip((
        "workers saved on the trace, %", "accuracy gained on the trace, points",
        "accuracy gained at constant loads, points"), *columns, strict=True))


def _figure(profile: str, figure: str) -> pd.DataFrame:
    """Read the kept rows of a figure of a shipped profile."""
    return pd.read_csv(PAGE.parent / "evaluation" / f"{profile}-{figure}.csv")


def _gain(rows: list[dict[str, Any]], policies: str, baseline: str, slo_ms: float | None,
          figure: str) -> str:
    """Return the mean gain of policies over a baseline, and the largest, in hundredths."""
    compared = (savings if figure == "saved" else accuracy_gains)(rows, POLICIES)
    row = next(row for row in summary(compared, figure) if row["slo_ms"] == slo_ms
               and (row["scheduler"], row["baseline"]) == (policies, baseline))
    return f"{100.0 * row['average']:.2f} ({100.0 * row['largest']:.2f})"


def render_times(_: pd.DataFrame) -> str:
    """Table 2: seconds to generate a policy, beside the paper's."""
    printed = {("D = 100", "maximal"): ("132", "1,355"),
               ("D = 100", "variable"): ("3,015", "more than a day"),
               ("model-based", "maximal"): ("116", "more than a day"),
               ("model-based", "variable"): ("3,694", "more than a day")}

    def seconds(taken: str) -> str:
        return taken if "too" in taken else f"{float(taken):.2g}"

    return markdown(["slack grid", "batching", "9 models", "paper", "60 models", "paper"], [
        [grid, batching, seconds(few), printed[grid, batching][0], seconds(many),
         printed[grid, batching][1]]
        for grid, batching, few, many in pd.read_csv(TIMES, dtype=str).itertuples(index=False)])


def render_figures(_: pd.DataFrame) -> str:
    """Figures 7, 8, 10, 11 and 12 with the shipped profiles, in thousandths."""
    columns = [_differences(profile) for profile in SHIPPED]
    return markdown(["figure", "× 1000", *(f"`{profile}`" for profile in SHIPPED)],
                    [[*head, *(f"{one.mean():.2f} ({one.min():.2f} to {one.max():.2f})"
                               for one in (column[head] for column in columns))]
                     for head in columns[0]])


def _differences(profile: str) -> dict[tuple[str, str], pd.Series[float]]:
    """Return differences of effective accuracy × 1000, by figure and what is compared.

    Cells with more than 5 % of violations are left out, as in the figures.
    """
    def fair(figure: str) -> pd.DataFrame:
        rows = _figure(profile, figure)
        return rows[rows["violation_rate"] <= OVERLOAD]

    def less(figure: str, key: Callable[[pd.Series[Any]], str], first: str, second: str
             ) -> pd.Series[float]:
        rows = fair(figure)
        table = rows.assign(key=rows.apply(key, axis=1)).pivot_table(
            index=["slo_ms", "load_qps"], columns="key", values="effective_accuracy")
        return 1000.0 * (table[first] - table[second]).dropna()

    def name(row: pd.Series[Any]) -> str:
        return label(row["scheduler"])

    promised = fair("fig7")
    return {
        ("7", "simulation less promise"): 1000.0 * (
            promised["effective_accuracy"] - promised["expected_effective_accuracy"]),
        **{("8", f"gained by models in between, {scheduler}"): less(
            "fig8", lambda row: f"{row['model_set']} {name(row)}",
            f"interpolate:0.005 {scheduler}", f"pareto {scheduler}")
           for scheduler in ("per-worker policies", "Jellyfish+", "ModelSwitching")},
        **{("10", f"lost by D = {division} to the model-based grid"): less(
            "fig10", lambda row: setting(row["scheduler"], "grid"), "model", f"fixed:{division}")
           for division in (2, 10, 100)},
        ("11", "gained by variable batching"): less(
            "fig11", lambda row: setting(row["scheduler"], "batching"), "variable", "maximal"),
        **{("12", f"gained over {scheduler} with three models"): less(
            "fig12", name, "per-worker policies", scheduler)
           for scheduler in ("Jellyfish+", "ModelSwitching")},
    }


def render_overload(_: pd.DataFrame) -> str:
    """Traces that pass the capacity, by both rules for late requests at price 1."""
    traces: dict[str, dict[str, str]] = {}
    for row in records(pd.read_csv(ROWS.with_name("image-cpu-overload.csv"))):
        if not RULES.get(row["scheduler"], "").endswith("price 0") and (
                row["scheduler"] != "greedy:late=serve"):
            trace = f"{row['trace']} × {row['trace_scale']:g}"
            traces.setdefault(trace, {"trace": trace})[name_of(row)] = text(row)
    lines = list(traces.values())
    return markdown(list(lines[0]), [list(line.values()) for line in lines])


Render = Callable[[pd.DataFrame], str]
PARTS: Mapping[str, Render] = {
    "paper-headline": render_headline,
    "paper-gains": render_gains,
    "paper-times": render_times,
    "gains-worker": partial(render_shipped, WORKER),
}
"""Tables of the page."""
OTHERS: Mapping[str, Render] = {
    "paper-savings": render_savings,
    "paper-table3-image": render_violations,
    "paper-grids": render_grids,
    "paper-batchings": render_batchings,
    "paper-three": render_three,
    "paper-below": render_below,
    "overload": render_overload,
    "shipped-figures": render_figures,
    "gains-central": partial(render_shipped, CENTRAL),
}
"""Tables that the page only names."""


def measure(run: str, files: Mapping[str, str], folder: Path) -> pd.DataFrame:
    """Compute the rows of a run; the folder keeps what is computed."""
    words = RUNS[run].format(**files).split()
    script = ["table2.py"] if run == "table2" else ["evaluate.py", words[0]]
    subprocess.run([sys.executable, str(ROOT / "scripts" / script[0]), *script[1:], *words[1:],
                    "--out", str(folder / run)], check=True)
    table = folder / run / Path(words[words.index("--profiles") + 1]).stem / f"{words[0]}.csv"
    if run == "table2":
        write_atomic(TIMES, table.read_text("utf-8"))
        return pd.DataFrame(columns=COLUMNS)
    rows = pd.read_csv(table).assign(run=run)[list(COLUMNS)]
    return rows.fillna(0.0).round(6)


def main() -> None:
    """Compute the rows if their files are named, and write the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--image", metavar="FILE", help="profile of the image task")
    parser.add_argument("--text", metavar="FILE", help="profile of the text task")
    parser.add_argument("--trace", metavar="FILE", help="the artifact's Twitter trace")
    parser.add_argument("--only", action="append", choices=RUNS, help="repeat; by default all")
    parser.add_argument("--out", type=Path, default=Path("evaluation_out"), metavar="FOLDER",
                        help="folder that keeps computed cells (default: %(default)s)")
    options = parser.parse_args()
    rows = pd.read_csv(ROWS)
    files = {name: getattr(options, name) for name in ("image", "text", "trace")}
    if any(files.values()):
        for run in options.only or RUNS:
            if missing := [name for name, file in files.items()
                           if file is None and f"{{{name}}}" in RUNS[run]]:
                parser.error(f"{run} needs --{missing[0]}")
            rows = pd.concat([rows[rows["run"] != run], measure(run, files, options.out)])
        write_atomic(ROWS, rows.to_csv(index=False))
    for name, render in PARTS.items():
        write_part(PAGE, name, render(rows))
    for name, render in OTHERS.items():
        print(f"{name}\n\n{render(rows)}\n")


if __name__ == "__main__":
    main()
