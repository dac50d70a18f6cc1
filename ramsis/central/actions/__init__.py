"""Best decisions under given values: the improvement step of policy iteration, and the table.

What follows the start of action a with workers i idle and n requests queued is worth

    h V_d(i−1, n−b) + (1−h) V_d(i, n−b),  h = L/SLO                 i > 1,
    −g L/K + Σ_k a_k V_d(1, n−b+k)                                  i = 1,

where, for i = 1, the age of the next head is kept if the model keeps it. Only this age depends on
the slack of the present head; all else is computed once for all slack bins.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray, IntArray
from ramsis.central.actions import _kernels
from ramsis.central.chain import ChainValues
from ramsis.central.model import CentralArrays

__all__ = ["improve", "table_of"]

Codes = NDArray[np.int16]


def improve(
    model: CentralArrays, values: ChainValues, to: Codes, action: Codes
) -> tuple[int, float]:
    """Improve a policy ``to``, ``action`` (I, N, J) in place, by one round of policy iteration.

    ``values`` are those of the policy so far. Returns the number of changed decisions and the
    largest gain.
    """
    after_last = _after_last(model, values, model.lowest, model.highest)
    changed, most = _kernels.improve(model, values.wait, values.free, after_last, to, action)
    return int(changed), float(most)


def table_of(model: CentralArrays, values: ChainValues, width_ms: FloatArray) -> Codes:
    """Return the decision table of optimal ``values``, (I, N, J); waiting keeps the head's age.

    Entries are an action, -1 to wait, -2 to drop the head; ``width_ms`` (J,) is that of the bins.
    """
    shape = (len(model.idle), len(model.queue), model.slack_probability.shape[2])
    table = np.full(shape, -1, dtype=np.int16)
    after_last = _after_last(model, values, np.zeros(shape[1], dtype=np.int64),
                             np.full(shape[1], shape[2] - 1))
    _kernels.settle(model, values.wait, values.free, after_last, values.gain, width_ms, table)
    return table


def _after_last(
    model: CentralArrays, values: ChainValues, first: IntArray, upto: IntArray
) -> FloatArray:
    """Return the value after each action that takes the last idle worker; -inf if infeasible.

    Shape (N, A, 1), or (N, A, J) with the head's age kept, from each queue's first bin to the last
    that are asked for. The two are compiled apart, as a policy needs one of them.
    """
    cost = values.gain * model.mean_ms / model.workers
    if model.carries:
        return _kernels.after_last_kept(model, values.last, cost, first, upto)
    return _kernels.after_last(model, values.free[1], cost)
