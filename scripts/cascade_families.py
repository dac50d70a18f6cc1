"""Second opinions of other models than the digits': never worse than one model, on the truth.

python scripts/cascade_families.py

Families of four models each, with the times of four models of ``digits-cpu``. Requests differ in
hardness, and answers are drawn:

- forests: 3 to 243 trees vote, the smaller forests being part of the larger ones; the confidence
  is the margin of votes, of which there are few values;
- networks: correct by a logistic curve of the hardness, with common noise; the confidence is a
  probability that is too high, and 1 for many;
- overlapping, independent: errors for a common reason on 95 % or 10 % of the requests;
- blind: confidences that say next to nothing of correctness;
- few: the networks, known by 400 samples instead of 4,000.

Half of the samples chooses, the other half states, as always. What is delivered is then counted by
the truth: shares of the bins and increments of 400,000 further requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
from study import keep_rows

from ramsis import load_profile
from ramsis.arrays import FloatArray
from ramsis.cluster import ServiceTimes
from ramsis.policy import Policy
from ramsis.profiles import Confidences, ProfileSet
from ramsis.profiles.confidences import Samples
from ramsis.sim.cascades import served
from ramsis.sim.compiled import replay
from ramsis.sim.tables import PlacedCascade
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.cascades import with_cascade
from ramsis.synthesis.cascades.search import Sample
from ramsis.synthesis.simulated import prepared_policy

MODELS = ("svm-poly-800", "svm-poly-3200", "svm-poly-6400", "svm-poly-12000")
FAMILIES = ("forests", "networks", "overlapping", "independent", "blind", "few")
CELLS = ((60.0, 9_600.0), (60.0, 14_400.0), (25.0, 9_600.0), (25.0, 12_800.0))
WORKERS, SEEDS = 4, 2
_SAMPLES, _FEW, _TRUTH, _PLAYED, _SEED = 4_000, 400, 400_000, 200_000, 1 << 22
_TREES, _ERRORS = (3, 9, 27, 243), (0.14, 0.08, 0.065, 0.045)


def drawn(family: str, size: int, rng: np.random.Generator) -> Samples:
    """Draw correctness and confidence of a family's models."""
    hardness, common = rng.random((2, size))
    if family == "forests":
        # A tree is right by chance; of hard requests less than half are.
        right, votes, samples = 0.98 - 0.62 * hardness**4, np.zeros(size), {}
        for model, trees, before in zip(MODELS, _TREES, (0, *_TREES), strict=False):
            votes = votes + rng.binomial(trees - before, right)
            samples[model] = votes > trees / 2, np.abs(votes / trees - 0.5)
        return samples
    networks = family in ("networks", "few")
    overlap = {"overlapping": 0.95, "independent": 0.1}.get(family, 0.6)
    samples = {}
    for model, errors in zip(MODELS, _ERRORS, strict=True):
        luck = np.where(rng.random(size) < overlap, common, rng.random(size))
        wrong = np.minimum(4.0 * errors * hardness**3, 1.0)
        sure = 1.0 - hardness + rng.normal(0.0, 3.0 if family == "blind" else 0.1, size)
        if networks:  # three decimals, as a server may send
            sure = np.round(1.0 / (1.0 + np.exp(-12.0 * (sure - 0.1))), 3)
        samples[model] = luck > wrong, sure
    return samples


def truth_of(policy: Policy, truth: Samples) -> PlacedCascade:
    """Return the rule of a policy with the shares and increments that the truth has."""
    assert policy.cascade is not None
    names = tuple(model.name for model in policy.models)
    placed = PlacedCascade.of(policy.cascade, range(len(names)), len(names))
    upto, increment = placed.tables.upto.copy(), np.zeros_like(placed.increment)
    second = np.asarray(truth[names[policy.cascade.second]][0], dtype=float)
    for m, name in enumerate(names):
        edges = policy.cascade.thresholds[m]
        if edges:
            correct, confidence = map(np.asarray, truth[name])
            place = np.searchsorted(edges, confidence, side="right")
            counts = np.bincount(place, minlength=len(edges) + 1)
            gained = np.bincount(place, second - correct, len(edges) + 1)
            upto[m, : len(counts)] = np.cumsum(counts) / len(place)
            increment[m, : len(counts)] = gained / np.maximum(counts, 1)
    return PlacedCascade(placed.tables._replace(upto=upto), increment)


def delivered(policy: Policy, truth: Samples) -> tuple[float, float, float]:
    """Return effective accuracy without and with second opinions, and their share."""
    fleet, plan = prepared_policy(replace(policy, cascade=None))
    assert plan.compiled is not None
    sample = Sample(policy, fleet, policy.load_qps, _PLAYED, _SEED)
    run = replay(fleet, plan.compiled, sample.requests, sample.duration_ms, policy.load_qps)
    alone = float(run.reward[sample.counted].mean())
    if policy.cascade is None:
        return alone, alone, 0.0
    _, outcomes = served(truth_of(policy, truth), fleet, sample.requests)
    in_time = sample.in_time(outcomes.answered_ms, fleet.slo_ms)
    value: FloatArray = outcomes.accuracy[sample.counted] * in_time
    return alone, float(value.mean()), float(outcomes.second_opinion[sample.counted].mean())


def rows_of(family: str) -> Iterator[dict[str, object]]:
    """Play all SLOs, loads and draws of samples of a family."""
    rng = np.random.default_rng([11, FAMILIES.index(family)])
    truth = drawn(family, _TRUTH, rng)
    accuracy = {name: round(float(np.asarray(correct).mean()), 4)
                for name, (correct, _) in truth.items()}
    shipped = load_profile("digits-cpu")
    profile = ProfileSet(family, tuple(
        replace(model, accuracy=accuracy[model.name]) for model in shipped.models
        if model.name in MODELS))
    times = ServiceTimes.of_all(profile, "p95", 32)
    alone = [generate_policy(profile, load_qps, SynthesisSettings(
        slo_ms=slo_ms, workers=WORKERS, service="p95", dispatch="central-queue", headroom=0.0))
        for slo_ms, load_qps in CELLS]
    for seed in range(SEEDS):
        samples = drawn(family, _FEW if family == "few" else _SAMPLES, rng)
        confidences = Confidences.of(samples, seed=seed).calibrated(accuracy)
        for (slo_ms, load_qps), policy in zip(CELLS, alone, strict=True):
            both = with_cascade(policy, confidences, times) if confidences.pairs else policy
            one_model, value, share = delivered(both, truth)
            promise = both.cascade.promise if both.cascade else None
            yield {"family": family, "seed": seed, "slo_ms": slo_ms, "load_qps": load_qps,
                   "one_model": one_model, "delivered": value, "second_opinions": share,
                   "promised_gain": promise.gain if promise else 0.0,
                   "gain_error": promise.gain_error if promise else 0.0}


def sentence_of(rows: pd.DataFrame) -> str:
    """Return what the page says of the rows."""
    gain = rows["delivered"] - rows["one_model"]
    return (f"In {len(rows)} cases with {rows['family'].nunique()} other families of models, "
            f"{int((rows['second_opinions'] > 0).sum())} of them with second opinions, effective "
            f"accuracy rises by {gain.mean():.4f} in the mean over all cases, and by "
            f"{gain.min():.4f} at least.")


if __name__ == "__main__":
    keep_rows(__doc__, "cascade-families", [{"family": family} for family in FAMILIES],
              rows_of, sentence_of)
