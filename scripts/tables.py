"""Tables of clusters and of sharing in the docs, made anew from the scripts that they come from.

python scripts/tables.py [--only NAME] [--rows FOLDER]
python scripts/tables.py --kept [--only NAME]

Runs each script, keeps its rows in FOLDER, and puts the table between its two marks on its page.
What FOLDER has whole is not run again; scripts that go on where they were cut off do. What a table
shows of its rows is kept in docs/results/tables, if the table names columns. ``--kept`` writes the
pages from there and runs nothing. A table without a page, of which a page has one sentence, is
printed.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sharing import sent_rps
from study import markdown, parser_of, write_part

from ramsis.files import canonical_json, write_atomic

Row = Mapping[str, Any]
ROOT = Path(__file__).resolve().parents[1]
VISION = "alexnet,densenet121,efficientnet_b7,resnet50,vgg19"
LANGUAGE = "resnet50,mobilenet_v2,bert,gpt2"


class Table(NamedTuple):
    """A page's table, the runs that it is of, and what makes it of their rows."""

    page: str  # "": none
    runs: Mapping[str, str]
    text: Callable[[Sequence[Row]], str]
    columns: Sequence[str] = ()  # of the rows, kept in the repository


def share(value: float | None) -> str:
    """A share in time."""
    return "–" if value is None else f"{value:.4f}"


def random_scenarios(rows: Sequence[Row]) -> str:
    """How far planned is below the best other, and its share of the bound."""
    found = []
    for text, some in (("all", rows), ("scarce memory", [row for row in rows if row["scarce"]])):
        below = sorted(max(row[name] or 0.0 for name in ("clockwork", "lru", "round-robin"))
                       - row["planned"] for row in some)
        of_bound = [row["planned"] / row["bound"] for row in some if row["bound"]]
        found.append([text, len(some), sum(one <= 0.0 for one in below),
                      sum(one <= 0.01 for one in below), share(below[-1]),
                      f"{sum(of_bound) / len(of_bound):.3f}"])
    return markdown(["memory", "scenarios", "not below the best other", "within .01 of it",
                     "most below it", "mean share of the bound"], found)


def schedulers(first: Callable[[Row], str], *names: str) -> Callable[[Sequence[Row]], str]:
    """A row for each load, with the share in time of some schedulers and the bound."""
    def text(rows: Sequence[Row]) -> str:
        found: dict[str, dict[str, float | None]] = {}
        for row in rows:
            found.setdefault(first(row), {}).update(
                {row["scheduler"]: row["in_time"], "bound": row.get("bound")})
        return markdown(["load", *(f"`{name}`" if name != "bound" else name for name in names)],
                        [[load, *(share(of[name]) for name in names)]
                         for load, of in found.items()])
    return text


def grid_cell(row: Row) -> str:
    """A cell of Clockwork's grid."""
    return f"{row['rate_qps']:g} × {row['instances']}, {row['slo_ms']:g} ms"


def agent(rows: Sequence[Row]) -> str:
    """A row for each cell, with the share in time and the mean batch of some schedulers."""
    names = ("clockwork", "rl", "planned", "random")
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        place = "Azure-like" if row["run"] == "agent-azure" else grid_cell(row)
        cells.setdefault(place, {})[row["scheduler"]] = (
            f"{share(row['in_time'])} ({row['mean_batch']:.2f})")
    return markdown(["requests/s × instances, SLO", *(f"`{name}`" for name in names)],
                    [[place, *(by_name[name] for name in names)]
                     for place, by_name in cells.items()])


def totals(rows: Sequence[Row]) -> str:
    """Totals of two requests, printed and simulated."""
    names = ("colocation", "colocation-queue", "registry", "dynamic")
    lines = []
    for table in ("6.1", "6.2", "6.3"):
        of = {row["scheduler"]: row for row in rows if row["table"] == table}
        printed = {name: of[name].get("printed_s") for name in names}
        best = min(filter(None, printed.values()))
        lines.append([f"table {table}, printed", *(
            "" if one is None else f"**{one:.2f}**" if one == best else f"{one:.2f}"
            for one in printed.values())])
        lines.append(["simulated", *(
            f"{of[name]['simulated_s']:.2f}" + (
                f" ({100 * (of[name]['simulated_s'] / printed[name] - 1):+.1f} %)"
                if printed[name] else "") for name in names)])
    return markdown(["", "colocation", "with queueing", "registry", "dynamic"], lines)


