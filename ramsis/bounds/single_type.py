"""The fluid program of one worker type and one SLO class, which needs no solver.

There are two limits then, on workers' time and on requests:

    max  Σ reward_i·x_i    s.t.   Σ busy_i·x_i <= 1,   Σ x_i <= most,   x >= 0.

A request that takes t of the time at best earns h(t), with h the concave hull of the points
(busy_i, reward_i) and of (0, 0), as far as it rises. So the optimum is most·h(1/most): a mix of
the two corners on both sides of 1/most. The slope of h there is what a unit of time is worth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ramsis.arrays import FloatArray


class Mix(NamedTuple):
    """Optimum of a fluid program: the solution x, its value, and the shadow price of each limit.

    Here the only price is that of time.
    """

    amount: FloatArray
    value: float
    prices: FloatArray


def best_mix(busy: FloatArray, reward: FloatArray, most: float) -> Mix:
    """Solve the fluid program of one type; ``busy`` > 0, ``reward`` >= 0 of shape (n,)."""
    amount, time = np.zeros(len(busy)), 1.0 / most
    corners = _corners(busy, reward)
    at = int(np.searchsorted(busy[corners], time))
    if at == len(corners):  # time for the best of all
        amount[corners[-1:]] = most
        return Mix(amount, float(amount @ reward), np.zeros(1))
    low_busy, low_reward = 0.0, 0.0
    high = corners[at]
    if at:
        low = corners[at - 1]
        low_busy, low_reward = float(busy[low]), float(reward[low])
    share = (time - low_busy) / (busy[high] - low_busy)
    if at:
        amount[low] = most * (1.0 - share)
    amount[high] = most * share
    price = (reward[high] - low_reward) / (busy[high] - low_busy)
    return Mix(amount, float(amount @ reward), np.array([price]))


def _corners(busy: FloatArray, reward: FloatArray) -> list[int]:
    """Return the columns at the corners of the concave hull, least busy first."""
    order = np.lexsort((-reward, busy))
    upto = np.maximum.accumulate(np.append(0.0, reward[order]))
    corners: list[int] = []
    for i in order[reward[order] > upto[:-1]].tolist():
        while corners:
            last = corners[-1]
            x, y = (busy[corners[-2]], reward[corners[-2]]) if len(corners) > 1 else (0.0, 0.0)
            if (reward[last] - y) * (busy[i] - x) > (reward[i] - y) * (busy[last] - x):
                break
            corners.pop()
        corners.append(i)
    return corners
