"""Distributions of service times on one grid of latencies.

The first passage of a service is linear in the distribution of its time, so a distribution enters
the structured form as weights on a grid of latencies. A fixed time is a point of the grid. A
random one has Q quantiles with weights; each is divided between its two neighbours in the grid
such that the mean is kept. The grid of random times has a step of SLO/200 below the SLO and of a
32nd of the time beyond it. It reaches the largest quantile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, eye_array

from ramsis.arrays import FloatArray, IntArray
from ramsis.profiles.tails import Tails
from ramsis.reprs import brief

_STEPS_PER_SLO = 200
_BEYOND = 32  # steps per unit of the logarithm, beyond the SLO


class RandomTimes(NamedTuple):
    """Random service times by model and batch.

    Attributes
    ----------
    quantiles_ms : ndarray, shape (M, B, Q)
        Quantiles, for at least two models and batches; infinite for a batch that is not to be
        run.
    levels : ndarray, shape (Q,), optional
        Their levels; by default the midpoints of Q equal parts.
    samples : ndarray of int, shape (M, B), optional
        How many samples each distribution rests on; 0 where it is not known.
    tails : Tails, optional
        Pooled tails of the profile's service times.
    """

    quantiles_ms: FloatArray
    levels: FloatArray | None = None
    samples: IntArray | None = None
    tails: Tails | None = None

    def __repr__(self) -> str:
        return brief(self)


@dataclass(frozen=True, eq=False)
class ServiceDistributions:
    """The distributions of the service times of some pairs of a model and a batch."""

    row: dict[tuple[int, int], int]  # which distribution a model and a batch have
    latency_ms: FloatArray  # the grid, rising, shape (G,)
    # shape (S, G): probabilities of the latencies under each distribution
    weights: csr_array[np.float64]
    mean_ms: FloatArray  # shape (S,)

    def terms(self, service: int) -> list[tuple[int, float]]:
        """Return grid indices and probabilities of one distribution."""
        part = slice(self.weights.indptr[service], self.weights.indptr[service + 1])
        return list(zip(self.weights.indices[part].tolist(), self.weights.data[part].tolist(),
                        strict=True))


def fixed_services(
    pairs: Sequence[tuple[int, int]], latency_ms: FloatArray
) -> ServiceDistributions:
    """Return fixed times, one per distinct latency of the pairs; ``latency_ms``: (M, B)."""
    model, batch = np.array(sorted(set(pairs))).T
    values, row = np.unique(latency_ms[model, batch - 1], return_inverse=True)
    weights = eye_array(len(values), format="csr")
    rows = dict(zip(zip(model.tolist(), batch.tolist(), strict=True), row.tolist(), strict=True))
    return ServiceDistributions(rows, values, weights, values)


def random_services(
    pairs: Sequence[tuple[int, int]], quantiles_ms: FloatArray, share_of: FloatArray, slo_ms: float
) -> ServiceDistributions:
    """Return random times, one distribution per pair.

    Parameters
    ----------
    quantiles_ms : ndarray, shape (M, B, Q)
    share_of : ndarray, shape (Q,)
        Probability that each quantile stands for.
    """
    listed = sorted(set(pairs))
    model, batch = np.array(listed).T
    quantiles = quantiles_ms[model, batch - 1]
    grid = _grid(float(quantiles.min()), float(quantiles.max()), slo_ms)
    high = np.clip(np.searchsorted(grid, quantiles), 1, len(grid) - 1)
    share = np.clip((quantiles - grid[high - 1]) / (grid[high] - grid[high - 1]), 0.0, 1.0)
    indices = np.broadcast_to(np.arange(len(listed))[:, None], quantiles.shape)
    weights = csr_array(
        (np.concatenate([(1.0 - share) * share_of, share * share_of], axis=None),
         (np.concatenate([indices, indices], axis=None),
          np.concatenate([high - 1, high], axis=None))),
        shape=(len(listed), len(grid)),
    )
    weights.sum_duplicates()
    weights.eliminate_zeros()
    rows = {pair: row for row, pair in enumerate(listed)}
    return ServiceDistributions(rows, grid, weights, quantiles @ share_of)


def _grid(low_ms: float, high_ms: float, slo_ms: float) -> FloatArray:
    """Return a grid of at least two latencies that covers all quantiles."""
    step = slo_ms / _STEPS_PER_SLO
    first, last = math.floor(low_ms / step), math.ceil(min(high_ms, slo_ms) / step)
    grid = step * np.arange(max(first, 1), max(first, 1, last) + 2)
    beyond = math.ceil(_BEYOND * math.log(max(high_ms / grid[-1], 1.0)))
    if first < 1:
        grid = np.append(low_ms / 2, grid) if low_ms < grid[0] else grid
    return np.append(grid, grid[-1] * np.exp(np.arange(1, beyond + 1) / _BEYOND))