def listed(columns: Sequence[str]) -> Callable[[Sequence[Row]], str]:
    """Some columns of the rows as they are."""
    def cell(value: object) -> str:
        if isinstance(value, float):
            return f"{value:.3f}".rstrip("0").rstrip(".")
        return "" if value is None else str(value)

    return lambda rows: markdown(columns, [[cell(row.get(name)) for name in columns]
                                           for row in rows])


def sigmaos(part: str, columns: str, shown: Callable[[Row], bool] | None = None) -> Table:
    """Return the table of a part of the σOS experiments, by default of all its rows."""
    names = columns.split()
    text = listed(names)
    return Table("", {f"sigmaos-{part}": f"sigmaos.py --part {part}"},
                 lambda rows: text(list(filter(shown, rows)) if shown else rows), names)


def off_the_formula(row: Row) -> bool:
    """Whether a simulated latency is not that of the thesis' formula."""
    return bool(abs(row["formula_s"] - row["simulated_s"]) >= 0.005)


def percent(rate: float | None, digits: int | None = None) -> str:
    """Return a share as a percentage, by default with three digits."""
    if rate is None:
        return ""
    return f"{100 * rate:.{(2 if rate < 0.1 else 1) if digits is None else digits}f} %"


def rate_and_loading(row: Row) -> str:
    """Return violations and the time of all loads."""
    return f"{percent(row['violation_rate'])}, {row['loading_s']:.0f} s"


def printed_by_warsaw(row: Row) -> str:
    """Return what the thesis prints of a scheduler, if anything."""
    if row["printed_violation_rate"] is None:
        return ""
    return f"{percent(row['printed_violation_rate'], 2)}, {row['printed_loading_s']:.0f} s"


def warsaw(column: str, head: str) -> Callable[[Sequence[Row]], str]:
    """Violations and time of all loads, printed and by the values of a column."""
    def text(rows: Sequence[Row]) -> str:
        values = list(dict.fromkeys(row[column] for row in rows))
        by_cell = {(row["scheduler"], row[column]): row for row in rows}
        names = list(dict.fromkeys(row["scheduler"] for row in rows))
        lines = [[name, printed_by_warsaw(by_cell[name, values[0]]),
                  *(rate_and_loading(by_cell[name, value]) for value in values)]
                 for name in names]
        if rows[0].get("bound") is not None:
            lines.append(["at least (bound)", "", *(percent(1 - by_cell[names[0], value]["bound"])
                                                    for value in values)])
        return markdown(["", "printed", *(head.format(value) for value in values)], lines)
    return text


def decision_times(rows: Sequence[Row]) -> str:
    """Violations by the time of a decision, and the time that gives the printed ones."""
    times_ms = sorted({row["decision_ms"] for row in rows})
    lines = []
    for name in dict.fromkeys(row["scheduler"] for row in rows):
        by_time = {row["decision_ms"]: row for row in rows if row["scheduler"] == name}
        rates = [by_time[ms]["violation_rate"] for ms in times_ms]
        printed = by_time[times_ms[0]]["printed_violation_rate"]
        lines.append([name, percent(printed, 2), *map(percent, rates),
                      f"{np.interp(printed, rates, times_ms):.1f} ms"])
    return markdown(["", "printed", *(f"{ms:g} ms" for ms in times_ms), "printed rate at"], lines)


