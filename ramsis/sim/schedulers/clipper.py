"""Clipper: a fixed model with a batch limit that each worker finds for itself.

Additive increase, multiplicative decrease: a full batch that finished within the latency objective
raises the worker's limit by one; one that took longer lowers it by a tenth, to no less than 1.
The queue is central, by deadline (Crankshaw et al., NSDI '17, §4.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ramsis.settings import Checked, setting
from ramsis.sim.engine import WorkerGroup
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import PerType, Plan
from ramsis.sim.schedulers.central import EarliestDeadlineFirst
from ramsis.sim.schedulers.fixed import OBJECTIVE, model_index

_BACK_OFF = 0.9


@dataclass(frozen=True)
class Clipper(Checked, PerType):
    """Clipper: one model, with a batch limit that each worker adapts to its batch times."""

    name: ClassVar[str] = "clipper"

    model: str  # its name
    objective: float = setting(
        1.0, "Latency objective of a batch, as a share of the SLO.", rule=OBJECTIVE)

    def prepare(self, fleet: Fleet) -> Plan:
        """Prepare runs on the plain engine, as limits depend on what happened before."""
        model = model_index(fleet, self.model)
        objective_ms = self.objective * fleet.slo_ms
        return Plan(self.name, partial(_Run, model=model, objective_ms=objective_ms))


class _Run(EarliestDeadlineFirst):
    def __init__(self, engine: WorkerGroup, model: int, objective_ms: float) -> None:
        super().__init__(engine, self.next_batch)
        self.model, self.objective_ms = model, objective_ms
        workers = engine.fleet.workers
        self.limit = [1] * workers
        self.size = [0] * workers
        self.started_ms = [0.0] * workers

    def on_end(self, worker: int, batch: int) -> None:
        if self.engine.now_ms - self.started_ms[worker] > self.objective_ms:
            self.limit[worker] = max(int(self.limit[worker] * _BACK_OFF), 1)
        elif self.size[worker] == self.limit[worker] < self.engine.fleet.max_batch:
            self.limit[worker] += 1
        super().on_end(worker, batch)

    def next_batch(self, queued: int, slack_ms: float, load_qps: float) -> tuple[int, int]:
        """Return the batch for the worker that has been idle longest."""
        worker = self.idle[0]
        size = min(queued, self.limit[worker])
        self.size[worker], self.started_ms[worker] = size, self.engine.now_ms
        return self.model, size
