"""Checks of promises of policies for the shipped profiles.

What is simulated are the service times of the profile, not those of the policy's file, each
request judged by its own deadline. Runs are independent; workers, idle at first, have
:data:`SETTLES` SLOs to settle before anything counts.
"""

from __future__ import annotations

import math
import time
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit
from study import Figure, Row, Verdict, spread

from ramsis.cluster import ServiceTimes
from ramsis.policy import Policy
from ramsis.profiles import load
from ramsis.sim import (
    ConstantLoad,
    Fleet,
    Fleets,
    FleetScheduler,
    Greedy,
    Policies,
    SimulationSettings,
    SlowSpells,
)
from ramsis.sim.experiment import largest_batch, run_cluster
from ramsis.sim.plan import ClusterPlan
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis import simulated as promises
from ramsis.synthesis.simulated import SETTLES
from ramsis.verify.replay import figure_of, played

RUNS = 10
SEED = 7 << 24
"""Seeds are none of those by which policies are chosen, measured or verified."""
FLEETS = (("digits-cpu", 25.0, 4), ("text-cpu", 95.0, 20), ("image-cpu", 350.0, 60))


@dataclass(frozen=True)
class Setting:
    """What a policy is made for."""

    profile: str
    slo_ms: float
    workers: int
    load_qps: float
    share: float  # of the capacity that the load is
    dispatch: str
    options: Mapping[str, Any] = field(default_factory=dict)  # of SynthesisSettings

    def policy(self, dispatch: str | None = None, **options: Any) -> Policy:
        """Return the policy that is made for it, or for another dispatch rule or options."""
        return generate_policy(profile_of(self.profile), self.load_qps, SynthesisSettings(
            slo_ms=self.slo_ms, workers=self.workers, dispatch=dispatch or self.dispatch,
            **{**self.options, **options}))


profile_of = cache(load)


@cache
def _times(profile: str, service: str, max_batch: int) -> ServiceTimes:
    return ServiceTimes.of(profile_of(profile), service, max_batch)


def capacity_qps(
    profile: str, slo_ms: float, workers: int, dispatch: str, **options: Any
) -> float:
    """Return the largest load that can be answered in time with times that policies know."""
    chosen = SynthesisSettings(slo_ms=slo_ms, workers=workers, dispatch=dispatch, **options)
    times = _times(profile, chosen.chosen_service(profile_of(profile)), chosen.max_queue)
    rate = (1 + np.arange(times.max_batch)) / times.mean_ms
    return 1000.0 * workers * float(rate[times.cdf(slo_ms) > 0.0].max())


def of_share(
    profile: str, slo_ms: float, workers: int, share: float, dispatch: str, **options: Any
) -> Setting:
    """Return the setting with a share of the capacity as its load, rounded to three digits."""
    load_qps = float(f"{share * capacity_qps(profile, slo_ms, workers, dispatch, **options):.3g}")
    return Setting(profile, slo_ms, workers, load_qps, share, dispatch, options)


def measured(
    scheduler: FleetScheduler, setting: Setting, queries: int, *, service: str,
    slower: float = 1.0, spells: SlowSpells | None = None, price: float = 1.0,
) -> Row:
    """Return means over the runs of a scheduler, and ``NAME_error``, the means' standard errors.

    ``queries`` is the number in all runs together; no run is shorter than 12 SLOs. Service times
    are ``slower`` times as long. ``gain`` is effective accuracy less price times violation rate.
    """
    fleet = Fleet.of(profile_of(setting.profile), workers=setting.workers, slo_ms=setting.slo_ms,
                     service=service, max_batch=largest_batch([scheduler]))
    fleet = replace(fleet, service_times=fleet.service_times.scaled(slower))
    plan = ClusterPlan.of_one(scheduler.prepare(fleet), Fleets.of_one(fleet))
    since_ms = SETTLES * setting.slo_ms
    until_ms = since_ms + max(1000.0 * queries / RUNS / setting.load_qps, 12.0 * setting.slo_ms)
    workload = ConstantLoad(setting.load_qps, until_ms + setting.slo_ms)
    runs = []
    for seed in range(SEED, SEED + RUNS):
        run = run_cluster(plan, workload, seed,
                          SimulationSettings(monitor=False, slow_spells=spells))
        first, last = np.searchsorted(run.arrival_ms, [since_ms, until_ms])
        reward, late = run.reward[first:last].mean(), 1.0 - run.in_time[first:last].mean()
        runs.append({"effective_accuracy": reward, "violation_rate": late,
                     "gain": reward - price * late})
    table = pd.DataFrame(runs)
    figures = pd.concat([table.mean(), table.sem().add_suffix("_error")])
    return {str(name): value for name, value in figures.items()}


