"""``scripts/scaling.py``: a fleet that knows the loads, against all that it could do."""

from itertools import product

import numpy as np
import pytest
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


def test_costs_stand_beside_what_nobody_could_go_below():
    cost = {"worker_s": 1234.5, "meets_target": False}
    lines = scaling.reach([{
        "trace": "day", "startup_s": 10.0, "ramsis": cost, "default": None, "tuned": cost,
        "hindsight_worker_s": None, "clairvoyant_worker_s": 900.0, "bound_worker_s": 800.0}])
    assert lines.splitlines()[2] == (
        "| day, 10 s | 1,234 (target missed) | – | 1,234 | – | 900 | 800 |")
