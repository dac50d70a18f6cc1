"""Best value of a request of two sizes on one worker, in slots of time, exactly.

In each slot a request of each size comes with a probability of its own, at the start of the slot.
It is due ``deadline`` slots later, and a batch of b requests takes a whole number of slots, by
the longest member. So the state of an idle worker is which slots of late had a request of each
size that still waits: two words of ``deadline`` bits, bit a for a request of age a.

Of requests of one size the oldest that would be in time go first: if a younger one went instead,
the older one could take its place, and what is left would have more time. So an action is how
many of each size; or to wait for a slot. Values of n slots to go are found backwards,

    V_n(s) = max(E V_{n-1}, max over actions of value of the answers + E V_{n - slots}),

and least and most of V_{n+1} - V_n bracket the optimal gain of a slot [1].

[1] A. R. Odoni, "On finding the maximal gain for Markov decision processes", 1969.
"""

from typing import NamedTuple

import numpy as np


class TwoSizes(NamedTuple):
    """A problem in slots."""

    slots: np.ndarray  # of batches of 1 … B requests, shape (2, B): of short ones, with a long one
    deadline: int
    probability: tuple[float, float]  # of a request of each size in a slot
    weight: tuple[float, float] = (1.0, 1.0)


class Optimum(NamedTuple):
    """The optimal gain, between two bounds, and a policy."""

    low: float  # value of a slot
    high: float
    short: np.ndarray  # short ones in the best batch of each state, (4**deadline,)
    long: np.ndarray  # the same of long ones


def solved(problem: TwoSizes, *, tolerance: float = 1e-6, steps: int = 3000) -> Optimum:
    """Return the optimum; the bounds differ by ``tolerance`` of the largest value of a slot."""
    bits, most = problem.deadline, problem.slots.shape[1]
    full = (1 << bits) - 1
    short, long = np.divmod(np.arange(1 << 2 * bits), 1 << bits)
    after = _after_arrivals(short, long, bits, problem.probability)

    def mean(values: np.ndarray) -> np.ndarray:
        return sum(weight * values[state] for weight, state in after)

    actions = []
    for longs in range(most + 1):
        for shorts in range(most + 1 - longs):
            if shorts + longs:
                slots = int(problem.slots[int(longs > 0), shorts + longs - 1])
                rest_short, taken = _oldest(short, shorts, bits - slots)
                rest_long, taken_long = _oldest(long, longs, bits - slots)
                possible = (taken == shorts) & (taken_long == longs)
                value = shorts * problem.weight[0] + longs * problem.weight[1]
                if possible.any():
                    actions.append((shorts, longs, slots, value, np.flatnonzero(possible),
                                    ((rest_short << bits) | rest_long)[possible]))
    longest = max(action[2] for action in actions)
    values = np.zeros(len(short))
    ahead = [np.zeros(len(short))] * longest  # E^k of the values k slots before
    top = sum(p * w for p, w in zip(problem.probability, problem.weight, strict=True))
    assert full == short.max()
    for _ in range(steps):
        ahead = [mean(values), *(mean(part) for part in ahead[:-1])]
        new = ahead[0].copy()
        taken_short, taken_long = np.zeros(len(short), int), np.zeros(len(short), int)
        for shorts, longs, slots, value, states, rest in actions:
            earned = value + ahead[slots - 1][rest]
            better = earned > new[states] + 1e-12
            at = states[better]
            new[at], taken_short[at], taken_long[at] = earned[better], shorts, longs
        gain = new - values
        low, high = float(gain.min()), float(gain.max())
        values = new
        if high - low < tolerance * top:
            break
    return Optimum(low, high, taken_short, taken_long)


def _after_arrivals(short, long, bits, probability):
    """Return the next state for each set of arrivals in a slot, with its probability."""
    full = (1 << bits) - 1
    older = (((short << 1) & full) << bits) | ((long << 1) & full)
    return [((probability[0] if i else 1 - probability[0])
             * (probability[1] if j else 1 - probability[1]), older | (i << bits) | j)
            for i in (0, 1) for j in (0, 1)]


def _oldest(word, number, most_age):
    """Return words without the ``number`` oldest requests of at most an age, and how many."""
    rest, taken = word.copy(), np.zeros(len(word), int)
    for age in range(most_age, -1, -1):
        bit = ((rest >> age) & 1) * (taken < number)
        rest, taken = rest & ~(bit << age), taken + bit
    return rest, taken


def simulated(problem: TwoSizes, optimum: Optimum, came: np.ndarray) -> float:
    """Return the value that the optimal policy earns, of requests that ``came``, (slots, 2)."""
    bits, full, value, t = problem.deadline, (1 << problem.deadline) - 1, 0.0, 0
    short, long = int(came[0, 0]), int(came[0, 1])
    while t < len(came):
        state = (short << bits) | long
        shorts, longs = int(optimum.short[state]), int(optimum.long[state])
        slots = 1
        if shorts + longs:
            slots = int(problem.slots[int(longs > 0), shorts + longs - 1])
            value += shorts * problem.weight[0] + longs * problem.weight[1]
            short = int(_oldest(np.array([short]), shorts, bits - slots)[0][0])
            long = int(_oldest(np.array([long]), longs, bits - slots)[0][0])
        for _ in range(slots):
            t += 1
            if t < len(came):
                short = ((short << 1) & full) | int(came[t, 0])
                long = ((long << 1) & full) | int(came[t, 1])
    return value