# Promise against simulation. The profile is one of the three shipped, the SLO from the fastest
# latency to 20 times it and the workers from 1 to 200, both uniform in the logarithm, the load
# uniform from 20 to 110 % of the capacity. Effective accuracy in simulation may differ by 0.003
# and three standard errors; where the promise was measured its own standard error counts, too.

KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("round-robin", {}), ("round-robin", {"batching": "variable", "max_queue": 12}),
    ("shortest-queue", {}), ("central-queue", {}))
"""Longer queues make variable batching take a minute where service times are drawn."""
DRAWN = 300


def random_settings(given: Namespace) -> list[Setting]:
    """Draw settings of all kinds by a seed."""
    rng = np.random.default_rng(given.seed)
    settings = []
    for _ in range(DRAWN):
        name = ("digits-cpu", "text-cpu", "image-cpu")[rng.integers(3)]
        fastest_ms = float(profile_of(name).latency_table("p95", 1).latency_ms.min())
        slo_ms = fastest_ms * 20.0 ** rng.random()
        workers = round(200 ** rng.random())
        share = round(float(rng.uniform(0.2, 1.1)), 3)
        dispatch, options = KINDS[rng.integers(len(KINDS))]
        settings.append(of_share(name, math.ceil(1000.0 * slo_ms) / 1000.0, workers, share,
                                 dispatch, **options))
    return settings


def near_capacity(given: Namespace) -> list[Setting]:
    """Return settings up to and beyond the capacity of 300 workers."""
    return [of_share(profile, slo_ms, 300, share, "central-queue", service="p95")
            for profile, slo_ms in (("digits-cpu", 3.0), ("text-cpu", 95.0), ("image-cpu", 350.0))
            for share in (0.9, 0.95, 1.0, 1.05)]


