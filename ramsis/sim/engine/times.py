"""What batches and loads take, as lists that are quick to look up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ramsis.scenario import Scenario
from ramsis.sim.fleet import Fleet

_Rows = list[list[list[float]]]
_Quantiles = list[list[list[list[float]]]]


class Times:
    """Times of batches and loads; T worker types, M models."""

    # ``rows[t][m][b - 1]``: mean time of a batch of b, alone; infinite or missing where it is
    # not run
    rows: _Rows
    # ``sizes[t][m]``: the batch sizes that are listed, rising; of fleets all up to the largest
    sizes: Sequence[Sequence[Sequence[int]]]
    # ``quantiles[t][kind[m]][b - 1]``: what times are drawn by, at ``levels[t]``
    quantiles: _Quantiles
    levels: list[list[float]]
    kind: list[int]  # where each model's quantiles are
    # quantiles of the tokens of a request, by kind; empty for one-shot inference
    tokens: list[list[float]]
    continuous: list[bool]  # by kind
    any_continuous = False
    plain: bool  # whether all times are those of ``rows``

    def load_ms(self, worker_type: int, model: int, first: bool) -> float:
        """Time of a load, or of the first one in the cluster; there is none."""
        return 0.0

    def runs(self, worker_type: int, model: int) -> bool:
        """Whether workers of a type can run a model."""
        return bool(self.sizes[worker_type][model])


class ClusterTimes(Times):
    """Times of a scenario, batches padded to the next listed size.

    Means of autoregressive models are at the mean number of tokens.
    """

    def __init__(self, scenario: Scenario) -> None:
        arrays, models = scenario.arrays, scenario.models
        self.kind = arrays.kind.tolist()
        self.tokens = [list(model.inference.output_tokens) for model in models]
        self.continuous = [model.inference.batching == "continuous" for model in models]
        self.any_continuous = any(self.continuous)
        mean = arrays.latency_ms.tolist()
        for by_kind in mean:
            for k, tokens in enumerate(self.tokens):
                if tokens:
                    by_kind[k] = [ms * sum(tokens) / len(tokens) for ms in by_kind[k]]
        self.rows = [[by_kind[k] for k in self.kind] for by_kind in mean]
        self.sizes = [[by_kind[k] for k in self.kind] for by_kind in arrays.batch_sizes]
        self.quantiles = arrays.quantiles_ms.tolist()
        width = arrays.quantiles_ms.shape[3]
        self.levels = [[(i + 0.5) / width for i in range(width)]] * len(arrays.types)
        self.plain = width == 1 and not any(self.tokens)
        self._load_ms: list[list[float]] = arrays.load_ms.tolist()
        self._first_load_ms: list[list[float]] = arrays.first_load_ms.tolist()

    def load_ms(self, worker_type: int, model: int, first: bool) -> float:
        """Time of a load, or of the first one in the cluster."""
        return (self._first_load_ms if first else self._load_ms)[worker_type][model]


class FleetTimes(Times):
    """Service times of several fleets, with models numbered consecutively over the fleets."""

    def __init__(self, fleets: Sequence[Fleet]) -> None:
        count = [len(fleet.models) for fleet in fleets]
        self.kind = list(range(sum(count)))
        self.tokens, self.continuous = [[] for _ in self.kind], [False] * len(self.kind)
        self.plain = not any(fleet.draws for fleet in fleets)
        self.rows, self.quantiles = [], []
        self.levels = [fleet.service_times.levels.tolist() for fleet in fleets]
        for i, fleet in enumerate(fleets):
            before: list[Any] = [[]] * sum(count[:i])
            behind: list[Any] = [[]] * sum(count[i + 1:])
            drawn = fleet.service_times.quantiles_ms
            self.rows.append([*before, *drawn.mean(axis=2).tolist(), *behind])
            self.quantiles.append([*before, *drawn.tolist(), *behind])
        self.sizes = [[range(1, len(rows) + 1) for rows in by_model] for by_model in self.rows]
