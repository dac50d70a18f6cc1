"""What a set of policies promises, against the load."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ramsis.errors import InvalidValueError, describe
from ramsis.policy import Policy
from ramsis.report.figure import COLOURS, saved_figure

__all__ = ["plot_promises"]


def plot_promises(policies: Sequence[Policy], path: str | os.PathLike[str]) -> None:
    """Draw effective accuracy with its upper bound, and the violation rate, over the load.

    Parameters
    ----------
    policies : sequence of Policy
        One or more, of one SLO and number of workers.
    path : path
        Ends in .png, .pdf or .svg.

    Raises
    ------
    InvalidValueError
        Policies for different SLOs or workers, or a file name of another kind.
    OutputError
        The file cannot be written.
    """
    kinds = {(p.slo_ms, p.workers) for p in policies}
    if len(kinds) != 1:
        raise InvalidValueError(
            describe("a figure needs policies of one SLO and number of workers", where="plot",
                     value=sorted(kinds))
        )
    slo_ms, workers = kinds.pop()
    ordered = sorted(policies, key=lambda p: p.load_qps)
    loads = [p.load_qps for p in ordered]
    expected = [p.expectations for p in ordered]
    bound = [float("nan") if e.upper_bound is None else e.upper_bound for e in expected]
    with saved_figure(path, figsize=(6.4, 5.2)) as figure:
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        top.plot(loads, bound, "--", color=COLOURS[1], marker="v", markersize=4,
                 label="upper bound of any scheme")
        top.plot(loads, [e.effective_accuracy for e in expected], color=COLOURS[0], marker="o",
                 markersize=4, label="policy, expected")
        top.set_ylabel("effective accuracy")
        top.set_title(f"{workers} workers, SLO {slo_ms:g} ms", loc="left", fontsize=10)
        top.legend(loc="lower left", frameon=False)
        bottom.plot(loads, [100.0 * e.violation_rate for e in expected], color=COLOURS[0],
                    marker="o", markersize=4)
        bottom.set_ylabel("violations (%)")
        bottom.set_xlabel("load (queries/s)")
        bottom.set_ylim(bottom=0.0)
        for axes in (top, bottom):
            axes.grid(alpha=0.3, linewidth=0.5)
            axes.spines[["top", "right"]].set_visible(False)