def both(rows: Sequence[Row]) -> str:
    """Violations of each seed, loading and longest latency of the first, in one set-up."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["scheduler"], row["order"]), []).append(row)
    return markdown(
        ["", "printed", *(f"seed {row['seed']}" for row in next(iter(found.values()))),
         "all loads, printed", "all loads", "longest"],
        [[name + (", by deadline" if order == "deadline" else ""),
          percent(of[0]["printed_violation_rate"], 2),
          *(percent(row["violation_rate"]) for row in of),
          f"{of[0]['printed_loading_s']:.0f} s", f"{of[0]['loading_s']:.0f} s",
          f"{of[0]['longest_s']:.0f} s"] for (name, order), of in found.items()])


SHARING_POLICIES = ("usher", "wao-usher", "igniter", "ao-milp", "wsm-milp", "queue-aware")


def sharing(*first: str) -> Callable[[Sequence[Row]], str]:
    """Goodput of each policy, and the upper bound."""
    names = {"gpus": "GPUs", "slo_ms": "SLO (ms)", "load": "load"}

    def text(rows: Sequence[Row]) -> str:
        cells: dict[tuple[float, ...], dict[str, float]] = {}
        for row in rows:
            values = {**row, "load": row["rps"] * len(row["models"])}
            cell = cells.setdefault(tuple(values[key] for key in first), {})
            cell |= {row["policy"]: row["simulated_goodput_rps"], "bound": row["bound_rps"]}
        columns = [policy for policy in SHARING_POLICIES
                   if all(policy in cell for cell in cells.values())]
        return markdown(
            [*(names[key] for key in first), *(f"`{policy}`" for policy in columns),
             "upper bound"],
            [[*(f"{term:g}" for term in terms), *(f"{cell[name]:.1f}"
                                                  for name in (*columns, "bound"))]
             for terms, cell in sorted(cells.items())])
    return text


def sharing_random(rows: Sequence[Row]) -> str:
    """The queue-aware planner beside the best other policy, over random mixes."""
    mixes: dict[str, dict[str, Row]] = {}
    for row in rows:
        mix = canonical_json({key: row[key] for key in ("models", "rps", "slo_ms", "gpus")})
        mixes.setdefault(mix, {})[row["policy"]] = row
    lines = []
    for latencies, prefix in (("the profile's", ""), ("10 % longer", "slower_")):
        goodput = f"{prefix}simulated_goodput_rps"
        ratios, shares = [], []
        for by_policy in mixes.values():
            planner = by_policy["queue-aware"]
            best = max(row[goodput] for name, row in by_policy.items() if name != "queue-aware")
            ratios.append(planner[goodput] / best)
            shares.append(planner[goodput] / planner[f"{prefix}bound_rps"])
        lines.append([latencies, f"{min(ratios):.3f}", f"{sum(shares) / len(shares):.3f}"])
    return markdown(["latencies", "least goodput / best other policy's",
                     "mean share of the bound"], lines)


def without_mps(rows: Sequence[Row]) -> str:
    """WAO-Usher with and without shares of the multiprocessors, in both set-ups."""
    columns = list(dict.fromkeys((row["run"], row["policy"]) for row in rows))
    values = {(row["gpus"], row["run"], row["policy"]): row["simulated_goodput_rps"]
              for row in rows}
    lines: dict[tuple[str, ...], list[int]] = {}
    for gpus in sorted({row["gpus"] for row in rows}):
        goodput = tuple(f"{values[gpus, *column]:.1f}" for column in columns)
        lines.setdefault(goodput, []).append(gpus)
    return markdown(["GPUs", *(f"`{policy}`, `{run.removeprefix('wao-')}`"
                               for run, policy in columns)],
                    [[f"{gpus[0]}" if len(gpus) == 1 else f"{gpus[0]} to {gpus[-1]}", *goodput]
                     for goodput, gpus in lines.items()])


def ties(rows: Sequence[Row]) -> str:
    """Usher beside the programs, by their stated rule and by the worst of their equal optima."""
    def of_model(figures: Mapping[str, Mapping[str, float]]) -> str:
        figure = figures["efficientnet_b7"]
        return f"{figure['throughput_rps']:.1f}, {figure['goodput_rps']:.1f}"

    cells: dict[int, dict[str, Row]] = {}
    for row in rows:
        cells.setdefault(row["gpus"], {})[row["policy"]] = row
    lines = []
    for gpus, cell in sorted(cells.items()):
        usher, ao, wsm = (cell[name] for name in ("usher", "ao-milp", "wsm-milp"))
        lines.append([
            str(gpus), f"{usher['simulated_goodput_rps']:.1f}", of_model(usher["by_model"]),
            f"{ao['simulated_goodput_rps']:.1f}", f"{ao['tied_goodput_rps'][0]:.1f}",
            of_model(ao["tied_worst_by_model"]), f"{wsm['simulated_goodput_rps']:.1f}",
            f"{wsm['tied_goodput_rps'][0]:.1f}"])
    lines.append(["6, printed", "", "425.8, 360.6", "", "", "425.3, 143.7", "", ""])
    return markdown(["GPUs", "`usher`", "its efficientnet_b7", "`ao-milp`", "worst of 6 ties",
                     "its efficientnet_b7", "`wsm-milp`", "worst of 6 ties"], lines)


PRINTED_RATES = {400: (368, 368, 368, 368), 800: (711, 713, 713, 713),
                 1200: (1022, 1022, 1022, 1022), 1600: (1294, 1290, 1296, 1296)}


def clients(_: Sequence[Row]) -> str:
    """Rates that the thesis' clients reach, printed and by the client of the simulation."""
    lines = []
    for target, printed in PRINTED_RATES.items():
        mean = sum(printed) / len(printed)
        reached = sent_rps(target, 0.123, 1.032)
        lines.append([str(target), f"{mean:.1f}", f"{reached:.1f}",
                      f"{100 * (reached / mean - 1):+.1f} %"])
    return markdown(["target", "printed, mean of 4 clients", "here", "difference"], lines)


