"""State of the workers of a run: models held, loads and batches."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from math import inf

from ramsis.scenario import ScenarioWorkerType
from ramsis.sim.run import Site

OFF, STARTING, ACTIVE = "off", "starting", "active"


class Workers:
    """State of the workers, a list entry for each; schedulers read it and do not write to it."""

    def __init__(
        self, site: Site, types: Sequence[ScenarioWorkerType], memory_mb: Sequence[float]
    ) -> None:
        self.type: list[int] = site.worker_type.tolist()
        self.status = [ACTIVE if active else OFF for active in site.active.tolist()]
        # Batches that a worker can run at a time, and that it can start now: none while it is not
        # active, or while a load blocks it.
        self.lanes = [types[t].lanes for t in self.type]
        self.free_lanes = [lanes if status == ACTIVE else 0
                           for lanes, status in zip(self.lanes, self.status, strict=True)]
        self.running: list[list[int]] = [[] for _ in self.type]  # batches in the order of start
        # expected end of the batch that was started last, as if it ran alone on the worker
        self.busy_until_ms = [0.0] * len(self.type)
        self.loaded: list[set[int]] = [set(held) for held in site.start]
        self._holders: list[list[int]] = [[] for _ in site.models]
        for worker, held in enumerate(self.loaded):
            for model in held:
                self._holders[model].append(worker)
        self.loading: list[dict[int, float]] = [{} for _ in self.type]  # ends by model
        self.memory_mb = [types[t].memory_mb or inf for t in self.type]
        self.model_mb = list(memory_mb)
        # Memory neither taken nor reserved. Models are added up in one order, as a set's own order
        # could change how the sum is rounded.
        self.free_mb = [room - sum(self.model_mb[m] for m in sorted(held))
                        for room, held in zip(self.memory_mb, self.loaded, strict=True)]
        self.max_models = [types[t].max_models or inf for t in self.type]
        self.loads_at_a_time = [types[t].loads_at_a_time for t in self.type]
        self.cores = [types[t].cores for t in self.type]  # for the processing of requests
        self.free_cores = list(self.cores)
        # whether a load blocks batches on the worker
        self.blocking = [types[t].loading == "blocking" for t in self.type]

    def __len__(self) -> int:
        return len(self.type)

    def holders(self, model: int) -> list[int]:
        """Return the workers that hold a model, by number."""
        return list(self._holders[model])

    def to_give_up(
        self, worker: int, model: int, others: Iterable[int]
    ) -> list[int] | None:
        """Return the models to evict so that ``model`` has room, the first ones of ``others``.

        ``others`` may be evicted in this order, and are read no further than needed. Return None
        if evicting all of them makes too little room.
        """
        free_mb, places = self.free_mb[worker], self.places(worker)
        gone: list[int] = []
        candidates = iter(others)
        while not self.has_room(model, free_mb, places):
            other = next(candidates, None)
            if other is None:
                return None
            gone.append(other)
            free_mb += self.model_mb[other]
            places += 1
        return gone

    def fits(self, worker: int, model: int) -> bool:
        """Return whether a worker has room for one more model."""
        return self.has_room(model, self.free_mb[worker], self.places(worker))

    def places(self, worker: int) -> float:
        """Return how many more models a worker may hold, memory aside."""
        return self.max_models[worker] - len(self.loaded[worker]) - len(self.loading[worker])

    def has_room(self, model: int, free_mb: float, places: float) -> bool:
        """Return whether a model fits into free memory (up to rounding) and a free place."""
        return self.model_mb[model] <= free_mb * (1 + 1e-12) + 1e-9 and places >= 1

    def may_load(self, worker: int) -> bool:
        """Return whether a load could begin on a worker now, memory aside."""
        return (self.status[worker] == ACTIVE
                and len(self.loading[worker]) < self.loads_at_a_time[worker]
                and not (self.blocking[worker] and self.running[worker]))

    def idle(self, worker: int) -> bool:
        """Return whether a worker is active, and neither runs nor loads anything."""
        return (self.status[worker] == ACTIVE and not self.running[worker]
                and not self.loading[worker])

    def reserve(self, worker: int, model: int, ready_ms: float) -> None:
        """Reserve memory, and the lanes where loading blocks, for a load that begins."""
        self.loading[worker][model] = ready_ms
        self.free_mb[worker] -= self.model_mb[model]
        if self.blocking[worker]:
            self.free_lanes[worker] = 0

    def arrived(self, worker: int, model: int) -> None:
        """Add a model whose load has ended to those that a worker holds."""
        del self.loading[worker][model]
        self.loaded[worker].add(model)
        insort(self._holders[model], worker)
        if self.blocking[worker] and not self.loading[worker]:
            self.free_lanes[worker] = self.lanes[worker]

    def unload(self, worker: int, model: int) -> None:
        """Unload a model from a worker."""
        self.loaded[worker].remove(model)
        self._holders[model].remove(worker)
        self.free_mb[worker] += self.model_mb[model]

    def activate(self, worker: int) -> None:
        """Activate a worker that has started; it holds no models."""
        self.status[worker] = ACTIVE
        self.free_lanes[worker] = self.lanes[worker]
        self.free_cores[worker] = self.cores[worker]

    def stop(self, worker: int) -> None:
        """Stop a worker and drop its models."""
        self.status[worker] = OFF
        self.free_lanes[worker] = 0
        for model in self.loaded[worker]:
            self._holders[model].remove(worker)
        self.loaded[worker].clear()
        self.free_mb[worker] = self.memory_mb[worker]
