"""Promise against simulation on 300 settings drawn at random.

The profile is one of the three shipped, the SLO from the fastest latency to 20 times it and the
workers from 1 to 200, both uniform in the logarithm, the load uniform from 20 to 110 % of the
capacity; round robin with maximal and with variable batching, shortest queue, and central queue,
with the defaults of each. Up to 95 % of the capacity effective accuracy in simulation may differ
from the promise by 0.003 and three standard errors; where the promise was measured its own
standard error counts, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from acceptance.line import Line, Row, Verdict, judged, named
from acceptance.setting import RUNS, Effort, Setting, measured, of_share, profile_of
from ramsis.policy import Policy
from ramsis.sim import Policies

__all__ = ["LINE", "promise_row", "promise_verdict"]

PROFILES = ("digits-cpu", "text-cpu", "image-cpu")
KINDS = (("round-robin", {}), ("round-robin", {"batching": "variable", "max_queue": 12}),
         ("shortest-queue", {}), ("central-queue", {}))
"""Longer queues make variable batching take a minute where service times are drawn."""
SETTINGS = 300
_LONGEST, _MOST_WORKERS = 20.0, 200  # SLO over the fastest latency; workers
_LOADS = (0.2, 1.1)
_QUERIES = 200_000
_ALLOWED, _ERRORS, _NEAR = 0.003, 3.0, 0.95
_LARGEST = 10


def _settings(seed: int) -> list[Setting]:
    """Drawn by a seed."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(SETTINGS):
        name = PROFILES[rng.integers(len(PROFILES))]
        fastest_ms = float(profile_of(name).latency_table("p95", 1).latency_ms.min())
        slo_ms = fastest_ms * _LONGEST ** rng.random()
        workers = round(_MOST_WORKERS ** rng.random())
        share = round(float(rng.uniform(*_LOADS)), 3)
        dispatch, options = KINDS[rng.integers(len(KINDS))]
        made.append(of_share(name, math.ceil(1000.0 * slo_ms) / 1000.0, workers, share, dispatch,
                             **options))
    return made


def promise_row(setting: Setting, effort: Effort) -> Row:
    """The promise of a policy, and what the policy does."""
    policy = setting.policy()
    queries = effort.queries(_QUERIES)
    if policy.replay is not None:  # what collapses slowly is measured over as long
        queries = max(queries, RUNS * policy.replay.queries // policy.replay.runs)
    found = measured(Policies((policy,)), setting, queries,
                     service=policy.service, engine=effort.engine)
    expected = policy.expectations
    return {"promised": expected.effective_accuracy,
            "promised_violations": expected.violation_rate,
            "promised_error": _own_error(policy), "measured": policy.replay is not None,
            "simulated": found._asdict()}


def _own_error(policy: Policy) -> float:
    """Standard error of a promise that was measured; 0 of one that was derived."""
    if policy.replay is None:
        return 0.0
    return policy.replay.effective_half_width / float(stdtrit(policy.replay.runs - 1, 0.975))


def promise_verdict(rows: Sequence[Row], near: float = _NEAR) -> Verdict:
    """Differences up to a share of the capacity are held to what is allowed."""
    made = [row for row in rows if "error" not in row]
    judged_rows = [row for row in made if row["share"] <= near]
    wrong = [row for row in judged_rows if abs(_difference(row)) > _most(row)]
    differences = np.abs([_difference(row) for row in judged_rows])
    beyond = np.abs([_difference(row) for row in made if row["share"] > near] or [0.0])
    holds, summary = judged(
        ("settings without policies", len(rows) - len(made), 0, "d"),
        (f"settings up to {near:.0%} of capacity", len(judged_rows), None, "d"),
        ("of these with larger differences than allowed", len(wrong), 0, "d"),
        ("their largest difference", float(differences.max()), None, ".4f"),
        ("their mean difference", float(differences.mean()), None, ".5f"),
        ("largest difference beyond", float(beyond.max()), None, ".4f"),
        ("processor time in all (s)", sum(row["seconds"] for row in rows), None, ".0f"))
    misses = [_shown(row, allowed=f"{_most(row):.4f}") for row in wrong]
    misses += [named(row, why=row["error"]) for row in rows if "error" in row]
    largest = sorted(made, key=lambda row: -abs(_difference(row)))[:_LARGEST]
    return Verdict(holds, misses, summary, "The largest differences", list(map(_shown, largest)))


def _difference(row: Row) -> float:
    return float(row["simulated"]["effective_accuracy"] - row["promised"])


def _most(row: Row) -> float:
    """The difference that is allowed."""
    return _ALLOWED + _ERRORS * math.hypot(row["promised_error"],
                                           row["simulated"]["effective_error"])


def _shown(row: Row, **more: str) -> Row:
    return named(
        row, promise=f"{row['promised']:.4f} ({row['promised_violations']:.3%})",
        simulation=f"{row['simulated']['effective_accuracy']:.4f} "
        f"({row['simulated']['violation_rate']:.3%})",
        difference=f"{_difference(row):+.4f} ± {row['simulated']['effective_error']:.4f}", **more)


LINE = Line("Promise against simulation", _settings, promise_row, promise_verdict)
