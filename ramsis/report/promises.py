"""What a set of policies promises, against the load."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ramsis.errors import InvalidValueError
from ramsis.policy import Policy
from ramsis.report.panels import LEAST_BUDGET_PERCENT, Line, Panel, PanelRow, plot_panels


def plot_promises(policies: Sequence[Policy], path: str | os.PathLike[str]) -> None:
    """Draw effective accuracy with its upper bound, and the violation rate, over the load.

    Parameters
    ----------
    policies : sequence of Policy
        One or more, of one SLO and number of workers.
    path : path
        Ends in .png, .pdf or .svg.
    """
    kinds = {(p.slo_ms, p.workers) for p in policies}
    if len(kinds) != 1:
        raise InvalidValueError("a figure needs policies of one SLO and number of workers",
                                where="plot", value=sorted(kinds))
    slo_ms, workers = kinds.pop()
    ordered = sorted(policies, key=lambda p: p.load_qps)
    loads = [p.load_qps for p in ordered]
    expected = [p.expectations for p in ordered]
    accuracy = [Line("upper bound of any scheduler", loads, [e.upper_bound for e in expected],
                     reference=True),
                Line("policy, expected", loads, [e.effective_accuracy for e in expected])]
    late = [Line("policy, expected", loads, [100.0 * e.violation_rate for e in expected])]
    plot_panels([
        PanelRow("effective accuracy",
                 [Panel(f"{workers} workers, SLO {slo_ms:g} ms", accuracy)], 1.4),
        PanelRow("violations (%)", [Panel("", late)], 0.6, from_zero=True,
                          reach=LEAST_BUDGET_PERCENT)], path, "load (queries/s)")
