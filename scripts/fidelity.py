"""Promise, simulation and reality: a server on this machine against both.

    python -m pip install -e '.[measure,serve]'
    python scripts/fidelity.py --quick --json fidelity.json

Trains a small model and some of digits-cpu's (kept in --models for the next time), measures
their service times here, and serves held-out images with 1 or 2 workers: by policies of a central
queue and of single workers behind round robin, and by Jellyfish+ and ModelSwitching, each at some
shares of the capacity. Every row has what the policy promises, what simulation shows on the same
arrivals, and what the client saw. Runs before show how much longer each model's batches take
through a busy server than by themselves, and a request for the client than for the server;
policies and simulation are given both, and the capacity is that of the longer times. A run from
which the machine's host took more than 1 % of the time is repeated, and the one that it disturbed
least is kept.

The machine should have a core for each worker, and two for server and client.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from live.baselines import as_policy
from live.fleet import Live, Load, live_run, longer, slower_ms
from live.models import BATCHES, Served, prepared
from numpy.typing import NDArray
from study import parser_of, say

from ramsis.cluster import Cluster
from ramsis.errors import InfeasibleError
from ramsis.files import write_atomic
from ramsis.policy import Policy
from ramsis.policy.policy_set import set_of
from ramsis.profiles import ProfileSet
from ramsis.serving.replanning.on_drift import rescaled
from ramsis.sim import (
    ConstantLoad,
    Fleet,
    JellyfishPlus,
    ModelSwitching,
    Policies,
    Run,
    SimulationResult,
    SimulationSettings,
    simulate,
)
from ramsis.synthesis import SynthesisSettings, generate_policy

PROMISING = ("central-queue", "round-robin")
"""Schemes that promise something."""
CALIBRATIONS, NEAR = 3, 0.05
"""At most so many, until the load changes by no more than this share."""
MOST_STOLEN = 0.01
"""Share of the machine's time that its host may take in a run that is not repeated."""


@dataclass(frozen=True)
class Plan:
    """How much is run."""

    sizes: tuple[int, ...]
    samples: int
    shares: tuple[float, ...]
    duration_s: float
    runs: int
    calibration_s: float
    repeats: int


QUICK = Plan((3200,), 60, (0.7,), 8.0, 1, 4.0, 1)
FULL = Plan((3200, 6400), 400, (0.3, 0.5, 0.7, 0.8, 0.95), 60.0, 3, 20.0, 3)


@dataclass(frozen=True)
class Known:
    """What policies and simulation are told.

    Attributes
    ----------
    profile : ProfileSet
        Service times.
    network_ms : float
        Of a request, from when it was to be sent to when its answer was read, beyond the
        server's time.
    """

    profile: ProfileSet
    network_ms: float


def main() -> None:
    """Run the comparison and write its rows."""
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="within three minutes")
    parser.add_argument("--json", type=Path, required=True, help="file to write")
    parser.add_argument("--models", type=Path, default=Path("build/fidelity"),
                        help="folder that keeps the models")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--slo-ms", type=float,
                        help="by default four times the slowest model's time for one image")
    parser.add_argument("--load-shares", type=_shares, help="of the capacity, as 0.5,0.8")
    parser.add_argument("--duration-s", type=float, help="of a run")
    parser.add_argument("--runs", type=int, help="of each scheduler at each load")
    parser.add_argument("--repeats", type=int,
                        help="of a run from which the host took more than 1 %% of the time")
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    given = {"shares": options.load_shares, "duration_s": options.duration_s,
             "runs": options.runs, "repeats": options.repeats}
    plan = replace(plan, **{key: value for key, value in given.items() if value is not None})
    served = prepared(options.models, plan.sizes, plan.samples)
    slowest = served.profile.latency_table("p95", 1).latency_ms.max()
    slo_ms = options.slo_ms or float(np.ceil(4.0 * slowest))
    case = Case(served, options.workers, slo_ms, plan)
    say(f"SLO {slo_ms:g} ms, capacity {case.fleet(case.alone).capacity_qps:.0f} queries/s by "
        "times alone")
    rows: list[dict[str, Any]] = []
    try:
        for row in (row for share in plan.shares for row in case.rows(share)):
            rows.append(row)
            say("   {simulated_violation_rate:.2%} simulated, {live_violation_rate:.2%} live; "
                "effective accuracy {simulated_effective_accuracy:.4f}, "
                "{live_effective_accuracy:.4f}".format_map(row))
            write_atomic(options.json, json.dumps({
                "workers": options.workers, "slo_ms": slo_ms, "cores": os.cpu_count(),
                "rows": rows}, indent=1) + "\n")
    except InfeasibleError as error:  # so much of the SLO is lost on the way
        raise SystemExit(f"error: the machine is too busy for this SLO: {error}") from error


