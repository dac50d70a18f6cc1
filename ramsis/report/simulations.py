"""Charts of the rows that commands print, and figures of single runs and fits."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.arrivals.fitting import TraceFit
from ramsis.errors import InvalidValueError
from ramsis.report.chart import Axis, Charts, Curves, Dots, Series, violations
from ramsis.report.figure import COLOURS, line_look, plain_numbers, plot_charts, saved_figure
from ramsis.report.verdicts import (
    OVERLOAD,
    bounded_schedulers,
    bounds_on_workers,
    setting_words,
    upper_bounds,
)
from ramsis.tables import effective_words, scheduler_words

Rows = Sequence[Mapping[str, Any]]
_LOAD = Axis("load (queries/s)")
_EFFECTIVE = Axis("effective accuracy", most=1.0)
_LATE = violations()
_TIME = Axis("time (s)", zero=True)
_SCALED = ("load_qps", "workers", "wanted", "active", "accuracy", "violation_rate")
_DASHES = ("-", "--", ":")

_FLOOR = 1e-5  # violation rates below this are drawn here, as the axis is logarithmic
_BETWEEN = 60  # points between two corners: a line of chance is curved on a logarithmic axis


def simulation_charts(rows: Rows) -> Charts:
    """Return charts of effective accuracy, violations and response times of schedulers.

    The rows are those of ``simulate --json``. They are drawn over their loads, and beside one
    another if there is one load or a trace.
    """
    loads = {row["load_qps"] for row in rows}
    return _over_loads(rows) if len(loads) > 1 and None not in loads else _side_by_side(rows)


def _over_loads(rows: Rows) -> Charts:
    effective, late, slow = [], [], []
    fit = [row for row in rows if row["violation_rate"] <= OVERLOAD] or rows
    for name, of_scheduler in by_load(rows, "label").items():
        loads = [row["load_qps"] for row in of_scheduler]
        effective.append(Series(name, loads,  # one in overload would make the others one line
                                [row["effective_accuracy"] if row in fit else None
                                 for row in of_scheduler],
                                [row.get("effective_accuracy_half_width")
                                 for row in of_scheduler]))
        if any(row.get("expected_effective_accuracy") is not None for row in of_scheduler):
            effective.append(Series(
                f"{name}, promised", loads,
                [row.get("expected_effective_accuracy") for row in of_scheduler],
                draw="line"))
        late.append(Series(name, loads, [row["violation_rate"] for row in of_scheduler],
                           [row.get("violation_rate_half_width") for row in of_scheduler]))
        slow.append(Series(name, loads, [row.get("response_p99_ms") for row in of_scheduler]))
    effective += _bounds(upper_bounds(rows))
    slos = {row["load_qps"]: row["slo_ms"] for row in rows}
    slow.append(Series("SLO", sorted(slos), [slos[x] for x in sorted(slos)], draw="line",
                       ref=True))
    without = "" if len(fit) == len(rows) else ", without rows in OVERLOAD"
    return [Curves(f"Promise, simulation and bound{without}", _LOAD, _EFFECTIVE, effective),
            Curves("Violations", _LOAD, _LATE, late),
            Curves("99th percentile of the response time", _LOAD, Axis("response (ms)", zero=True),
                   slow)]


def _side_by_side(rows: Rows) -> Charts:
    named = [(row["label"], {**row, **{name: bound for name, bounds in upper_bounds(
        [{**row, "load_qps": 0.0}]).items() for bound in bounds.values()}}) for row in rows]
    return [Dots("Promise, simulation and bound", _EFFECTIVE, named, {
                "promised": "expected_effective_accuracy", "simulated": "effective_accuracy",
                **{name: name for name in upper_bounds(rows)}}),
            Dots("Violations", _LATE, named, {
                "promised": "expected_violation_rate", "simulated": "violation_rate"})]


def _bounds(bounds: Mapping[str, Mapping[Any, float]], name: str = "{}") -> list[Series]:
    return [Series(name.format(of), [*line], [*line.values()], draw="line", ref=True)
            for of, line in bounds.items()]


def by_load(rows: Rows, key: str) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rows of each scheduler, which is under ``key``, by rising load."""
    by_name: dict[str, list[Mapping[str, Any]]] = {row[key]: [] for row in rows}
    for row in sorted(rows, key=lambda row: (row["load_qps"] is None, row["load_qps"])):
        by_name[row[key]].append(row)
    return by_name


