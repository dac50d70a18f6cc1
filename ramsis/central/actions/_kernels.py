"""Compiled loops that find the best action in each state, for one number of idle workers.

Indices: i a level of idle workers, n a queue level, j the slack bin of the head, a an action (a
model and a batch size), d the queue level after heads are dropped.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray, IntArray
from ramsis.central._kernels import bin_below, oldest
from ramsis.central.model import CentralArrays
from ramsis.compiling import dot, index, njit, put

_TIE, _ROUNDING = 1e-9, 1e-12  # gain below which a decision stays; difference of equal values
_EVEN = 1.0 + 1e-12  # ratio of bin widths that counts as equal


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _after_idle(model: CentralArrays, free: FloatArray, i: int) -> FloatArray:
    """Return the value after an action that leaves other workers idle, (N, A, 1).

    It is -inf for a batch larger than the queue.

    ``free`` (I, N) are the values of deciding at an end of a batch, and i > 1 the idle level.
    """
    result = np.full((model.queue.size, model.batch.size, 1), -np.inf)
    fewer, same = np.empty(model.low.size), np.empty(model.low.size)  # of each count
    _between(model.low, model.share, free, i - 1, 0, fewer.size, fewer)
    _between(model.low, model.share, free, i, 0, same.size, same)
    down = _down(model, i)
    for n in range(1, model.queue.size):
        _row_after_idle(model.queue, model.batch, n, fewer, same, down, result)
    return result


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _down(model: CentralArrays, i: int) -> FloatArray:
    """Return the probability that a start of each action lowers the idle level by one, (A,)."""
    probability: FloatArray = model.held / (model.idle[i] - model.idle[i - 1])
    return probability


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _between(
    low: IntArray, share: FloatArray, values: FloatArray, i: int, first: int, end: int,
    result: FloatArray,
) -> None:
    """Interpolate values between queue levels, for queues of first … end − 1 requests."""
    top = values.shape[1] - 1
    for count in range(index(first), index(end)):
        at, x = index(low[count]), share[count]
        result[count] = (1.0 - x) * values[i, at] + x * values[i, index(min(low[count] + 1, top))]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _row_after_idle(
    queue: IntArray, batch: IntArray, n: int, fewer: FloatArray, same: FloatArray,
    down: FloatArray, result: FloatArray,
) -> None:
    """Write row n of :func:`_after_idle` from values by queue length, ``fewer`` and ``same``.

    These are of the next lower idle level, which is reached with probability ``down``, and of
    the same one.
    """
    for a in range(batch.size):
        left = queue[n] - batch[a]
        if left >= 0:
            result[n, a, 0] = down[a] * fewer[left] + (1.0 - down[a]) * same[left]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def after_last(model: CentralArrays, free: FloatArray, cost: FloatArray) -> FloatArray:
    """Return the value after an action that takes the last idle worker, (N, A, 1).

    ``free`` (N,) are the values of deciding at an end of a batch with one worker idle, ``cost``
    (A,) the gain times the time until the next worker is free.
    """
    queue, batch, arrivals = model.queue, model.batch, model.arrivals
    result = np.full((queue.size, batch.size, 1), -np.inf)
    # By count first, so that each queue and action is one sum over the arrivals.
    value = np.empty(queue[-1] + arrivals.shape[1] + 1)  # of each count
    for count in range(value.size):
        over = max(count - queue[-1], 0)
        at, x = model.low[count - over], model.share[count - over]
        value[count] = free[at] - model.price * over
        if x > 0.0:
            value[count] += x * (free[at + 1] - free[at])
    for a in range(batch.size):
        most = arrivals.shape[1]
        # Short batches see far fewer arrivals than the row has room for.
        while most > 1 and arrivals[a, most - 1] == 0.0:
            most -= 1
        for n in range(1, queue.size):
            left = queue[n] - batch[a]
            if left >= 0:
                result[n, a, 0] = -cost[a] + dot(arrivals[a], value[left:], 0, most)
    return result


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def after_last_kept(
    model: CentralArrays, last: FloatArray, cost: FloatArray, from_bin: IntArray, upto: IntArray
) -> FloatArray:
    """Return the value after taking the last idle worker, by the head's age, (N, A, J).

    ``last`` (N, J) are the values of deciding with one worker idle, ``cost`` is as for
    :func:`after_last`; outside the bins ``from_bin`` … ``upto`` (N,) the result is -inf.
    """
    queue, batch, arrivals, parts = model.queue, model.batch, model.arrivals, model.parts
    lengths, bins = queue.size, model.slack_ms.size
    anew = _after_last_anew(model, last, cost)
    after = _by_count(model, last)
    per_ms = np.zeros(bins)
    for j in range(bins - 1):
        per_ms[j] = 1.0 / (model.slack_ms[j + 1] - model.slack_ms[j])
    even = bins > 1 and per_ms[:-1].max() <= per_ms[0] * _EVEN and per_ms[0] <= (
        per_ms[:-1].min() * _EVEN)
    result = np.full((lengths, batch.size, bins), -np.inf)
    where, head_ms = np.empty(bins, np.int64), np.empty(bins * parts.size)
    for a in range(batch.size):
        most = arrivals.shape[1]
        while most > 1 and arrivals[a, most - 1] == 0.0:
            most -= 1
        for n in range(1, lengths):
            left = queue[n] - batch[a]
            if left < 0:
                continue
            # All bins of a queue together, so that one pass over the arrivals serves them.
            count = 0
            for j in range(from_bin[n], upto[n] + 1):
                if model.in_time[n, a, j] == 0.0:
                    continue
                # A batch of the whole queue leaves no head, whose age could be kept.
                if left == 0:
                    result[n, a, j] = anew[a]
                    continue
                for part in range(parts.size):
                    head_ms[count * parts.size + part] = (
                        model.slo_ms - model.age_ms[n, j] * model.left_age[n, a, part])
                where[count] = j
                count += 1
            if count == 0:
                continue
            worth = _expected(after[left:], arrivals[a, :most], model.spacing_ms[a],
                              head_ms[: count * parts.size], model.slack_ms, per_ms, even)
            # The mean over the parts of the distribution of the next head's age.
            for i in range(count):
                value = -cost[a]
                for part in range(parts.size):
                    value += parts[part] * worth[i * parts.size + part]
                result[n, a, where[i]] = value
    return result


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _by_count(model: CentralArrays, last: FloatArray) -> FloatArray:
    """Return the values of deciding with one idle worker by number queued, (longest + k, J + 1).

    The first axis is the queue length, where queues longer than the table's have the value of the
    longest, to which they are dropped. The second is the slack bin, with one bin more; a bin that
    is not needed has the value of the nearest needed one.
    """
    bins, longest = model.slack_ms.size, model.queue[-1]
    result = np.empty((longest + model.arrivals.shape[1], bins + 1))
    for count in range(result.shape[0]):
        over = max(count - longest, 0)
        at, x = model.low[count - over], model.share[count - over]
        for b in range(bins + 1):
            value = last[at, min(max(b, model.lowest[at]), model.highest[at])]
            if x > 0.0:
                next_ = last[at + 1, min(max(b, model.lowest[at + 1]), model.highest[at + 1])]
                value += x * (next_ - value)
            result[count, b] = value - model.price * over
    return result


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _expected(
    after: FloatArray, arrivals: FloatArray, spacing_ms: FloatArray, head_ms: FloatArray,
    middle_ms: FloatArray, per_ms: FloatArray, even: bool,
) -> FloatArray:
    """Return the expected value after a batch, for each slack ``head_ms`` of the next head, (H,).

    Parameters
    ----------
    after : (k, J + 1)
        Values by number of arrivals, as :func:`_by_count` gives them.
    arrivals, spacing_ms : (k,)
        Distribution of the arrivals until the next worker is free, and the time until then.
    middle_ms, per_ms : (J,)
        Middles of the slack bins; 1 / distance to the next one, 0 for the last bin.
    even : bool
        Whether all these distances are equal, so that a bin is computed and not searched for.
    """
    total, top = np.zeros(head_ms.size), middle_ms.size - 1
    if even:
        place = (head_ms - middle_ms[0]) * per_ms[0]
        for k in range(arrivals.size):
            weight, shift = arrivals[k], spacing_ms[k] * per_ms[0]
            for h in range(head_ms.size):
                at = min(max(place[h] - shift, 0.0), float(top))
                below = int(at)
                value = after[k, below]
                total[h] += weight * (
                    value + (at - below) * (after[k, below + 1] - value))
        return total
    # More arrivals mean a later end, so each search goes on from the bin before.
    bin_ = np.full(head_ms.size, top)
    for k in range(arrivals.size):
        for h in range(head_ms.size):
            slack = head_ms[h] - spacing_ms[k]
            bin_[h] = b = bin_below(middle_ms, slack, bin_[h])
            value = after[k, max(b, 0)]
            if b >= 0:
                value += (slack - middle_ms[b]) * per_ms[b] * (after[k, b + 1] - value)
            total[h] += arrivals[k] * value
    return total


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _after_last_anew(model: CentralArrays, last: FloatArray, cost: FloatArray) -> FloatArray:
    """Return the value after a batch of the whole queue, (A,): the next head has yet to arrive."""
    arrivals, low, share = model.arrivals, model.low, model.share
    result = -cost
    for a in range(model.batch.size):
        result[a] += arrivals[a, 0] * last[0, 0]
        for k in range(1, arrivals.shape[1]):
            if arrivals[a, k] == 0.0:
                continue
            slack = oldest(model.edge_ms, model.slo_ms, model.spacing_ms[a, k], k)
            length = min(k, low.size - 1)
            result[a] -= arrivals[a, k] * model.price * (k - length)
            for more in range(2 if share[length] > 0.0 else 1):
                part = share[length] if more else 1.0 - share[length]
                at = low[length] + more
                for j in range(slack.size):
                    b = min(max(j, model.lowest[at]), model.highest[at])
                    result[a] += arrivals[a, k] * part * slack[j] * last[at, b]
    return result


@njit(cache=True, fastmath={"nnan", "nsz"})  # type: ignore[untyped-decorator,unused-ignore]
def _greatest(
    earned: FloatArray, after: FloatArray, n: int, first: int, end: int, result: FloatArray
) -> None:
    """Write the largest ``earned`` + ``after`` over actions in bins first … end − 1 of row n.

    ``earned`` is (N, A, J) and ``after`` (N, A, 1 or J), as for :func:`_best_starts`.
    """
    actions = after.shape[1]
    if after.shape[2] > 1:
        for a in range(actions):
            for j in range(index(first), index(end)):
                result[n, j] = max(result[n, j], earned[n, a, j] + after[n, a, j])
        return
    # Bins are few: four actions in one loop, or its start and end would take most of the time.
    for a in range(0, actions - 3, 4):
        t, u, v, w = after[n, a, 0], after[n, a + 1, 0], after[n, a + 2, 0], after[n, a + 3, 0]
        if max(max(t, u), max(v, w)) > -np.inf:
            for j in range(index(first), index(end)):
                result[n, j] = max(result[n, j], max(
                    max(earned[n, a, j] + t, earned[n, a + 1, j] + u),
                    max(earned[n, a + 2, j] + v, earned[n, a + 3, j] + w)))
    for a in range(actions - actions % 4, actions):
        t = after[n, a, 0]
        if t > -np.inf:
            for j in range(index(first), index(end)):
                result[n, j] = max(result[n, j], earned[n, a, j] + t)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _first_best(earned: FloatArray, after: FloatArray, n: int, j: int, top: float) -> int:
    """Return the first action with the greatest value up to rounding; -1 if there is none."""
    if top > -np.inf:
        for a in range(after.shape[1]):
            if earned[n, a, j] + after[n, a, min(j, after.shape[2] - 1)] >= top - _ROUNDING:
                return a
    return -1


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _best_starts(
    earned: FloatArray, after: FloatArray, lowest: IntArray, highest: IntArray
) -> tuple[FloatArray, NDArray[np.int16]]:
    """Return value and index of the best action, (N, J) each; -inf and -1 if there is none.

    A batch earns ``earned`` (N, A, J) and leads to a value ``after`` (N, A, 1 or J). Only the bins
    ``lowest`` … ``highest`` (N,) are computed.
    """
    lengths, _, bins = earned.shape
    start, chosen = np.full((lengths, bins), -np.inf), np.full((lengths, bins), -1, np.int16)
    for n in range(1, lengths):
        _greatest(earned, after, n, lowest[n], highest[n] + 1, start)
        for j in range(lowest[n], highest[n] + 1):
            chosen[n, j] = a = _first_best(earned, after, n, j, start[n, j])
            if a >= 0:
                start[n, j] = earned[n, a, j] + after[n, a, min(j, after.shape[2] - 1)]
    return start, chosen


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _improve_level(
    model: CentralArrays, i: int, after: FloatArray, free: FloatArray, wait: FloatArray,
    met: NDArray[np.bool_], to: NDArray[np.int16], action: NDArray[np.int16],
) -> tuple[int, float]:
    """Improve the decisions of one idle level in place; return the number changed and most gain.

    With n queued and the head in slack bin j, one may wait, start a batch, or drop the oldest
    requests down to a shorter queue d, whose head is then in bin j' = ``after_drop``:

        V(n, j) = max( wait(n), max_a earned(n, a, j) + after(n, a, j),
                       max_{d < n} V(d, j') − price·(queue(n) − queue(d)) ).

    Parameters
    ----------
    after
        As for :func:`_best_starts`; where i > 1 it is written here.
    free : (I, N)
        Values of deciding at an end of a batch; those of lower levels, and of this one in the end,
        are of the changed decisions (Gauss-Seidel).
    wait : (N,)
        Values of waiting.
    met : (N, J)
        Where a decision is made.
    to, action : (N, J)
        The policy, changed in place.
    """
    queue, batch, price, after_drop = model.queue, model.batch, model.price, model.after_drop
    low, share, earned, drawn = model.low, model.share, model.earned, model.slack_probability
    lowest, highest, kept_age = model.lowest, model.highest, after.shape[2] > 1
    fewer, same, down = np.empty(0), np.empty(0), np.empty(0)
    if i > 1:
        fewer, same = np.empty(low.size), np.empty(low.size)
        down = _down(model, i)
        _between(low, share, free, i - 1, 0, fewer.size, fewer)
    changed, most = 0, 0.0
    best, waits = np.full(met.shape, -np.inf), np.zeros(met.shape, np.bool_)
    best[0, :], waits[0, :] = wait[0], True
    # Largest value of a shorter queue plus the price of dropping all of it. If it is too small no
    # drop can pay, and the loop over levels to drop to is left out.
    dropped = wait[0]
    for n in range(1, queue.size):
        if i > 1:
            _between(low, share, free, i, queue[n - 1], queue[n], same)
            _row_after_idle(queue, batch, n, fewer, same, down, after)
        _greatest(earned, after, n, lowest[n], highest[n] + 1, best)
        reached = dropped
        for j in range(lowest[n], highest[n] + 1):
            if best[n, j] <= wait[n] + _ROUNDING:
                best[n, j], waits[n, j] = wait[n], True
            top, level, at = best[n, j], n, j
            reached = max(reached, top + price * queue[n])
            if not met[n, j]:
                continue
            if dropped > top + price * queue[n]:
                for d in range(n - 1, -1, -1):
                    jj = after_drop[n, d, j]
                    q = best[d, jj] - price * (queue[n] - queue[d])
                    if q > top + _ROUNDING:
                        top, level, at = q, d, jj
            # The value of the present decision; another one must beat it by more than _TIE.
            n_after, kept = to[n, j], action[n, j]
            if kept < 0:
                stays = wait[n_after]
            else:
                jj = after_drop[n, n_after, j]
                stays = earned[n_after, kept, jj] + after[n_after, kept, jj if kept_age else 0]
            stays -= price * (queue[n] - queue[n_after])
            if stays == -np.inf or top > stays + _TIE * (1.0 + abs(stays)):
                to[n, j], action[n, j] = level, -1 if waits[level, at] else _first_best(
                    earned, after, level, at, best[level, at])
                changed += 1
                most = max(most, top - stays)
                if stays > -np.inf:
                    free[i, n] += drawn[1, n, j] * (top - stays)
        dropped = reached
    return changed, most


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def improve(
    model: CentralArrays, wait: FloatArray, free: FloatArray, after_last: FloatArray,
    to: NDArray[np.int16], action: NDArray[np.int16],
) -> tuple[int, float]:
    """Improve a policy ``to``, ``action`` (I, N, J) in place: one round of policy iteration.

    ``wait``, ``free`` are :class:`ramsis.central.chain.ChainValues` of the policy, ``after_last``
    (N, A, 1 or J) the values after an action that takes the last idle worker. Returns the number
    of changed decisions and the largest gain.
    """
    lengths, bins = model.queue.size, model.slack_probability.shape[2]
    every, met = np.ones((lengths, bins), np.bool_), np.zeros((lengths, bins), np.bool_)
    for n in range(lengths):
        for j in range(bins):
            met[n, j] = (model.slack_probability[0, n, j] > 0.0
                         or model.slack_probability[1, n, j] > 0.0)
    free = free.copy()
    # With one worker idle the chain has a state for each slack bin, so all bins are decided; with
    # more idle workers only those that have a probability.
    changed, most = _improve_level(model, 1, after_last, free, wait[1], every, to[1], action[1])
    after = np.full((lengths, model.batch.size, 1), -np.inf)
    for i in range(2, model.idle.size):
        number, gained = _improve_level(model, i, after, free, wait[i], met, to[i], action[i])
        changed, most = changed + number, max(most, gained)
    return changed, most


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _settle_level(
    model: CentralArrays, start: FloatArray, chosen: NDArray[np.int16], wait: FloatArray,
    above: FloatArray, ends: float, gain: float, width_ms: FloatArray,
) -> tuple[FloatArray, NDArray[np.int16]]:
    """Return values and table entries (N, J) of one idle level; waiting keeps the head's age.

    Entries are an action, -1 to wait, or -2 to drop the head. In place of the mean value of
    waiting, a wait in bin j ends at the next event, at the rate r = arrivals + ``ends``, or when
    the slack has crossed the bin, which it does first with p = exp(−r·width_ms):

        waits(n, j) = (1 − p)·(mean value after the event − gain/r) + p·V(n, j − 1).

    Parameters
    ----------
    start, chosen : (N, J)
        As :func:`_best_starts` gives them.
    wait : (N,)
        Values of waiting.
    above : (N, J)
        Values with the next higher number of idle workers, to which ``ends`` is the rate.
    width_ms : (J,)
        Widths of the slack bins.
    """
    queue, price, load, after_drop = model.queue, model.price, model.load, model.after_drop
    earned = model.earned
    lengths, bins = start.shape
    answer = chosen.copy()
    here = np.zeros((lengths, bins))
    here[0, :] = wait[0]
    most = np.full(lengths, wait[0])  # largest value of shorter queues + price of dropping them
    for n in range(1, lengths - 1):
        most[n + 1] = max(most[n], max(start[n].max(), wait[n]) + price * queue[n])
    for j in range(bins):
        # earned[1, a, j] is -price where action a is late for a single request of this slack. If
        # nothing can answer the head in time, waiting only makes the others older. The model
        # sees no loss in it, as it draws ages anew, and such states are rare.
        may_wait = j > 0 and earned[1, :, j].max() > _ROUNDING - price
        # P(no event while the head's slack crosses the bin), kept from one rate to the next.
        lasts, of_total = 1.0, 0.0
        for n in range(lengths - 1, 0, -1):
            best = start[n, j]
            drop = wait[0] - price * queue[n]
            for d in range(1, n if most[n] - price * queue[n] > best else 0):
                q = start[d, after_drop[n, d, j]]
                if j == 0:
                    q = max(q, wait[d])
                drop = max(drop, q - price * (queue[n] - queue[d]))
            if drop > best + _ROUNDING:
                best, answer[n, j] = drop, -2
            if may_wait:
                # The next event is an arrival or an end of a batch. If there is none before the
                # slack has crossed the bin, the decision is made again in the bin below.
                rate = load if n + 1 == lengths else load / (queue[n + 1] - queue[n])
                then = best - price if n + 1 == lengths else here[n + 1, j]
                total = rate + ends
                then = (rate * then + ends * above[n, j] - gain) / total
                if total != of_total:
                    lasts, of_total = np.exp(-total * width_ms[j]), total
                waits = (1.0 - lasts) * then + lasts * here[n, j - 1]
                if waits > best + _ROUNDING:
                    best, answer[n, j] = waits, -1
            here[n, j] = best
    return here, answer


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def settle(
    model: CentralArrays, wait: FloatArray, free: FloatArray, after_last: FloatArray, gain: float,
    width_ms: FloatArray, table: NDArray[np.int16],
) -> None:
    """Fill a decision table (I, N, J), from the most idle workers down.

    ``wait``, ``free``, ``gain`` are :class:`ramsis.central.chain.ChainValues`, ``after_last``
    (N, A, 1 or J) the values after an action that takes the last idle worker, in all bins.
    """
    levels, lengths, bins = table.shape
    above = np.zeros((lengths, bins))
    first, upto = np.zeros(lengths, np.int64), np.full(lengths, bins - 1)
    for i in range(levels - 1, 0, -1):
        after = _after_idle(model, free, i) if i > 1 else after_last
        start, chosen = _best_starts(model.earned, after, first, upto)
        busy = model.workers - model.idle[i]
        ends = model.leave * busy / (model.idle[i + 1] - model.idle[i]) if busy > 0 else 0.0
        above, answer = _settle_level(model, start, chosen, wait[i], above, ends, gain, width_ms)
        for n in range(lengths):
            put(answer[n], table[i, n])
