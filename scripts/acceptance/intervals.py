"""Near the capacity a promise is within its own half-width of the truth.

Thirty settings at random loads from 90 to 105 % of the capacity, of the three shipped profiles,
with round robin and with a central queue. The truth is a measurement of sixteen times as many
requests as the promise has, with other seeds. At least 27 promises are within their half-width of
it, and the mean error is below 0.0002.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from acceptance.line import Line, Row, Verdict, judged, named
from acceptance.setting import SEED, Effort, Setting, of_share
from ramsis.synthesis.simulated import measured

__all__ = ["LINE"]

FLEETS = (("digits-cpu", 25.0, 4), ("text-cpu", 95.0, 20), ("image-cpu", 350.0, 60))
SHARES, _EACH = (0.9, 1.05), 5
_LONGER, _MOST, _RUNS = 16, 30_000_000, 16
_OUTSIDE, _MEAN_ERROR = 3, 2e-4


def _settings(seed: int) -> list[Setting]:
    rng = np.random.default_rng(seed)
    return [of_share(*fleet, round(float(rng.uniform(*SHARES)), 3), dispatch)
            for fleet in FLEETS for _ in range(_EACH)
            for dispatch in ("round-robin", "central-queue")]


def _row(setting: Setting, effort: Effort) -> Row:
    policy = setting.policy()
    replay = policy.replay
    if replay is None:
        return {"error": "its promise is not measured"}
    queries = effort.queries(min(_LONGER * replay.queries, _MOST))
    found, truth = measured(policy, queries=queries, runs=_RUNS, seed=SEED)
    return {"promised": policy.expectations.effective_accuracy,
            "half_width": replay.half_widths["effective_accuracy"],
            "simulated": found["effective_accuracy"],
            "error_of_truth": truth.half_widths["effective_accuracy"]}


def _verdict(rows: Sequence[Row]) -> Verdict:
    made = [row for row in rows if "error" not in row]
    error = np.array([row["promised"] - row["simulated"] for row in made])
    outside = [row for row, one in zip(made, error, strict=True) if abs(one) > row["half_width"]]
    holds, summary = judged(
        ("settings without a measured promise", len(rows) - len(made), 0, "d"),
        ("promises outside their half-width", len(outside), _OUTSIDE * len(made) // 30, "d"),
        ("mean error, either sign", abs(float(error.mean())), _MEAN_ERROR, ".6f"),
        ("mean size of an error", float(np.abs(error).mean()), None, ".6f"),
        ("mean half-width", float(np.mean([row["half_width"] for row in made])), None, ".6f"))
    return Verdict(holds, [_shown(row) for row in outside], summary, "Near the capacity",
                   [_shown(row) for row in made])


def _shown(row: Row) -> Row:
    return named(row, promise=f"{row['promised']:.5f} ± {row['half_width']:.5f}",
                 simulation=f"{row['simulated']:.5f} ± {row['error_of_truth']:.5f}",
                 error=f"{row['promised'] - row['simulated']:+.5f}")


LINE = Line("Half-widths near the capacity", _settings, _row, _verdict)
