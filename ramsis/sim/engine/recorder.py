"""Recorder of a run's batches, loads and drops, which returns its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ramsis.sim.engine.requests import AT_MACHINE, TO_PROCESS, WAITING, RequestState
from ramsis.sim.run import Run, Site

_floats, _ints = partial(np.array, dtype=np.float64), partial(np.array, dtype=np.int32)


class Recorder:
    """Record of a run while it is played: batches, loads, drops, in the order of events."""

    def __init__(self) -> None:
        # One list for each field of the batches: Python's collector need not visit numbers.
        self.starts: list[float] = []
        self.finishes: list[float] = []
        self.workers: list[int] = []
        self.models: list[int] = []
        self.sizes: list[int] = []
        self.finish_ms: dict[int, float] = {}  # true ends of batches whose speed changed
        self.loads: list[tuple[float, float, int, int]] = []  # start, end, worker, model
        self.unloads: list[tuple[int, int, float]] = []  # worker, model, time
        self.drops: list[tuple[int, float]] = []  # request, time
        self.scaling: list[tuple[int, bool, float]] = []  # worker, whether it starts, time
        self.answered: dict[int, float] = {}

    def batch(
        self, start_ms: float, finish_ms: float, worker: int, model: int, size: int
    ) -> int:
        """Record the start of a batch; return its number."""
        self.starts.append(start_ms)
        self.finishes.append(finish_ms)
        self.workers.append(worker)
        self.models.append(model)
        self.sizes.append(size)
        return len(self.starts) - 1

    def run(
        self, site: Site, state: RequestState, duration_ms: float, last_ms: float,
        figures: Mapping[str, float],
    ) -> Run:
        """Return the record of the whole run."""
        batch_of = _ints(state.batch)
        finish_ms = _floats(self.finishes)
        # Batches whose speed changed did not end at the time that was recorded at their start.
        if self.finish_ms:
            finish_ms[list(self.finish_ms)] = list(self.finish_ms.values())
        processed_ms = np.empty(0)
        if any(state.processed):
            waits = np.array(state.processed)[np.array(state.stream, dtype=np.int64)]
            processed_ms = np.where(waits, np.inf, np.nan)
            processed_ms[list(self.answered)] = list(self.answered.values())
        batch_of[np.isin(batch_of, (TO_PROCESS, AT_MACHINE))] = WAITING
        drop = _columns(self.drops, 2)
        load = _columns(self.loads, 4)
        unload = _columns(self.unloads, 3)
        scaled = _columns(self.scaling, 3)
        return Run(
            site=site, duration_ms=duration_ms, last_ms=last_ms,
            arrival_ms=_floats(state.arrival_ms), slo_ms=state.slos_ms(),
            earliest_ms=_floats(state.earliest_ms) if state.earliest_ms else np.array([-np.inf]),
            asked=_ints(state.model), stream=_ints(state.stream),
            batch_of=batch_of, processed_ms=processed_ms,
            start_ms=_floats(self.starts), finish_ms=finish_ms, worker=_ints(self.workers),
            model=_ints(self.models), size=_ints(self.sizes),
            load_start_ms=_floats(load[0]), load_end_ms=_floats(load[1]),
            load_worker=_ints(load[2]), load_model=_ints(load[3]),
            unload_worker=_ints(unload[0]), unload_model=_ints(unload[1]),
            unload_ms=_floats(unload[2]),
            drop_request=_ints(drop[0]), drop_ms=_floats(drop[1]),
            scaled_worker=_ints(scaled[0]), scaled_up=np.array(scaled[1], dtype=bool),
            scaled_ms=_floats(scaled[2]), figures=figures,
        )


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> Sequence[Sequence[Any]]:
    return list(zip(*rows, strict=True)) if rows else [()] * width
