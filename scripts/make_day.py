"""Make the shipped trace ``day``: a day's load in five minutes, made up.

    python scripts/make_day.py > profiles/traces/day.txt

One line per second, ``seconds qps``, between 1,600 and 3,900 queries per second: a diurnal swell
(low at night, a shoulder in the morning, a peak in the evening), a slow random wander, and a
few spikes that rise within a second or two and fade over several. Nothing of it was measured.
"""

from __future__ import annotations

import sys

import numpy as np

SECONDS = 300
LOWEST_QPS, HIGHEST_QPS = 1600.0, 3900.0
SPIKES = ((62, 500.0, 6.0), (131, 700.0, 4.0), (188, 450.0, 9.0), (229, 850.0, 5.0),
          (262, 600.0, 3.0))
"""Second, height in queries per second, and seconds to fade to a third."""
SEED = 2024


def rates() -> list[int]:
    """Queries per second of each second."""
    second = np.arange(SECONDS)
    day = second / SECONDS
    swell = 900.0 * (1.0 - np.cos(2.0 * np.pi * (day - 0.08))) / 2.0
    swell += 500.0 * np.exp(-((day - 0.38) / 0.10) ** 2) + 700.0 * np.exp(
        -((day - 0.78) / 0.09) ** 2)
    steps = np.random.default_rng(SEED).normal(0.0, 30.0, SECONDS)
    wander = np.zeros(SECONDS)
    for i in range(1, SECONDS):
        wander[i] = 0.95 * wander[i - 1] + steps[i]
    spikes = np.zeros(SECONDS)
    for at, height, fade in SPIKES:
        since = second - at
        spikes += np.where(since >= 0, height * np.exp(-np.maximum(since, 0) / fade), 0.0)
    load = swell + wander + spikes
    load = (load - load.min()) / (load.max() - load.min())
    return [round(q) for q in LOWEST_QPS + (HIGHEST_QPS - LOWEST_QPS) * load]


if __name__ == "__main__":
    sys.stdout.write("# seconds qps; made by scripts/make_day.py\n")
    sys.stdout.writelines(f"{i} {qps}\n" for i, qps in enumerate(rates()))
