"""How often the interval of a promise covers the truth.

Profiles of samples that are drawn anew from a known law of service times (log-normal, bimodal, one
outlier in 500, a power; or models of which each has another one), a policy from each, and its
interval at 95 %. The truth is the violation rate of
the same table under the law itself, in a simulation with the distribution of 400,000 samples; of
shipped profiles, which samples are drawn from, their own distributions.

Results are appended to a file of JSON lines, and those that are there are not made again.

python scripts/interval_coverage.py [--kinds small chosen central] [--repetitions 100]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import evaluation.command  # noqa: F401 - sets the threads before anything is loaded
import numpy as np
from acceptance.results import Results
from study import parser_of

from ramsis import load_profile
from ramsis.cluster.service_times import DISTRIBUTION, ServiceTimes
from ramsis.policy import Policy
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.simulated import simulated
from tests.sim.raw_samples import DIFFERING, LAWS, Measured, heavy, one_model

_TRUE_SAMPLES, _TRUE_SEED = 400_000, 10**6
_QUERIES = 1_000_000
_LARGEST_SHIPPED = 32


class Kind(NamedTuple):
    """What policies are made of."""

    profile: Callable[[str, int, int], ProfileSet]
    load_qps: float
    settings: SynthesisSettings


_LAWS: dict[str, Any] = {**LAWS, "heavy": heavy, "differing": DIFFERING}


def _measured(law: str, samples: int, seed: int) -> ProfileSet:
    return Measured.of(_LAWS[law], samples, seed, dip=False).profile


def _shipped(name: str, samples: int, seed: int) -> ProfileSet:
    """As many samples of each batch of a shipped profile, drawn from its own distributions."""
    profile: ProfileSet = load_profile(name)
    rng = np.random.default_rng(seed)
    if samples == _TRUE_SAMPLES:
        return profile
    times = ServiceTimes.of_all(profile, DISTRIBUTION, _LARGEST_SHIPPED)
    return replace(profile, models=tuple(
        ModelProfile(model.name, model.accuracy, tuple(
            BatchProfile.from_samples(item.batch, np.interp(
                rng.random(samples), times.levels, times.quantiles_ms[m, item.batch - 1]))
            for item in model.batches))
        for m, model in enumerate(profile.models)))


KINDS = {
    "small": Kind(one_model, 20.0, SynthesisSettings(
        slo_ms=40.0, workers=1, max_queue=2, late="drop", grid="fixed:20")),
    "chosen": Kind(_measured, 60.0, SynthesisSettings(
        slo_ms=60.0, workers=1, max_queue=8, grid="fixed:40")),
    "central": Kind(_measured, 100.0, SynthesisSettings(
        slo_ms=60.0, workers=2, max_queue=9, dispatch="central-queue")),
    "shipped": Kind(_shipped, 100.0, SynthesisSettings(slo_ms=600.0, workers=8)),
    "shipped-central": Kind(_shipped, 100.0, SynthesisSettings(
        slo_ms=600.0, workers=8, dispatch="central-queue")),
}
_SHIPPED = ("text-cpu", "image-cpu")



@cache
def true_profile(kind: str, law: str) -> ProfileSet:
    """The law itself, as far as it matters."""
    return KINDS[kind].profile(law, _TRUE_SAMPLES, _TRUE_SEED)


def truth(kind: str, law: str, policy: Policy) -> float:
    """The violation rate of a policy's table under the law, in simulation."""
    times = ServiceTimes.of_all(true_profile(kind, law), DISTRIBUTION,
                                KINDS[kind].settings.max_queue + 1)
    models = []
    for one in policy.models:
        own = times.quantiles_ms[times.models.index(one.name)][: len(one.quantiles_ms or ())]
        models.append(replace(one, samples=None, quantiles_ms=tuple(map(tuple, own.tolist()))))
    true = replace(policy, models=tuple(models), quantile_levels=times.levels)
    return simulated(true, queries=_QUERIES, runs=4, seed=7).violation_rate


def outcome(kind: str, law: str, samples: int, seed: int) -> dict[str, Any]:
    """The interval of one repetition, and the truth."""
    made = KINDS[kind]
    policy = generate_policy(made.profile(law, samples, seed), made.load_qps, made.settings)
    expected = policy.expectations
    assert expected.interval is not None
    low, high = expected.interval.violation_rate
    return {"promised": expected.violation_rate, "interval": [low, high],
            "deviation": (expected.violation_rate / expected.interval.samples) ** 0.5,
            "truth": truth(kind, law, policy)}


def summary(rows: list[dict[str, Any]]) -> str:
    """Coverage, misses on either side, and how wide the interval is."""
    low, high = np.array([row["interval"] for row in rows]).T
    true = np.array([row["truth"] for row in rows])
    promised = np.array([row["promised"] for row in rows])
    deviation = float(np.mean([row["deviation"] for row in rows]))
    covered = (low <= true) & (true <= high)
    return (f"covers {covered.sum()} of {len(rows)}, {(true < low).sum()} below, "
            f"{(true > high).sum()} above; truth {100 * true.mean():.4f} %, promised "
            f"{100 * promised.mean():.4f} ± {100 * promised.std():.4f} (by the influence "
            f"{100 * deviation:.4f}), interval [{100 * low.mean():.4f}, {100 * high.mean():.4f}]")


def main() -> int:
    """Make what is missing, and say how often the truth is covered."""
    command = parser_of(__doc__)
    command.add_argument("--out", type=Path, metavar="FILE",
                         default=Path("evaluation_out/coverage.jsonl"))
    command.add_argument("--kinds", nargs="+", choices=KINDS, default=["small", "chosen"])
    command.add_argument("--laws", nargs="+", choices=(*_LAWS, *_SHIPPED),
                         default=list(LAWS), help="of service times; the names of profiles "
                         "with the kinds of shipped ones")
    command.add_argument("--repetitions", type=int, default=100)
    command.add_argument("--samples", type=int, default=500, help="of each batch")
    given = command.parse_args()
    results = Results(given.out)
    for kind in given.kinds:
        for law in given.laws:
            rows = [results.row({"kind": kind, "law": law, "samples": given.samples, "seed": seed},
                                partial(outcome, kind, law, given.samples, seed))
                    for seed in range(given.repetitions)]
            print(f"{kind:8} {law:10} {summary(rows)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