def _shares(text: str) -> tuple[float, ...]:
    return tuple(float(one) for one in text.split(","))


@dataclass(frozen=True)
class Case:
    """A fleet on this machine."""

    served: Served
    workers: int
    slo_ms: float
    plan: Plan

    @property
    def alone(self) -> Known:
        """What models measured one by one show."""
        return Known(self.served.profile, 0.0)

    def fleet(self, known: Known) -> Fleet:
        """The workers in a simulation."""
        return Fleet.of(known.profile, workers=self.workers,
                        slo_ms=self.slo_ms - known.network_ms,
                        service="distribution", max_batch=BATCHES[-1])

    def policies(self, load_qps: float, known: Known) -> dict[str, Policy]:
        """Of each scheduler, for a load, with time left for the network."""
        def made(dispatch: str, max_queue: int) -> Policy:
            return generate_policy(known.profile, load_qps, SynthesisSettings(
                slo_ms=self.slo_ms - known.network_ms, workers=self.workers, dispatch=dispatch,
                service="distribution", max_queue=max_queue))

        central, fleet = made("central-queue", BATCHES[-1]), self.fleet(known)
        return {"central-queue": central, "round-robin": made("round-robin", BATCHES[-1] - 1),
                "jellyfish-plus": as_policy(JellyfishPlus(), fleet, central),
                "model-switching": as_policy(ModelSwitching(profile_s=5.0), fleet, central)}

    def live(
        self, policy: Policy, load_qps: float, duration_s: float, seed: int, network_ms: float
    ) -> Live:
        """A run of the server: the least disturbed of as many as the plan allows."""
        load = Load(load_qps, duration_s, seed, self.slo_ms)
        runs: list[Live] = []
        while len(runs) <= self.plan.repeats:
            runs.append(live_run(policy, self.served.variants, self.served.data, load,
                                 overhead_ms=network_ms))
            if runs[-1].stolen <= MOST_STOLEN:
                break
            say(f"the host took {runs[-1].stolen:.1%} of a run of {duration_s:g} s")
        return min(runs, key=attrgetter("stolen"))

    def calibrated(self, share: float) -> tuple[Known, float]:
        """What batches and requests take at a share of the capacity, and the load that it is.

        The capacity follows from what they take through a server; so the load is looked for, from
        that of times alone on.
        """
        known, next_qps = self.alone, share * self.fleet(self.alone).capacity_qps
        for _ in range(CALIBRATIONS):
            load_qps = next_qps
            say(f"calibration at {load_qps:.0f} queries/s")
            known = self.known(load_qps)
            if known.network_ms >= self.slo_ms:
                raise InfeasibleError(
                    f"requests take {known.network_ms:.0f} ms more for the client than for the "
                    f"server, with an SLO of {self.slo_ms:g} ms")
            next_qps = share * self.fleet(known).capacity_qps
            if abs(next_qps - load_qps) <= NEAR * load_qps:
                break
        return known, round(min(next_qps, load_qps), 3)

    def known(self, load_qps: float) -> Known:
        """What batches and requests take through a server under a load, by whatever scheduler."""
        first = self.policies(load_qps, self.alone)
        lives = [self.live(policy, load_qps, self.plan.calibration_s, 100, 0.0)
                 for policy in first.values()]
        ratio = longer(self.served.profile, [live.server for live in lives])
        network_ms = float(np.median([slower_ms(live) for live in lives]))
        say(f"batches take {', '.join(f'{by:.2f}' for by in ratio.values())} times as long as "
            f"alone, a request {network_ms:.2f} ms more for the client than for the server")
        return Known(rescaled(self.served.profile, ratio), network_ms)

    def rows(self, share: float) -> Iterator[dict[str, Any]]:
        """Every scheduler at a share of the capacity, which is that of calibrated times."""
        known, load_qps = self.calibrated(share)
        for scheduler, policy in self.policies(load_qps, known).items():
            say(f"{scheduler} at {load_qps:.0f} queries/s")
            row = self.row(policy, load_qps, known)
            if scheduler not in PROMISING:
                row["promised_effective_accuracy"] = row["promised_violation_rate"] = None
            yield {"load_qps": load_qps, "load_share": share, "scheduler": scheduler,
                   "network_ms": known.network_ms,
                   "times_longer": known.profile.measurement["rescaled"], **row}

    def row(self, policy: Policy, load_qps: float, known: Known) -> dict[str, Any]:
        """Promise, simulation and reality of a policy."""
        seeds = range(self.plan.runs)
        simulated = [self.simulated(policy, load_qps, known, seed) for seed in seeds]
        lives = [self.live(policy, load_qps, self.plan.duration_s, seed, known.network_ms)
                 for seed in seeds]
        own = [self.simulated(policy, load_qps, replace(known, profile=rescaled(
            self.served.profile, longer(self.served.profile, [live.server]))), seed)
            for seed, live in zip(seeds, lives, strict=True)]
        return {
            "promised_effective_accuracy": policy.expectations.effective_accuracy,
            "promised_violation_rate": policy.expectations.violation_rate,
            **figures(simulated, "simulated"),
            **live_figures(lives),
            "batch_total_variation": distance(simulated, lives),
            **figures(own, "own_times"),
            "own_times_batch_total_variation": distance(own, lives),
        }

    def simulated(
        self, policy: Policy, load_qps: float, known: Known, seed: int
    ) -> SimulationResult:
        """A run of the simulator on the arrivals of a live run."""
        cluster = Cluster.of(known.profile, workers=self.workers,
                             slo_ms=self.slo_ms - known.network_ms)
        return simulate(cluster, Policies(set_of([policy]), "fidelity"),
                        ConstantLoad(load_qps, 1000.0 * self.plan.duration_s),
                        SimulationSettings(service="distribution", seeds=(seed,)),
                        keep_runs=True)


