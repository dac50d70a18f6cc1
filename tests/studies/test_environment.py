"""The cluster as an environment: gymnasium's own check, masks, rewards, conservation."""

from typing import Any

import numpy as np
import pytest

from ramsis.errors import InvalidValueError
from ramsis.scenario import Scenario
from ramsis.studies.clockwork_rl import REWARDS, needing_extra, reward_named
from tests.scenario.samples import model, scenario, stream

checker = pytest.importorskip("gymnasium.utils.env_checker")
environment = needing_extra("environment")

SIZES = [{"worker_type": "gpu", "batch": size, "latency_ms": ms}
         for size, ms in ((1, 3.0), (2, 5.0), (4, 7.0))]


def two_gpus(**changes: Any) -> Scenario:
    return scenario(**{
        "worker_types": [{"name": "gpu", "count": 2}], "duration_s": 2,
        "models": [model(copies=5, latency=SIZES)], "streams": [
            stream(slo_ms=25, workload={"load_qps": 700})], **changes})


def played(env: Any, seed: int) -> tuple[float, list[int]]:
    """A whole episode of random allowed actions; what it earned, and the steps' workers."""
    rng, earned, workers = np.random.default_rng(seed), 0.0, []
    env.reset(seed=seed)
    over = cut = False
    while not (over or cut):
        mask = env.action_masks()
        width = len(environment.BATCH_SIZES)
        parts = [*mask[:24].reshape(12, 2), *mask[24:].reshape(12, width)]
        action = np.array([rng.choice(np.flatnonzero(part)) for part in parts])
        workers.append(env.worker)
        before, shown = [len(env.learner.queues[m]) for m in env.learner.shown], env.learner.shown
        queues = [env.learner.queues[m] for m in shown]
        oldest = [list(queue) for queue in queues]
        observed = env.learner.free_ms[env.worker]
        _, reward, over, cut, _ = env.step(action)
        earned += reward
        # Every allowed choice has been carried out: the requests have been given to the worker.
        for slot, count in enumerate(before):
            if action[slot]:
                size = environment.BATCH_SIZES[action[12 + slot]]
                assert size <= count
                taken = oldest[slot][:size]
                assert not set(taken) & set(queues[slot])
                assert env.learner.free_ms[workers[-1]] > observed
    return earned, workers


def test_it_passes_gymnasiums_own_check():
    checker.check_env(environment.ClusterEnv(two_gpus()), skip_render_check=True)


def test_what_is_observed():
    made = two_gpus(models=[model("a", latency=SIZES), model("b", latency=SIZES)],
                    start=[{"worker": "gpu", "models": ["a", "b"]}], streams=[
        stream("s", "a", slo_ms=50, workload={"times_ms": [0.0, 0.2, 0.4]}),
        stream("t", "b", slo_ms=20, workload={"times_ms": [0.5]})])
    env = environment.ClusterEnv(made)
    observation, _ = env.reset(seed=0)
    # At 1 ms, the first decision: b is due at 20.5 ms, a at 50 ms; a batch of one takes 3 ms.
    assert observation[:2].tolist() == [1, 3]
    assert observation[12:14].tolist() == [16.5, 46]
    assert observation[2:12].tolist() == [0] * 10
    assert observation[14:24].tolist() == [1000] * 10
    assert observation[24] == 0
    mask = env.action_masks()
    assert mask[:6].tolist() == [True, True, True, True, True, False]
    assert mask[24:34].tolist() == [True] + [False] * 4 + [True, True, False, False, False]
    action = np.zeros(24, dtype=int)
    action[[1, 13]] = 1  # two requests of a
    observation, reward, *_ = env.step(action)
    assert reward == 2.0 * 3.0 * 2 - 5.0
    # The other worker sees what is left.
    assert env.worker == 1
    assert observation[:2].tolist() == [1, 1]
    assert observation[24] == 0
    observation, *_ = env.step(np.zeros(24, dtype=int))
    assert (env.worker, observation[24]) == (0, 4)


@pytest.mark.parametrize("name", REWARDS)
def test_allowed_choices_are_carried_out_and_no_request_is_lost(name):
    env = environment.ClusterEnv(two_gpus(), REWARDS[name], first_steps=60_000)
    earned, workers = played(env, 3)
    run = env.run
    assert set(workers) == {0, 1}
    assert run.answered.sum() + len(run.drop_request) == run.requests > 1000
    assert not (run.batch_of == -1).any()
    if name == "sparse":
        assert earned == run.in_time.sum() - (~run.in_time).sum()
    if name == "early":
        row = {1: 3.0, 2: 5.0, 4: 7.0}
        cost = sum(row[size] for size in run.size.tolist())
        late = (~run.in_time).sum()
        assert earned == pytest.approx(6.0 * run.in_time.sum() - cost - 18.0 * late)


@pytest.mark.parametrize("name", ["sparse", "early"])
def test_answers_before_the_earliest_time_are_no_answers_in_time(name):
    made = two_gpus(streams=[stream(slo_ms=25, earliest_ms=7.0, workload={"load_qps": 700})])
    env = environment.ClusterEnv(made, REWARDS[name], first_steps=60_000)
    earned, _ = played(env, 5)
    run = env.run
    in_time, late = int(run.in_time.sum()), int((~run.in_time).sum())
    too_early = run.answered & (run.answered_ms < run.earliest_ms)
    assert min(in_time, int(too_early.sum())) > 50
    assert env.in_time_since() == (late, in_time)
    cost = float((run.finish_ms - run.start_ms).sum())
    assert earned == pytest.approx(in_time - late if name == "sparse"
                                   else 6.0 * in_time - cost - 18.0 * late)


def test_what_is_not_allowed_is_left_out():
    env = environment.ClusterEnv(two_gpus())
    env.reset(seed=1)
    action = np.array([1] * 12 + [4] * 12)  # batches of 16, which no model is run at
    _, reward, *_ = env.step(action)
    assert env.engine.workers.running == [[], []]
    assert reward == 0


def test_episodes_grow_and_are_cut():
    env = environment.ClusterEnv(two_gpus(), first_steps=4, most_steps=10)
    lengths = []
    for _ in range(6):
        env.reset(seed=0)
        steps, cut = 0, False
        while not cut:
            cut = env.step(np.zeros(24, dtype=int))[3]
            steps += 1
        lengths.append(steps)
    assert lengths == [4, 4, 8, 8, 10, 10]


def test_a_run_without_requests_is_over_at_once():
    env = environment.ClusterEnv(two_gpus(streams=[stream(workload={"times_ms": [5000.0]})]))
    env.reset(seed=0)
    assert env.step(np.zeros(24, dtype=int))[2]


def test_rewards_are_refused_that_are_none():
    assert reward_named("work:work=1,early=3") == REWARDS["work"].__class__(
        cost=1, early=3, correction=3, work=1)
    for text, says in (("work:work=-1", "work: factor of a reward out of range: got -1.0"),
                       ("wrk", "unknown reward: got 'wrk'; allowed: work"),
                       ("early:late=1", "not a factor of the reward: got 'late=1'"),
                       ("early:cost=inf", "cost: factor"), ("early:cost=x", "got 'cost=x'")):
        with pytest.raises(InvalidValueError, match=r"^reward") as raised:
            reward_named(text)
        assert says in str(raised.value)
        assert "\n" not in str(raised.value)
    with pytest.raises(InvalidValueError, match="first_steps"):
        environment.ClusterEnv(two_gpus(), first_steps=0)
