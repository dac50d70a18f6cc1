"""The exact optimum of one worker with second opinions, where time is cut into slots.

In each slot a request comes with a probability, and is due D slots later. A small model answers it
first, or a large one; an answer of the small one is unsure with a probability, and then worth less
by an increment. A batch takes a whole number of slots. A batch of the large model may mix requests
that no model has answered with unsure ones, if ``mixed``; the rules of a policy file mix none.

Which requests wait, by age, and which of them are unsure, is a state of finitely many. The batch
of each model takes the oldest of those that it answers in time: requests of one kind differ by age
only, so whoever serves a younger one first may exchange the two.
"""

from typing import NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.compiling import njit

_EXACT = 2e-5  # of the mean worth of a request


class SlottedCascade(NamedTuple):
    """One worker, two models and one threshold."""

    small: tuple[int, ...]  # slots that a batch of 1, 2, … takes; not falling, at least 1
    large: tuple[int, ...]
    due: int  # slots from the arrival to the deadline
    came: float  # probability that a request comes in a slot
    accuracy: float  # of the small model
    unsure: float  # share of its answers
    increment: float  # of a second opinion on these; on others it adds nothing


def optimum(problem: SlottedCascade, *, mixed: bool = True, second: bool = True) -> float:
    """Return the largest mean worth of a request, with second opinions or without."""
    small, large = (np.array((0, *times)) for times in (problem.small, problem.large))
    fresh, unsure = problem.due - int(small[1]) + 1, max(problem.due - int(large[1]) + 1, 1)
    value = np.zeros((1 << fresh, 1 << unsure))
    after = np.zeros((int(max(small[-1], large[-1])) + 1, *value.shape))
    bits = np.array([bin(mask).count("1") for mask in range(1 << max(fresh, len(after)))])
    worth = problem.accuracy, problem.accuracy + problem.unsure * problem.increment
    low, high = 0.0, 1.0
    while high - low > _EXACT * problem.came:
        low, high = sweep(value, after, small, large, bits, problem.due, (
            problem.came, problem.unsure, problem.increment, *worth), mixed, second)
    return (low + high) / 2.0 / problem.came


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _oldest(mask: int, most: int, batch: int) -> int:
    """Return the oldest requests of a mask, so many of them, no older than ``most``; or 0."""
    chosen, count = 0, 0
    for age in range(most, -1, -1):
        if count < batch and mask >> age & 1:
            chosen |= 1 << age
            count += 1
    return chosen if count == batch else 0


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def sweep(
    value: FloatArray, after: FloatArray, small: IntArray, large: IntArray, bits: IntArray,
    due: int, terms: tuple[float, float, float, float, float], mixed: bool, second: bool,
) -> tuple[float, float]:
    """Improve the values once; return bounds on the best reward of a slot.

    Values are per slot: a batch of many slots counts by its mean, and stays where it was with the
    rest of the weight (Schweitzer's transformation).
    """
    came, share, increment, by_small, by_large = terms
    fresh_masks, unsure_masks = value.shape
    for slots in range(1, len(after)):
        for fresh in range(fresh_masks):
            kept = (fresh << slots) & (fresh_masks - 1)
            for unsure in range(unsure_masks):
                total, later = 0.0, (unsure << slots) & (unsure_masks - 1)
                if fresh & unsure == 0:
                    for new in range(1 << slots):
                        chance = came ** bits[new] * (1.0 - came) ** (slots - bits[new])
                        total += chance * value[kept | (new & (fresh_masks - 1)), later]
                after[slots, fresh, unsure] = total
    least, most = np.inf, -np.inf
    better = np.empty_like(value)
    for fresh in range(fresh_masks):
        for unsure in range(unsure_masks):
            if fresh & unsure:
                better[fresh, unsure] = value[fresh, unsure]
                continue
            here = value[fresh, unsure]
            best = after[1, fresh, unsure] - here  # wait for a slot
            for b in range(1, len(small)):
                batch = _oldest(fresh, due - small[b], b)
                if batch:
                    total, part = 0.0, batch
                    while True:  # all subsets of the batch that may be unsure
                        chance = share ** bits[part] * (1.0 - share) ** (b - bits[part])
                        total += chance * after[small[b], fresh ^ batch,
                                                (unsure | part) & (unsure_masks - 1)]
                        if part == 0:
                            break
                        part = (part - 1) & batch
                    best = max(best, (b * by_small + total - here) / small[b])
            for b in range(1, len(large)):
                for asked in range(b + 1 if second else 1):
                    if not mixed and 0 < asked < b:
                        continue
                    answered = _oldest(fresh, due - large[b], b - asked)
                    again = _oldest(unsure, min(due - large[b], 62), asked)
                    if (asked < b and not answered) or (asked and not again):
                        continue
                    reward = (b - asked) * by_large + asked * increment
                    best = max(best, (reward + after[large[b], fresh ^ answered, unsure ^ again]
                                      - here) / large[b])
            least, most = min(least, best), max(most, best)
            better[fresh, unsure] = here + 0.9 * best
    value[:] = better - better[0, 0]
    return least, most
