"""Search for the best division of wholes among parts, by exchanges between two parts.

A division has a row of whole numbers for each whole (a fleet's workers; the units of a class's
load), an entry for each part. From the best of some starts, units are moved within a row from one
part to another, in steps that shrink, as long as that gains more than 1e-9; where the value is
concave along exchanges the last step's division is the best one. A division whose cheap upper
bound does not pass the best value found is not valued. So the result is never worse than any
start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import permutations

Division = tuple[tuple[int, ...], ...]

_LEAST_GAIN = 1e-9  # of value: less is rounding, and would let exchanges go on for ever


def best_division(
    value: Callable[[Division], float],
    bound: Callable[[Division], float],
    starts: Iterable[Division],
    steps: Sequence[int],
) -> Division:
    """Search for the best division; the module docstring has the method.

    Parameters
    ----------
    value, bound : callable
        Value of a division, and a cheap upper bound on it; ``-inf`` where it is impossible.
    starts : iterable of Division
        One or more.
    steps : sequence of int
        Falling.

    Examples
    --------
    >>> def worth(division):
    ...     (left, right), = division
    ...     return left**0.5 + 2 * right**0.5
    >>> best_division(worth, worth, [((10, 0),)], [4, 2, 1])
    ((2, 8),)
    """
    first, *others = sorted(set(starts), key=bound, reverse=True)
    best, most = first, value(first)

    def try_all(candidates: Iterable[Division]) -> bool:
        nonlocal best, most
        for candidate in candidates:
            if bound(candidate) > most + _LEAST_GAIN:
                worth = value(candidate)
                if worth > most + _LEAST_GAIN:
                    best, most = candidate, worth
                    return True
        return False

    while try_all(others):
        pass
    for step in steps:
        while try_all(list(_moved(best, step))):
            pass
    return best


def _moved(division: Division, step: int) -> Iterator[Division]:
    """Yield the divisions that move ``step`` units from one part to another."""
    for r, row in enumerate(division):
        for a, b in permutations(range(len(row)), 2):
            if row[a] >= step:
                new = list(row)
                new[a] -= step
                new[b] += step
                yield (*division[:r], tuple(new), *division[r + 1 :])


def rounded(weights: Sequence[float], whole: int, least: int = 0) -> tuple[int, ...]:
    """Return whole numbers near the shares of weights; they sum to ``whole``, each >= ``least``.

    >>> rounded([0.5, 0.3, 0.2], 7)
    (4, 2, 1)
    >>> rounded([1.0, 0.0], 5, least=1)
    (4, 1)
    """
    total = sum(weights)
    free = whole - least * len(weights)
    shares = [(weight / total if total > 0 else 1 / len(weights)) * free for weight in weights]
    result = [int(share) for share in shares]
    order = sorted(range(len(shares)), key=lambda i: result[i] - shares[i])
    for i in order[: free - sum(result)]:
        result[i] += 1
    return tuple(least + share for share in result)