def igniter(rows: Sequence[Row]) -> str:
    """Plans of iGniter by set-ups, beside the printed ones."""
    def whether(value: bool) -> str:
        return "yes" if value else "no"

    def goodput(rps: Mapping[str, float] | None) -> str:
        return "" if rps is None else f"{sum(rps.values()):.1f}"

    return markdown(
        ["", "GPUs: vision", "mix", "vision, 350 ms", "batches of efficientnet_b7",
         "vgg19 beside alexnet", "densenet121 beside resnet50", "mix on 6 GPUs",
         "vision on 6 GPUs", "vision models short of their rate"],
        [[row["setup"], row["gpus_vision"], row["gpus_mix"], *(
            ", ".join(map(str, row[key])) for key in ("gpus_350_ms", "batches")),
          whether(row["vgg19_beside_alexnet"]), whether(row["densenet121_beside_resnet50"]),
          goodput(row["mix_rps"]), goodput(row["vision_rps"]), row["short"]] for row in rows])


_GRID = "clockwork.py --duration-s 10 --seeds 3 --scheduler clockwork --scheduler planned"
_CELL = ("rate_qps", "instances", "slo_ms", "scheduler", "in_time")
_SLOW = "warsaw.py --no-bound --poll-ms 100"
_IN_PRINT = " ".join(f"--scheduler {name!r}" for name in (
    "modified-baseline, no idle holder", "clockwork-adjusted", "round-robin", "round-robin-a",
    "round-robin-b", "round-robin-c", "round-robin-d"))
_WARSAW = ("violation_rate", "loading_s", "printed_violation_rate", "printed_loading_s")
_SWITCHING = ("scheduler", "poll_ms", "loads", "unused_loads", "violation_rate")
_SHARING = "sharing.py --models"
_OBSERVED = (f"{_SHARING} {VISION} --rps 500 --slo-ms 200 --gpus 1,2,3,4,5,6 "
             "--client-overhead-ms 0.3077")
