"""A scenario as arrays, with workers, models and their copies indexed from 0.

Here each copy of a model is a separate *model*; its *kind* is the entry of the file. Properties
that all copies share are stored by kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

import numpy as np

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.reprs import dataclass
from ramsis.scenario.records import ScenarioModel, ScenarioWorkerType, StartState, Stream


@dataclass(frozen=True, eq=False)
class ScenarioArrays:
    """T worker types, W workers, K kinds of models, M models, S streams."""

    # types, workers, kinds, models, streams: names
    types: tuple[str, ...]
    workers: tuple[str, ...]
    kinds: tuple[str, ...]
    models: tuple[str, ...]
    streams: tuple[str, ...]
    worker_type: IntArray  # the type of each worker, shape (W,)
    active: BoolArray  # whether each worker is active at the start, shape (W,)
    type_memory_mb: FloatArray  # shape (T,): memory of a worker; infinite where it does not matter
    # shape (T,): most models that a worker holds; infinite without a limit
    type_max_models: FloatArray
    kind: IntArray  # the kind of each model, shape (M,)
    family: IntArray  # shape (M,): models with the same number answer each other's requests
    # accuracy, memory_mb: shape (M,)
    accuracy: FloatArray
    memory_mb: FloatArray
    # load_ms, first_load_ms: shape (T, M): time of a load, and of a model's first load in the
    # cluster
    load_ms: FloatArray
    first_load_ms: FloatArray
    # ``batch_sizes[t][k]``: the listed batch sizes, rising; empty where a type cannot run a kind
    batch_sizes: tuple[tuple[tuple[int, ...], ...], ...]
    # shape (T, K, B, Q): quantiles at the midpoints of Q equal parts of a batch of b + 1;
    # infinite for a batch that is not run. Q is 1 where all times are fixed.
    quantiles_ms: FloatArray
    stream_models: tuple[IntArray, ...]  # the models that each stream's requests go to
    stream_shares: tuple[FloatArray, ...]  # the probability of each of them
    start: tuple[tuple[int, ...], ...]  # the models that each worker holds at the start

    @classmethod
    def of(
        cls, types: Sequence[ScenarioWorkerType], models: Sequence[ScenarioModel],
        streams: Sequence[Stream], start: Sequence[StartState],
    ) -> ScenarioArrays:
        """Build the arrays from consistent records."""
        copies = np.array([model.copies for model in models])
        kind = np.repeat(np.arange(len(models)), copies)
        counts = [worker_type.count for worker_type in types]
        load, first = (np.array([[_load_ms(model, worker_type, is_first) for model in models]
                                 for worker_type in types]) for is_first in (False, True))
        places = _places(models)
        chosen = [places[stream.model] for stream in streams]
        return cls(
            types=tuple(worker_type.name for worker_type in types),
            workers=tuple(name for worker_type in types for name in worker_type.worker_names()),
            kinds=tuple(model.name for model in models),
            models=tuple(name for model in models for name in model.instance_names()),
            streams=tuple(stream.name for stream in streams),
            worker_type=np.repeat(np.arange(len(types)), counts),
            active=np.concatenate([
                np.arange(count) < (count if worker_type.active is None else worker_type.active)
                for worker_type, count in zip(types, counts, strict=True)]),
            type_memory_mb=np.array([worker_type.memory_mb or np.inf for worker_type in types]),
            type_max_models=np.array([worker_type.max_models or np.inf for worker_type in types]),
            kind=kind, family=_families(models),
            accuracy=np.array([model.accuracy for model in models])[kind],
            memory_mb=np.array([model.memory_mb for model in models])[kind],
            load_ms=load[:, kind], first_load_ms=first[:, kind],
            batch_sizes=tuple(tuple(tuple(sorted(_listed(model, worker_type))) for model in models)
                              for worker_type in types),
            quantiles_ms=_quantiles_ms(types, models),
            stream_models=tuple(np.arange(place.start, place.stop) for place in chosen),
            stream_shares=tuple(_shares(stream.shares, len(place))
                                for stream, place in zip(streams, chosen, strict=True)),
            start=_start(types, places, start),
        )

    @cached_property
    def latency_ms(self) -> FloatArray:
        """Mean times of batches 1 … B, shape (T, K, B); infinite where not run."""
        return np.asarray(self.quantiles_ms.mean(axis=3))

    @property
    def max_batch(self) -> int:
        """Largest batch of any kind, B."""
        return int(self.quantiles_ms.shape[2])


def _places(models: Sequence[ScenarioModel]) -> dict[str, range]:
    """Return the models of each name of a kind or a copy."""
    firsts = [0, *accumulate(model.copies for model in models)]
    places = {model.name: range(first, first + model.copies)
              for model, first in zip(models, firsts, strict=False)}
    for model, first in zip(models, firsts, strict=False):
        for i, name in enumerate(model.instance_names()):
            places.setdefault(name, range(first + i, first + i + 1))
    return places


def _families(models: Sequence[ScenarioModel]) -> IntArray:
    """Number the families; return each model's number."""
    numbers: dict[str, int] = {}
    families: list[int] = []
    for model in models:
        for _ in range(model.copies):
            number = len(families)
            families.append(number if model.family is None
                            else numbers.setdefault(model.family, number))
    return np.array(families)


