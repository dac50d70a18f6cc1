"""Figure of runs of a cluster: machine usage, violations, response times, arrivals by model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.report.figure import COLOURS, line_look, look_numbers, saved_figure
from ramsis.sim import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MINUTE_MS = 60_000.0
_FEWEST_BINS, _BINS = 3, 30  # bins are minutes where these are as many, else parts of the run
_MOST_SLOTS = 120  # rows of a worker's panel that make it taller
_MOST_MODELS = 6  # kinds by name, as many as there are colours
_MOST_BATCHES = 20_000  # drawn boxes, beyond which a figure takes long and shows no more
_DARK = "#1a1a1a"


def plot_cluster(runs: Mapping[str, Run], path: str | os.PathLike[str]) -> None:
    """Draw the runs of several schedulers on a scenario.

    Above, for each run, the use of the machines: a row for each place of a worker that a model
    took, faint while it is loaded, hatched while it is being loaded, dark while it runs. Below,
    violations and arrivals over time, and the distribution of response times. ``runs`` has one or
    more, by the name of the scheduler. For the path and errors see
    :func:`~ramsis.report.figure.saved_figure`.
    """
    slots_of = [_Slots(run) for run in runs.values()]
    heights = [0.6 + 0.06 * min(max(slots.rows, 6), _MOST_SLOTS) for slots in slots_of]
    with saved_figure(path, framed=True, figsize=(9.0, sum(heights) + 7.0)) as figure:
        axes = figure.subplots(len(runs) + 3, 1, height_ratios=[*heights, 2.0, 2.0, 2.0])
        for panel, (name, run), slots in zip(axes, runs.items(), slots_of, strict=False):
            _draw_usage(panel, name, run, slots)
        _draw_violations(axes[-3], runs)
        _draw_responses(axes[-2], runs)
        _draw_arrivals(axes[-1], next(iter(runs.values())))


class _Slots:
    """Rows in which the stay of each model on a worker is drawn, from the start of its load."""

    def __init__(self, run: Run) -> None:
        stays = _stays(run)
        self.stays: list[tuple[int, int, float, float, float, int]] = []
        self.first: list[int] = []
        self.rows = 0
        for worker in range(len(run.site.workers)):
            self.first.append(self.rows)
            ends: list[float] = []
            for model, start_ms, ready_ms, end_ms in sorted(
                    stays.get(worker, ()), key=lambda stay: stay[1]):
                row = next((i for i, end in enumerate(ends) if end <= start_ms), len(ends))
                ends[row:row + 1] = [end_ms]
                self.stays.append((worker, model, start_ms, ready_ms, end_ms, self.rows + row))
            self.rows += max(len(ends), 1)


def _stays(run: Run) -> dict[int, list[tuple[int, float, float, float]]]:
    """Return, by worker, each model with start and end of its load and the time of its unload."""
    gone: dict[tuple[int, int], list[float]] = {}
    leaving = [*zip(run.unload_worker.tolist(), run.unload_model.tolist(), run.unload_ms.tolist(),
                    strict=True)]
    for worker, model, at_ms in leaving:
        gone.setdefault((worker, model), []).append(at_ms)
    stopped: dict[int, list[float]] = {}
    for worker, up, at_ms in zip(run.scaled_worker.tolist(), run.scaled_up.tolist(),
                                 run.scaled_ms.tolist(), strict=True):
        if not up:
            stopped.setdefault(worker, []).append(at_ms)
    stays: dict[int, list[tuple[int, float, float, float]]] = {}
    begun = [(worker, model, 0.0, 0.0) for worker, held in enumerate(run.site.start)
             for model in held]
    begun += zip(run.load_worker.tolist(), run.load_model.tolist(), run.load_start_ms.tolist(),
                 run.load_end_ms.tolist(), strict=True)
    for worker, model, start_ms, ready_ms in begun:
        ends = [at for at in (*gone.get((worker, model), ()), *stopped.get(worker, ()))
                if at >= ready_ms]
        stays.setdefault(worker, []).append(
            (model, start_ms, ready_ms, min(ends, default=run.end_ms)))
    return stays


def _draw_usage(axes: Axes, name: str, run: Run, slots: _Slots) -> None:
    """Draw a row for each place of a worker, with batches as dark pieces of a model's stay."""
    by_stay: dict[tuple[int, int], list[tuple[float, float]]] = {}
    shown = np.argsort(run.start_ms)[:_MOST_BATCHES]
    for worker, model, start_ms, finish_ms in zip(
            run.worker[shown].tolist(), run.model[shown].tolist(),
            run.start_ms[shown].tolist(), run.finish_ms[shown].tolist(), strict=True):
        by_stay.setdefault((worker, model), []).append((start_ms, finish_ms))
    for worker, model, start_ms, ready_ms, end_ms, row in slots.stays:
        colour = COLOURS[int(run.site.kind[model]) % len(COLOURS)]
        axes.broken_barh([(ready_ms / 1000, (end_ms - ready_ms) / 1000)], (row, 0.9),
                         facecolors=colour, alpha=0.25, linewidth=0)
        if ready_ms > start_ms:
            axes.broken_barh([(start_ms / 1000, (ready_ms - start_ms) / 1000)], (row, 0.9),
                             facecolors="white", edgecolor=colour, hatch="//////", linewidth=0.3)
        ran = [(from_ms / 1000, (to_ms - from_ms) / 1000) for from_ms, to_ms in
               by_stay.get((worker, model), ()) if ready_ms <= from_ms and from_ms <= end_ms]
        if ran:
            axes.broken_barh(ran, (row, 0.9), facecolors=_DARK, linewidth=0)
    axes.set_yticks(slots.first, run.site.workers, fontsize=5)
    axes.set_xlim(0, max(run.end_ms, 1e-9) / 1000)
    axes.set_ylim(slots.rows, 0)
    axes.set_title(f"{name}: loaded (faint), loading (hatched), inference (dark); time in s",
                   fontsize=9, loc="left")


