"""CascadeServe's gear plan: a cascade for each range of loads, chosen offline by simulation.

*From the source* (section 4). The range of loads is divided evenly. Each part has a *gear*: a
cascade, with its models and thresholds, and the queue length from which on the first model runs.
The gear of a part is the most accurate cascade that keeps the latency target in simulation at the
highest load of the part; for each cascade the shortest queue is tried first. Online the gear
follows the number of requests in each interval of 100 ms.

*Chosen here.* These choices differ from the source, or fill its gaps:

- The target is 99 % of the requests in time, instead of a 95th percentile; with it, gears are more
  accurate over all requests.
- All cascades of one or two models with the thresholds of the profile are tried; the source
  samples cascades of any length. Their accuracies are the expected ones of the profile's choosing
  samples.
- The source does not say when the second model runs. Here it runs once a number of second opinions
  wait: the largest batch within the SLO, half of it, or one; the first of these that keeps the
  target. For the first model, queues of 1, 8 and 32 are tried, and no request waits beyond its
  slack.
- In the simulation, a request that should get a second opinion is in time only if that is.
- Every worker holds all models, so nothing is placed.
- The gear follows the stated load, so errors of a measured load do not affect it. Above the loads
  of all gears the last one serves.
- If the second opinion is late, the first answer is given
  (:mod:`ramsis.sim.schedulers.thresholds`).

Source: F. Kossmann, Z. Wu, A. Turk, N. Tatbul, L. Cao and S. Madden, "CascadeServe: Unlocking
Model Cascades for Inference Serving", arXiv 2406.14424v1, 2024.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar, NamedTuple

import numpy as np

from ramsis.errors import ABOVE_ZERO, NON_NEGATIVE, whole
from ramsis.profiles import Confidences
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.settings import Checked, setting
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import Plan
from ramsis.sim.schedulers.thresholds import (
    OneQueue,
    Threshold,
    alone,
    confidences_of,
    placed,
    second_times,
    stated_load_only,
)
from ramsis.sim.tables import Compiled, stack
from ramsis.sim.workload import ConstantLoad

_TRIAL = 10_000  # requests of a simulation
_QUEUES = (1, 8, 32)  # queue lengths from which on the first model runs


class _Gear(NamedTuple):
    cascade: Threshold
    accuracy: float
    cost_ms: float  # worker time of a request in the largest batches


@dataclass(frozen=True)
class CascadeServe(Checked, OneQueue):
    """CascadeServe: a cascade with fixed thresholds for each range of loads."""

    name: ClassVar[str] = "cascade-serve"

    gears: int = setting(8, "Ranges of the load.", rule=whole(1, 1000))
    most_qps: float = setting(
        0.0, "Highest load of the last range; 0: the capacity of the workers.", rule=NON_NEGATIVE)
    share: float = setting(
        0.99, "Share of the requests that a gear answers in time.", rule=ABOVE_ZERO)
    seed: int = setting(0, "Seed of the trials.", rule=whole(0))

    def prepare(self, fleet: Fleet) -> Plan:
        """Choose a gear for each range of loads by simulation."""
        confidences = confidences_of(fleet, self.name)
        candidates = sorted(_candidates(fleet, confidences), key=lambda gear: -gear.accuracy)
        most_qps = self.most_qps or fleet.capacity_qps
        levels, cascades, begin = [], [], 0
        for load_qps in (most_qps * (1 + np.arange(self.gears)) / self.gears).tolist():
            # A gear that fails at a load fails at a higher one, too.
            while begin < len(candidates) - 1 and not self._keeps(
                    fleet, confidences, candidates[begin], load_qps):
                begin += 1
            cascade = candidates[begin].cascade
            levels.append(alone(fleet, cascade.first, load_qps))
            cascades.append(placed(fleet, confidences, cascade) if cascade.unsure_bins else None)
        levels[-1] = levels[-1]._replace(load_qps=np.inf)
        return Plan(self.name, stated_load_only(self.name),
                    Compiled("central-queue", stack(levels), cascades=tuple(cascades)),
                    fleet.max_batch)

    def _keeps(
        self, fleet: Fleet, confidences: Confidences, gear: _Gear, load_qps: float
    ) -> bool:
        """Return whether a gear keeps the latency target at a load."""
        if gear.cost_ms * load_qps > 1000.0 * fleet.workers:
            return False
        from ramsis.sim.cascades import served  # whose kernels take long to load
        from ramsis.sim.compiled import replay

        cascade = gear.cascade
        arrivals, service, confidence = map(
            np.random.default_rng, np.random.SeedSequence(self.seed).spawn(3))
        workload = ConstantLoad(load_qps, 1000.0 * _TRIAL / load_qps)
        requests = fleet.requests(workload.arrivals_ms(arrivals), rng=service)
        if not cascade.unsure_bins:
            table = Compiled("central-queue",
                             stack([alone(fleet, cascade.first, np.inf)]))
            run = replay(fleet, table, requests, workload.duration_ms, load_qps)
            return bool(run.in_time.mean() >= self.share)
        requests = replace(requests, sureness=confidence.random(len(requests)))
        room, outcomes = served(placed(fleet, confidences, cascade), fleet, requests)
        in_time = outcomes.answered_ms <= requests.arrival_ms + fleet.slo_ms + SLACK_TOLERANCE_MS
        sure = (room.first >= 0) & (room.bin_of >= cascade.unsure_bins)
        return bool((in_time & (sure | outcomes.second_opinion)).mean() >= self.share)


def _candidates(fleet: Fleet, confidences: Confidences) -> Iterator[_Gear]:
    """Return every model, and every cascade of two with its thresholds."""
    accuracy = fleet.table.accuracy
    cost_ms = (fleet.table.latency_ms / (1 + np.arange(fleet.max_batch))).min(axis=1)
    for m in range(len(fleet.models)):
        if fleet.largest_batch(m, fleet.slo_ms):
            yield _Gear(Threshold(m, m, 0, 1), float(accuracy[m]), float(cost_ms[m]))
    place = {name: m for m, name in enumerate(fleet.models)}
    for pair in confidences.pairs:
        if pair.first not in place or pair.second not in place:
            continue
        first, second = place[pair.first], place[pair.second]
        largest = len(second_times(fleet, second))
        if not largest or not fleet.largest_batch(first, fleet.slo_ms):
            continue
        share = np.array(confidences.model(pair.first).share)
        gain = np.cumsum(share * pair.expected_increment)
        asked = np.cumsum(share)
        for bins in range(1, len(share) + 1):
            for least, gather in product(_QUEUES, sorted({largest, max(1, largest // 2), 1},
                                                         reverse=True)):
                yield _Gear(Threshold(first, second, bins, gather, least),
                            float(accuracy[first] + gain[bins - 1]),
                            float(cost_ms[first] + asked[bins - 1] * cost_ms[second]))
