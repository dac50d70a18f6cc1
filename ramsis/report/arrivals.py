"""Figure of the arrivals of a trace, and of the processes fitted to them."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from ramsis.arrivals.fitting import TraceFit
from ramsis.report.figure import COLOURS, plain_numbers, saved_figure

_DASHES = ("-", "--", ":")


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