def figures(results: list[SimulationResult], which: str) -> dict[str, float]:
    """Of simulated runs together."""
    return {f"{which}_{name}": float(np.mean([one.estimate(name).mean for one in results]))
            for name in ("effective_accuracy", "violation_rate")}


def live_figures(lives: list[Live]) -> dict[str, Any]:
    """Of all runs together; by the client's clock, and violations also by the server's."""
    client = [live.client for live in lives]
    requests = sum(len(log) for log in client)
    right = sum(float(np.nansum(np.where(log.in_time, log.correct, 0.0))) for log in client)
    in_time = sum(int(log.in_time.sum()) for log in client)
    inside = sum(int(live.server.in_time.sum()) for live in lives)
    refused = sum(int((log.outcome == "dropped").sum()) for log in client)
    return {
        "live_effective_accuracy": right / requests,
        "live_violation_rate": 1.0 - in_time / requests,
        "server_violation_rate": 1.0 - inside / requests,
        "live_refused": refused / requests,
        "requests": requests,
        "live_response_p99_ms": max(live.row["response_p99_ms"] for live in lives),
        "sent_late_p99_ms": max(live.row["lag_p99_ms"] for live in lives),
        "stolen_share": max(live.stolen for live in lives),
    }


def distance(results: list[SimulationResult], lives: list[Live]) -> float:
    """Total variation between the simulated and the live sizes of batches, by request."""
    simulated = sum((_simulated_sizes(run) for one in results for run in one.runs), np.zeros(65))
    live = sum((np.bincount(one.server.batch[one.server.answered], minlength=65)[:65]
                for one in lives), np.zeros(65))
    return float(0.5 * np.abs(simulated / simulated.sum() - live / live.sum()).sum())


def _simulated_sizes(run: Run) -> NDArray[np.float64]:
    sizes = run.size[run.batch_of[run.answered]]
    return np.bincount(sizes, minlength=65)[:65].astype(float)


if __name__ == "__main__":
    main()
