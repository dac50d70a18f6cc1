"""What waits in a queue by deadline, drawn query by query, as the law of its head supposes."""

import numpy as np


def head_slacks(
    slo_ms: list[float], share: list[float], load: float, queued: int, newest: int, draws: int,
    rng: np.random.Generator,
) -> list[float]:
    """The least slack among ``queued`` waiting queries, drawn ``draws`` times.

    The youngest ``newest`` of a Poisson stream have all come since the last batch; of the older
    ones those with the latest deadlines are left, as many as are missing.
    """
    found, since = [], min(queued, newest)
    seen = since + 20 * queued + int(2 * load * max(slo_ms)) + 50  # older ones are not left
    for _ in range(draws):
        ages = np.cumsum(rng.exponential(1.0 / load, seen))
        slacks = np.array(slo_ms)[rng.choice(len(slo_ms), len(ages), p=share)] - ages
        left = np.sort(slacks[since:])[::-1][: queued - since]
        found.append(float(min([*slacks[:since], *left])))
    return found
