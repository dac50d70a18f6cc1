"""Compiled loops of the bound on requests with a size.

Times are in ms. Requests are in the order of arrival, ``release`` and ``deadline`` of shape (n,),
neither falling. ``worth`` (M, n) is what an answer in time by each model is worth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.compiling import njit


class Windows(NamedTuple):
    """When each request can start and has to end, and its size; in the order of arrival."""

    release: FloatArray
    deadline: FloatArray
    size: IntArray


class Grid(NamedTuple):
    """Batch times in ms, and in whole cells of a grid of start times."""

    width: float  # of a cell
    cells: int
    time_ms: FloatArray  # shape (M, B, X): of b requests padded to x
    steps: IntArray  # the same in whole cells, rounded down; 1 or more


class Choices(NamedTuple):
    """Best batch that starts in each cell, shape (cells,)."""

    model: IntArray
    longest: IntArray  # the request with the longest size
    members: IntArray  # how many it has; 0 where none starts


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def most_work(
    windows: Windows, request: IntArray, work: FloatArray, workers: float,
) -> tuple[FloatArray, IntArray, IntArray]:
    """Schedule pieces of work greedily, of each as much as the workers have time for.

    Work w_i fits if between any release r_i and deadline d_j requests i to j have no more than
    K·(d_j − r_i). With W the work of all requests up to one, the most to add to request i is

        min_{j >= i} (K·d_j − W_j) − max_{j <= i} (K·r_j − W_{j−1}).

    Returns the work added of each piece, and the first and last request of the interval that
    limits it; −1 where it fits whole.
    """
    late, early = workers * windows.deadline, workers * windows.release
    pieces = request.size
    added = np.zeros(pieces)
    first, last = np.full(pieces, -1, np.int64), np.full(pieces, -1, np.int64)
    for p in range(pieces):
        i = request[p]
        low, high = i, i  # the interval that limits request i: where the minimum and maximum are
        for j in range(i - 1, -1, -1):
            if early[j] > early[low]:
                low = j
        for j in range(i + 1, late.size):
            if late[j] < late[high]:
                high = j
        added[p] = max(0.0, min(work[p], late[high] - early[low]))
        if added[p] < work[p]:
            first[p], last[p] = low, high
        if added[p] > 0.0:  # ``late`` is K·d_j − W_j, ``early`` is K·r_j − W_{j−1}
            late[i:] -= added[p]
            early[i + 1:] -= added[p]
    return added, first, last


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def least_prices(
    windows: Windows, slope: FloatArray, first: IntArray, last: IntArray
) -> FloatArray:
    """Return the least price of time within the window of each request.

    At any time the price is the steepest ``slope`` (pieces,), which falls, of those pieces whose
    limiting interval covers the time.
    """
    times = np.sort(np.concatenate((windows.release, windows.deadline)))
    price = np.zeros(times.size)
    for p in range(slope.size - 1, -1, -1):
        if first[p] >= 0:
            low = np.searchsorted(times, windows.release[first[p]])
            high = np.searchsorted(times, windows.deadline[last[p]])
            price[low:high] = slope[p]  # flatter pieces were entered before
    least = np.zeros(windows.release.size)
    for i in range(least.size):
        low = np.searchsorted(times, windows.release[i])
        high = np.searchsorted(times, windows.deadline[i])
        least[i] = price[low:high].min()
    return least


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _move_window(
    windows: Windows, start: float, end: float, bounds: IntArray, active: IntArray, count: int
) -> int:
    """Update the requests that can be in a batch that starts within [start, end].

    ``active`` has those that have come by ``end`` and are not due before ``start``, by size;
    ``bounds`` is where they begin and end in the order of arrival. Both times only fall.
    """
    release, deadline, size = windows
    low, high = bounds[0], bounds[1]
    while low > 0 and deadline[low - 1] >= start:
        low -= 1
        at = count
        while at > 0 and size[active[at - 1]] > size[low]:
            active[at] = active[at - 1]
            at -= 1
        active[at] = low
        count += 1
    while high > low and release[high - 1] > end:
        high -= 1
        at = 0
        while active[at] != high:
            at += 1
        count -= 1
        for k in range(at, count):
            active[k] = active[k + 1]
    bounds[0], bounds[1] = low, high
    return count


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def best_path(windows: Windows, worth: FloatArray, grid: Grid) -> tuple[FloatArray, Choices]:
    """Return the largest value of batches from each cell on, and the best batch that starts there.

    V(k) is the value of batches that start in cell k or later. With batches of b requests on m,
    padded to the size x of the longest one,

        V(k) = max(V(k + 1), max_{m,x,b} [the b largest worths] + V(k + steps(m, b, x))).

    Members arrive by the end of the cell, are no longer than x, and are due no earlier than
    T(m, b, x) after the start of the cell.
    """
    release, deadline, size = windows
    width, cells, time_ms, steps = grid
    models, most = time_ms.shape[0], time_ms.shape[1]
    value = np.zeros(cells + int(steps.max()) + 2)
    choices = Choices(np.zeros(cells, np.int64), np.zeros(cells, np.int64),
                      np.zeros(cells, np.int64))
    active, bounds = np.empty(release.size, np.int64), np.array([release.size, release.size])
    top, due = np.empty(release.size), np.empty(release.size)
    waiting = 0
    for k in range(cells - 1, -1, -1):
        start = k * width
        waiting = _move_window(windows, start, start + width, bounds, active, waiting)
        best = value[k + 1]
        for m in range(models):
            count = 0
            for at in range(waiting):
                i = active[at]
                longest, gain = size[i], worth[m, i]
                if gain <= 0.0 or start + time_ms[m, 0, longest] > deadline[i]:
                    continue
                # ``top`` has all usable requests up to this size, the largest worth first.
                place = count
                count += 1
                while place > 0 and top[place - 1] < gain:
                    top[place], due[place] = top[place - 1], due[place - 1]
                    place -= 1
                top[place], due[place] = gain, deadline[i]
                # Deadlines are checked only for batches that would be best without them.
                total = 0.0
                for b in range(min(count, most)):
                    total += top[b]
                    after = value[k + steps[m, b, longest]]
                    if total + after <= best:
                        continue
                    ready, earned, members = start + time_ms[m, b, longest], 0.0, 0
                    for j in range(count):
                        if due[j] >= ready:
                            earned += top[j]
                            members += 1
                            if members == b + 1:
                                break
                    if earned + after > best:
                        best = earned + after
                        choices.model[k], choices.longest[k] = m, i
                        choices.members[k] = b + 1
        value[k] = best
    return value, choices


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def members_of_path(
    windows: Windows, worth: FloatArray, grid: Grid, choices: Choices
) -> FloatArray:
    """Return how often each request is in a batch of the best sequence, shape (n,)."""
    release, deadline, size = windows
    used = np.zeros(release.size)  # a sequence may have a request twice: the bound relaxes that
    chosen = np.empty(release.size, np.int64)
    k, low = 0, 0
    while k < grid.cells:
        if choices.members[k] == 0:
            k += 1
            continue
        start, m, most = k * grid.width, choices.model[k], choices.members[k]
        longest = size[choices.longest[k]]
        ready = start + grid.time_ms[m, most - 1, longest]
        while low < release.size and deadline[low] < start:
            low += 1
        count, j = 0, low
        while j < release.size and release[j] <= start + grid.width:
            gain = worth[m, j]
            if gain > 0.0 and size[j] <= longest and deadline[j] >= ready:
                at = count
                while at > 0 and worth[m, chosen[at - 1]] < gain:
                    chosen[at] = chosen[at - 1]
                    at -= 1
                chosen[at] = j
                count += 1
            j += 1
        for at in range(min(count, most)):
            used[chosen[at]] += 1.0
        k += grid.steps[m, most - 1, longest]
    return used
