"""Round Robin scheduler: models are loaded in turn, each for a quantum of time.

The models form a circle. Whenever an idle worker has room, or holds a model whose *quantum* has
passed, the next model of the circle that it does not hold is loaded there, in place of the one
whose quantum passed first. Without such a worker, the next model waits. Inference is in
phases (:mod:`ramsis.studies.warsaw.phases`). Each variant adds a change to the one before it:

``a``
    the quantum begins anew after each inference;
``b``
    the next model is the one with the most requests that have waited for 60 % of the time to
    their deadline; of equal ones that with the fewest copies;
``c``
    half of each quantum is proportional to the model's load time; when a model is unloaded that
    has run for more, or less, than ``use`` of its time, its quantum grows, or shrinks, by the
    factor ``step``;
``d``
    requests in the order of their deadlines.

Source: the Warsaw thesis (see :mod:`~ramsis.studies.warsaw.phases`), section 4.2.3. It
prints no quanta, nor how they are adjusted. At 60 s, Round Robin loads for about as long as its
figure 6.15 says.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import check_known
from ramsis.sim.engine import Engine
from ramsis.studies.warsaw.phases import PhasedScheduler

_VARIANTS = ("plain", "a", "b", "c", "d")
_LARGEST_FACTOR = 8.0  # limit of the factor by which use changes a quantum


class RoundRobin(PhasedScheduler):
    """Scheduler that loads models in turn for a quantum each; ``variant`` (a–d) refines it.

    Parameters
    ----------
    variant : str
        ``plain``, or the last of the changes ``a`` to ``d`` that are made.
    quantum_ms : float
        Time that a model stays loaded, > 0; with ``c`` the mean over models.
    use : float
        Share of its time that a model should run, with ``c``.
    step : float
        Factor by which its quantum changes, with ``c``, >= 1.
    starved : float
        Share of the time to its deadline after which a request starves.
    """

    def __init__(
        self, engine: Engine, variant: str = "plain", quantum_ms: float = 60_000.0,
        use: float = 0.05, step: float = 1.5, starved: float = 0.6,
    ) -> None:
        check_known("unknown variant", variant, _VARIANTS, "variant")
        changes = _VARIANTS.index(variant)
        super().__init__(engine, starved, by_deadline=changes >= 4)
        self.renewed, self.by_starvation, self.own_quanta = (changes >= n for n in (1, 2, 3))
        self.use, self.step = use, step
        self.quantum_ms = self._quanta(quantum_ms)
        self.factor = [1.0] * len(self.quantum_ms)
        self.next = 0
        self.model_mb = np.array(engine.workers.model_mb)
        self.least_mb = min(engine.workers.model_mb)
        # By worker: models that it can run and does not hold, and their number.
        able = [self._runnable(kind) for kind in range(len(engine.world.types))]
        self.absent = [able[kind].copy() for kind in engine.workers.type]
        self.absences = [int(away.sum()) for away in self.absent]
        self.copies = np.zeros(len(self.waiting), dtype=int)  # with those that are being loaded
        for worker, models in enumerate(engine.workers.loaded):
            self.copies[list(models)] += 1
            self._note(worker, list(models), False)
        self.slots: list[dict[int, _Slot]] = [{} for _ in engine.workers.type]
        self.passed: list[dict[int, None]] = [{} for _ in engine.workers.type]

    def on_start(self) -> None:
        """Begin the quanta of models that are loaded."""
        for worker, held in enumerate(self.engine.workers.loaded):
            for model in sorted(held):
                self._begin(worker, model)
        super().on_start()

    def _quanta(self, mean_ms: float) -> list[float]:
        """Return the time for which each model stays loaded, its quantum."""
        load_ms = np.array(self.engine.times.loads).mean(axis=0)
        if not self.own_quanta or not load_ms.sum():
            return [mean_ms] * len(load_ms)
        return list((mean_ms * (1.0 + load_ms / np.mean(load_ms)) / 2.0).tolist())

    def inferred(self, worker: int, model: int) -> None:
        """Record the use of a model, and renew its quantum from variant ``a`` on."""
        engine, slot = self.engine, self.slots[worker][model]
        took_ms = engine.times.rows[engine.workers.type[worker]][model][0]
        slot.ran_ms += took_ms
        if self.renewed:
            slot.until_ms = engine.now_ms + took_ms + self._quantum_ms(model)
            if model in self.passed[worker]:
                del self.passed[worker][model]
                engine.wake_at(slot.until_ms, (worker, model, slot))

    def on_loaded(self, worker: int, model: int) -> None:
        """Begin the quantum of a model that has been loaded."""
        self._begin(worker, model)
        super().on_loaded(worker, model)

    def on_timer(self, token: object) -> None:
        """End a quantum, unless it was renewed."""
        assert isinstance(token, tuple)
        worker, model, slot = token
        assert isinstance(slot, _Slot)
        if self.slots[worker].get(model) is not slot:
            return
        if slot.until_ms > self.engine.now_ms:
            self.engine.wake_at(slot.until_ms, token)
            return
        self.passed[worker][model] = None
        self.settle((worker,))

    def on_stopped(self, worker: int) -> None:
        """End all quanta of a stopped worker."""
        super().on_stopped(worker)
        held = list(self.slots[worker])
        self.copies[held] -= 1
        self._note(worker, held, True)
        self.slots[worker].clear()
        self.passed[worker].clear()

    def settle(self, freed: Sequence[int]) -> None:
        """Load the next models of the circle on workers with room or with a passed quantum."""
        for worker in freed:
            while self.engine.workers.may_load(worker) and self.engine.workers.idle(worker):
                if not self._fill(worker):
                    break

    def _begin(self, worker: int, model: int) -> None:
        now_ms = self.engine.now_ms
        slot = _Slot(now_ms, now_ms + self._quantum_ms(model))
        self.slots[worker][model] = slot
        self.engine.wake_at(slot.until_ms, (worker, model, slot))

    def _fill(self, worker: int) -> bool:
        """Load the next model on an idle worker with room; return whether one was loaded."""
        if not self.absences[worker]:
            return False
        workers, passed = self.engine.workers, self.passed[worker]
        room_mb = workers.free_mb[worker] + sum(workers.model_mb[model] for model in passed)
        if self.least_mb > room_mb * (1 + 1e-9) + 1e-6:
            return False
        for model in self._circle(worker, room_mb):
            given_up = workers.to_give_up(worker, model, passed)
            if given_up is None:
                continue
            for other in given_up:
                self._give_up(worker, other)
            self.engine.load(worker, model)
            self.copies[model] += 1
            self._note(worker, [model], False)
            self.next = model + 1
            return True
        return False

    def _runnable(self, kind: int) -> NDArray[np.bool_]:
        """Return which models workers of a type can run."""
        models = range(len(self.waiting))
        return np.array([self.engine.times.runs(kind, model) for model in models])

    def _note(self, worker: int, models: list[int], absent: bool) -> None:
        """Update the sets of models that a worker holds or lacks."""
        self.absent[worker][models] = absent
        self.absences[worker] += len(models) if absent else -len(models)

    def _circle(self, worker: int, room_mb: float) -> Iterator[int]:
        """Yield the models that fit a worker, the next to be loaded first."""
        able = self.absent[worker] & (self.model_mb <= room_mb * (1 + 1e-9) + 1e-6)
        models, count = np.flatnonzero(able), len(able)
        if not self.by_starvation:
            first = int(np.searchsorted(models, self.next))
            yield from models[first:].tolist()
            yield from models[:first].tolist()
            return
        order = (models - self.next) % count
        starved, could = np.zeros(count, dtype=int), able.data
        for model in self.busy:
            if could[model]:
                starved[model] = self._starved_of(model)
        copies = len(self.engine.workers) + 1  # more than there can be
        order += count * (self.copies[models] - copies * starved[models])
        while len(models):
            first = int(order.argmin())
            yield int(models[first])
            models, order = np.delete(models, first), np.delete(order, first)

    def _starved_of(self, model: int) -> int:
        """Count the requests for a model that have waited for too long."""
        state, now_ms, share = self.engine.requests, self.engine.now_ms, self.starved_share
        queue = list(self.waiting[model])
        return bisect_right(queue, now_ms, key=lambda request: (
            state.arrival_ms[request] * (1 - share) + share * state.deadline_ms[request]))

    def _give_up(self, worker: int, model: int) -> None:
        """Unload a model, and adjust its quantum by its use."""
        slot = self.slots[worker].pop(model)
        del self.passed[worker][model]
        self.copies[model] -= 1
        self._note(worker, [model], True)
        used = slot.ran_ms > self.use * (self.engine.now_ms - slot.since_ms)
        factor = self.factor[model] * (self.step if used else 1.0 / self.step)
        self.factor[model] = min(max(factor, 1.0 / _LARGEST_FACTOR), _LARGEST_FACTOR)
        self.unload(worker, model)

    def _quantum_ms(self, model: int) -> float:
        """Return the adjusted quantum of a model."""
        return self.quantum_ms[model] * (self.factor[model] if self.own_quanta else 1.0)


@dataclass(slots=True, eq=False)
class _Slot:
    """Model on a worker: start, end of its quantum, and run time so far."""

    since_ms: float
    until_ms: float
    ran_ms: float = 0.0
