"""Modified Baseline scheduler: several models per worker, no load before the last one was used.

Like :mod:`~ramsis.studies.warsaw.baseline`, but a worker loads a new model only if it has run a
batch since its last load, or has been idle for ``idle_ms``; and it unloads no more models than
necessary, the least recently run first.

The condition of a load is ambiguous. According to the thesis, a model is loaded if it is loaded
nowhere (``load_when=nowhere``); but its printed loading times are those of loads whenever requests
wait and no idle worker holds the model (``load_when=no-idle``).

Source: the Warsaw thesis (see :mod:`~ramsis.studies.warsaw.phases`), section 4.2.2, which
leaves open for how long is "idle for long enough".
"""

from __future__ import annotations

from math import inf

from ramsis.errors import check_known
from ramsis.sim.engine import Engine
from ramsis.studies.warsaw.baseline import Baseline

_WHEN = ("nowhere", "no-idle")


class ModifiedBaseline(Baseline):
    """Baseline scheduler with several models per worker, and no load before the last is used.

    Parameters
    ----------
    load_when : str
        ``nowhere`` or ``no-idle``.
    idle_ms : float
        Idle time after which a worker may load again without having run a batch, > 0.
    starved : float
        Share of the time to its deadline after which a request starves.
    """

    def __init__(
        self, engine: Engine, load_when: str = "nowhere", idle_ms: float = 1000.0,
        starved: float = 0.6,
    ) -> None:
        super().__init__(engine, starved)
        check_known("unknown rule", load_when, _WHEN, "load_when")
        self.anywhere = load_when == "no-idle"
        self.idle_ms = idle_ms
        count = len(engine.workers)
        self.used = [True] * count  # whether a worker has run anything since its last load
        self.since_ms = [0.0] * count  # when it ended its last batch or load
        self.used_ms: list[dict[int, float]] = [{} for _ in range(count)]
        self._woken_ms = -1.0

    def wanted(self) -> list[int]:
        """Return the models to load, the one with the oldest request first."""
        if not self.anywhere:
            return super().wanted()
        return self.by_age(self.busy)

    def inferred(self, worker: int, model: int) -> None:
        """Record that the worker has been used since its last load."""
        if not self.engine.workers.loading[worker]:  # or it would not be used after that load
            self.used[worker] = True
        self.used_ms[worker][model] = self.engine.now_ms

    def on_end(self, worker: int, batch: int) -> None:
        """Record the time at which a worker became idle."""
        # A running load ends later, and its end has been recorded.
        self.since_ms[worker] = max(self.since_ms[worker], self.engine.now_ms)
        super().on_end(worker, batch)

    def load(self, worker: int, model: int) -> float:
        """Load a model, which has to be used before the next load."""
        ready_ms = super().load(worker, model)
        self.used[worker] = False
        self.since_ms[worker] = ready_ms
        return ready_ms

    def to_load(self) -> list[int]:
        """Return the workers that have been used since their last load, or idle for long."""
        now_ms, ready, earliest_ms = self.engine.now_ms, [], inf
        for worker in super().to_load():
            ready_ms = self.since_ms[worker] + self.idle_ms
            if self.used[worker] or ready_ms <= now_ms:
                ready.append(worker)
            else:
                earliest_ms = min(earliest_ms, ready_ms)
        if earliest_ms < inf and self._woken_ms <= now_ms:
            self._woken_ms = earliest_ms
            self.engine.wake_at(earliest_ms)
        return ready

    def able(self, worker: int, model: int) -> bool:
        """Return whether a worker could run a model, and does not hold it."""
        return model not in self.engine.workers.loaded[worker] and super().able(worker, model)

    def make_room(self, worker: int, model: int) -> None:
        """Unload the least recently run models, as far as needed."""
        workers, used_ms = self.engine.workers, self.used_ms[worker]
        for other in sorted(workers.loaded[worker], key=lambda m: (used_ms.get(m, -1.0), m)):
            if workers.fits(worker, model):
                return
            self.unload(worker, other)
