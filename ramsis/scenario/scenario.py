"""A scenario: worker types, models, streams, and its duration; as arrays, and its requests.

In the arrays each copy of a model is a separate *model*; its *kind* is the entry of the file.
Properties that all copies share are stored by kind.

Each stream has its own random generator, so its requests depend neither on other streams nor on
the scheduler. Requests of closed loops, and of streams that begin after another has ended, depend
on the answers: the simulator creates them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import accumulate
from typing import Annotated, Any, ClassVar

import numpy as np

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.errors import whole
from ramsis.records import EMPTY, Positive, Record, stated
from ramsis.reprs import dataclass
from ramsis.scenario.records import ScenarioModel, ScenarioWorkerType, StartState, Stream

_NONE = np.empty(0, dtype=np.int64)

SCENARIO_FORMAT = "ramsis.scenario/1"


@dataclass(frozen=True)
class Scenario(Record):
    """Worker types, models that are loaded and unloaded, and streams of requests.

    :func:`ramsis.scenario.scenario_from_document` creates a scenario and checks its consistency:
    names are unique and exist, each model fits a worker type that runs it, the start state fits,
    and there is a share for each copy of a model.
    """

    FORMAT: ClassVar[str] = SCENARIO_FORMAT

    name: str
    duration_s: Annotated[
        Positive, "Length of the arrivals; requests that have begun are finished."]
    worker_types: tuple[ScenarioWorkerType, ...]
    models: tuple[ScenarioModel, ...]
    streams: tuple[Stream, ...]
    start: Annotated[tuple[StartState, ...], EMPTY, "Models loaded at the start."] = ()

    @property
    def duration_ms(self) -> float:
        """Time after which no request arrives."""
        return 1000.0 * self.duration_s

    @cached_property
    def arrays(self) -> ScenarioArrays:
        """Worker types, models and streams of the scenario as arrays, for the engine."""
        return ScenarioArrays.of(self.worker_types, self.models, self.streams, self.start)

    def with_traces(self) -> Scenario:
        """Return the scenario with the contents of the files that its streams name."""
        return replace(self, streams=tuple(
            replace(stream, workload=stream.workload.read()) for stream in self.streams))

    def model_names(self) -> tuple[str, ...]:
        """Return the name of each model, copies one by one."""
        return tuple(name for model in self.models for name in model.instance_names())

    def to_document(self) -> dict[str, Any]:
        """Return the JSON document of a scenario file."""
        return {"format": SCENARIO_FORMAT, **stated(self)}


@dataclass(frozen=True, eq=False)
class ScenarioArrays:
    """Arrays of a scenario: T worker types, W workers, K kinds of models, M models, S streams."""

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
    # ``batch_sizes[t][k]``: listed batch sizes, rising; empty if a type cannot run a kind
    batch_sizes: tuple[tuple[tuple[int, ...], ...], ...]
    # shape (T, K, B, Q): ``quantiles_ms[t, k, b - 1]`` are the quantiles of the time of a batch of
    # b, at the midpoints of Q equal parts; infinite for a batch that is not run. Q is 1 if all
    # times are fixed.
    quantiles_ms: FloatArray
    stream_models: tuple[IntArray, ...]  # the models that each stream's requests go to
    stream_shares: tuple[FloatArray, ...]  # the probability of each of them
    start: tuple[tuple[int, ...], ...]  # the models that each worker holds at the start

    @classmethod
    def of(
        cls, types: Sequence[ScenarioWorkerType], models: Sequence[ScenarioModel],
        streams: Sequence[Stream], start: Sequence[StartState],
    ) -> ScenarioArrays:
        """Build the arrays of a scenario from records that have been checked."""
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
    """Return the indices of the models that each name, of a kind or of one copy, stands for."""
    firsts = [0, *accumulate(model.copies for model in models)]
    places = {model.name: range(first, first + model.copies)
              for model, first in zip(models, firsts, strict=False)}
    for model, first in zip(models, firsts, strict=False):
        for i, name in enumerate(model.instance_names()):
            places.setdefault(name, range(first + i, first + i + 1))
    return places


def _families(models: Sequence[ScenarioModel]) -> IntArray:
    """Return the family number of each copy, (M,); without a family a copy has its own."""
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
    """Return quantiles of service times by type, model and batch size − 1; shape (T, M, B, Q).

    A batch of a size that is not listed takes as long as one of the next larger listed size. Times
    are infinite beyond the largest size listed for the type and model.
    """
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
    """Return the models that each worker holds at the start, by index."""
    held: dict[str, dict[int, None]] = {
        name: {} for worker_type in types for name in worker_type.worker_names()}
    of_type = {worker_type.name: worker_type.worker_names() for worker_type in types}
    for state in start:
        for worker in of_type.get(state.worker, (state.worker,)):
            for name in state.models:
                held[worker].update(dict.fromkeys(places[name]))
    return tuple(tuple(models) for models in held.values())


@dataclass(frozen=True, eq=False)
class Requests:
    """Requests in the order of their arrival, arrays of shape (n,)."""

    arrival_ms: FloatArray  # non-decreasing
    slo_ms: FloatArray  # deadline after arrival, of each request or of all, shape (n,) or (1,)
    # model, stream: as numbered in :class:`~ramsis.scenario.scenario.ScenarioArrays`; empty if
    # nothing depends on them
    model: IntArray = field(default_factory=_NONE.copy)
    stream: IntArray = field(default_factory=_NONE.copy)
    # time before which an answer is too early; empty if no answer can be
    earliest_ms: FloatArray = field(default_factory=lambda: np.empty(0))
    # uniform number in [0, 1) that draws the service time of a batch with this first request;
    # empty if times are fixed, or if the numbers are drawn during the run
    uniform: FloatArray = field(default_factory=lambda: np.empty(0))
    # rank of the confidence in the first answer, in [0, 1); empty without second opinions
    sureness: FloatArray = field(default_factory=lambda: np.empty(0))

    def __len__(self) -> int:
        return len(self.arrival_ms)

    def part(self, chosen: IntArray) -> Requests:
        """Return the requests at the indices ``chosen``, without models and streams."""
        return Requests(
            self.arrival_ms[chosen],
            self.slo_ms[chosen] if len(self.slo_ms) == len(self) else self.slo_ms,
            uniform=self.uniform[chosen] if len(self.uniform) else self.uniform,
            sureness=self.sureness[chosen] if len(self.sureness) else self.sureness)

    @property
    def deadline_ms(self) -> FloatArray:
        """Deadline of each request, shape (n,)."""
        return self.arrival_ms + self.slo_ms


def stream_generator(stream: int, seed: int) -> np.random.Generator:
    """Return the random generator of a stream; a seed below 0 is refused."""
    whole(0).check("not a seed", seed=seed)
    return np.random.default_rng(np.random.SeedSequence((seed, stream)))


def draw_requests(scenario: Scenario, seed: int) -> Requests:
    """Sample the requests of all streams whose arrivals do not depend on answers."""
    arrays = scenario.arrays
    parts = [(np.empty(0), _NONE, _NONE)]
    for i, stream in enumerate(scenario.streams):
        if stream.after is None and stream.workload.loop is None:
            arrival_ms, model = draw_stream(stream, arrays.stream_models[i],
                                            arrays.stream_shares[i], scenario.duration_ms,
                                            stream_generator(i, seed))
            parts.append((arrival_ms, model, np.full(len(model), i)))
    arrival_ms, model, number = map(np.concatenate, zip(*parts, strict=True))
    order = np.argsort(arrival_ms, kind="stable")
    arrival_ms, model, number = arrival_ms[order], model[order], number[order]
    slo_ms, earliest_ms = np.array(
        [(stream.slo_ms, stream.earliest_ms) for stream in scenario.streams])[number].T
    return Requests(arrival_ms, slo_ms, model, number, arrival_ms + earliest_ms)


def draw_stream(
    stream: Stream, models: IntArray, shares: FloatArray, duration_ms: float,
    rng: np.random.Generator,
) -> tuple[FloatArray, IntArray]:
    """Sample the arrival times of a stream's requests in [0, duration_ms), and their models.

    ``shares`` is the probability of each of the ``models``.
    """
    arrivals, choice = rng.spawn(2)
    drawn = stream.workload.draw(duration_ms, len(models), arrivals)
    if drawn.copy is not None:
        return drawn.times_ms, models[drawn.copy]
    if len(models) == 1:
        return drawn.times_ms, np.full(len(drawn.times_ms), models[0])
    upto = np.cumsum(shares)
    place = np.searchsorted(upto, choice.random(len(drawn.times_ms)) * upto[-1], side="right")
    return drawn.times_ms, models[np.minimum(place, len(models) - 1)]