_GOODPUT = ("models", "rps", "slo_ms", "gpus", "policy", "simulated_goodput_rps", "bound_rps")
TABLES = {
    "random": Table("", {"random": "planned.py --random 100 --rows {rows}.jsonl "
                                             "--scheduler clockwork --scheduler lru "
                                             "--scheduler round-robin"}, random_scenarios,
                    ("scarce", "planned", "clockwork", "lru", "round-robin", "bound")),
    "low-slos": Table("evaluation/clockwork.md", {
        "low-2400-12": f"{_GRID} --rate 2400 --instances 12 --slo-ms 6,12",
        "low-2400-48": f"{_GRID} --rate 2400 --instances 48 --slo-ms 6,12",
        "low-3000-48": f"{_GRID} --rate 3000 --instances 48 --slo-ms 12,24",
    }, schedulers(grid_cell, "clockwork", "planned", "bound"), (*_CELL, "bound")),
    "agent": Table("", {
        f"agent-{name}": f"{_GRID} --scheduler rl --scheduler random --no-bound {cells}"
        for name, cells in {
            "48": "--instances 48 --slo-ms 12,24,48,96", "12": "--slo-ms 3,6,12,24",
            "1200-48": "--rate 1200 --instances 48 --slo-ms 12",
            "1200-12": "--rate 1200 --slo-ms 6", "azure": "--azure 4"}.items()
    }, agent, (*_CELL, "mean_batch", "run")),
    "azure": Table("", {
        f"azure-{ms}": f"{_GRID} --azure {ms}" for ms in (4, 5)
    }, schedulers(lambda row: f"a batch of 1 up to {row['run'][-1]} ms", "clockwork", "planned",
                  "bound"), (*_CELL, "bound", "run")),
    "sigmaos": Table("evaluation/sigmaos.md", {"sigmaos-tables": "sigmaos.py --part tables"},
                     totals, ("table", "scheduler", "simulated_s", "printed_s")),
    "sigmaos-sequences": sigmaos(
        "sequences", "table scheduler runs printed_s simulated_s cold_starts"),
    "sigmaos-cold-starts": sigmaos("cold-starts", "model printed simulated share_of_runs"),
    "sigmaos-break-even": sigmaos("break-even", "model cold_start_s time printed simulated"),
    "sigmaos-3.1": sigmaos("figure-3.1", "replica requests answered_before first_s later_s"),
    "sigmaos-3.2": sigmaos("figure-3.2", "model size_mb printed_s line_s"),
    "sigmaos-inference": sigmaos("inference", "model measured_s of_small inference_s"),
    "sigmaos-6.1": sigmaos("figure-6.1", "model inference_s cold_start_s cold_starts default_s "
                                         "colocation_s lower"),
    "sigmaos-6.2": sigmaos(
        "figure-6.2", " ".join(["scheduler", *(f"request_{i}_s" for i in range(1, 11))])),
    "sigmaos-stages": sigmaos("stages", "figure scheduler scheduler_s call_s runtime_s back_s"),
    "sigmaos-classes": sigmaos("classes", "others cores_used critical_wait_s critical_wait_p99_s "
                                          "other_wait_s other_wait_p99_s"),
    "sigmaos-formulas": sigmaos("formulas", "post_s network_s waiting scheduler formula_s "
                                            "simulated_s", off_the_formula),
    "warsaw": Table("", {
        f"warsaw-{ms}": f"warsaw.py --overhead-ms {ms}" for ms in (0, 150, 300)},
        warsaw("overhead_ms", "{:g} ms"), ("scheduler", "overhead_ms", "bound", *_WARSAW)),
    "warsaw-decisions": Table("", {
        f"warsaw-decision-{ms}": f"{_SLOW} --decision-ms {ms} {_IN_PRINT}"
        for ms in (16, 17, 18, 20, 24, 28)},
        decision_times, ("scheduler", "decision_ms", *_WARSAW)),
    "warsaw-both": Table("", {
        f"warsaw-both-{order}-{seed}":
            f"{_SLOW} --decision-ms 22 --overhead-ms 150 --seed {seed} --order {order} {names}"
        for seed in (0, 1, 2) for order, names in (
            ("arrival", _IN_PRINT), ("deadline", "--scheduler round-robin-d"))},
        both, ("scheduler", "seed", "order", "longest_s", *_WARSAW)),
    "warsaw-requests": Table("", {
        f"warsaw-requests-{requests}":
            f"warsaw.py --no-bound --overhead-ms 150 --requests {requests} {_IN_PRINT}"
        for requests in ("thesis", "equal", "equal-work", "mirrored")},
        warsaw("requests", "{}"), ("scheduler", "requests", *_WARSAW)),
    "warsaw-switching": Table("", {
        f"warsaw-switching-{ms}": f"warsaw.py --no-bound --machines 4 --poll-ms {ms} "
                                  "--scheduler baseline --scheduler modified-baseline"
        for ms in (0, 100)}, listed(_SWITCHING), _SWITCHING),
    "vision-gpus": Table("", {
        "vision-gpus": f"{_SHARING} {VISION} --rps 500 --slo-ms 200 --gpus 1,2,3,4,5,6,7,8",
    }, sharing("gpus"), _GOODPUT),
    "language-gpus": Table("", {
        "language-gpus": f"{_SHARING} {LANGUAGE} --rps 300 --slo-ms 300 --gpus 1,2,3,4,5,6,7,8",
    }, sharing("gpus"), _GOODPUT),
    "vision-slos": Table("", {
        "vision-slos": f"{_SHARING} {VISION} --rps 200,400,600,800,1000 --slo-ms 150,250,350 "
                       "--gpus 4 --plot docs/evaluation/sharing-vision.png",
    }, sharing("slo_ms", "load"), _GOODPUT),
    "sharing-random": Table("", {
        "sharing-random": "sharing.py --random 12 --duration-s 60 --seeds 2",
    }, sharing_random, (*_GOODPUT, "slower_simulated_goodput_rps", "slower_bound_rps")),
    "wao": Table("", {
        f"wao-{interference}": f"{_OBSERVED} --policy wao-usher,wao-usher:mps=no "
                               f"--interference {interference}"
        for interference in ("thesis", "thesis-driver-550")
    }, without_mps, ("run", "gpus", "policy", "simulated_goodput_rps")),
    "ties": Table("", {
        "ties": f"{_OBSERVED} --policy usher,ao-milp,wsm-milp --ties 6",
    }, ties, ("gpus", "policy", "simulated_goodput_rps", "tied_goodput_rps", "by_model",
              "tied_worst_by_model")),
    "clients": Table("", {}, clients, ("target",)),
    "igniter": Table("", {"igniter": "igniter.py"}, igniter, (
        "setup", "gpus_vision", "gpus_mix", "gpus_350_ms", "batches", "vgg19_beside_alexnet",
        "densenet121_beside_resnet50", "mix_rps", "vision_rps", "short")),
}


