"""Scaling policies beside the rules that people run: figures of docs/autoscaling.md.

python scripts/scaling.py --azure CSV --json FILE --figure FILE [--quick]
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from study import markdown, parser_of

from ramsis import load_profile
from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals.load_table import read_rates
from ramsis.arrivals.timestamps import read_timestamps
from ramsis.arrivals.trace import RateTrace
from ramsis.bounds import Targets
from ramsis.errors import InfeasibleError, RamsisError
from ramsis.files import write_atomic
from ramsis.report.chart import Series
from ramsis.report.figure import Panel, PanelRow, plot_panels
from ramsis.runtime.scaling_table import stages_of
from ramsis.scaling.comparison import Study
from ramsis.scaling.fleet import ScaledRun
from ramsis.scaling.levels import interval_loads
from ramsis.scaling.policy import choose_policy
from ramsis.scaling.prices import meets
from ramsis.scaling.rule import Observation
from ramsis.scaling.rules import RULES, made
from ramsis.scaling.synthesis import concave_gains

_DESCRIPTION = """\
Parts: settings (three traces at four start-up times: ours, the best rule by its defaults and
tuned, a fleet that knows the loads, and the bound), and alone (worker and accuracy scaling
together and each alone). All figures are of the half that was not fitted. What is in the file is
kept: a trace and start-up time whose rows are there is not made again, so a run that was cut off
goes on where it was. Without parts the figure and the table are made of what is there.
"""
PROFILE, SLO_MS, ACCURACY, VIOLATION = "image-cpu", 350.0, 0.80, 0.001
DAY = Path(__file__).parent.parent / "profiles" / "traces" / "day.txt"
TRACES = {"azure-code": 120.0, "phases": 480.0, "day": 500.0}
"""Mean loads in QPS at which about 20 workers meet the target."""
PHASES = (15, 2, 10, 15, 5, 2)
STARTUPS_S = (0.0, 10.0, 60.0, 300.0)
ALONE = (("phases", 103.0), ("phases", 10.0), ("azure-code", 0.0), ("day", 60.0))
ACCURACIES = (0.79, 0.80, 0.805)
MOST, INTERVAL_S, SEED = 36, 15.0, 0
WAYS = ("both", "accuracy scaling", "worker scaling")
SHOWN_FROM = 0.77
"""Effective accuracy from which the figure shows points."""
VIOLATION_PRICES = (0.0, 1.0, 10.0)
"""Prices of a violation, per unit of accuracy, that plans are made with."""


def trace(name: str, azure: Path) -> RateTrace:
    """A trace, scaled to its mean load."""
    if name == "day":
        read = read_rates(DAY, unit="s")
        found = RateTrace(12.0 * np.asarray(read.start_ms), read.rate_qps, 12.0 * read.end_ms)
    elif name == "phases":
        found = RateTrace(900_000.0 * np.arange(6), np.array(PHASES, float), 5_400_000.0)
    else:
        times = read_timestamps(azure)
        seconds = int(times[-1] / 1000.0)
        found = RateTrace(1000.0 * np.arange(seconds), np.histogram(
            times, 1000.0 * np.arange(seconds + 1))[0].astype(float), 1000.0 * seconds)
    return found.scaled(TRACES[name] / found.load_qps)


class Studies:
    """Studies of the traces, whose decision tables are made once."""

    def __init__(self, azure: Path, quick: bool) -> None:
        self.azure, self.levels = azure, 6 if quick else 16
        self.known: dict[tuple[Any, ...], Study] = {}

    def of(self, name: str, models: tuple[str, ...] | None = None) -> Study:
        """The study of a trace, with all models or some."""
        if (name, models) not in self.known:
            profile, load = load_profile(PROFILE), trace(name, self.azure)
            self.known[name, models] = Study(
                profile if models is None else profile.subset(models), SLO_MS,
                Targets(VIOLATION, None, ACCURACY if models is None else None), "round-robin",
                SEED, load.arrivals_ms(np.random.default_rng(SEED)), load.duration_ms / 1000.0,
                INTERVAL_S, 1, MOST if models is None else None, self.levels)
        return self.known[name, models]


def with_tables(study: Study, **changes: Any) -> Study:
    """A study that differs in what its decision tables do not depend on."""
    changed = replace(study, **changes)
    changed.__dict__["tables"] = study.tables
    return changed


def settings(studies: Studies, name: str, startup_s: float) -> Iterator[dict[str, Any]]:
    """What everybody costs."""
    study = studies.of(name)
    comparison = study.comparison(startup_s)
    ours = _without_series(comparison.policy_row(study.chosen(startup_s).table))
    rules = [_without_series(row) for rule in RULES for row in comparison.rule_rows(rule)]
    usual, tuned = (min((row for row in rules if row["tuned"] == known and row["meets_target"]),
                        key=lambda row: row["worker_s"], default=None) for known in (False, True))
    yield {"trace": name, "startup_s": startup_s, "ramsis": ours, "default": usual,
           "tuned": tuned, **limits(study, startup_s), "rules": rules}


def limits(study: Study, startup_s: float) -> dict[str, float | None]:
    """Worker-seconds of the bound, of a fleet that knows the loads, and of hindsight.

    In hindsight our policy is chosen on the half that it is then played on.
    """
    fleet, rest = study.fleet(startup_s), study.comparison(startup_s).rest
    found: dict[str, float | None] = {}
    for name, costs in (
        ("bound", lambda: study.bound(startup_s)),
        ("clairvoyant", lambda: clairvoyant(study, startup_s)),
        ("hindsight", lambda: choose_policy(
            rest.arrival_ms, study.tables, study.target, fleet, duration_s=study.half_s,
            seed=SEED).delivered),
    ):
        try:
            one = costs()
        except InfeasibleError:
            one = None
        found[f"{name}_worker_s"] = None if one is None else one.worker_s
    return found


class Planned:
    """Plays numbers of workers that were planned for each interval."""

    def __init__(self, workers: IntArray, interval_s: float) -> None:
        self.workers, self.interval_s = workers, interval_s

    def wanted(self, seen: Observation) -> int:
        """The number for the interval that begins."""
        return int(self.workers[min(round(seen.time_s / self.interval_s), len(self.workers) - 1)])


def plan(gains: FloatArray, cost: float, startup: tuple[int, float]) -> IntArray:
    """Workers wanted in each interval, where it is known what each worker will add.

    As in :mod:`ramsis.scaling.synthesis`, worker by worker, over a finite time. Workers are active
    at the beginning wherever that is worth while, and have not been paid for before.

    Parameters
    ----------
    gains : ndarray, shape (T, N)
        What the k-th worker adds in an interval, not rising in k.
    cost : float
        Cost of a worker per interval.
    startup : tuple of int and float
        Intervals until a worker is active, and the share of the last of them in which it serves.
    """
    stages, partial = startup
    share = np.zeros(stages + 1)
    share[-1] = 1.0
    if stages:
        share[-2] = partial
    older = np.minimum(np.arange(1, stages + 2), stages)
    intervals, workers = gains.shape
    value, off = np.zeros((stages + 1, workers)), np.zeros(workers)
    kept = np.zeros((intervals, stages + 1, workers), bool)
    for t in reversed(range(intervals)):
        stay = share[:, None] * gains[t] - cost + value[older]
        kept[t] = stay > off
        value = np.maximum(stay, off)
        off = value[0]
    age = np.where(value[-1] > 0.0, stages, -1)  # -1: off
    wanted = np.zeros(intervals, np.int64)
    for t in range(intervals):
        on = kept[t, np.maximum(age, 0), np.arange(workers)]
        wanted[t] = on.sum()
        age = np.where(on, older[np.maximum(age, 0)], -1)
    return wanted


def clairvoyant(study: Study, startup_s: float) -> ScaledRun | None:
    """The cheapest fleet that was found to meet the target with loads known beforehand.

    Plans are made by the promises of the decision tables, at prices of accuracy that are halved
    between what meets the target when it is played and what does not. Of the last two plans one
    is played up to a time, and then the other.
    """
    rest, fleet, tables = study.comparison(startup_s).rest, study.fleet(startup_s), study.tables
    loads = interval_loads(rest.arrival_ms, INTERVAL_S, study.half_s)
    accuracy, late = (np.stack(column, axis=1) for column in zip(
        *(tables.delivered(loads, workers) for workers in range(fleet.most + 1)), strict=True))
    found: list[ScaledRun] = []
    target = study.target
    assert isinstance(target, Targets)

    def met(workers: IntArray) -> bool:
        run = rest.played(Planned(workers, INTERVAL_S), study.played, fleet, SEED,
                          int(workers[0]))
        if meets(run, target):
            found.append(run)
            return True
        return False

    for violation_price in VIOLATION_PRICES:
        def planned(price: float, worth: FloatArray = accuracy - violation_price * late
                    ) -> IntArray:
            gains = concave_gains(price * INTERVAL_S * loads[:, None] * worth)
            return np.clip(plan(gains, INTERVAL_S, stages_of(startup_s, INTERVAL_S)),
                           fleet.least, fleet.most)

        low, high = 1e-3, 1e3
        while high > 1.01 * low:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if met(planned(middle)) else (middle, high)
        fewer, more = planned(low), planned(high)
        first, last = 0, len(loads)
        while last > first + 1:
            middle_at = (first + last) // 2
            first, last = ((middle_at, last) if met(np.where(
                np.arange(len(loads)) < middle_at, fewer, more)) else (first, middle_at))
    return min(found, key=lambda run: run.worker_s, default=None)


def reach(points: Sequence[dict[str, Any]]) -> str:
    """What each setting costs, and what no other policy or scheduler could go below."""
    lines = []
    for row in points:
        missed = "" if row["ramsis"]["meets_target"] else " (target missed)"
        others = (*(row[name] and row[name]["worker_s"] for name in ("default", "tuned")),
                  *(row[f"{name}_worker_s"] for name in ("hindsight", "clairvoyant", "bound")))
        lines.append([f"{row['trace']}, {row['startup_s']:g} s",
                      f"{row['ramsis']['worker_s']:,.0f}{missed}",
                      *("–" if cost is None else f"{cost:,.0f}" for cost in others)])
    return markdown(["trace, start-up", "ours", "best default", "best tuned", "hindsight",
                     "loads known", "bound"], lines)


def alone(studies: Studies, name: str, startup_s: float) -> Iterator[dict[str, Any]]:
    """Cost and effective accuracy of both together, of one model, and of a fixed fleet."""
    study = studies.of(name)
    for accuracy in ACCURACIES:
        asked = with_tables(study, target=Targets(VIOLATION, None, accuracy))
        try:
            chosen = asked.chosen(startup_s)
        except InfeasibleError:
            continue
        yield _point(name, startup_s, "both", accuracy,
                     asked.comparison(startup_s).policy_row(chosen.table))
    comparison = study.comparison(startup_s)
    for workers in range(8, MOST + 1, 3):
        run = comparison.rest.played(made("static", {"workers": workers}), study.played,
                                     study.fleet(startup_s), SEED, workers)
        yield _point(name, startup_s, "accuracy scaling", workers, vars(run))
    for model in study.profile.models:
        if not 0.76 <= model.accuracy <= 0.82:
            continue
        one = studies.of(name, (model.name,))
        try:
            row = one.comparison(startup_s).policy_row(one.chosen(startup_s).table)
        except InfeasibleError:
            continue
        yield _point(name, startup_s, "worker scaling", model.name, row)


def _without_series(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "over_time"}


def _point(name: str, startup_s: float, way: str, of: Any, row: dict[str, Any]) -> dict[str, Any]:
    return {"trace": name, "startup_s": startup_s, "way": way, "of": of,
            **{key: row[key] for key in ("worker_s", "violation_rate", "effective_accuracy")}}


PARTS: dict[str, tuple[Callable[[Studies, str, float], Iterator[dict[str, Any]]],
                       Sequence[tuple[str, float]]]] = {
    "settings": (settings, list(product(TRACES, STARTUPS_S))),
    "alone": (alone, ALONE),
}
"""What makes the rows of a trace and a start-up time, and of which ones."""
QUICK = ("phases", 10.0)
"""The only one with ``--quick``."""


def draw(points: Sequence[dict[str, Any]], path: Path) -> None:
    """Cost over effective accuracy, a panel for each setting."""
    panels = []
    for name, startup_s in ALONE:
        own = [one for one in points if one["trace"] == name and one["startup_s"] == startup_s
               and one["effective_accuracy"] >= SHOWN_FROM]
        lines = []
        for way in WAYS:
            line = _line(own, way)
            lines.append(Series(way, [x for x, _ in line], [y / 1000.0 for _, y in line]))
        panels.append(Panel(f"{name}, start-up {startup_s:g} s", lines))
    plot_panels([PanelRow("1000 worker-seconds", panels)], path, "effective accuracy")


def _line(points: Sequence[dict[str, Any]], way: str) -> list[tuple[float, float]]:
    """Effective accuracies and costs of a way, by rising accuracy."""
    return sorted((one["effective_accuracy"], one["worker_s"]) for one in points
                  if one["way"] == way)


def main(given: Sequence[str] | None = None) -> int:
    parser = parser_of(_DESCRIPTION)
    parser.add_argument("--azure", type=Path, required=True,
                        help="Azure's LLM trace of code: CSV of timestamps")
    parser.add_argument("--json", type=Path, required=True, help="file of the rows")
    parser.add_argument("--figure", type=Path, help="file of the figure of the part alone")
    parser.add_argument("--parts", default=",".join(PARTS), help="which, after commas; may be ''")
    parser.add_argument("--quick", action="store_true", help="one setting of each, fewer levels")
    chosen = parser.parse_args(given)
    try:
        studies = Studies(chosen.azure, chosen.quick)
        found: dict[str, list[dict[str, Any]]] = (
            json.loads(chosen.json.read_text("utf-8")) if chosen.json.exists() else {})
        for part in filter(None, chosen.parts.split(",")):
            make, cases = PARTS[part]
            places = [*cases, QUICK]
            rows = found.setdefault(part, [])
            for name, startup_s in (QUICK,) if chosen.quick else cases:
                if any((row["trace"], row["startup_s"]) == (name, startup_s) for row in rows):
                    continue
                for row in list(make(studies, name, startup_s)):  # all of them or none are kept
                    rows.append(row)
                    print(part, json.dumps({key: value for key, value in row.items()
                                            if key != "rules"}), flush=True)
                rows.sort(key=lambda row: places.index((row["trace"], row["startup_s"])))
                write_atomic(chosen.json, json.dumps(found, indent=1) + "\n")
        if chosen.figure is not None and "alone" in found:
            draw(found["alone"], chosen.figure)
        if "settings" in found:
            print(reach(found["settings"]))
    except RamsisError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
