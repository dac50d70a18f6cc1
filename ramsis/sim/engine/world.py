"""The world of a run: workers, models and streams, and the times of batches and loads.

A fleet is the plain case: all models are loaded on all workers, nothing is loaded or unloaded, and
any model may answer any request.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.cluster import ServiceTimes
from ramsis.errors import InputFileError
from ramsis.profiles import LatencyTable
from ramsis.reprs import dataclass
from ramsis.scenario import ClosedLoopOf, Scenario, ScenarioWorkerType, Stream, TimesOf
from ramsis.sim.fleet import Fleet, site_of
from ramsis.sim.run import Site
from ramsis.sim.workload import ClosedLoop


@dataclass(frozen=True, eq=False)
class World:
    """Workers, models and streams of a run, each numbered from 0."""

    name: str
    site: Site  # workers and models
    types: Sequence[ScenarioWorkerType]  # by the site's ``worker_type``
    # of each model; models with the same number answer each other's requests
    family: Sequence[int]
    memory_mb: Sequence[float]  # of each model
    streams: Sequence[Stream]
    stream_models: Sequence[IntArray]  # the models that each stream's requests go to
    stream_shares: Sequence[FloatArray]  # the probability of each of them
    times: Times
    duration_ms: float  # when arrivals stop
    network_ms: float = 0.0  # added to each batch before it runs; the worker counts as busy
    fleets: tuple[Fleet, ...] = ()  # that the world was made of, if it was

    @classmethod
    def of_scenario(cls, scenario: Scenario) -> World:
        """Return workers, models and service times of a scenario, for the engine."""
        arrays = scenario.arrays
        site = Site(arrays.workers, arrays.worker_type, arrays.active, arrays.models,
                    arrays.accuracy, arrays.start, arrays.kinds, arrays.kind)
        return cls(scenario.name, site, scenario.worker_types, arrays.family.tolist(),
                   arrays.memory_mb.tolist(), scenario.streams, arrays.stream_models,
                   arrays.stream_shares, Times.of_scenario(scenario), scenario.duration_ms)

    @classmethod
    def of_fleets(
        cls, fleets: Sequence[Fleet], slos_ms: Sequence[float], duration_ms: float,
        loop: ClosedLoop | None = None,
    ) -> World:
        """Return the world of fleets, one for each type of workers.

        Each SLO, of rising ones, has a stream. Its requests ask for the most accurate model of the
        first fleet that answers a single request within the shortest SLO, but any model may answer
        them. The users of a ``loop`` make the requests of the only stream.
        """
        first, site = fleets[0], site_of(fleets)
        asked = next((model for model in first.by_accuracy
                      if first.table.latency_ms[model, 0] <= slos_ms[0]), first.by_accuracy[0])
        workload = TimesOf(()) if loop is None else ClosedLoopOf(loop.users, loop.think_ms)
        count = len(site.models)
        return cls(
            "fleet", site, [ScenarioWorkerType(f"type-{i + 1}", fleet.workers)
                            for i, fleet in enumerate(fleets)],
            [0] * count, [0.0] * count,
            [Stream(f"class-{i + 1}", first.models[asked], workload, slo_ms)
             for i, slo_ms in enumerate(slos_ms)],
            [np.array([asked])] * len(slos_ms), [np.ones(1)] * len(slos_ms),
            Times.of_fleets(fleets), duration_ms, first.network_ms, tuple(fleets))

    @cached_property
    def fleet(self) -> Fleet:
        """The workers as a fleet, for schedulers of equal workers that hold all models.

        More general scenarios are refused (InputFileError).
        """
        if self.fleets:
            return self.fleets[0]
        site, times = self.site, self.times
        everything = set(range(len(site.models)))
        conditions = {
            "workers of one type": len(self.types) == 1,
            "workers with one lane": {kind.lanes for kind in self.types} == {1},
            "all models loaded on all workers at the start": all(
                set(loaded) == everything for loaded in site.start),
            "models of one family": len(set(self.family)) == 1,
            "one-shot inference in static batches": not (
                times.any_continuous or any(times.tokens)),
        }
        for condition, holds in conditions.items():
            if not holds:
                raise InputFileError("a scheduler of equal workers cannot serve this scenario",
                                     where=f"scenario {self.name}", allowed=condition)
        largest = min(int(np.isfinite(times.rows[0][model]).sum()) for model in everything)
        quantiles = np.array([times.quantiles[0][kind][:largest] for kind in times.kind])
        # Latencies of a table do not fall with the batch, as measured means may.
        latency = np.maximum.accumulate(quantiles.mean(axis=2), axis=1)
        table = LatencyTable.measured(site.models, site.accuracy, latency, "mean")
        service = "mean" if quantiles.shape[2] == 1 else "distribution"
        return Fleet(table, ServiceTimes(site.models, site.accuracy, quantiles, service),
                     len(site.workers), max(stream.slo_ms for stream in self.streams))


@dataclass(frozen=True, eq=False)
class Times:
    """Times of batches and loads; T worker types, M models."""

    # ``rows[t][m][b - 1]``: mean time of a batch of b that runs alone; infinite or missing if the
    # batch cannot be run
    rows: list[list[list[float]]]
    # ``sizes[t][m]``: listed batch sizes, rising; for fleets, all sizes up to the largest
    sizes: Sequence[Sequence[Sequence[int]]]
    # ``quantiles[t][kind[m]][b - 1]``: quantiles of the time of a batch, at ``levels[t]``
    quantiles: list[list[list[list[float]]]]
    levels: list[list[float]]
    kind: list[int]  # index of each model in ``quantiles``, ``tokens`` and ``continuous``
    # quantiles of the tokens of a request, by kind; empty for one-shot inference
    tokens: list[list[float]]
    continuous: list[bool]  # whether batches are continuous, by kind
    # ``loads[t][m]``: time of a load, and of a model's first load in the cluster
    loads: list[list[float]]
    first_loads: list[list[float]]

    @classmethod
    def of_scenario(cls, scenario: Scenario) -> Times:
        """Return the times of a scenario, with batches padded to the next listed size.

        The mean time of a batch of an autoregressive model is for the mean number of tokens.
        """
        arrays = scenario.arrays
        kind, means = arrays.kind.tolist(), arrays.latency_ms.tolist()
        tokens = [list(model.inference.output_tokens) for model in scenario.models]
        for by_kind in means:
            for k, counts in enumerate(tokens):
                if counts:
                    by_kind[k] = [ms * sum(counts) / len(counts) for ms in by_kind[k]]
        width = arrays.quantiles_ms.shape[3]
        return cls(
            [[by_kind[k] for k in kind] for by_kind in means],
            [[by_kind[k] for k in kind] for by_kind in arrays.batch_sizes],
            arrays.quantiles_ms.tolist(),
            [[(i + 0.5) / width for i in range(width)]] * len(arrays.types), kind, tokens,
            [model.inference.batching == "continuous" for model in scenario.models],
            arrays.load_ms.tolist(), arrays.first_load_ms.tolist())

    @classmethod
    def of_fleets(cls, fleets: Sequence[Fleet]) -> Times:
        """Return the batch times of fleets; models are numbered on, and loads take no time."""
        count = [len(fleet.models) for fleet in fleets]
        models = sum(count)
        rows: list[Any] = []
        quantiles: list[Any] = []
        for i, fleet in enumerate(fleets):
            before: list[Any] = [[]] * sum(count[:i])
            behind: list[Any] = [[]] * sum(count[i + 1:])
            quantiles_ms = fleet.service_times.quantiles_ms
            rows.append([*before, *quantiles_ms.mean(axis=2).tolist(), *behind])
            quantiles.append([*before, *quantiles_ms.tolist(), *behind])
        no_loads = [[0.0] * models] * len(fleets)
        return cls(
            rows, [[range(1, len(row) + 1) for row in by_model] for by_model in rows], quantiles,
            [fleet.service_times.levels.tolist() for fleet in fleets], list(range(models)),
            [[] for _ in range(models)], [False] * models, no_loads, no_loads)

    @cached_property
    def any_continuous(self) -> bool:
        """Whether some model has continuous batches."""
        return any(self.continuous)

    @cached_property
    def plain(self) -> bool:
        """Whether ``rows`` has all times: none is drawn, or depends on tokens."""
        return not any(self.tokens) and all(len(levels) == 1 for levels in self.levels)

    def load_ms(self, worker_type: int, model: int, first: bool) -> float:
        """Return the ms of a load; the first load of a model in the cluster may differ."""
        return (self.first_loads if first else self.loads)[worker_type][model]

    def runs(self, worker_type: int, model: int) -> bool:
        """Return whether workers of a type can run a model."""
        return bool(self.sizes[worker_type][model])
