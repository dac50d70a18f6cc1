"""ModelSwitching: the most accurate model that has kept its deadlines at such a load.

Offline, each model is simulated alone on the whole fleet at several loads (Poisson arrivals, one
central queue). A model carries a load if a ``share`` of the response times is within the SLO. The
highest load that a model carries is found by bisection on a grid of loads, as a model that fails
at a load fails at higher loads. Online, the most accurate model that carries the anticipated load
serves all requests.

The batch limit of a model is the one with which it carries the highest load, among the batches
within half the SLO. Only sizes with a higher throughput than all smaller ones are tried, and only
while this throughput is above the highest load found so far. If no model carries the load, the
fastest one runs in its most efficient batches
(:func:`~ramsis.sim.schedulers.central.overload_levels`).

After Zhang et al., "Model-Switching: Dealing with Fluctuating Workloads in
Machine-Learning-as-a-Service Systems", HotCloud '20, as compared with in the RAMSIS paper, §7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ramsis.errors import ABOVE_ZERO, NON_NEGATIVE, POSITIVE, InputFileError, whole
from ramsis.files import canonical_json, fingerprint, read_json, write_atomic
from ramsis.settings import Checked, setting
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import PerType, Plan
from ramsis.sim.schedulers.central import (
    ModelLevel,
    batch_limit,
    overload_levels,
    plan_levels,
    rising,
    throughput_qps,
)
from ramsis.sim.workload import ConstantLoad

Row = dict[str, float]
RESPONSE_FORMAT = "ramsis.response-profile/1"
"""The ``format`` field of a stored profile."""


@dataclass(frozen=True)
class ModelSwitching(Checked, PerType):
    """ModelSwitching: the most accurate model that has kept its deadlines at the load."""

    name: ClassVar[str] = "model-switching"

    share: float = setting(0.99, "Share of the requests to be in time.", rule=ABOVE_ZERO)
    step_qps: float = setting(
        0.0, "Step of the grid of loads; 0: a round number near 1/64 of the fleet's capacity.",
        rule=NON_NEGATIVE)
    profile_s: float = setting(30.0, "Length of each profiling run.",
                               rule=POSITIVE._replace(wrong="out of range"))
    seed: int = setting(0, "Seed of the profiling runs.", rule=whole(0))
    # file of the profile, which is reused for the same fleet and parameters, and otherwise
    # computed and written. Empty: the profile is not stored.
    store: str = ""

    def prepare(self, fleet: Fleet) -> Plan:
        """Return a plan by load; the models are profiled, or a stored profile is taken."""
        return plan_levels(self.name, self.levels(fleet, self.carried(fleet)))

    def levels(self, fleet: Fleet, carried: Sequence[ModelLevel]) -> list[ModelLevel]:
        """Return model and batch limit by load, the last level for any load above."""
        *beyond, last = overload_levels(fleet)
        return [*rising([*(carried[model] for model in fleet.by_accuracy), *beyond]), last]

    def carried(self, fleet: Fleet) -> list[ModelLevel]:
        """Return each model's batch limit, and the highest load that it carries (0 if none)."""
        path = Path(self.store) if self.store else None
        inputs = self._inputs(fleet)
        if path is not None and path.exists():
            rows = _stored(path, inputs)
            if rows:
                return [ModelLevel(float(row["carried_qps"]), model, int(row["batch"]))
                        for model, row in enumerate(rows)]
        measured = [self._highest(fleet, model) for model in range(len(fleet.models))]
        if path is not None:
            rows = [{"name": name, "carried_qps": level.load_qps, "batch": level.batch,
                     "trials": trials}
                    for name, (level, trials) in zip(fleet.models, measured, strict=True)]
            document = {"format": RESPONSE_FORMAT, "inputs": inputs, "workers": fleet.workers,
                        "slo_ms": fleet.slo_ms, "share": self.share, "models": rows}
            write_atomic(path, canonical_json(document))
        return [level for level, _ in measured]

    def _inputs(self, fleet: Fleet) -> str:
        """Return the fingerprint of everything that the profile depends on."""
        times = fleet.service_times
        return fingerprint({
            "models": list(fleet.models), "quantiles_ms": times.quantiles_ms.tolist(),
            "levels": times.levels.tolist(),
            "accuracy": fleet.table.accuracy.tolist(),
            "latency_ms": fleet.table.latency_ms.tolist(),
            "workers": fleet.workers, "slo_ms": fleet.slo_ms, "network_ms": fleet.network_ms,
            "share": self.share, "step_qps": self._step(fleet), "profile_s": self.profile_s,
            "seed": self.seed, "limits": "the best within half the SLO",
        })

    def _step(self, fleet: Fleet) -> float:
        """Return the spacing of the load grid in requests per second, ``step_qps`` where set.

        Else it is the largest of 1, 2 and 5 times a power of ten up to 1/64 of the capacity.
        """
        if self.step_qps:
            return self.step_qps
        wanted = fleet.capacity_qps / 64.0
        power = 10.0 ** math.floor(math.log10(wanted))
        return power * max(digit for digit in (1.0, 2.0, 5.0) if digit * power <= wanted)

    def _highest(self, fleet: Fleet, model: int) -> tuple[ModelLevel, list[Row]]:
        """Return a model's highest load over all batch limits, and the rows of all trials."""
        trials: list[Row] = []
        best = ModelLevel(0.0, model, batch_limit(fleet, model))
        if fleet.largest_batch(model, fleet.slo_ms):
            throughput = throughput_qps(fleet, model)
            for limit in _limits(fleet, model):
                if throughput[limit - 1] > best.load_qps:
                    level = self._by_limit(fleet, ModelLevel(best.load_qps, model, limit), trials)
                    best = max(best, level, key=lambda level: level.load_qps)
        return best, sorted(trials, key=lambda trial: (trial["batch"], trial["load_qps"]))

    def _by_limit(self, fleet: Fleet, start: ModelLevel, trials: list[Row]) -> ModelLevel:
        """Find the highest load of a model and batch limit by bisection, from a load on."""
        step = self._step(fleet)
        most = float(throughput_qps(fleet, start.model)[: start.batch].max())
        good, bad = round(start.load_qps / step), int(1.2 * most / step) + 2
        plan = plan_levels(self.name, [start._replace(load_qps=math.inf)])
        middle = good + 1 if good else (good + bad) // 2
        while bad - good > 1:
            trial = self._trial(fleet, plan, middle * step)
            trials.append({"batch": start.batch, **trial})
            if trial["in_time"] >= self.share:
                good = middle
            else:
                bad = middle
            middle = (good + bad) // 2
        return start._replace(load_qps=good * step)

    def _trial(self, fleet: Fleet, plan: Plan, load_qps: float) -> Row:
        """Simulate one model under a load; return share in time and response time at the share."""
        from ramsis.sim.compiled import replay

        assert plan.compiled
        arrivals, service = np.random.SeedSequence(self.seed).spawn(2)
        workload = ConstantLoad(load_qps, 1000.0 * self.profile_s)
        requests = fleet.requests(workload.arrivals_ms(np.random.default_rng(arrivals)),
                                  rng=np.random.default_rng(service))
        run = replay(fleet, plan.compiled, requests, workload.duration_ms, load_qps)
        response_ms = run.answered_ms - run.arrival_ms
        return {
            "load_qps": load_qps,
            "in_time": float(run.in_time.mean()) if run.requests else 1.0,
            "response_ms": float(np.quantile(response_ms, self.share)) if run.requests else 0.0,
        }


