"""Promise, simulation and reality: a server on this machine against both.

    python -m pip install -e '.[measure,serve]'
    python scripts/fidelity.py --quick --json fidelity.json

Trains a small model and some of digits-cpu's (kept in --models for the next time), measures
their service times here, and serves held-out images with 1 or 2 workers: by policies of a central
queue and of single workers behind round robin, and by Jellyfish+ and ModelSwitching, each at some
shares of the capacity. Every row has what the policy promises, what simulation shows on the same
arrivals, and what the client saw. A run before shows what a batch takes through the server beyond
the profile (the overhead), and how much longer a request takes for the client than for the server;
policies and simulation are given both.

The machine should have a core for each worker, and two for server and client.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from live.baselines import as_policy
from live.fleet import Live, Load, live_run
from live.models import BATCHES, Served, prepared, say
from numpy.typing import NDArray

from ramsis.cluster import Cluster, ServiceTimes
from ramsis.files import write_atomic
from ramsis.policy import Policy
from ramsis.policy.policy_set import set_of
from ramsis.profiles import ProfileSet
from ramsis.serving.request_log import RequestLog
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

SCHEMES = ("central-queue", "round-robin", "jellyfish-plus", "model-switching")


@dataclass(frozen=True)
class Plan:
    """How much is run."""

    sizes: tuple[int, ...]
    samples: int
    shares: tuple[float, ...]
    duration_s: float
    runs: int
    calibration_s: float


QUICK = Plan((400, 1600), 60, (0.7,), 8.0, 1, 4.0)
FULL = Plan((400, 800, 1600, 3200, 6400), 400, (0.3, 0.5, 0.7, 0.8, 0.95), 60.0, 3, 20.0)


@dataclass(frozen=True)
class Overheads:
    """What a profile does not know, in ms.

    Attributes
    ----------
    batch_ms : float
        Of a batch through the server, beyond its model.
    network_ms : float
        Of a request, from when it was to be sent to when its answer was read, beyond the
        server's time.
    """

    batch_ms: float
    network_ms: float


def main() -> None:
    """Run the comparison and write its rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="within three minutes")
    parser.add_argument("--json", type=Path, required=True, help="file to write")
    parser.add_argument("--models", type=Path, default=Path("build/fidelity"),
                        help="folder that keeps the models")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--slo-ms", type=float,
                        help="by default four times the slowest model's time for one image")
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    served = prepared(options.models, plan.sizes, plan.samples)
    slowest = served.profile.latency_table("p95", 1).latency_ms.max()
    slo_ms = options.slo_ms or float(np.ceil(4.0 * slowest))
    case = Case(served, options.workers, slo_ms, plan)
    overheads = case.overheads()
    say(f"SLO {slo_ms:g} ms; {overheads}")
    rows = [row for share in plan.shares for row in case.rows(share, overheads)]
    write_atomic(options.json, json.dumps({
        "workers": options.workers, "slo_ms": slo_ms, "cores": os.cpu_count(),
        **asdict(overheads), "rows": rows}, indent=1) + "\n")


