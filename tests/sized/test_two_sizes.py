"""The exact optimum for two sizes, and the rule, the plan and the bound beside it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ramsis.mdp import SparseMDP, solve_average
from ramsis.sized import path_bound, sized_scheduler
from scripts.two_sizes import Stream, drawn_setting, sized_problem, value_of_slot
from tests.reference.two_sizes import TwoSizes, simulated, solved

ROWS = pd.read_csv(Path(__file__).parents[2] / "docs/results/two-sizes.csv")
SMALL = TwoSizes(np.array([[1, 1, 2], [2, 2, 3]]), 4, (0.6, 0.35), (1.0, 2.0))


def test_page_states_the_shares_of_the_optimum():
    rule, plan = (ROWS[name] / ROWS["best_policy"] for name in ("rule", "replanned_dp"))
    assert len(ROWS) == 20
    assert (rule >= plan).all()
    page = (Path(__file__).parents[2] / "docs/bounds.md").read_text()
    for figure in (rule.mean(), plan.mean(), rule.min(), plan.min()):
        assert f"{figure:.1%}".replace("%", " %") in page
    assert f"{(rule >= 0.995).sum()} of the 20" in page


def test_bound_is_above_what_any_scheduler_earned():
    assert (ROWS["bound"] >= ROWS[["rule", "replanned_dp", "best_policy"]].max(axis=1)).all()


def test_rows_have_the_optimum_of_their_settings():
    kept = ROWS.iloc[0]
    problem = drawn_setting(int(kept["setting"]))
    assert solved(problem, tolerance=1e-4).low == pytest.approx(kept["optimum"], rel=2e-4)
    assert sum(problem.probability) == pytest.approx(kept["load"], abs=1e-4)


def test_optimum_is_that_of_the_solvers_of_the_package():
    """The same problem as explicit pairs of states and actions, without the oldest-first rule."""
    problem = SMALL
    bits, states = problem.deadline, 1 << 2 * problem.deadline
    full = (1 << bits) - 1
    p_short, p_long = problem.probability

    def after(state, slots):
        """Return probabilities of the states after some slots."""
        now = {state: 1.0}
        for _ in range(slots):
            following = {}
            for word, weight in now.items():
                short, long = (word >> bits << 1) & full, (word & full) << 1 & full
                for i, p in ((1, p_short), (0, 1 - p_short)):
                    for j, q in ((1, p_long), (0, 1 - p_long)):
                        key = (short | i) << bits | long | j
                        following[key] = following.get(key, 0.0) + weight * p * q
            now = following
        return now

    state, action, reward, cost, rows = [], [], [], [], []
    for s in range(states):
        short, long = s >> bits, s & full
        for some in range(states):
            shorts, longs = some >> bits, some & full
            count = shorts.bit_count() + longs.bit_count()
            if shorts & ~short or longs & ~long or count > problem.slots.shape[1]:
                continue
            slots = int(problem.slots[int(longs > 0), count - 1]) if count else 1
            if count and max(shorts, longs) >> (bits - slots + 1):
                continue  # a member would be late
            row = np.zeros(states)
            for key, weight in after((short ^ shorts) << bits | long ^ longs, slots).items():
                row[key] = weight
            state.append(s)
            action.append(some)
            reward.append(shorts.bit_count() + 2.0 * longs.bit_count())
            cost.append(float(slots))
            rows.append(row)
    model = SparseMDP(np.array(state), np.array(action), np.array(rows), np.array(reward),
                      np.array(cost))
    exact = solve_average(model, "policy-iteration").gain
    optimum = solved(problem, tolerance=1e-7)
    assert optimum.low - 1e-6 <= exact <= optimum.high + 1e-6


def test_schedulers_and_bound_are_on_their_sides_of_the_optimum():
    optimum = solved(SMALL, tolerance=1e-7)
    sized = sized_problem(SMALL)
    stream = Stream.drawn(SMALL, 4000, np.random.default_rng(0))
    best = simulated(SMALL, optimum, stream.came) / 4000
    assert best == pytest.approx(optimum.low, abs=0.03)
    assert value_of_slot(sized, sized_scheduler("replanned-dp"), stream) <= best + 0.01
    bound = path_bound(sized, stream.arrival_ms, stream.size, rounds=0)
    assert bound.upper_bound * len(stream.size) / 4000 >= best
