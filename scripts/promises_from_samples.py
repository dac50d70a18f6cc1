"""Checks of promises of policies that are made from samples of service times.

Results of the checks raw and few-samples come from a simulator of its own
(``tests/sim/raw_replay.py``), which reads the policy file by itself and decides as
``ramsis.runtime`` does; each service time is one of the raw samples of the size to run.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from promises_on_profiles import capacity_qps
from study import Figure, Row, Verdict

from ramsis import load_profile
from ramsis.cluster.service_times import DISTRIBUTION, ServiceTimes
from ramsis.errors import InfeasibleError
from ramsis.policy import Policy
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.simulated import simulated
from tests.sim.raw_replay import replayed
from tests.sim.raw_samples import (
    DIFFERING,
    LARGEST,
    LAWS,
    Measured,
    Samples,
    heavy,
    one_model,
)

# Policies from samples with heavy tails (log-normal, bimodal, one outlier in 500), replayed on
# these samples. A promise holds when the violation rate is within 25 % or 0.0002 of its interval,
# and the effective accuracy within 0.002; a budget, when the rate is no higher, by twice its
# standard error.

PER_WORKER, CENTRAL = "round-robin", "central-queue"
STATIONS = (
    (PER_WORKER, 1, 60.0, 60.0), (PER_WORKER, 1, 150.0, 60.0), (PER_WORKER, 2, 100.0, 60.0),
    (PER_WORKER, 2, 250.0, 90.0), (PER_WORKER, 4, 600.0, 60.0),
    (CENTRAL, 1, 60.0, 60.0), (CENTRAL, 2, 60.0, 60.0), (CENTRAL, 12, 900.0, 60.0),
    (CENTRAL, 12, 2400.0, 60.0), (CENTRAL, 4, 300.0, 60.0),
)
"""Dispatch, workers, QPS, SLO in ms."""
LARGEST_OF_CENTRAL = 9
"""Largest batch of central queues: a queue of any length is in their tables, others' no longer
than the largest batch."""


@dataclass(frozen=True)
class RawCase:
    """A policy from samples of a law."""

    law: str
    dispatch: str
    workers: int
    load_qps: float
    slo_ms: float
    samples: int
    budget: float | None
    seed: int


def raw_cases(given: Namespace) -> list[RawCase]:
    """Return all laws and stations, first without a budget."""
    return [RawCase(law, *station, given.samples or 2000, budget, given.seed)
            for budget in (None, *given.budgets) for law in LAWS for station in STATIONS]


def replayed_promise(case: RawCase, shorter: int) -> Row:
    """Return what was promised and what was delivered, or why a budget was refused."""
    largest = LARGEST if case.dispatch == PER_WORKER else LARGEST_OF_CENTRAL
    measured = Measured.of(LAWS[case.law], case.samples, case.seed, largest=largest)
    settings = SynthesisSettings(
        slo_ms=case.slo_ms, workers=case.workers, dispatch=case.dispatch,
        max_queue=largest - (case.dispatch == PER_WORKER), max_violation=case.budget)
    try:
        policy = generate_policy(measured.profile, case.load_qps, settings)
    except InfeasibleError as refusal:
        return {"refused": str(refusal),
                "holds": "samples or more" in str(refusal) or "at least" in str(refusal)}
    found = replayed(policy, measured.samples, 3_000_000 // shorter, case.seed)
    expected = policy.expectations
    assert expected.interval is not None
    low, high = expected.interval.violation_rate
    within = (min(0.75 * low, low - 2e-4) <= found.violation_rate
              <= max(1.25 * high, high + 2e-4))
    close = abs(found.effective_accuracy - expected.effective_accuracy) <= 0.002
    kept = case.budget is None or found.violation_rate - 2.0 * found.error <= case.budget
    return {"holds": within and close and kept, "promised": expected.violation_rate,
            "interval": [low, high], "accuracy": expected.effective_accuracy,
            **{f"replayed_{name}": value for name, value in found._asdict().items()}}


def judge_replays(rows: pd.DataFrame) -> Verdict:
    """Hold all replays to their promises."""
    refused = rows["refused"].notna().sum() if "refused" in rows else 0
    return [Figure("promises or budgets that do not hold", (~rows["holds"]).sum(), 0),
            Figure("budgets refused for want of samples", refused)], {"miss": ~rows["holds"]}


# A hundred samples of each batch, drawn from a shipped profile's own distributions, beside ten
# thousand. The upper end of the violation rate's interval from few is no less than the rate of its
# policy replayed on the many; that it is at most five times the end from many is counted. A budget
# of 1 % holds when the policy that is made within it from few samples meets it in such a replay,
# by twice the replay's standard error.

MANY, MANY_SEED, BUDGET, LARGEST_SHIPPED = 10_000, 10**6, 0.01, 32


@dataclass(frozen=True)
class FewCase:
    """What policies are made for."""

    profile: str
    slo_ms: float
    workers: int
    dispatch: str
    share: float  # of the capacity that the load is
    samples: int  # of each batch
    seed: int  # of the samples


def few_cases(given: Namespace) -> list[FewCase]:
    """Draw twenty settings of two shipped profiles, always the same."""
    rng = np.random.default_rng(1)
    cases = []
    for i in range(20):
        profile, shortest_ms = (("text-cpu", 60.0), ("image-cpu", 120.0))[i % 2]
        cases.append(FewCase(
            profile, round(float(np.exp(rng.uniform(*np.log([shortest_ms, 500.0])))), 1),
            int(rng.choice([1, 4, 12, 60])), (PER_WORKER, CENTRAL)[i // 2 % 2],
            round(float(rng.uniform(0.2, 0.9)), 3), given.samples or 100,
            1000 * (given.seed - 1) + i))
    return cases


@cache
def drawn_samples(profile: str, count: int, seed: int) -> Samples:
    """Draw samples of each batch from a shipped profile's own distributions."""
    rng = np.random.default_rng(seed)
    times = ServiceTimes.of_all(load_profile(profile), DISTRIBUTION, LARGEST_SHIPPED)
    return {name: {size: np.interp(rng.random(count), times.levels, of_model[size - 1])
                   for size in range(1, LARGEST_SHIPPED + 1)}
            for name, of_model in zip(times.models, times.quantiles_ms, strict=True)}