def promise(setting: Setting, shorter: int) -> Row:
    """Return the promise of a policy, and what the policy does."""
    policy, queries, error = setting.policy(), 200_000 // shorter, 0.0
    if (replay := policy.replay) is not None:  # what collapses slowly is measured over as long
        queries = max(queries, RUNS * replay.queries // replay.runs)
        error = replay.effective_half_width / float(stdtrit(replay.runs - 1, 0.975))
    return {"promised": policy.expectations.effective_accuracy,
            "promised_violations": policy.expectations.violation_rate,
            "promised_error": error, "simulated": measured(
                Policies((policy,)), setting, queries, service=policy.service)}


def judge_promises(rows: pd.DataFrame, upto: float) -> Verdict:
    """Hold differences up to a share of the capacity to what is allowed."""
    difference = (rows["simulated.effective_accuracy"] - rows["promised"]).abs()
    allowed = 0.003 + 3.0 * np.hypot(rows["promised_error"],
                                     rows["simulated.effective_accuracy_error"])
    judged = rows["share"] <= upto
    wrong = judged & (difference > allowed)
    return [Figure(f"settings up to {upto:g} of the capacity", judged.sum()),
            Figure("of these with larger differences than allowed", wrong.sum(), 0),
            Figure("their largest difference", difference[judged].max()),
            Figure("their mean difference", difference[judged].mean()),
            Figure("largest difference beyond", difference[~judged].max())], {"difference": wrong}


# Few workers. The gain of the central queue in simulation is at least that of the per-worker
# policy and of greedy (which drops what is late), less 0.0005 and what chance makes of it; one
# worker's central queue knows all that the worker's own queue does, and may also wait. Synthesis
# of a central queue takes at most 3 s of processor time.

OTHERS = ("per_worker", "greedy")


def few_workers(given: Namespace) -> list[Setting]:
    """Return twenty loads from 5 to 95 % of the capacity of one to four workers."""
    return [of_share(profile, slo_ms, workers, round(float(share), 4), "central-queue")
            for profile, slo_ms, _ in FLEETS for workers in (1, 2, 3, 4)
            for share in np.linspace(0.05, 0.95, 20)]


def beside_others(setting: Setting, shorter: int) -> Row:
    """Return the figures of three schedulers on the same arrivals."""
    start_s = time.process_time()
    central = setting.policy()
    synthesis_s = time.process_time() - start_s
    schedulers: dict[str, FleetScheduler] = {
        "central": Policies((central,)), "greedy": Greedy(late="drop"),
        "per_worker": Policies((setting.policy("round-robin"),))}
    return {"synthesis_s": round(synthesis_s, 2), **{
        name: measured(scheduler, setting, 400_000 // shorter, service=central.service,
                       price=central.violation_price) for name, scheduler in schedulers.items()}}


def judge_others(rows: pd.DataFrame) -> Verdict:
    """Hold the gain of central queues to that of the others."""
    figures, misses = [], {"slow synthesis": rows["synthesis_s"] > 3.0}
    for other in OTHERS:
        ahead = rows["central.gain"] - rows[f"{other}.gain"]
        chance = 2.0 * np.hypot(rows["central.gain_error"], rows[f"{other}.gain_error"])
        below = misses[f"below {other}"] = ahead < -(0.0005 + chance)
        figures += [Figure(f"settings below {other}", below.sum(), 0),
                    Figure(f"least gain over {other}", ahead.min()),
                    Figure(f"mean gain over {other}", ahead.mean())]
    return [*figures, Figure("longest synthesis (s)", rows["synthesis_s"].max(), 3.0)], misses


# Headroom. By default at most 0.003 of effective accuracy may be given up as promised, 0.001 on
# average. Policies by default and those planned as profiled are simulated with service times as
# profiled, 10 % longer, and with slow spells: over the settings those by default have at most a
# quarter of the others' violations with the longer times, and fewer in slow spells. What the file
# states of violations at longer times is within a fifth of the simulated rate, or 0.0005, and with
# the usual times a policy by default has at most 0.0002 more violations than the other.

TIMES: Mapping[str, Mapping[str, Any]] = {
    "usual": {}, "slower": {"slower": 1.1},
    "spells": {"spells": SlowSpells(share=0.05, factor=3.0, length_ms=100.0)}}


def headroom_settings(given: Namespace) -> list[Setting]:
    """Return settings from 40 to 90 % of the capacity."""
    return [of_share(*fleet, share, ("round-robin", "central-queue")[(i + j) % 2])
            for i, fleet in enumerate(FLEETS)
            for j, share in enumerate((0.4, 0.55, 0.7, 0.8, 0.9))]


def with_and_without_headroom(setting: Setting, shorter: int) -> Row:
    """Return promises of both policies, and what they do at three kinds of service times."""
    row: Row = {}
    for kind, policy in (("robust", setting.policy()), ("pure", setting.policy(headroom=0.0))):
        row[kind] = {"promised": policy.expectations.effective_accuracy,
                     "factor": policy.planned_factor, **{
                         times: measured(Policies((policy,)), setting, 400_000 // shorter,
                                         service=policy.service, **terms)
                         for times, terms in TIMES.items()}}
        if policy.headroom is not None:
            row["stated"] = policy.headroom.slower_violation_rate
    return row


def judge_headroom(rows: pd.DataFrame) -> Verdict:
    """Hold headroom to be cheap, to help, and to be stated rightly."""
    lost = rows["pure.promised"] - rows["robust.promised"]
    late = {times: (rows[f"robust.{times}.violation_rate"], rows[f"pure.{times}.violation_rate"])
            for times in TIMES}

    def more(times: str, allowed: float) -> pd.Series[bool]:
        """Tell where headroom has more violations, by more than chance and what is allowed."""
        robust, pure = late[times]
        chance = 3.0 * np.hypot(rows[f"robust.{times}.violation_rate_error"],
                                rows[f"pure.{times}.violation_rate_error"])
        return robust > pure + chance + allowed

    slower = late["slower"][0]
    wrong = (rows["stated"] - slower).abs() > (0.2 * slower).clip(lower=5e-4) + (
        3.0 * rows["robust.slower.violation_rate_error"])
    ratio = {times: robust.mean() / pure.mean() for times, (robust, pure) in late.items()
             if times != "usual"}
    misses = {"loss as promised": lost > 0.003, "violations stated wrongly": wrong,
              "more violations": more("usual", 2e-4)}
    return [Figure("largest loss as promised", lost.max(), 0.003),
            Figure("mean loss as promised", lost.mean(), 0.001),
            Figure("violations at 10 % longer times, beside those without", ratio["slower"], 0.25),
            Figure("violations in slow spells, beside those without", ratio["spells"],
                   np.nextafter(1.0, 0.0)),
            Figure("violations at 10 % longer times stated wrongly", wrong.sum(), 0),
            Figure("settings with more violations than without",
                   misses["more violations"].sum(), 0)], misses


# All measured figures of a promise against ramsis.verify.simulator, which shares nothing with the
# simulator of promises, and plays the file's table on a million other requests. A figure may
# differ by a share of it, or by an absolute difference, and by what the other simulator errs.

ALLOWED = {
    "utilisation": (0.01, 0.003), "batch_size.mean": (0.01, 0.003),
    "queue_length.mean": (0.01, 0.003), "response_p50_ms": (0.03, 0.0),
    "response_p99_ms": (0.05, 0.0), "effective_accuracy": (0.0, 0.003),
    "violation_rate": (0.0, 0.003)}


def quick_to_settle(given: Namespace) -> list[Setting]:
    """Return sixty of the random settings in which a run settles within 200,000 requests."""
    return spread([one for one in random_settings(given)
                   if one.load_qps / 1000.0 * one.slo_ms * SETTLES <= 2e5], 60)


def all_figures(setting: Setting, shorter: int) -> Row:
    """Return each figure as promised and as simulated."""
    policy = setting.policy()
    simulated = played(policy, queries=1_000_000 // shorter, runs=8, seed=SEED)
    return {"replayed": policy.replay is not None, "figures": [
        {"name": name, "promised": figure_of(policy.expectations, name),
         "simulated": simulated[name].mean, "error": simulated[name].half_width or 0.0}
        for name in ALLOWED if name in simulated]}


def judge_figures(rows: pd.DataFrame) -> Verdict:
    """Hold each figure to what is allowed."""
    by_row = rows["figures"].explode()
    table = pd.DataFrame(by_row.tolist(), index=by_row.index)
    share, absolute = np.array([ALLOWED[name] for name in table["name"]]).T
    allowed = np.maximum(share * table["simulated"].abs(), absolute) + table["error"]
    # Not ">": a figure that is not promised at all is off, too.
    off = ~((table["promised"] - table["simulated"]).abs() <= allowed)
    return [Figure("settings of which figures are measured", rows["replayed"].sum()),
            Figure("figures", len(table)),
            Figure("figures that differ by more than is allowed", off.sum(), 0)
            ], {"figures": off.groupby(level=0).any()}


# Near the capacity a promise is within its own half-width of the truth, which is a measurement of
# sixteen times as many requests with other seeds: at least 27 of 30, and the mean error is below
# 0.0002.


def at_capacity(given: Namespace) -> list[Setting]:
    """Draw loads from 90 to 105 % of the capacity for both ways of dispatch."""
    rng = np.random.default_rng(given.seed)
    return [of_share(*fleet, round(float(rng.uniform(0.9, 1.05)), 3), dispatch)
            for fleet in FLEETS for _ in range(5) for dispatch in ("round-robin", "central-queue")]


def error_of_promise(setting: Setting, shorter: int) -> Row:
    """Return a promise with its half-width, and the truth."""
    policy = setting.policy()
    if (replay := policy.replay) is None:
        return {"error": "its promise is not measured"}
    queries = min(16 * replay.queries, 30_000_000) // shorter
    found, truth = promises.measured(policy, queries=queries, runs=16, seed=SEED)
    return {"promised": policy.expectations.effective_accuracy,
            "half_width": replay.half_widths["effective_accuracy"],
            "simulated": found["effective_accuracy"],
            "error_of_truth": truth.half_widths["effective_accuracy"]}


def judge_intervals(rows: pd.DataFrame) -> Verdict:
    """Hold errors to half-widths."""
    error = rows["promised"] - rows["simulated"]
    outside = error.abs() > rows["half_width"]
    return [Figure("promises outside their half-width", outside.sum(), 3 * len(rows) // 30),
            Figure("mean error, either sign", abs(error.mean()), 2e-4),
            Figure("mean size of an error", error.abs().mean()),
            Figure("mean half-width", rows["half_width"].mean())], {"outside": outside}