def promise_charts(rows: Rows) -> Charts:
    """Return charts of promised effective accuracy with its bound, and violations, by load."""
    def slower(slowness: float) -> str:
        return "" if slowness == 1.0 else f", slowness {slowness:g}"

    def line(name: str, key: str, **more: Any) -> list[Series]:
        lines: dict[float, list[Mapping[str, Any]]] = {}
        for row in rows:
            if row.get(key) is not None:
                lines.setdefault(row.get("slowness", 1.0), []).append(row)
        return [Series(name + slower(slowness), [row["load_qps"] for row in stated],
                       [row[key] for row in stated], **more)
                for slowness, stated in lines.items()]

    bounds = [bound for slowness in dict.fromkeys(row.get("slowness", 1.0) for row in rows)
              for bound in _bounds(upper_bounds(
                  [row for row in rows if row.get("slowness", 1.0) == slowness]),
                  "{}" + slower(slowness))]
    return [Curves("Promise and bound", _LOAD, _EFFECTIVE, [
                *line("promised", "expected_effective_accuracy"),
                *line("simulated when it was made", "simulated", draw="points"), *bounds]),
            Curves("Violations promised", _LOAD, _LATE,
                   line("promised", "expected_violation_rate"))]


def plot_promises(rows: Rows, path: str | os.PathLike[str]) -> None:
    """Draw the promises of policies, of the same SLO and number of workers, over the load.

    The rows are those of ``generate --json`` or ``analyze --json``. For the path and errors see
    :func:`~ramsis.report.figure.saved_figure`.
    """
    kinds = {(row["slo_ms"], row["workers"]) for row in rows}
    if len(kinds) != 1:
        raise InvalidValueError("a figure needs policies of one SLO and number of workers",
                                where="plot", value=sorted(kinds))
    plot_charts(promise_charts(rows), path, setting_words(rows[0]))


def has_series(series: object, keys: Sequence[str]) -> bool:
    """Return whether there are values over time of all keys."""
    return isinstance(series, Mapping) and isinstance(series.get("time_s"), list) and all(
        isinstance(series.get(key), list) and len(series[key]) == len(series["time_s"])
        for key in keys)


def over_time_charts(
    rows: Rows, name: str, load: str, *between: Curves,
    keys: Sequence[str] = ("load_qps", "accuracy", "violation_rate"),
) -> list[Curves]:
    """Return charts of the first row's load, and of accuracy and violations of all, over time.

    Only rows whose ``over_time`` has values of all ``keys`` are drawn; without any there are no
    charts. ``between`` are further charts, below the load.
    """
    drawn = [(row[name], row["over_time"]) for row in rows if has_series(
        row.get("over_time"), keys)]
    if not drawn:
        return []
    first = drawn[0][1]
    return [Curves(load, _TIME, Axis("queries/s", zero=True), [
                Series("load", first["time_s"], first["load_qps"], draw="line", steps=True)]),
            *between,
            *(Curves(title, _TIME, axis, [
                Series(scheduler, series["time_s"], series[key], draw="line")
                for scheduler, series in drawn]) for title, axis, key in (
                    ("Accuracy in time over time", Axis("accuracy", most=1.0), "accuracy"),
                    ("Violations over time", _LATE, "violation_rate")))]