def few_and_many(case: FewCase, shorter: int) -> Row:
    """Return the upper ends, and what the policies from few samples do on many."""
    few = drawn_samples(case.profile, case.samples, case.seed)
    many = drawn_samples(case.profile, MANY, MANY_SEED)
    shipped: ProfileSet = load_profile(case.profile)
    load_qps = round(case.share * capacity_qps(
        case.profile, case.slo_ms, case.workers, case.dispatch), 1)

    def outcome(samples: Samples, budget: float | None = None) -> Row:
        profile = replace(shipped, models=tuple(
            ModelProfile(model.name, model.accuracy, tuple(
                BatchProfile.from_samples(one.batch, samples[model.name][one.batch])
                for one in model.batches))
            for model in shipped.models))
        policy = generate_policy(profile, load_qps, SynthesisSettings(
            slo_ms=case.slo_ms, workers=case.workers, dispatch=case.dispatch,
            max_violation=budget))
        expected = policy.expectations
        upper = None if expected.interval is None else expected.interval.violation_rate[1]
        return {"promised": expected.violation_rate, "accuracy": expected.effective_accuracy,
                "upper_end": upper, **replayed(policy, many, 1_000_000 // shorter, 1)._asdict()}

    row: Row = {"load_qps": load_qps, "few": outcome(few), "many": outcome(many)}
    try:
        row["budget"] = outcome(few, BUDGET)
    except InfeasibleError as refusal:
        row["refused"] = str(refusal)
    return row


def judge_few(rows: pd.DataFrame) -> Verdict:
    """Hold upper ends and budgets."""
    nowhere = pd.Series(np.nan, rows.index)
    budget = rows.get("budget.violation_rate", nowhere) - 2.0 * rows.get("budget.error", nowhere)
    misses = {
        "wide": rows["few.upper_end"] > 5.0 * rows["many.upper_end"],
        "below": rows["few.violation_rate"] - 2.0 * rows["few.error"] > rows["few.upper_end"],
        "budget": ~(budget <= BUDGET)}  # a refused one is no policy
    return [Figure("upper ends of more than five times those from many", misses["wide"].sum()),
            Figure("upper ends below the replay", misses["below"].sum(), 0),
            Figure("budgets that are not kept", misses["budget"].sum(), 0)], misses


# Profiles of samples that are drawn anew from a known law of service times (those above, a power,
# or models of which each has another one), a policy from each, and its interval. The truth is the
# violation rate of the same table under the law itself, in a simulation with the distribution of
# 400,000 samples.

TRUE_SAMPLES = 400_000


class Kind(NamedTuple):
    """What policies are made of."""

    profile: Callable[[str, int, int], ProfileSet]  # of a law, so many samples and a seed
    laws: tuple[str, ...]
    load_qps: float
    settings: SynthesisSettings


ALL_LAWS: Mapping[str, Any] = {**LAWS, "heavy": heavy, "differing": DIFFERING}


def _profile(law: str, samples: int, seed: int) -> ProfileSet:
    return Measured.of(ALL_LAWS[law], samples, seed, dip=False).profile


KINDS = {
    "small": Kind(one_model, tuple(LAWS), 20.0, SynthesisSettings(
        slo_ms=40.0, workers=1, max_queue=2, late="drop", grid="fixed:20")),
    "chosen": Kind(_profile, tuple(ALL_LAWS), 60.0, SynthesisSettings(
        slo_ms=60.0, workers=1, max_queue=8, grid="fixed:40")),
    "central": Kind(_profile, tuple(ALL_LAWS), 100.0, SynthesisSettings(
        slo_ms=60.0, workers=2, max_queue=9, dispatch=CENTRAL)),
}


@dataclass(frozen=True)
class CoverageCase:
    """A draw of samples."""

    kind: str
    law: str
    samples: int
    seed: int


def coverage_cases(given: Namespace) -> list[CoverageCase]:
    """Return as many draws as are asked for of each kind and law."""
    return [CoverageCase(name, law, given.samples or 500, seed)
            for name, kind in KINDS.items() for law in kind.laws for seed in range(given.draws)]


@cache
def true_times(kind: str, law: str) -> ServiceTimes:
    """Return service times by the law itself, as far as it matters."""
    return ServiceTimes.of_all(KINDS[kind].profile(law, TRUE_SAMPLES, 10**6), DISTRIBUTION,
                               KINDS[kind].settings.max_queue + 1)


def true_rate(policy: Policy, times: ServiceTimes, queries: int) -> float:
    """Return the violation rate of a policy's table under other service times."""
    models = []
    for model in policy.models:
        own = times.quantiles_ms[times.models.index(model.name)][:len(model.quantiles_ms or ())]
        models.append(replace(model, samples=None, quantiles_ms=tuple(map(tuple, own.tolist()))))
    true = replace(policy, models=tuple(models), quantile_levels=times.levels)
    return simulated(true, queries=queries, runs=4, seed=7).violation_rate


def interval_and_truth(case: CoverageCase, shorter: int) -> Row:
    """Return the interval of one draw, and the truth."""
    kind = KINDS[case.kind]
    policy = generate_policy(kind.profile(case.law, case.samples, case.seed), kind.load_qps,
                             kind.settings)
    expected = policy.expectations
    assert expected.interval is not None
    low, high = expected.interval.violation_rate
    return {"promised": expected.violation_rate, "low": low, "high": high,
            "deviation": (expected.violation_rate / expected.interval.samples) ** 0.5,
            "truth": true_rate(policy, true_times(case.kind, case.law), 1_000_000 // shorter)}


def judge_coverage(rows: pd.DataFrame) -> Verdict:
    """Count where the truth is, and print how wide intervals are; nothing is held to a limit."""
    figures = []
    below, above = rows["truth"] < rows["low"], rows["truth"] > rows["high"]
    for (kind, law), draws in rows.groupby(["kind", "law"]):
        name = f"{kind}, {law}"
        figures += [
            Figure(f"{name}: intervals of {len(draws)} that cover the truth",
                   (~(below | above))[draws.index].sum()),
            Figure(f"{name}: truth below", below[draws.index].sum()),
            *(Figure(f"{name}: mean {column}", draws[column].mean())
              for column in ("truth", "promised", "low", "high")),
            Figure(f"{name}: standard deviation of promises", draws["promised"].std(ddof=0)),
            Figure(f"{name}: the same by the influence of samples", draws["deviation"].mean())]
    return figures, {}
