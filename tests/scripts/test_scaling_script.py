"""``scripts/scaling.py``: a fleet that knows the loads, against all that it could do."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import scaling


def _worth(wanted, gains, cost, stages, partial):
    """Of one worker that is wanted or not in each interval, and may begin active for nothing."""
    age, worth = stages if wanted[0] else -1, 0.0
    for on, gain in zip(wanted, gains, strict=True):
        age = min(age + 1, stages) if on and age >= 0 else 0 if on else -1
        serves = 1.0 if age == stages else partial if age == stages - 1 else 0.0
        worth += on * (serves * gain - cost)
    return worth


@pytest.mark.parametrize(("stages", "partial"), [(0, 0.0), (1, 0.4), (2, 0.0), (3, 0.25)])
def test_no_plan_is_worth_more(stages, partial):
    rng = np.random.default_rng(stages)
    for _ in range(5):
        gains = -np.sort(-rng.uniform(0.0, 3.0, (8, 3)), axis=1)
        wanted = scaling.plan(gains, 1.0, (stages, partial))
        for worker in range(3):
            best = max(_worth(one, gains[:, worker], 1.0, stages, partial)
                       for one in product((0, 1), repeat=8))
            assert _worth((wanted > worker).astype(int), gains[:, worker], 1.0, stages,
                          partial) == pytest.approx(best)


def test_an_aim_below_the_bound_is_said_to_be():
    def row(ours, usual, tuned, hindsight, known, bound):
        costs = {"ramsis": ours, "default": usual, "tuned": tuned}
        return {"trace": "day", "startup_s": 0.0, "bound_worker_s": bound,
                "clairvoyant_worker_s": known, "hindsight_worker_s": hindsight,
                **{name: {"meets_target": True, "worker_s": one} for name, one in costs.items()}}

    lines = scaling.reach([row(95.0, 100.0, 96.0, None, 94.0, 90.0),
                           row(86.0, 100.0, 96.0, 85.5, 79.0, 60.0),
                           row(80.0, 100.0, 96.0, 79.0, 65.0, 60.0)])
    first, second, third = lines.splitlines()[2:]
    assert "| 85, below the bound | 93, below loads known |" in first
    assert "| 85, below hindsight | 78, below loads known |" in second
    assert "| 85, met | 78, below hindsight |" in third
