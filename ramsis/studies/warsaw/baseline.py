"""Baseline scheduler: a model that is loaded nowhere replaces all models of an idle worker.

Inference is in phases (:mod:`ramsis.studies.warsaw.phases`). For each waiting request, in order:
if no worker holds or loads its model, the next idle worker in turn unloads all its models and
loads it. So each model has one copy, whatever its load; and with more models than workers, workers
may load one model after the other without running any.

Source: the Warsaw thesis (see :mod:`~ramsis.studies.warsaw.phases`), section 4.2.1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from ramsis.sim.engine import Engine
from ramsis.studies.warsaw.phases import PhasedScheduler


class Baseline(PhasedScheduler):
    """Scheduler that replaces all models of an idle worker by one that is loaded nowhere.

    Parameters
    ----------
    starved : float
        Share of the time to its deadline after which a request starves.
    """

    def __init__(self, engine: Engine, starved: float = 0.6) -> None:
        super().__init__(engine, starved)
        self.load_turn = -1

    def settle(self, freed: Sequence[int]) -> None:
        """Load the models of waiting requests on idle workers."""
        idle = self.to_load() if self.busy else []
        for model in self.wanted() if idle else ():
            place = next((i for i, w in enumerate(idle) if self.able(w, model)), None)
            if place is None:
                continue
            self.load_turn = worker = idle[place]
            self.load(worker, model)
            idle = [*idle[place + 1:], *idle[:place]]
            if not idle:
                return

    def wanted(self) -> list[int]:
        """Return the models to load, the one with the oldest request first."""
        return self.by_age([model for model in self.busy if self.nowhere(model)])

    def by_age(self, models: Iterable[int]) -> list[int]:
        """Return models sorted by their oldest waiting requests."""
        return sorted(models, key=lambda model: next(iter(self.waiting[model])))

    def nowhere(self, model: int) -> bool:
        """Return whether no worker holds a model or loads it."""
        return not self._holders[model] and not self.coming(model)

    def coming(self, model: int) -> bool:
        """Return whether a worker is loading a model."""
        return any(model in loading for loading in self.engine.workers.loading)

    def to_load(self) -> list[int]:
        """Return the workers that could begin a load now, the next in turn first."""
        workers = self.engine.workers
        if [] not in workers.running:
            return []
        idle = [worker for worker in range(len(workers)) if workers.idle(worker)]
        later = bisect_right(idle, self.load_turn)
        return [*idle[later:], *idle[:later]]

    def able(self, worker: int, model: int) -> bool:
        """Return whether an idle worker could run a model if it held nothing else."""
        workers = self.engine.workers
        return (self.engine.times.runs(workers.type[worker], model)
                and workers.model_mb[model] <= workers.memory_mb[worker])

    def load(self, worker: int, model: int) -> float:
        """Load a model in place of others; return the end of the load."""
        self.make_room(worker, model)
        return self.engine.load(worker, model)

    def make_room(self, worker: int, model: int) -> None:
        """Unload all models of a worker before a new one is loaded."""
        for other in sorted(self.engine.workers.loaded[worker]):
            self.unload(worker, other)
