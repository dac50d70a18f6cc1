"""Times of batches and loads, as lists that are quick to look up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ramsis.scenario import Scenario
from ramsis.sim.fleet import Fleet


@dataclass(frozen=True, eq=False)
class Times:
    """Times of batches and loads; T worker types, M models."""

    # ``rows[t][m][b - 1]``: mean time of a batch of b, alone; infinite or missing where it is
    # not run
    rows: list[list[list[float]]]
    # ``sizes[t][m]``: the batch sizes that are listed, rising; of fleets all up to the largest
    sizes: Sequence[Sequence[Sequence[int]]]
    # ``quantiles[t][kind[m]][b - 1]``: what times are drawn by, at ``levels[t]``
    quantiles: list[list[list[list[float]]]]
    levels: list[list[float]]
    kind: list[int]  # where each model's quantiles are
    # quantiles of the tokens of a request, by kind; empty for one-shot inference
    tokens: list[list[float]]
    continuous: list[bool]  # whether batches are continuous, by kind
    # ``loads[t][m]``: time of a load, and of a model's first load in the cluster
    loads: list[list[float]]
    first_loads: list[list[float]]

    @classmethod
    def of_scenario(cls, scenario: Scenario) -> Times:
        """Return the times of a scenario, batches padded to the next listed size.

        Means of autoregressive models are at the mean number of tokens.
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
        """Return the times of fleets: models are numbered through, and nothing is loaded."""
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
        """Return the time of a load, or of the first one of the model in the cluster."""
        return (self.first_loads if first else self.loads)[worker_type][model]

    def runs(self, worker_type: int, model: int) -> bool:
        """Return whether workers of a type can run a model."""
        return bool(self.sizes[worker_type][model])