def _bins(run: Run) -> tuple[FloatArray, str]:
    """Return edges of the bins of time, in ms, and the name of a bin's length."""
    duration_ms = run.duration_ms
    if duration_ms >= _FEWEST_BINS * _MINUTE_MS:
        return np.arange(0.0, duration_ms + _MINUTE_MS, _MINUTE_MS), "minute"
    return np.linspace(0.0, duration_ms, _BINS + 1), f"{duration_ms / 1000 / _BINS:.3g} s"


def _of_line(number: int) -> dict[str, Any]:
    """Return colour and dashes of a look; there are too many points for markers."""
    return {key: value for key, value in line_look(number).items() if key != "marker"}


def _draw_violations(axes: Axes, runs: Mapping[str, Run]) -> None:
    unit, looks = "", look_numbers(runs)
    for name, run in runs.items():
        edges, unit = _bins(run)
        late = np.histogram(run.arrival_ms[~run.in_time], edges)[0]
        axes.stairs(late, edges / 1000, label=name, **_of_line(looks[name]))
    axes.set_ylabel(f"violations in a {unit}" if unit == "minute" else f"violations in {unit}")
    axes.set_xlabel("arrival (s)")
    axes.legend(fontsize=7)


def _draw_responses(axes: Axes, runs: Mapping[str, Run]) -> None:
    looks = look_numbers(runs)
    for name, run in runs.items():
        response = np.sort(run.response_ms[run.answered])
        if len(response):
            at = np.unique(np.linspace(0, len(response) - 1, 2000).astype(int))
            axes.plot(response[at], (at + 1) / run.requests, label=name,
                      **_of_line(looks[name]))
    axes.set(xlabel="response time (ms)", ylabel="share of requests", ylim=(0, 1.02))
    if axes.lines:
        axes.legend(fontsize=7)


def _draw_arrivals(axes: Axes, run: Run) -> None:
    """Draw arrivals over time, the kinds with most of them by name."""
    edges, unit = _bins(run)
    site = run.site
    kind = site.kind[run.asked] if run.requests else np.empty(0, dtype=np.int64)
    counts = np.bincount(kind, minlength=len(site.kinds))
    most = np.argsort(-counts, kind="stable")[:_MOST_MODELS].tolist()
    below: Any = np.zeros(len(edges) - 1)
    parts = [(site.kinds[k], kind == k, COLOURS[i % len(COLOURS)]) for i, k in enumerate(most)]
    if len(site.kinds) > _MOST_MODELS:
        parts.append(("others", ~np.isin(kind, most), "#999999"))
    for name, is_kind, colour in parts:
        height = np.histogram(run.arrival_ms[is_kind], edges)[0]
        axes.stairs(below + height, edges / 1000, baseline=below, fill=True, color=colour,
                    label=name)
        below = below + height
    axes.set(xlabel="time (s)",
             ylabel="arrivals in a minute" if unit == "minute" else f"arrivals in {unit}")
    axes.legend(fontsize=7, ncols=2)
