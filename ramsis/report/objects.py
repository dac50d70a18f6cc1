"""Figures that ``.plot()`` of objects returns, for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from placement_milp import Placement
from ramsis.errors import InvalidValueError, check_known
from ramsis.policy import Policy, PolicySet
from ramsis.profiles import ProfileSet, Statistic
from ramsis.report.chart import Series
from ramsis.report.figure import (
    COLOURS,
    Panel,
    PanelRow,
    captured,
    plot_panels,
    saved_figure,
)
from ramsis.report.placement import plot_placement
from ramsis.report.profile import plot_profile
from ramsis.report.simulations import plot_promises
from ramsis.report.states import rare_from
from ramsis.sim import SimulationResult
from ramsis.synthesis.capacity import Capacity
from ramsis.tables import load_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ANY = "figure.svg"  # a name for figures that are captured, and not saved


def _captured(draw: Callable[..., object], *arguments: Any) -> Figure:
    with captured() as figures:
        draw(*arguments)
    return figures[0]


def profile(shown: ProfileSet, *, batch: int = 1, statistic: Statistic = "p95") -> Figure:
    """Plot accuracy against latency, and latency by batch size."""
    return _captured(plot_profile, shown, _ANY, batch, statistic)


def policy_set(shown: PolicySet[Policy]) -> Figure:
    """Plot the promises of the policies of a simple set over the load."""
    return _captured(plot_promises, [
        {"load_qps": level.load_qps, "slowness": level.slowness, **level.policy.promised,
         "workers": level.policy.workers, "slo_ms": level.policy.slo_ms, **level.policy.opinions}
        for level in shown.levels], _ANY)


def placement(shown: Placement) -> Figure:
    """Plot workers by family, and the accuracy and share of families."""
    return _captured(plot_placement, shown, _ANY)


def policy(shown: Policy, *, idle: int | None = None) -> Figure:
    """Plot the decision table as a heat map: the model, by queued requests and slack.

    ``idle`` is the number of idle workers, by default the largest of the table.
    """
    levels = shown.idle_levels[1:].tolist()
    if idle is not None and idle not in levels:
        raise InvalidValueError("no such number of idle workers", where="idle", value=idle,
                                allowed=", ".join(map(str, levels)))
    row = len(levels) - 1 if idle is None else levels.index(idle)
    model, batch = (array[row] for array in shown.model_and_batch())
    occurs = np.arange(len(shown.slack_ms)) < rare_from(shown)[:, None]
    used = np.unique(model[occurs & (batch > 0)])  # the colour bar has these
    colours = np.where(occurs & (batch > 0), np.searchsorted(used, model).astype(float), np.nan)
    edges = np.append(shown.slack_ms, 2 * shown.slack_ms[-1] - shown.slack_ms[-2]
                      if len(shown.slack_ms) > 1 else shown.slack_ms[-1] + 1.0)
    queued = np.append(shown.queue_levels[1:], shown.queue_levels[-1] + 1) - 0.5
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    with captured() as figures, saved_figure(_ANY, framed=True, figsize=(7.0, 4.2)) as figure:
        axes = figure.subplots()
        places = np.linspace(0.06, 0.96, len(shown.models))[used]
        drawn = axes.pcolormesh(
            edges, queued, np.ma.masked_invalid(colours),
            cmap=ListedColormap(colormaps["viridis"](places)), vmin=-0.5, vmax=len(used) - 0.5)
        axes.pcolormesh(edges, queued, np.where(occurs & (batch <= 0), 0.0, np.nan),
                        cmap=ListedColormap(["0.85"]))
        axes.set_ylim(queued[0], queued[max(1, int(occurs.any(axis=1).sum()))])
        bar = figure.colorbar(drawn, ax=axes, ticks=range(len(used)))
        bar.ax.tick_params(length=0)
        bar.ax.set_yticklabels([shown.models[i].name for i in used], fontsize=7)
        axes.set_xlabel("slack of the earliest deadline (ms)")
        axes.set_ylabel("queued requests")
        axes.set_title(f"{shown.dispatch}, {load_text(shown.load_qps)} queries/s; "
                       "grey: wait or drop; white: hardly occurs",
                       loc="left", fontsize=10)
    return figures[0]


def simulation(shown: SimulationResult) -> Figure:
    """Plot the figures of each seed, and their mean with its interval."""
    names = {"accuracy": "accuracy in time", "effective_accuracy": "effective accuracy",
             "violation_rate": "violations", "response_p99_ms": "p99 of the response (ms)"}
    with captured() as figures, saved_figure(_ANY, figsize=(9.0, 3.0)) as figure:
        for axes, (name, label) in zip(figure.subplots(1, len(names)), names.items(),
                                       strict=True):
            estimate = shown.estimate(name)
            values = [getattr(metrics, name) for metrics in shown.metrics]
            axes.plot(np.zeros(len(values)), [np.nan if v is None else v for v in values], "o",
                      color="0.6", markersize=4)
            axes.errorbar([0], [estimate.mean], yerr=[estimate.half_width or 0.0], fmt="s",
                          color=COLOURS[0], capsize=3)
            axes.set_title(label, loc="left", fontsize=9)
            axes.set_xticks([])
            axes.set_xlim(-1, 1)
        figure.suptitle(f"{shown.scheduler}: {len(values)} seeds in grey, mean and 95 % interval",
                        x=0.01, ha="left", fontsize=10)
    return figures[0]


def capacity(shown: Capacity) -> Figure:
    """Plot the violations of all trials over the number of workers."""
    tried = sorted((trial.workers, trial.violation_rate) for trial in shown.trials
                   if trial.rates is not None)
    with captured() as figures, saved_figure(_ANY, figsize=(6.0, 3.6)) as figure:
        axes = figure.subplots()
        axes.plot([x for x, _ in tried], [100.0 * y for _, y in tried], "o-", color=COLOURS[0],
                  label="tried")
        axes.axhline(100.0 * shown.answer.targets.max_violation, linestyle="--", linewidth=1,
                     color=COLOURS[1], label="allowed")
        axes.axvline(shown.workers_bound, linestyle=":", color="0.35",
                     label=f"bound ({shown.bound_of})")
        axes.plot([shown.workers], [100.0 * dict(tried)[shown.workers]], "s", markersize=9,
                  markerfacecolor="none", color=COLOURS[2], label="enough")
        axes.set_xlabel("workers")
        axes.set_ylabel("violations (%)")
        axes.locator_params(axis="x", integer=True)
        axes.set_title(shown.scheduler, loc="left", fontsize=10)
        axes.legend(frameon=False, fontsize=8)
    return figures[0]


def sweep(
    rows: Sequence[dict[str, Any]], *, x: str = "load_qps", y: str = "effective_accuracy",
    by: str = "scheduler", panels: str | None = None, axes: Sequence[str] = (),
) -> Figure:
    """Plot a quantity of a sweep's rows over an axis, with a line for each value of another.

    Other axes of ``axes`` that vary have separate panels and lines, so that no line joins cells
    that differ in more than ``x``.
    """
    if not rows:
        raise InvalidValueError("nothing to draw", where="plot", value="no rows")
    for where, name in (("x", x), ("y", y), ("by", by), *([("panels", panels)] if panels else [])):
        check_known("no such column", name, rows[0], where)
    others = [name for name in axes if name not in (x, by, panels)
              and len({row.get(name) for row in rows}) > 1]
    if panels is None and others:
        panels = others.pop(0)
    groups: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        if row.get(x) is None or row.get(y) is None:
            continue
        title = f"{panels} {row.get(panels)}" if panels else ""
        label = ", ".join([str(row.get(by)), *(f"{name} {row.get(name)}" for name in others)])
        groups.setdefault(title, {}).setdefault(label, []).append((row[x], row[y]))
    drawn = [Panel(title, [Series(name, [p[0] for p in sorted(points)],
                                [p[1] for p in sorted(points)])
                           for name, points in lines.items()])
             for title, lines in groups.items()]
    if not drawn:
        raise InvalidValueError("nothing to draw", where="plot", value=f"no {y} over {x}")
    return _captured(plot_panels, [PanelRow(y, drawn, 1.4)], _ANY, x)