def _limits(fleet: Fleet, model: int) -> list[int]:
    """Return the batch limits of a model to try, the one of highest throughput first."""
    allowed = max(fleet.largest_batch(model, fleet.slo_ms / 2.0), 1)
    throughput = throughput_qps(fleet, model)[:allowed]
    before = np.append(0.0, np.maximum.accumulate(throughput)[:-1])
    limits: list[int] = (np.flatnonzero(throughput > before)[::-1] + 1).tolist()
    return limits


def _stored(path: Path, inputs: str) -> list[Any]:
    """Return the models of a stored profile; none where it has other inputs."""
    document = read_json(path)
    if document.get("format") != RESPONSE_FORMAT:
        raise InputFileError("not a stored response profile", where=f"{path}: format",
                             value=document.get("format"), allowed=RESPONSE_FORMAT)
    rows: list[Any] = document["models"] if isinstance(document.get("models"), list) else []
    same = document.get("inputs") == inputs
    good = "inputs" in document and bool(rows) and all(
        isinstance(row, dict) and isinstance(row.get("carried_qps"), (int, float))
        and (not same or isinstance(row.get("batch"), int)) for row in rows
    )
    if not good:
        raise InputFileError("damaged response profile", where=f"{path}: models",
                             allowed="a row with carried_qps and batch for each model")
    return rows if same else []
