"""Figures of schedulers over the load, and of schedulers and fleets over time."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.arrivals.fitting import TraceFit
from ramsis.errors import InvalidValueError
from ramsis.policy import Policy
from ramsis.report.figure import (
    COLOURS,
    LEAST_BUDGET_PERCENT,
    Line,
    Panel,
    PanelRow,
    line_look,
    plain_numbers,
    plot_panels,
    saved_figure,
)
from ramsis.report.verdicts import (
    bounded_schedulers,
    bounds_on_workers,
    one_model_bound,
    upper_bounds,
)
from ramsis.sim import TimeSeries
from ramsis.tables import load_text, scheduler_words

_DASHES = ("-", "--", ":")

_FLOOR = 1e-5  # violation rates below this are drawn here, as the axis is logarithmic
_BETWEEN = 60  # points between two corners: a line of chance is curved on a logarithmic axis


def plot_loads(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Draw effective accuracy with its upper bound, and violations, over the load.

    Parameters
    ----------
    rows : sequence of Mapping
        ``label``, ``load_qps``, ``effective_accuracy``, ``violation_rate``, ``upper_bound`` (or
        ``None``), ``workers``, ``slo_ms``.
    path : path
        See :func:`~ramsis.report.figure.saved_figure`, for errors, too.
    """
    title = f"{rows[0]['workers']} workers, SLO {rows[0]['slo_ms']:g} ms"
    if len({row["load_qps"] for row in rows}) == 1:
        _plot_one_load(rows, path, title)
        return
    accuracy, late = [], []
    accuracy += [Line(name, [*bounds], [*bounds.values()], reference=True)
                 for name, bounds in upper_bounds(rows).items()]
    for label in dict.fromkeys(row["label"] for row in rows):
        line = sorted((r for r in rows if r["label"] == label), key=lambda r: r["load_qps"])
        load = [row["load_qps"] for row in line]
        accuracy.append(Line(label, load, [row["effective_accuracy"] for row in line]))
        late.append(Line(label, load, [100.0 * row["violation_rate"] for row in line]))
    plot_panels([PanelRow("effective accuracy", [Panel(title, accuracy)], 1.4),
                 PanelRow("violations (%)", [Panel("", late)], 0.6, from_zero=True,
                          reach=LEAST_BUDGET_PERCENT)],
                path, "load (queries/s)")


def _plot_one_load(
    rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str], title: str
) -> None:
    """Draw effective accuracy with its bound, and violations, a place for each scheduler."""
    places = range(len(rows))
    accuracy = [Line("effective accuracy", places, [row["effective_accuracy"] for row in rows],
                     [row.get("effective_accuracy_half_width") or 0.0 for row in rows])]
    bounds = [one_model_bound(row) for row in rows]
    if None not in bounds:
        accuracy.append(Line("upper bound (one model per request)",
                             [-0.4, *places, len(rows) - 0.6],
                             [bounds[0], *bounds, bounds[-1]], reference=True))
    late = [Line("violations", places, [100.0 * row["violation_rate"] for row in rows])]
    load = "" if rows[0]["load_qps"] is None else f"{load_text(rows[0]['load_qps'])} queries/s, "
    plot_panels([PanelRow("effective accuracy", [Panel(load + title, accuracy)], 1.4),
                 PanelRow("violations (%)", [Panel("", late)], 0.6, from_zero=True,
                          reach=LEAST_BUDGET_PERCENT)],
                path, cases=[row["label"] for row in rows])


def plot_promises(policies: Sequence[Policy], path: str | os.PathLike[str]) -> None:
    """Draw the promises of policies over the load, as :func:`plot_loads` draws simulations.

    Parameters
    ----------
    policies : sequence of Policy
        One or more, of the same SLO and number of workers.
    path : path
        Ends in .png, .pdf or .svg.
    """
    kinds = {(p.slo_ms, p.workers) for p in policies}
    if len(kinds) != 1:
        raise InvalidValueError("a figure needs policies of one SLO and number of workers",
                                where="plot", value=sorted(kinds))
    slower = {policy.slowness: f", slowness {policy.slowness:g}" for policy in policies
              if policy.slowness != 1.0}
    plot_loads([{"label": f"policy, expected{slower.get(policy.slowness, '')}",
                 "load_qps": policy.load_qps, "workers": policy.workers, "slo_ms": policy.slo_ms,
                 "effective_accuracy": policy.rates.effective_accuracy,
                 "violation_rate": policy.rates.violation_rate,
                 "upper_bound": policy.upper_bound,
                 **({} if policy.cascade is None else {
                     "upper_bound_one_model": policy.expectations.upper_bound})}
                for policy in policies], path)


def plot_over_time(series: Mapping[str, TimeSeries], path: str | os.PathLike[str]) -> None:
    """Draw load, accuracy in time and violations of each scheduler, over time."""
    first = next(iter(series.values()))
    load = [Line("load", _seconds(first), first.load_qps.tolist(), reference=True)]
    accuracy = [Line(label, _seconds(run), run.accuracy.tolist())
                for label, run in series.items()]
    late = [Line(label, _seconds(run), (100.0 * run.violation_rate).tolist())
            for label, run in series.items()]
    plot_panels([PanelRow("load (queries/s)", [Panel("", load)], 0.5),
                 PanelRow("accuracy in time", [Panel("", accuracy)]),
                 PanelRow("violations (%)", [Panel("", late)], 0.5, from_zero=True,
                          reach=LEAST_BUDGET_PERCENT)],
                path, "time (s)")