def scaling_charts(rows: Rows, bound: Mapping[str, Any], name: str = "scheduler") -> list[Curves]:
    """Return charts of load, workers, accuracy and violations of fleets over time.

    ``bound`` has the workers over time with which no scheduler does with fewer worker-seconds.
    """
    drawn = [row for row in rows if has_series(row.get("over_time"), _SCALED)]
    if not drawn:
        return []
    first = drawn[0]["over_time"]
    workers = [Series(row[name], row["over_time"]["time_s"], row["over_time"]["workers"],
                      draw="line", steps=True) for row in drawn]
    if has_series(bound, ("workers",)):
        workers.append(Series("bound (one model per request)", bound["time_s"], bound["workers"],
                              draw="line", ref=True, steps=True))
    wanted = [Series(key, first["time_s"], first[key], draw="line", steps=True)
              for key in ("wanted", "active")]
    return over_time_charts(
        drawn, name, "Load over time",
        Curves("Workers that are paid for", _TIME, Axis("workers paid for", zero=True), workers),
        Curves(f"Workers wanted and active, {drawn[0][name]}", _TIME, Axis("workers", zero=True),
               wanted))


def bound_charts(rows: Rows) -> Charts:
    """Return the chart of the rows of ``bound --json``: over the load, or over a trace's time."""
    first = rows[0]
    if "time_s" in first:
        return [Curves("Fewest workers", _TIME, Axis("workers", whole=True, zero=True), [Series(
            "fewest workers (one model per request)", first["time_s"],
            first["workers_over_time"])])]
    return [Curves("", _LOAD, _EFFECTIVE, [
        Series(name, [row["load_qps"] for row in rows], [row.get(key) for row in rows])
        for name, key in (
            (f"upper bound ({bounded_schedulers(first)})", "upper_bound"),
            ("the same for Poisson arrivals", "poisson_upper_bound"),
            ("the same without cascades", "upper_bound_one_model"),
            ("the same without padding", "upper_bound_without_padding"))
        if any(row.get(key) is not None for row in rows)])]


def capacity_charts(rows: Rows, key: str = "workers") -> Charts:
    """Return charts of workers, or ``cost``, and how much more they are than the bound.

    The rows are those of ``capacity --json``, drawn over their loads, and beside one another if
    there is one load or a trace.
    """
    bound, loads = f"{key}_bound", {row["load_qps"] for row in rows}
    axis = Axis(key, whole=key == "workers", zero=True)
    if len(loads) == 1 or None in loads:
        return [Dots("Needed, and the bound", axis, [
            (row["scheduler"], {**row, name: row[bound]}) for row in rows
            for name in bounds_on_workers([row], bound)],
            {"needed": key, **{name: name for name in bounds_on_workers(rows, bound)}})]
    needed, more = [], []
    for name, of_scheduler in by_load(rows, "scheduler").items():
        x = [row["load_qps"] for row in of_scheduler]
        needed.append(Series(name, x, [row[key] for row in of_scheduler]))
        more.append(Series(name, x, [row[key] / row[bound] - 1.0 if row[bound] else None
                                     for row in of_scheduler]))
    return [Curves("Needed, and the bound", _LOAD, axis,
                   [*needed, *_bounds(bounds_on_workers(rows, bound))]),
            Curves("More than the bound", _LOAD, Axis("more", percent=True, zero=True), more)]


def placed_charts(rows: Rows) -> Charts:
    """Return charts of the families of a simulated placement."""
    named = [(str(row["family"]), row) for row in rows]
    return [Dots("Promise, simulation and bound", _EFFECTIVE, named, {
                "promise of the placement": "placement_effective_accuracy",
                "promise of the policies": "expected_effective_accuracy",
                "simulated": "effective_accuracy",
                "upper bound (one model per request)": "upper_bound"}),
            Dots("Violations", _LATE, named, {"simulated": "violation_rate"})]


