"""What batches and loads take, as lists that are quick to look up."""

from __future__ import annotations

from ramsis.scenario import Scenario

__all__ = ["Times"]


class Times:
    """Times of a scenario; T worker types, M models of K kinds.

    Attributes
    ----------
    kind : list of int
        The kind of each model.
    rows : list of list of list of float
        ``rows[t][m][b - 1]``: mean time of a batch of b, alone, padded to the next listed size;
        infinite where it is not run. Of autoregressive models at the mean number of tokens.
    sizes : list of list of tuple of int
        ``sizes[t][m]``: the listed batch sizes, rising.
    quantiles : list
        ``quantiles[t][k][b - 1]``: the quantiles that times are drawn by.
    levels : list of float
        Theirs.
    tokens : list of list of float
        Quantiles of the tokens of a request, by kind; empty for one-shot inference.
    continuous : list of bool
        By kind.
    plain : bool
        Whether all times are those of ``rows``.
    """

    def __init__(self, scenario: Scenario) -> None:
        arrays, models = scenario.arrays, scenario.models
        self.kind: list[int] = arrays.kind.tolist()
        self.tokens = [list(one.inference.output_tokens) for one in models]
        self.continuous = [one.inference.batching == "continuous" for one in models]
        self.any_continuous = any(self.continuous)
        mean = arrays.latency_ms.tolist()
        for by_kind in mean:
            for k, tokens in enumerate(self.tokens):
                if tokens:
                    by_kind[k] = [ms * sum(tokens) / len(tokens) for ms in by_kind[k]]
        self.rows: list[list[list[float]]] = [[by_kind[k] for k in self.kind] for by_kind in mean]
        self.sizes = [[by_kind[k] for k in self.kind] for by_kind in arrays.batch_sizes]
        self.quantiles: list[list[list[list[float]]]] = arrays.quantiles_ms.tolist()
        width = arrays.quantiles_ms.shape[3]
        self.levels = [(i + 0.5) / width for i in range(width)]
        self.plain = width == 1 and not any(self.tokens)
        self._load_ms: list[list[float]] = arrays.load_ms.tolist()
        self._first_load_ms: list[list[float]] = arrays.first_load_ms.tolist()

    def load_ms(self, worker_type: int, model: int, first: bool) -> float:
        """Time of a load, or of the first one in the cluster."""
        return (self._first_load_ms if first else self._load_ms)[worker_type][model]

    def runs(self, worker_type: int, model: int) -> bool:
        """Whether workers of a type can run a model."""
        return bool(self.sizes[worker_type][model])
