"""Values and visits of a policy, from one sparse factorisation (:mod:`ramsis.central.solve`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array
from scipy.sparse.linalg import SuperLU, splu

from ramsis.central.chain import _kernels
from ramsis.central.model import Model

__all__ = ["SteadyState", "Values", "evaluate", "steady_state_of"]

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int16]

_RESIDUAL = 1e-6


@dataclass(frozen=True)
class Values:
    """Gain per ms, values, and visits of the rows.

    Waiting and deciding at an end of a batch (I, N), deciding with one worker idle (N, J); visits
    of waiting and both kinds of deciding (3, I, N), and of deciding with one worker idle (N, J).
    """

    gain: float
    wait: FloatArray
    free: FloatArray
    last: FloatArray
    visits: FloatArray
    last_visits: FloatArray


@dataclass(frozen=True, eq=False)
class SteadyState:
    """How a policy behaves in the steady state of its model.

    Attributes
    ----------
    gain : float
        Effective accuracy less price times violation rate.
    batches, in_time : ndarray, shape (A,)
        Batches of each action and their queries in time, per query that arrives.
    dropped, overflow : float
        Share of the queries dropped, and of those because the queue was at its longest.
    queue, slack : ndarray, shapes (N,), (J,)
        Distribution of the queue and of the head's slack bin when a batch is started.
    late_share : float
        Mean over the batches of the share of its queries that is late.
    restart : float
        Share of the arrivals' rate at which the chain was returned to empty.
    """

    gain: float
    batches: FloatArray
    in_time: FloatArray
    dropped: float
    overflow: float
    queue: FloatArray
    slack: FloatArray
    late_share: float
    restart: float


def evaluate(model: Model, to: Codes, action: Codes) -> Values | None:
    """Values and visits of a policy; None where the system is singular to working precision."""
    row, column, weight, constant, cost = _kernels.rows(model, to, action)
    lengths = len(model.queue)
    home, size = (len(model.idle) - 1) * lengths, len(constant)
    kept = column != home  # the value of home is 0; the gain takes its column
    costly = np.flatnonzero(cost)
    matrix = csc_array(
        (np.concatenate([weight[kept], cost[costly]]),
         (np.concatenate([row[kept], costly]),
          np.concatenate([column[kept], np.full(len(costly), home)]))),
        shape=(size, size),
    )
    try:
        factors: SuperLU = splu(matrix, permc_spec="COLAMD")
    except RuntimeError:  # exactly singular
        return None
    value = np.asarray(factors.solve(constant))
    unit = np.zeros(size)
    unit[home] = 1.0
    visits = np.asarray(factors.solve(unit, "T"))  # type: ignore[call-overload]
    if not (np.isfinite(value).all() and np.isfinite(visits).all()):
        return None
    scale = 1.0 + float(np.abs(constant).max())
    if float(np.abs(matrix @ value - constant).max()) > _RESIDUAL * scale:
        return None
    if float(np.abs(matrix.T @ visits - unit).max()) > _RESIDUAL:
        return None
    gain = float(value[home])
    value[home] = 0.0
    shape, last = (3, len(model.idle), lengths), 3 * len(model.idle) * lengths
    end = last + model.slack_probability[0].size
    parts, bins = value[:last].reshape(shape), (lengths, model.slack_probability.shape[2])
    return Values(gain, parts[0].copy(), parts[1].copy(), value[last:end].reshape(bins),
                  visits[:last].reshape(shape), visits[last:end].reshape(bins))


def steady_state_of(model: Model, to: Codes, action: Codes, values: Values) -> SteadyState:
    """What a policy does, given its visits."""
    found = _kernels.rates(model, to, action, np.maximum(values.visits, 0.0),
                            np.maximum(values.last_visits, 0.0))
    started = max(float(found.batches.sum()), 1e-300)
    return SteadyState(
        gain=values.gain / model.load,
        batches=found.batches / model.load,
        in_time=found.in_time / model.load,
        dropped=found.dropped / model.load,
        overflow=found.overflow / model.load,
        queue=found.queue / started,
        slack=found.slack / started,
        late_share=found.mean_late / started,
        restart=model.restart / model.load,
    )