@dataclass(frozen=True)
class Case:
    """A fleet on this machine."""

    served: Served
    workers: int
    slo_ms: float
    plan: Plan

    def capacity_qps(self) -> float:
        """Of the fleet, as measured."""
        return self.fleet(self.served.profile).capacity_qps

    def fleet(self, profile: ProfileSet) -> Fleet:
        """The workers in a simulation."""
        return Fleet.of(profile, workers=self.workers, slo_ms=self.slo_ms,
                        service="distribution", max_batch=BATCHES[-1])

    def policy(self, dispatch: str, load_qps: float, overheads: Overheads) -> Policy:
        """The best policy for a load, which leaves time for the network."""
        return generate_policy(self.served.profile, load_qps, SynthesisSettings(
            slo_ms=self.slo_ms - overheads.network_ms, workers=self.workers, dispatch=dispatch,
            service="distribution", overhead_ms=overheads.batch_ms,
            max_queue=BATCHES[-1] if dispatch == "central-queue" else BATCHES[-1] - 1))

    def overheads(self) -> Overheads:
        """Measured at half the capacity, through the server."""
        load_qps = 0.5 * self.capacity_qps()
        say(f"overheads at {load_qps:.0f} queries/s")
        none = Overheads(0.0, 0.0)
        live = self.live(self.policy("central-queue", load_qps, none), load_qps,
                         self.plan.calibration_s, 100, none)
        return Overheads(batch_overhead_ms(live.server, self.served.profile),
                         network_ms(live))

    def live(
        self, policy: Policy, load_qps: float, duration_s: float, seed: int, overheads: Overheads
    ) -> Live:
        """A run of the server."""
        load = Load(load_qps, duration_s, seed, self.slo_ms)
        return live_run(policy, self.served.variants, self.served.data, load,
                        overhead_ms=overheads.network_ms)

    def rows(self, share: float, overheads: Overheads) -> list[dict[str, Any]]:
        """Every scheme at a share of the capacity."""
        load_qps = round(share * self.capacity_qps(), 3)
        known = self.served.profile.with_overhead(overheads.batch_ms)
        central = self.policy("central-queue", load_qps, overheads)
        fleet = self.fleet(known)
        policies = {
            "central-queue": central,
            "round-robin": self.policy("round-robin", load_qps, overheads),
            "jellyfish-plus": as_policy(JellyfishPlus(), fleet, central),
            "model-switching": as_policy(ModelSwitching(profile_s=5.0), fleet, central)}
        found = []
        for scheme in SCHEMES:
            say(f"{scheme} at {load_qps:.0f} queries/s, {share:.0%} of the capacity")
            row = self.row(policies[scheme], load_qps, overheads, known)
            if scheme not in ("central-queue", "round-robin"):
                row["promised_effective_accuracy"] = row["promised_violation_rate"] = None
            found.append({"load_qps": load_qps, "load_share": share, "scheme": scheme, **row})
        return found

    def row(
        self, policy: Policy, load_qps: float, overheads: Overheads, known: ProfileSet
    ) -> dict[str, Any]:
        """Promise, simulation and reality of a policy."""
        seconds, seeds = self.plan.duration_s, range(self.plan.runs)
        cluster = Cluster.of(known, workers=self.workers,
                             slo_ms=self.slo_ms - overheads.network_ms)
        result = simulate(cluster, Policies(set_of([policy]), "fidelity"),
                          ConstantLoad(load_qps, 1000.0 * seconds),
                          SimulationSettings(service="distribution", seeds=seeds),
                          keep_runs=True)
        lives = [self.live(policy, load_qps, seconds, seed, overheads) for seed in seeds]
        return {
            "promised_effective_accuracy": policy.expectations.effective_accuracy,
            "promised_violation_rate": policy.expectations.violation_rate,
            "simulated_effective_accuracy": result.estimate("effective_accuracy").mean,
            "simulated_violation_rate": result.estimate("violation_rate").mean,
            **live_figures(lives),
            "batch_total_variation": distance(result, lives),
        }


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
    }


def batch_overhead_ms(log: RequestLog, profile: ProfileSet) -> float:
    """What batches take through the server beyond the profile's mean."""
    times = ServiceTimes.of_all(profile, "distribution", 33)
    known = np.isfinite(log.start_s) & log.answered
    number = {name: i for i, name in enumerate(times.models)}
    model = np.array([number[name] for name in log.model[known]])
    size = np.where(log.run_as[known] > 0, log.run_as[known], log.batch[known])
    took = 1000.0 * (log.finish_s - log.start_s)[known]
    beyond = took - times.mean_ms[model, size - 1]
    # A batch counts once, however many requests it has.
    return max(0.0, float(np.average(beyond, weights=1.0 / log.batch[known])))


def network_ms(live: Live) -> float:
    """What a request takes for the client beyond the server's time: the 95th percentile."""
    client, server = live.client, live.server
    both = client.answered & server.answered  # both by arrival, so the same requests
    beyond = (client.finish_s - client.arrival_s - server.finish_s + server.arrival_s)[both]
    return max(0.0, float(np.quantile(1000.0 * beyond, 0.95)))


def distance(result: SimulationResult, lives: list[Live]) -> float:
    """Total variation between the simulated and the live sizes of batches, by request."""
    simulated = sum((_simulated_sizes(run) for run in result.runs), np.zeros(65))
    live = sum((np.bincount(one.server.batch[one.server.answered], minlength=65)[:65]
                for one in lives), np.zeros(65))
    return float(0.5 * np.abs(simulated / simulated.sum() - live / live.sum()).sum())


def _simulated_sizes(run: Run) -> NDArray[np.float64]:
    sizes = run.size[run.batch_of[run.answered]]
    return np.bincount(sizes, minlength=65)[:65].astype(float)


if __name__ == "__main__":
    main()