def plan_charts(rows: Rows, options: object) -> Charts:
    """Return the chart of accuracy over workers, with target and bound.

    ``options`` are the words of the plan's command, which state the target. There is no chart if
    no number of workers was tried.
    """
    words = [str(word) for word in options] if isinstance(options, list) else []
    targets = {name: float(words[words.index(option) + 1]) for name, option in (
        ("accuracy", "--min-accuracy"), ("effective_accuracy", "--min-effective-accuracy"))
        if option in words[:-1]}
    name, target = next(iter(targets.items()), ("effective_accuracy", None))
    series, workers = [], set()
    bounds: dict[str, dict[float, float]] = {}
    for row in rows:
        trials = [trial for trial in row.get("trials") or () if trial.get(name) is not None]
        workers |= {trial["workers"] for trial in trials}
        series.append(Series(scheduler_words(str(row["dispatch"])),
                             [trial["workers"] for trial in trials],
                             [trial[name] for trial in trials]))
        if name == "effective_accuracy":
            for bound, line in upper_bounds([trial for trial in trials if trial.get(
                    "upper_bound") is not None], "workers").items():
                bounds.setdefault(bound.removeprefix("upper "), {}).update(line)
    if not workers:
        return []
    series += [Series(bound, [*line], [*line.values()], ref=True)
               for bound, line in bounds.items()]
    if target is not None:
        series.append(Series("target", [min(workers), max(workers)], [target, target],
                             draw="line", ref=True))
    label = "accuracy of requests in time" if name == "accuracy" else effective_words(
        *(row.get("accuracy") for row in rows))
    return [Curves(f"{label[0].upper()}{label[1:]} by number of workers",
                   Axis("workers", whole=True), Axis(label, most=1.0), series)]


