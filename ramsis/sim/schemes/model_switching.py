"""ModelSwitching: the most accurate model that has kept its deadlines at such a load.

Offline, each model is run by itself on the whole fleet at rising loads (Poisson arrivals, one
central queue). At the load it keeps the SLO when the wanted share of the response times are within
it. What is kept of this profile is the highest load that each model carries, found by bisection
on a grid of loads, since a model that fails at a load fails at higher ones. Online, the most
accurate model that carries the anticipated load serves everything; the fastest where none does.

Batches go up to the largest that takes half the SLO.

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

from ramsis.errors import InputFileError, InvalidValueError, describe
from ramsis.files import canonical_json, fingerprint, read_json, write_atomic
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import PerType, Plan
from ramsis.sim.schemes.central import ModelLevel, batch_limit, plan_levels
from ramsis.sim.workload import ConstantLoad

__all__ = ["RESPONSE_FORMAT", "ModelSwitching"]

RESPONSE_FORMAT = "ramsis.response-profile/1"
"""The ``format`` field of a stored profile."""


@dataclass(frozen=True)
class ModelSwitching(PerType):
    """See the module's description.

    Parameters
    ----------
    share : float
        Share of the queries to be in time, in (0, 1].
    step_qps : float
        Step of the grid of loads; 0: a round number near 1/64 of the fleet's capacity.
    profile_s : float
        Length of each profiling run, in seconds.
    seed : int
        Of the profiling runs.
    store : str
        File to keep the profile in; it is reused when it was made for the same fleet and
        parameters, and made anew otherwise. Empty: the profile is not kept.
    """

    name: ClassVar[str] = "model-switching"

    share: float = 0.99
    step_qps: float = 0.0
    profile_s: float = 30.0
    seed: int = 0
    store: str = ""

    def __post_init__(self) -> None:
        for where, value, good, allowed in (
            ("share", self.share, 0 < self.share <= 1, "a fraction in (0, 1]"),
            ("step_qps", self.step_qps, 0 <= self.step_qps < math.inf, "a finite number >= 0"),
            ("profile_s", self.profile_s, 0 < self.profile_s < math.inf, "a finite number > 0"),
            ("seed", self.seed, self.seed >= 0, "a whole number >= 0"),
        ):
            if not good:
                raise InvalidValueError(describe("out of range", where=where, value=value,
                                                 allowed=allowed))

    def prepare(self, fleet: Fleet) -> Plan:
        """Profile the models, or take the stored profile."""
        return plan_levels(self.name, self.levels(fleet, self.carried(fleet)))

    def levels(self, fleet: Fleet, carried_qps: Sequence[float]) -> list[ModelLevel]:
        """Model by load, the last level for any load above."""
        levels: list[ModelLevel] = []
        for model in fleet.by_accuracy:
            if carried_qps[model] > (levels[-1].load_qps if levels else 0.0):
                levels.append(ModelLevel(carried_qps[model], model, batch_limit(fleet, model)))
        fastest = fleet.table.fastest
        return [*levels, ModelLevel(math.inf, fastest, batch_limit(fleet, fastest))]

    def carried(self, fleet: Fleet) -> list[float]:
        """The highest load in queries per second at which each model keeps the SLO; 0: none.

        Raises
        ------
        InputFileError
            The store holds something else.
        OutputError
            The store cannot be written.
        """
        path = Path(self.store) if self.store else None
        inputs = self._inputs(fleet)
        if path is not None and path.exists():
            stored = _stored(path, fleet)
            if stored["inputs"] == inputs:
                return [float(row["carried_qps"]) for row in stored["models"]]
        found = [self._highest(fleet, model) for model in range(len(fleet.models))]
        carried = [load for load, _ in found]
        if path is not None:
            rows = [{"name": name, "carried_qps": load, "trials": trials}
                    for name, (load, trials) in zip(fleet.models, found, strict=True)]
            document = {"format": RESPONSE_FORMAT, "inputs": inputs, "workers": fleet.workers,
                        "slo_ms": fleet.slo_ms, "share": self.share, "models": rows}
            write_atomic(path, canonical_json(document))
        return carried

    def _inputs(self, fleet: Fleet) -> str:
        """Fingerprint of all that the profile depends on."""
        return fingerprint({
            "models": list(fleet.models), "quantiles_ms": fleet.quantiles_ms.tolist(),
            "levels": fleet.service_times.levels.tolist(),
            "accuracy": fleet.table.accuracy.tolist(),
            "latency_ms": fleet.table.latency_ms.tolist(),
            "workers": fleet.workers, "slo_ms": fleet.slo_ms, "network_ms": fleet.network_ms,
            "share": self.share, "step_qps": self._step(fleet), "profile_s": self.profile_s,
            "seed": self.seed,
        })

    def _step(self, fleet: Fleet) -> float:
        """The grid's step: 1, 2 or 5 times a power of ten."""
        if self.step_qps:
            return self.step_qps
        wanted = fleet.capacity_qps / 64.0
        power = 10.0 ** math.floor(math.log10(wanted))
        return power * max(digit for digit in (1.0, 2.0, 5.0) if digit * power <= wanted)

    def _highest(self, fleet: Fleet, model: int) -> tuple[float, list[dict[str, float]]]:
        """Bisection over the grid for one model; and what each trial measured."""
        trials: list[dict[str, float]] = []
        if not fleet.largest_batch(model, fleet.slo_ms):
            return 0.0, trials
        limit, step = batch_limit(fleet, model), self._step(fleet)
        row = fleet.table.latency_ms[model, :limit]
        most = 1000.0 * fleet.workers * float((np.arange(1, limit + 1) / row).max())
        good, bad = 0, int(1.2 * most / step) + 2
        plan = plan_levels(self.name, [ModelLevel(math.inf, model, limit)])
        while bad - good > 1:
            middle = (good + bad) // 2
            trials.append(self._trial(fleet, plan, middle * step))
            if trials[-1]["in_time"] >= self.share:
                good = middle
            else:
                bad = middle
        return good * step, sorted(trials, key=lambda trial: trial["load_qps"])

    def _trial(self, fleet: Fleet, plan: Plan, load_qps: float) -> dict[str, float]:
        """One model under a load: share in time, and the response time of the wanted share."""
        from ramsis.sim.compiled import Given, replay

        assert plan.compiled
        arrivals, service = np.random.SeedSequence(self.seed).spawn(2)
        workload = ConstantLoad(load_qps, 1000.0 * self.profile_s)
        given = Given.drawn(workload.arrivals_ms(np.random.default_rng(arrivals)),
                            workload.duration_ms, np.random.default_rng(service),
                            draws=fleet.draws, by_chance=False)
        run = replay(fleet, plan.compiled, given, load_qps)
        response_ms = run.answered_ms - run.arrival_ms
        return {
            "load_qps": load_qps,
            "in_time": float(run.in_time.mean()) if run.queries else 1.0,
            "response_ms": float(np.quantile(response_ms, self.share)) if run.queries else 0.0,
        }


def _stored(path: Path, fleet: Fleet) -> dict[str, Any]:
    """A stored profile whose parts are there."""
    document = read_json(path)
    found = document.get("format")
    if found != RESPONSE_FORMAT:
        raise InputFileError(describe("not a stored response profile", where=f"{path}: format",
                                      value=found, allowed=RESPONSE_FORMAT))
    rows = document.get("models")
    good = isinstance(rows, list) and all(
        isinstance(row, dict) and isinstance(row.get("carried_qps"), (int, float)) for row in rows
    )
    if not good or "inputs" not in document:
        raise InputFileError(describe("damaged response profile", where=f"{path}: models",
                                      allowed="a row with carried_qps for each model"))
    return document
