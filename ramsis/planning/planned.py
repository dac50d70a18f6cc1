"""The planned scheduler with a solved placement: models are loaded as a placement file states.

``planned:placement=FILE`` takes the ``ramsis.placement/1`` file that ``ramsis place`` wrote for
the placement problem of the scenario (``ramsis scenario placement``). Its workers have the names
of the scenario's workers, and each holds the variants that it uses, which are models of the
scenario. For a worker with k lanes the problem has k workers; the scenario's worker holds the
models of all k.

In the problem each model that gets requests is a variant, and each family of models a family. The
demand of a family is the largest of its mean loads in the windows of the scenario, its SLO the
tightest of its streams. The problem does not contain the cost or the times of loads.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from placement_milp import read_placement
from placement_milp.problem import Family, Latency, Problem, Variant, WorkerType
from ramsis.arrays import FloatArray
from ramsis.errors import InputFileError, check_positive
from ramsis.policy import DISPATCHES
from ramsis.scenario import Requests, Scenario, draw_requests
from ramsis.sim import SCHEDULERS as SIMULATED
from ramsis.sim import Engine, SchedulerSpec, World, scheduler
from ramsis.sim.schedulers.loading.planned import Planned

_LEAST_MB = 1e-6  # a problem has no models without memory


class PlannedByFile(Planned):
    """Planned scheduler that loads models as a placement file states, if it gets one.

    Other parameters are as of :class:`~ramsis.sim.schedulers.loading.planned.Planned`.
    """

    def __init__(
        self, engine: Engine, placement: str | None = None, look_ahead: int = 12,
        every_ms: float = 20.0, window_ms: float = 1000.0, windows: int = 8,
        worth: float = 0.005, load_weight: float = 1.0,
    ) -> None:
        super().__init__(engine, look_ahead, every_ms, window_ms, windows, worth, load_weight)
        if placement is not None:
            self.follow(held_of_placement(placement, engine.world))


def held_of_placement(path: str, world: World) -> Mapping[int, frozenset[int]]:
    """Return the models that each worker holds according to a placement file, by worker."""
    site, types = world.site, {kind.name: kind for kind in world.types}
    model_of = {name: model for model, name in enumerate(site.models)}
    first = {name: site.worker_type.tolist().index(t) for t, name in enumerate(types)}
    held: dict[int, frozenset[int]] = {}
    placed = read_placement(path)
    names_of = {worker_type.name: worker_type.worker_names()
                for worker_type in placed.problem.worker_types}
    for group in placed.groups:
        kind = types.get(group.worker_type)
        names = names_of[group.worker_type]
        if kind is None or len(names) != kind.count * kind.lanes:
            raise InputFileError(
                "a worker type that the scenario does not have", where=path,
                value=f"{group.worker_type} ({len(names)} of them)",
                allowed=", ".join(f"{offered.name} ({offered.count * offered.lanes} of them)"
                                  for offered in types.values()))
        variants = [name for use in group.uses for name in use.variants]
        for name in variants:
            if name not in model_of:
                raise InputFileError("a model that the scenario does not have", where=path,
                                     value=name, allowed=f"models of {world.name}")
        # A worker with k lanes holds the models of its k workers in the problem.
        for worker_name in group.workers:
            worker = first[kind.name] + names.index(worker_name) // kind.lanes
            held[worker] = held.get(worker, frozenset()) | {model_of[name] for name in variants}
    for worker, models in held.items():
        kind = world.types[int(site.worker_type[worker])]
        memory_mb = sum(world.memory_mb[model] for model in sorted(models))
        if (memory_mb > (kind.memory_mb or memory_mb) * (1 + 1e-9) + 1e-6
                or len(models) > (kind.max_models or len(models))):
            raise InputFileError(
                "a worker holds more than fits", where=path,
                value=f"{site.workers[worker]}: {len(models)} models, {memory_mb:g} MB",
                allowed=f"{kind.memory_mb or 'any'} MB, {kind.max_models or 'any'} models")
    return held


SCHEDULERS = SIMULATED.also({"planned": PlannedByFile})
"""Schedulers that ``--scheduler`` may name on scenarios."""


def scheduler_named(text: str) -> SchedulerSpec:
    """Return the scheduler that a text names, as :func:`ramsis.sim.scheduler` reads it."""
    name = text.partition(":")[0]
    if name in DISPATCHES and name not in SCHEDULERS:
        raise InputFileError("policies are made for the load of a fleet, and not for a scenario",
                             where="scheduler", value=text,
                             allowed="policies:files=DIR, that `ramsis generate` makes")
    return scheduler(text, SCHEDULERS)


def placement_problem(
    scenario: Scenario, *, window_s: float | None = None, seed: int = 0
) -> Problem:
    """Return the placement problem of a scenario; ``seed`` draws its arrivals.

    Demand is the largest mean in a window of ``window_s``, by default in the whole scenario.
    """
    requests, arrays = draw_requests(scenario, seed), scenario.arrays
    peak_qps = _peak_qps(scenario, requests, window_s)
    asked = np.flatnonzero(peak_qps > 0).tolist()
    if not asked:
        raise InputFileError("no requests to place models for",
                             where=f"scenario {scenario.name}: streams",
                             allowed="streams that send requests by themselves")
    slo_ms = np.full(len(arrays.models), np.inf)
    slos = np.array([stream.slo_ms for stream in scenario.streams])[requests.stream]
    np.minimum.at(slo_ms, arrays.family[requests.model], slos)
    held = [model for model in range(len(arrays.models)) if arrays.family[model] in asked]
    all_mb = float(arrays.memory_mb.sum())
    return Problem(
        name=scenario.name,
        families=tuple(Family(arrays.models[f], float(peak_qps[f]), float(slo_ms[f]))
                       for f in asked),
        # A problem wants a number: memory without a limit is what all models take.
        worker_types=tuple(
            WorkerType(kind.name, kind.count * kind.lanes,
                       kind.memory_mb or max(all_mb, _LEAST_MB))
            for kind in scenario.worker_types),
        variants=tuple(_variant(scenario, model) for model in held),
    )


def _peak_qps(scenario: Scenario, requests: Requests, window_s: float | None) -> FloatArray:
    """Return the largest mean load of a family in any window; (M,), at its first model."""
    arrays = scenario.arrays
    if window_s is not None:
        check_positive(window_s=window_s)
    width_ms = scenario.duration_ms if window_s is None else 1000.0 * window_s
    count = max(1, int(np.ceil(scenario.duration_ms / width_ms)))
    window = np.minimum((requests.arrival_ms // width_ms).astype(np.int64), count - 1)
    family = arrays.family[requests.model]
    peak = np.zeros((count, len(arrays.models)))
    np.add.at(peak, (window, family), 1.0)
    lengths_s = np.minimum(width_ms, scenario.duration_ms - width_ms * np.arange(count)) / 1000.0
    return np.asarray((peak / lengths_s[:, None]).max(axis=0))


def _variant(scenario: Scenario, model: int) -> Variant:
    """Return a scenario's model as a variant, with its batch times by worker type."""
    arrays = scenario.arrays
    kind = int(arrays.kind[model])
    latency = tuple(
        Latency(name, batch, float(arrays.latency_ms[t, kind, batch - 1]))
        for t, name in enumerate(arrays.types) for batch in arrays.batch_sizes[t][kind])
    return Variant(
        arrays.models[model], arrays.models[arrays.family[model]],
        float(arrays.accuracy[model]), max(float(arrays.memory_mb[model]), _LEAST_MB),
        float(arrays.load_ms[:, model].max()), latency)