def _seconds(series: TimeSeries) -> list[float]:
    seconds: list[float] = (series.start_ms / 1000.0).tolist()
    return seconds


def plot_scaling(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Draw load, workers that are paid for, accuracy and violations over time.

    Parameters
    ----------
    rows : sequence of Mapping
        ``label`` or ``scheduler``, and ``over_time``, returned by
        :meth:`ramsis.scaling.fleet.ScaledRun.over_time`.
    path : path
        See :func:`~ramsis.report.figure.saved_figure`, for errors, too.
    """
    first = rows[0]["over_time"]
    workers, accuracy, late = [], [], []
    for row in rows:
        name, series = str(row.get("label", row["scheduler"])), row["over_time"]
        time_s = series["time_s"]
        edges_s = [*time_s, 2 * time_s[-1] - time_s[-2:][0]]
        workers.append(Line(name, [edge for pair in pairwise(edges_s) for edge in pair],
                            [value for value in series["workers"] for _ in range(2)]))
        accuracy.append(Line(name, time_s, series["accuracy"]))
        late.append(Line(name, time_s, [None if rate is None else 100.0 * rate
                                        for rate in series["violation_rate"]]))
    load = Line("load", first["time_s"], first["load_qps"], reference=True)
    plot_panels([PanelRow("load (queries/s)", [Panel("", [load])], 0.6, from_zero=True),
                 PanelRow("workers paid for", [Panel("", workers)], whole=True, from_zero=True),
                 PanelRow("accuracy in time", [Panel("", accuracy)], 0.7),
                 PanelRow("violations (%)", [Panel("", late)], 0.6, from_zero=True,
                          reach=LEAST_BUDGET_PERCENT)],
                path, "time (s)")


def plot_bounds(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Draw the upper bounds on effective accuracy over the load, or the fewest workers over time.

    Parameters
    ----------
    rows : sequence of Mapping
        Rows of ``ramsis bound --json``; of a trace one with ``time_s`` and ``workers_over_time``.
    path : path
        See :func:`~ramsis.report.figure.saved_figure`, for errors, too.
    """
    first = rows[0]
    if "time_s" in first:
        edges_s = first["time_s"]
        fewest = Line("fewest workers (one model per request)", edges_s,
                      first["workers_over_time"])
        plot_panels([PanelRow("workers", [Panel("", [fewest])], 1.4, whole=True, from_zero=True)],
                    path, "time (s)")
        return
    loads = [row["load_qps"] for row in rows]
    bounds = [Line(name, loads, [row.get(key) for row in rows]) for name, key in (
        (f"upper bound ({bounded_schedulers(first)})", "upper_bound"),
        ("the same for Poisson arrivals", "poisson_upper_bound"),
        ("the same without cascades", "upper_bound_one_model"),
        ("the same without padding", "upper_bound_without_padding"))
        if any(row.get(key) is not None for row in rows)]
    plot_panels([PanelRow("effective accuracy", [Panel("", bounds)], 1.4)], path,
                "load (queries/s)")


def plot_capacity(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Draw workers over loads, and how many more than the bound, a line for each scheduler.

    Parameters
    ----------
    rows : sequence of Mapping
        ``scheduler``, ``load_qps``, ``workers``, ``workers_bound``, ``slo_ms``, as returned by
        :meth:`ramsis.synthesis.capacity.Capacity.row`.
    path : path
        See :func:`~ramsis.report.figure.saved_figure`, for errors, too.
    """
    needed, more = [], []
    for scheduler in dict.fromkeys(row["scheduler"] for row in rows):
        trials = [row for row in rows if row["scheduler"] == scheduler]
        loads = [row["load_qps"] for row in trials]
        name = scheduler_words(scheduler)
        needed.append(Line(name, loads, [row["workers"] for row in trials]))
        more.append(Line(name, loads,
                         [100.0 * row["workers"] / row["workers_bound"] - 100.0
                          for row in trials]))
    needed += [Line(name, [*bounds], [*bounds.values()], reference=True)
               for name, bounds in bounds_on_workers(rows).items()]
    plot_panels([
        PanelRow("workers", [Panel(_title(rows[0]), needed)], 1.4, whole=True),
        PanelRow("more than the bound (%)", [Panel("", more)], 1.0),
    ], path, "load (queries/s)")


def _title(row: Mapping[str, Any]) -> str:
    targets = [f"{words} ≥ {row[name]:g}" for name, words in (
        ("min_accuracy", "accuracy"), ("min_effective_accuracy", "effective accuracy"))
        if row[name] is not None]
    return ", ".join([f"SLO {row['slo_ms']:g} ms", *targets,
                      f"violations ≤ {100.0 * row['max_violation']:g} %"])


def plot_frontier(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Draw effective accuracy over the violation rate, a curve for each load.

    Parameters
    ----------
    rows : sequence of mappings
        Corners as ``ramsis frontier`` gives them: ``load_qps``, ``expected_violation_rate``,
        ``expected_effective_accuracy``, and, where they were simulated, ``violation_rate``,
        ``violation_half_width`` and ``effective_accuracy``. Between two corners a policy that
        mixes them at random is on a straight line, which the logarithmic axis bends.
    path : path
        Ends in .png, .pdf or .svg.
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

    Parameters
    ----------
    row : Mapping
        Returned by :meth:`ramsis.audit.audit.Audit.row`.
    path : path
        See :func:`~ramsis.report.figure.saved_figure`, for errors, too.
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