def rows_of(name: str, command: str, folder: Path) -> list[Row]:
    """The rows of a script's run, which is made where the folder lacks them."""
    file = folder / f"{name}.json"
    if not file.exists():
        words = [word.format(rows=folder / name) for word in shlex.split(command)]
        begin = time.monotonic()
        subprocess.run([sys.executable, str(ROOT / "scripts" / words[0]), *words[1:],
                        "--json", str(file.resolve())], check=True, cwd=ROOT)
        print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
    document = json.loads(file.read_text("utf-8"))
    return list(document["rows"] if isinstance(document, dict) else document)


def kept_file(name: str) -> Path:
    """The file of a table's kept rows."""
    return ROOT / "docs" / "results" / "tables" / f"{name}.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for, and write the pages."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", action="append", choices=TABLES, help="repeat; by default all")
    parser.add_argument("--rows", type=Path, default=Path("tables_out"), metavar="FOLDER")
    parser.add_argument("--kept", action="store_true", help="write from kept rows; run nothing")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", metavar="FOLDER",
                        help="whose pages are written")
    options = parser.parse_args(arguments)
    if not options.kept:
        options.rows.mkdir(parents=True, exist_ok=True)
    for name, table in TABLES.items():
        if name not in (options.only or TABLES) or (options.kept and not table.columns):
            continue
        if options.kept:
            rows = json.loads(kept_file(name).read_text("utf-8"))["rows"]
        else:
            rows = [{**row, "run": run} for run, command in table.runs.items()
                    for row in rows_of(run, command, options.rows.resolve())]
        if table.columns:
            rows = [{column: row[column] for column in table.columns if column in row}
                    for row in rows]
            write_atomic(kept_file(name), canonical_json({"rows": rows}))
        if table.page:
            write_part(options.docs / table.page, name, table.text(rows))
        else:
            print(f"{name}\n\n{table.text(rows)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
