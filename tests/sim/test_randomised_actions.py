"""Policies that draw an answer: both engines draw the same, and the stated share of times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ramsis.policy import Policy, codes_among
from ramsis.runtime.randomised import Randomised
from ramsis.sim import ConstantLoad, Fleet, Policies, Run, run_plan
from ramsis.synthesis import generate_policy
from tests.central import samples as fleets
from tests.policy.samples import tables
from tests.slow import slow_after
from tests.synthesis.samples import settings, tiny_profile


def replayed(scheduler: Any, workers: int, load_qps: float, engine: Any, queries: float) -> Run:
    """A run of a scheduler with the tiny profile."""
    fleet = Fleet.of(tiny_profile(), workers=workers, slo_ms=100.0)
    workload = ConstantLoad(load_qps=load_qps, duration_ms=1000 * queries / load_qps)
    return run_plan(fleet, scheduler.prepare(fleet), workload, seed=3, engine=engine)


def with_second(
    policy: Policy, probability: float, place: tuple[int, int], answer: tuple[int, int]
) -> Policy:
    """A policy with a second answer at a queue and a slack bin; a batch of 0 drops."""
    if answer[1] == 0:
        return replace(policy, randomised=Randomised(probability, (0, *place), -2))
    actions, code = codes_among(policy.actions, np.array([answer]), np.array([0]))
    return replace(policy, actions=actions,
                   randomised=Randomised(probability, (0, *place), int(code[0])))


def assert_same(one: Run, other: Run) -> None:
    np.testing.assert_array_equal(one.answered_ms, other.answered_ms)
    np.testing.assert_array_equal(one.model_of, other.model_of)


@pytest.mark.parametrize("place", [(0, 18), (1, 17), (2, 16), (3, 0)])
@pytest.mark.parametrize("late", ["serve", "drop"])
def test_both_engines_draw_the_same_for_workers(place: tuple[int, int], late: str) -> None:
    policy = generate_policy(tiny_profile(), 400.0, settings(workers=2, late=late))
    last = len(policy.models) - 1
    answer = (0, 0) if late == "drop" else (last, place[0] + 1)
    mixed = with_second(policy, 0.5, place, answer)
    runs = [replayed(Policies((mixed,)), 2, 400.0, engine, 4000)
            for engine in ("plain", "compiled")]
    assert_same(*runs)


@pytest.mark.parametrize("seed", slow_after(3, range(12)))
def test_both_engines_draw_the_same_for_fleets(seed: int) -> None:
    """At places that are met, with answers that any table might hold there."""
    rng = np.random.default_rng(seed)
    workers = int(rng.integers(1, 4))
    policy = fleets.policy(450.0 * workers, workers=workers)
    n = int(rng.integers(0, 3))
    fits = np.flatnonzero(policy.actions[:, 1] <= policy.queue_levels[n + 1])
    place = (0, n, int(rng.integers(policy.codes.shape[2] // 2, policy.codes.shape[2])))
    mixed = replace(policy, randomised=Randomised(
        0.5, place, int(rng.choice(np.append(fits, [-1, -2])))))
    runs = [replayed(Policies((mixed,)), workers, policy.load_qps, engine, 4000)
            for engine in ("plain", "compiled")]
    assert_same(*runs)


def test_a_worker_gives_the_second_answer_its_share_of_times() -> None:
    """With one query queued and all of its slack left: what an idle worker meets."""
    policy = generate_policy(tiny_profile(), 40.0, settings(workers=2))
    place = (0, len(policy.slack_ms) - 1)
    usual = int(tables(policy)[0][place])
    other = 0 if usual else 1
    mixed = with_second(policy, 0.3, place, (other, 1))
    plain, drawn = (replayed(Policies((one,)), 2, 40.0, "compiled", 40_000)
                    for one in (policy, mixed))
    assert not ((plain.size == 1) & (plain.model == other)).any()
    alone = np.flatnonzero(drawn.size == 1)
    query = np.flatnonzero(np.isin(drawn.batch_of, alone))
    alone = drawn.batch_of[query]
    slack_ms = drawn.arrival_ms[query] + 100.0 - drawn.start_ms[alone]
    here = alone[slack_ms >= policy.slack_ms[-1]]
    share, n = float((drawn.model[here] == other).mean()), len(here)
    assert n > 20_000
    assert abs(share - 0.3) < 4 * np.sqrt(0.3 * 0.7 / n)
