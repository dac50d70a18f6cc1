"""Promises with second opinions against simulation, in settings drawn at random.

python scripts/cascade_promises.py

Each setting is played through the command line: ``ramsis generate --cascades``, then ``ramsis
simulate --policy`` on other seeds. Of every fourth policy the simulator of ``ramsis verify``,
which shares nothing with the other one, checks the promise as well.

Drawn are the profile, SLO, workers, load (of the capacity within the SLO), service times and
arrivals; in the last eight settings requests come in bursts. Confidences are measured (the
digits), or drawn: on samples some of which are hard, models err independently but for a stated
share of the samples, the overlap, where they have common luck.

Rows that the file has are not played again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from study import answer_of, keep_rows

from ramsis.cluster import ServiceTimes
from ramsis.policy import Policy, read_set
from ramsis.profiles import Confidences, ProfileSet, load, save
from ramsis.sim.fleet import Fleet
from ramsis.verify.cascade import cascade_checks

PROFILES = ("digits-cpu", "digits-cpu", "text-cpu", "image-cpu")
SERVICES = ("p95", "mean", "distribution")
ARRIVALS = ("poisson", "poisson", "poisson", "renewal:1.5")
BURSTY, BURSTY_FROM = ("renewal:2", "mmpp:ratio=2,burst-ms=200,share=0.2"), 32
_SAMPLES, _REQUESTS, _SEEDS, _FIRST_SEED = 20_000, 600_000, 8, 5_000
_SLOS = 200.0  # that a run lasts at least: with idle workers at first, 20 delivered 0.002 more


def drawn_confidences(profile: ProfileSet, overlap: float, seed: int) -> ProfileSet:
    """Return a profile whose models err together on a share of the samples, else independently."""
    rng = np.random.default_rng(seed)
    hardness, common = rng.random((2, _SAMPLES))
    samples = {}
    for model in profile.models:
        luck = np.where(rng.random(_SAMPLES) < overlap, common, rng.random(_SAMPLES))
        # Errors grow with the hardness, to as many as the accuracy says.
        right = luck > np.minimum(3.0 * (1.0 - model.accuracy) * hardness**2, 1.0)
        samples[model.name] = right, 1.0 - hardness + rng.normal(0.0, 0.1, _SAMPLES)
    accuracy = {model.name: model.accuracy for model in profile.models}
    return replace(profile, confidences=Confidences.of(samples, seed=seed).calibrated(accuracy))


def drawn_setting(number: int) -> tuple[ProfileSet, dict[str, Any]]:
    """Return the profile and the terms of a setting, drawn by its number."""
    rng = np.random.default_rng([7, number])
    name = PROFILES[rng.integers(len(PROFILES))]
    profile, overlap = load(name), None
    if name != PROFILES[0] or rng.random() < 0.3:
        overlap = round(float(rng.uniform(0.2, 1.0)), 2)
        profile = drawn_confidences(profile, overlap, number)
    service = SERVICES[rng.integers(len(SERVICES))]
    slowest_ms = float(ServiceTimes.of_all(profile, "p95", 1).quantiles_ms.max())
    slo_ms = float(f"{slowest_ms * 0.5 * 4.0 ** rng.random():.3g}")
    workers = int(rng.integers(1, 9))
    share = round(float(rng.uniform(0.2, 0.8)), 3)
    arrivals = ARRIVALS if number < BURSTY_FROM else BURSTY
    capacity_qps = Fleet.of(profile, workers=workers, slo_ms=slo_ms, service="p95").capacity_qps
    return profile, {
        "setting": number, "profile": name, "overlap": overlap, "slo_ms": slo_ms,
        "workers": workers, "load_qps": float(f"{share * capacity_qps:.3g}"), "share": share,
        "service": service, "arrivals": arrivals[rng.integers(len(arrivals))]}


def played(setting: int) -> Iterator[dict[str, Any]]:
    """Play the setting of a number."""
    start = time.perf_counter()
    profile, terms = drawn_setting(setting)
    with TemporaryDirectory() as folder:
        file, out = Path(folder) / "profile.json", Path(folder) / "policies"
        save(profile, file)
        common = ("--profiles", file, "--slo-ms", terms["slo_ms"], "--workers", terms["workers"],
                  "--load", terms["load_qps"], "--service", terms["service"], "--arrivals",
                  terms["arrivals"])
        answer_of("generate", *common, "--dispatch", "central-queue", "--cascades", "--out", out)
        policy: Policy = read_set(out).levels[0].stations[0].policy
        (row,) = answer_of("simulate", *common, "--policy", out, "--seed", _FIRST_SEED, "--seeds",
                        _SEEDS, "--monitor", "off", "--duration-s",
                        round(max(_REQUESTS / _SEEDS / terms["load_qps"],
                                  _SLOS * terms["slo_ms"] / 1000.0), 3))["rows"]
    cascade = policy.cascade
    promise = policy.expectations if cascade is None else cascade.promise
    half_width = (cascade.promise.effective_half_width if cascade is not None
                  else policy.replay.effective_half_width if policy.replay else 0.0)
    checked = cascade is not None and setting % 4 == 0
    yield {**terms, "promised": promise.effective_accuracy, "promised_half_width": half_width,
            "simulated": row["effective_accuracy"],
            "simulated_half_width": row["effective_accuracy_half_width"],
            "violations": row["violation_rate"], "bound": row["upper_bound"],
            "second_opinions": row.get("second_opinions"),
            "verified": all(check.holds for check in cascade_checks(policy)) if checked else None,
            "seconds": round(time.perf_counter() - start, 1)}


def sentence_of(rows: pd.DataFrame) -> str:
    """Return what the page says of the rows."""
    difference = (rows["simulated"] - rows["promised"]).abs()
    modes = rows["arrivals"].str.startswith("mmpp")
    return (f"In {len(rows)} settings drawn at random, {rows['second_opinions'].count()} of them "
            f"with second opinions, simulated effective accuracy is within "
            f"{difference[~modes].max():.4f} of the promised one, and within "
            f"{difference[modes].max():.4f} under Markov-modulated arrivals, whose intervals are "
            "wider.")


if __name__ == "__main__":
    keep_rows(__doc__, "cascade-promises", [{"setting": number} for number in range(40)],
              played, sentence_of)
