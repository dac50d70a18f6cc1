"""The planned scheduler with a placement that was solved: what is loaded where is read, not found.

``planned:placement=FILE`` takes the ``ramsis.placement/1`` that ``ramsis place`` wrote for the
problem of the scenario (``ramsis scenario placement``): its workers are those of the scenario, by
name, and each holds the variants that it uses, which are models of the scenario. A type with k
lanes has k workers in the problem for each of the scenario, which holds what any of them does.
"""

from __future__ import annotations

from collections.abc import Mapping

from placement_milp import read_placement
from ramsis.errors import InputFileError
from ramsis.policy import DISPATCHES
from ramsis.sim import SCHEDULERS as SIMULATED
from ramsis.sim import Engine, SchedulerSpec, World, scheduler
from ramsis.sim.schedulers.loading.planned import Planned


class PlannedByFile(Planned):
    """See the module; without a file as :class:`~ramsis.sim.schedulers.loading.planned.Planned`.

    Parameters
    ----------
    placement : str, optional
        A placement file.
    look_ahead, every_ms, window_ms, windows, worth, load_weight
        As there.
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
    """By worker, the models that a placement file has it hold."""
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
"""What ``--scheduler`` names on scenarios."""


def scheduler_named(text: str) -> SchedulerSpec:
    """The scheduler that a text names, as :func:`ramsis.sim.scheduler` reads it."""
    name = text.partition(":")[0]
    if name in DISPATCHES and name not in SCHEDULERS:
        raise InputFileError("policies are made for the load of a fleet, and not for a scenario",
                             where="scheduler", value=text,
                             allowed="policies:files=DIR, that `ramsis generate` makes")
    return scheduler(text, SCHEDULERS)
