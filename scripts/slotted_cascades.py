"""The rule for second opinions beside the exact optimum, and the bound beside both.

python scripts/slotted_cascades.py

One worker serves by a small and a large model, with one threshold, and time is cut into slots of
1 ms, in each of which a request comes with a probability. Then the best policy is known exactly
(``tests/reference/slotted_cascades.py``): without second opinions, with them, and with batches of
the large model that mix second opinions with requests that no model has answered. Times are short
beside the deadline, as those of the digits within 25 ms. Columns:

- one_model, second_opinions, mixed: these optima;
- policy: the table of a policy file for one model, played on other requests;
- rule: the rule that the search finds for policy files, which mixes none, played on the same;
- bound: that of ``ramsis bound --cascades`` with gathering windows. It is one for Poisson
  arrivals; these come less bunched, so it holds for them, too.

Rows that the file has are not played again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
from study import keep_rows

import ramsis
from ramsis.arrays import FloatArray
from ramsis.bounds import cascade_bound
from ramsis.cluster import ServiceTimes
from ramsis.profiles import BatchProfile, Confidences, ModelProfile, Pair, ProfileSet
from ramsis.profiles.confidences import ModelConfidence
from ramsis.sim.compiled import replay
from ramsis.sim.tables import PlacedCascade
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.cascades.rule import padded, problems_of
from ramsis.synthesis.cascades.search import Sample, best_rules
from ramsis.synthesis.simulated import prepared_policy
from tests.reference.slotted_cascades import SlottedCascade, optimum

SETTINGS = tuple((due, came) for due in (9, 10, 11) for came in (0.5, 0.7, 0.9))
SMALL, LARGE = (2, 2, 2), (4, 5, 6)
UNSURE, SURE, BETTER = (0.3, 0.57), (0.7, 0.97), 0.25
ARRIVALS = "scripts.slotted_cascades:Slotted"
_EARLIER = 1e-7  # by which each slot begins before batches that started in the one before end
_LATE_MS = 1e-3
_PLAYED, _SEED = 400_000, 1 << 21


class Slotted:
    """Arrivals in slots of 1 ms, at most one in each."""

    def __init__(self, load_qps: float) -> None:
        self.rate_per_ms = load_qps / 1000.0

    def sample(self, duration_ms: float, rng: np.random.Generator) -> FloatArray:
        """Return arrival times."""
        slots = 1.0 + np.flatnonzero(rng.random(int(duration_ms)) < self.rate_per_ms)
        return np.asarray(slots * (1.0 - _EARLIER), dtype=np.float64)


def profile_of() -> ProfileSet:
    """Return the profile of both models."""
    accuracy = sum(share * right for share, right in (UNSURE, SURE))
    models = tuple(ModelProfile(name, right, tuple(
        BatchProfile(b + 1, mean_ms=float(slots)) for b, slots in enumerate(times)))
        for name, right, times in (("small", accuracy, SMALL),
                                   ("large", accuracy + UNSURE[0] * BETTER, LARGE)))
    share = (UNSURE[0], SURE[0])
    confidences = Confidences(
        10**6, 10**6, (ModelConfidence("small", (0.5,), share, (UNSURE[1], SURE[1])),
                       ModelConfidence("large", (0.5,), share, (UNSURE[1] + BETTER, SURE[1]))),
        (Pair("small", "large", (UNSURE[1] + BETTER, SURE[1]), (BETTER, 0.0), (0.0, 0.0)),))
    return ProfileSet("slotted", models, confidences=confidences)


def played(due: int, came: float) -> Iterator[dict[str, float]]:
    """Yield the row of a setting."""
    profile, load_qps = profile_of(), 1000.0 * came
    slo_ms = due + _LATE_MS
    assert profile.confidences is not None
    policy = generate_policy(profile, load_qps, SynthesisSettings(
        slo_ms=slo_ms, workers=1, dispatch="central-queue", service="mean", headroom=0.0,
        max_queue=len(LARGE)))
    ramsis.trust(ARRIVALS)
    policy = replace(policy, arrivals={"process": ARRIVALS})
    fleet, plan = prepared_policy(policy)
    assert plan.compiled is not None
    (problem, tables), *_ = best_rules(
        policy, problems_of(policy, fleet, profile.confidences), policy.violation_price)
    sample = Sample(policy, fleet, load_qps, _PLAYED, _SEED)
    rule, _ = sample.worth(PlacedCascade(tables, padded(problem.stated, 0.0)), 0.0)
    alone = replay(fleet, plan.compiled, sample.requests, sample.duration_ms, load_qps)
    exact = SlottedCascade(SMALL, LARGE, due, came, profile.models[0].accuracy, UNSURE[0], BETTER)
    bound = cascade_bound(ServiceTimes.of_all(profile, "mean", len(LARGE)), profile.confidences,
                          slo_ms=float(due), workers=1, load_qps=load_qps, gathering=True)
    yield {"due": due, "came": came,
            "one_model": optimum(exact, mixed=False, second=False),
            "second_opinions": optimum(exact, mixed=False), "mixed": optimum(exact),
            "policy": float(alone.reward[sample.counted].mean()), "rule": rule,
            "bound": bound.upper_bound}


def sentence_of(rows: pd.DataFrame) -> str:
    """Return what the page says of the rows."""
    best, asked, alone = rows["mixed"], rows["second_opinions"], rows["one_model"]
    lacks = asked - np.maximum(rows["policy"], rows["rule"])
    return (f"In {len(rows)} such settings the best second opinions add "
            f"{(asked - alone).mean():.3f} on the mean, and batches that mix them with fresh "
            f"requests {(best - asked).mean():.3f} more. Policies lack {lacks.mean():.3f} of the "
            f"former; the bound lies {(rows['bound'] - best).mean():.3f} above the latter.")


if __name__ == "__main__":
    keep_rows(__doc__, "slotted-cascades", [{"due": due, "came": came} for due, came in SETTINGS],
              played, sentence_of)