def plot_frontier(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Draw effective accuracy over the violation rate, a curve for each load.

    The rows are those of ``frontier --json``, a corner each. Between two corners a policy that
    mixes them at random is on a straight line, which the logarithmic axis bends. For the path and
    errors see :func:`~ramsis.report.figure.saved_figure`.
    """
    if not rows:
        raise InvalidValueError("nothing to draw", where="plot", value="no corners")
    first = rows[0]
    loads = sorted({float(row["load_qps"]) for row in rows})
    with saved_figure(path, figsize=(6.4, 4.4)) as figure:
        from matplotlib.ticker import NullFormatter

        axes = figure.subplots()
        for k, load_qps in enumerate(loads):
            corners = [row for row in rows if row["load_qps"] == load_qps]
            look = line_look(k)
            _draw(axes, corners, look["color"], look["linestyle"], f"{load_qps:.6g} queries/s")
        axes.set_xscale("log")
        axes.tick_params(which="both", labelsize=8)
        axes.xaxis.set_major_formatter(lambda x, _: f"{100.0 * x:.6g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("violations (%)")
        axes.set_ylabel("effective accuracy")
        axes.set_title(f"{first['scheduler']} policies, {first['workers']} workers, "
                       f"SLO {first['slo_ms']:g} ms", loc="left", fontsize=10)
        axes.legend(frameon=False, loc="best")
        axes.grid(alpha=0.3, linewidth=0.5)


def _draw(
    axes: Any, rows: Sequence[Mapping[str, Any]], colour: str, dashes: str, name: str
) -> None:
    rate = np.array([row["expected_violation_rate"] for row in rows], dtype=float)
    effective = np.array([row["expected_effective_accuracy"] for row in rows], dtype=float)
    order = np.argsort(rate)
    rate, effective = rate[order], effective[order]
    dense = np.unique(np.concatenate([
        np.geomspace(max(low, _FLOOR), max(high, _FLOOR), _BETWEEN)
        for low, high in zip(rate, [*rate[1:], rate[-1]], strict=True)
    ]))
    axes.plot(dense, np.interp(dense, rate, effective), linestyle=dashes, color=colour,
              linewidth=1.2, label=f"{name}, model")
    axes.plot(np.maximum(rate, _FLOOR), effective, "o", color=colour, markersize=3.5)
    simulated = [row for row in rows if row.get("violation_rate") is not None]
    if simulated:
        axes.errorbar(
            [max(row["violation_rate"], _FLOOR) for row in simulated],
            [row["effective_accuracy"] for row in simulated],
            xerr=[[min(row["violation_half_width"], max(row["violation_rate"] - _FLOOR, 0.0))
                   for row in simulated], [row["violation_half_width"] for row in simulated]],
            fmt="s", markersize=4, markerfacecolor="none", color=colour, elinewidth=0.8,
            label=f"{name}, simulated",
        )


def plot_audit(row: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Draw effective accuracy and workers as three bars each, and violations by cause.

    The row is that of :meth:`ramsis.audit.audit.Audit.row`. For the path and errors see
    :func:`~ramsis.report.figure.saved_figure`.
    """
    best = row["best_policy"]
    reached = {"achieved": row["effective_accuracy"],
               "best policy": None if best is None else best["effective_accuracy"],
               "bound (one model per request)": row["upper_bound"]}
    workers = {"there were": row["workers"], "best policy": row["fewest_workers"],
               "bound (one model per request)": row["workers_bound"]}
    causes = {name: 100.0 * count / row["requests"]
              for name, count in row["violations_by_cause"].items() if count}
    with saved_figure(path, figsize=(9.0, 3.2)) as figure:
        left, middle, right = figure.subplots(1, 3)
        _bars(left, reached, COLOURS[0], "effective accuracy", "{:.4f}")
        _bars(middle, workers, COLOURS[2], "workers", "{:d}")
        _bars(right, causes or {"none": 0.0}, COLOURS[1], "violations (% of requests)", "{:.3g}")


def _bars(
    axes: Any, values: Mapping[str, float | None], colour: str, title: str, form: str
) -> None:
    """Draw a bar for each value that is not None, with the value above it."""
    shown = {name: value for name, value in values.items() if value is not None}
    drawn = axes.bar(list(shown), list(shown.values()), color=colour, width=0.6)
    axes.bar_label(drawn, [form.format(value) for value in shown.values()], fontsize=8)
    axes.set_title(title, loc="left", fontsize=10)
    axes.tick_params(axis="x", labelsize=8, rotation=20)
    axes.margins(y=0.15)


def plot_fit(fit: TraceFit, path: str | os.PathLike[str]) -> None:
    """Draw the index of dispersion by window with the fitted curves, and the gaps."""
    with saved_figure(path, figsize=(9.0, 3.8)) as figure:
        left, right = figure.subplots(1, 2)
        seconds = fit.window_ms / 1000.0
        left.loglog(seconds, fit.dispersion, "o", color="black", markersize=5, label="trace")
        for fitted, colour, dash in zip(fit.fits, COLOURS, _DASHES, strict=False):
            left.loglog(seconds, fitted.dispersion, dash, color=colour, label=fitted.word)
        left.set_xlabel("window (s)")
        left.set_ylabel("variance / mean of the counts")
        left.set_title("index of dispersion", loc="left", fontsize=10)
        left.set_ylim(top=20.0 * max(fit.dispersion.max(), fit.best.dispersion.max()))
        left.legend(loc="upper left", frameon=False, fontsize=7)
        gap, beyond = _survival(fit.gaps_ms)
        mean = float(fit.gaps_ms.mean())
        right.loglog(gap, beyond, color="black", drawstyle="steps-post", label="trace")
        right.loglog(gap, np.exp(-gap / mean), "--", color=COLOURS[1],
                     label="exponential of the same mean")
        right.set_ylim(bottom=0.5 / len(fit.gaps_ms), top=1.5)
        right.set_xlabel("gap (ms)")
        right.set_ylabel("share of gaps that are longer")
        right.set_title(f"gaps, coefficient of variation {fit.gap_cv:.2f}", loc="left",
                        fontsize=10)
        right.legend(frameon=False, fontsize=8)
        for axes in (left, right):
            for axis in (axes.xaxis, axes.yaxis):
                plain_numbers(axis)
            axes.grid(alpha=0.3, linewidth=0.5)


def _survival(
    gaps_ms: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return positive gaps, rising, and the share of all gaps that are longer than each."""
    value, count = np.unique(gaps_ms, return_counts=True)
    beyond = 1.0 - np.cumsum(count) / len(gaps_ms)
    keep = (value > 0.0) & (beyond > 0.0)
    return value[keep], beyond[keep]
