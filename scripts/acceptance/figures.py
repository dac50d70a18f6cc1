"""All measured figures of a promise against a simulator that shares nothing with its own.

Sixty settings drawn at random, of all kinds of dispatch, as
:mod:`acceptance.random_settings` draws them. The other simulator
(:mod:`ramsis.verify.simulator`) plays the file's table on a million other requests. Utilisation,
mean batch and mean queue may differ by 1 % or 0.003, the median response time by 3 %, its 99th
percentile by 5 %. What the other simulator errs by counts besides.
"""

from __future__ import annotations

from collections.abc import Sequence

from acceptance.line import Line, Row, Verdict, judged, named, spread
from acceptance.random_settings import LINE as RANDOM
from acceptance.setting import SEED, Effort, Setting
from ramsis.synthesis.simulated import SETTLES
from ramsis.verify.replay import figure_of, played

__all__ = ["LINE"]

SETTINGS, _MOST_REQUESTS = 60, 2e5
_QUERIES, _RUNS = 1_000_000, 8
_ALLOWED = {  # share of the figure, and difference
    "utilisation": (0.01, 0.003), "batch_size.mean": (0.01, 0.003),
    "queue_length.mean": (0.01, 0.003), "response_p50_ms": (0.03, 0.0),
    "response_p99_ms": (0.05, 0.0), "effective_accuracy": (0.0, 0.003),
    "violation_rate": (0.0, 0.003)}


def _settings(seed: int) -> list[Setting]:
    """Of the random ones; those of which a run settles quickly."""
    short = [one for one in RANDOM.settings(seed)
             if one.load_qps / 1000.0 * one.slo_ms * SETTLES <= _MOST_REQUESTS]
    return spread(short, SETTINGS)


def _row(setting: Setting, effort: Effort) -> Row:
    policy = setting.policy()
    found = played(policy, queries=effort.queries(_QUERIES), runs=_RUNS, seed=SEED)
    return {"replayed": policy.replay is not None,
            "figures": {name: {"promised": figure_of(policy.expectations, name),
                               "simulated": found[name].mean,
                               "error": found[name].half_width or 0.0}
                        for name in _ALLOWED if name in found}}


def _verdict(rows: Sequence[Row]) -> Verdict:
    made = [row for row in rows if "error" not in row]
    misses = [named(row, why=row["error"]) for row in rows if "error" in row]
    off = 0
    for row in made:
        for name, figure in row["figures"].items():
            share, number = _ALLOWED[name]
            promised, simulated = figure["promised"], figure["simulated"]
            allowed = max(share * abs(simulated), number) + figure["error"]
            if promised is None or abs(promised - simulated) > allowed:
                off += 1
                misses.append(named(row, why=f"{name}: {promised} promised, {simulated:.6g} "
                                             f"± {figure['error']:.2g} simulated"))
    holds, summary = judged(
        ("settings without policies", len(rows) - len(made), None, "d"),
        ("settings of which figures are measured", sum(row["replayed"] for row in made), None,
         "d"),
        ("figures", sum(len(row["figures"]) for row in made), None, "d"),
        ("figures that differ by more than is allowed", off, 0, "d"))
    return Verdict(holds, misses, summary)


LINE = Line("Every figure against another simulator", _settings, _row, _verdict)