def _listed(model: ScenarioModel, kind: ScenarioWorkerType) -> dict[int, tuple[float, ...]]:
    """Return the quantiles of a model on a worker type, by batch size."""
    return {entry.batch: entry.quantiles_ms or (entry.latency_ms or 0.0,)
            for entry in model.latency if entry.worker_type == kind.name}


def _quantiles_ms(
    types: Sequence[ScenarioWorkerType], models: Sequence[ScenarioModel]
) -> FloatArray:
    """Return quantiles of all batches, each at the time of the next listed size."""
    largest = max(entry.batch for model in models for entry in model.latency)
    width = max(len(entry.quantiles_ms) or 1 for model in models for entry in model.latency)
    quantiles = np.full((len(types), len(models), largest, width), np.inf)
    for t, kind in enumerate(types):
        for k, model in enumerate(models):
            done = 0
            for batch, values in sorted(_listed(model, kind).items()):
                quantiles[t, k, done:batch] = _finer(np.array(values), width)
                done = batch
    return quantiles


def _finer(values: FloatArray, width: int) -> FloatArray:
    """Interpolate quantiles at the midpoints of ``width`` parts."""
    if len(values) in (1, width):
        return np.broadcast_to(values, (width,))
    levels = (np.arange(len(values)) + 0.5) / len(values)
    return np.asarray(np.interp((np.arange(width) + 0.5) / width, levels, values))


def _load_ms(model: ScenarioModel, kind: ScenarioWorkerType, first: bool) -> float:
    """Return the time to load a model onto a worker type, in ms."""
    for load in model.load:
        if load.worker_type == kind.name:
            return load.first_load_ms if first and load.first_load_ms is not None else load.load_ms
    if first and model.first_load_ms is not None:
        return model.first_load_ms
    if model.load_ms is not None:
        return model.load_ms
    if kind.load_mb_per_s is not None:
        return 1000.0 * model.memory_mb / kind.load_mb_per_s
    return 0.0


def _shares(shares: Sequence[float], copies: int) -> FloatArray:
    weights = np.array(shares if len(shares) else [1.0] * copies, dtype=float)
    return np.asarray(weights / weights.sum())


def _start(
    types: Sequence[ScenarioWorkerType], places: dict[str, range], start: Sequence[StartState]
) -> tuple[tuple[int, ...], ...]:
    held: dict[str, dict[int, None]] = {
        name: {} for worker_type in types for name in worker_type.worker_names()}
    of_type = {worker_type.name: worker_type.worker_names() for worker_type in types}
    for state in start:
        for worker in of_type.get(state.worker, (state.worker,)):
            for name in state.models:
                held[worker].update(dict.fromkeys(places[name]))
    return tuple(tuple(models) for models in held.values())
