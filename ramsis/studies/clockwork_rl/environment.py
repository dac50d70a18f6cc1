"""Gymnasium environment of the cluster engine, for the training of scheduling agents.

A step is one decision of :mod:`ramsis.studies.clockwork_rl.scheduler`: every millisecond the agent
decides for one worker after the other. Workers without waiting requests are skipped. An episode is
a run of a scenario with newly drawn requests. It is truncated after ``first_steps`` steps at
first and twice as many every other episode, up to ``most_steps`` (the thesis: 3000 and 60000), as
an untrained agent soon accumulates more work than any action could clear.

Needs the extra ``rl``; this module cannot be imported without it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, MultiDiscrete
from numpy.typing import NDArray

from ramsis.errors import whole
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.scenario import Scenario
from ramsis.sim import Engine, Run
from ramsis.studies.clockwork_rl.agent import Mask, Vector
from ramsis.studies.clockwork_rl.rewards import REWARDS, Reward
from ramsis.studies.clockwork_rl.scheduler import EMPTY_LAXITY_MS, MOST_COUNT, MOST_MS, AgentView

SLOTS, EVERY_MS, BATCH_SIZES = 12, 1.0, (1, 2, 4, 8, 16)  # settings of the thesis
_ROOM_MS = 2.0 * SLACK_TOLERANCE_MS  # tolerance of deadlines, as in Run.in_time

Action = NDArray[np.int64]


class ClusterEnv(gymnasium.Env[Vector, Action]):
    """Gymnasium environment in which an agent schedules a scenario, a decision per step.

    Parameters
    ----------
    reward : Reward, optional
        Reward of a decision; by default the third of the thesis.
    slots : int
        Number of observed models.
    first_steps, most_steps : int
        Steps of the first episode, and of the longest.
    """

    def __init__(
        self, scenario: Scenario, reward: Reward = REWARDS["work"], *, slots: int = SLOTS,
        first_steps: int = 3_000, most_steps: int = 60_000,
    ) -> None:
        whole(1, most_steps).check("not a length of episodes", first_steps=first_steps)
        self.scenario, self.reward, self.slots = scenario, reward, slots
        self.first_steps, self.most_steps = first_steps, most_steps
        self.episode = 0
        self._outcomes = [0, 0]  # numbers of requests not in time, and in time
        low = [0.0] * slots + [-MOST_MS] * slots + [0.0]
        high = [MOST_COUNT] * slots + [MOST_MS] * (slots + 1)
        self.observation_space = Box(np.array(low, np.float32), np.array(high, np.float32))
        self.action_space = MultiDiscrete([2] * slots + [len(BATCH_SIZES)] * slots)
        nothing = np.zeros((slots, 2 + len(BATCH_SIZES)), dtype=bool)
        nothing.reshape(-1)[:2 * slots:2] = True
        nothing.reshape(-1)[2 * slots::len(BATCH_SIZES)] = True
        self._nothing = nothing.reshape(-1)
        self._void = np.array([0.0] * slots + [EMPTY_LAXITY_MS] * slots + [0.0], np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        """Begin an episode with newly drawn requests."""
        super().reset(seed=seed)
        self.steps = 0
        self.limit = min(self.first_steps << (self.episode // 2), self.most_steps)
        self.episode += 1
        self.engine = Engine.of_scenario(self.scenario, int(self.np_random.integers(2 ** 31)))
        self.learner = _Learner(self.engine, self.slots, self.reward, self._outcomes)
        self._playing: Generator[None, None, Run] = self.engine.play(self.learner)
        self._turn: Iterator[int] = iter(())
        self.run: Run | None = None
        self._go_on()
        self.learner.earned = 0.0
        return self._observation, {}

    def step(self, action: Action) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Carry out an action on the current worker, and advance to the next decision."""
        learner = self.learner
        self.steps += 1
        if self.run is None:
            learner.decided(self.worker)
            learner.carry_out(self.worker, np.asarray(action))
            self._go_on()
        earned, learner.earned = learner.earned, 0.0
        over = self.run is not None
        return self._observation, earned, over, not over and self.steps >= self.limit, {}

    def in_time_since(self) -> tuple[int, int]:
        """Return the numbers of requests late and in time since the last call."""
        late, in_time = self._outcomes
        self._outcomes[:] = 0, 0
        return late, in_time

    def action_masks(self) -> Mask:
        """Return the mask of feasible choices, for all parts of the action."""
        return self._mask

    def _go_on(self) -> None:
        """Advance to the next worker with waiting requests."""
        while True:
            for worker in self._turn:
                observation, mask = self.learner.observe(worker)
                if self.learner.shown:
                    self.worker, self._observation, self._mask = worker, observation, mask
                    return
            if self.learner.in_turn:
                self.learner.finish()
                self.learner.in_turn = False
            try:
                next(self._playing)
            except StopIteration as end:
                self.run = end.value
                self._observation, self._mask = self._void, self._nothing
                return
            self._turn = self.learner.asked()


class _Learner(AgentView):
    """Scheduler that pauses the run for each decision and accumulates the reward."""

    def __init__(
        self, engine: Engine, slots: int, reward: Reward, outcomes: list[int]
    ) -> None:
        super().__init__(engine, EVERY_MS, slots, BATCH_SIZES)
        self.reward, self.earned, self.in_turn = reward, 0.0, False
        self.outcomes = outcomes
        self.model_of = engine.requests.model
        self.lost = reward.correction * reward.early

    def on_timer(self, token: object) -> None:
        """Let the agent decide for each worker, at its regular time."""
        if self.begin():
            self.in_turn = True
            self.engine.pause()

    def on_end(self, worker: int, batch: int) -> None:
        """Add the reward of the requests of a finished batch."""
        for request in self.engine.members(batch):
            if self.answered_in_time(request, self.engine.now_ms):
                self.earned += self.reward.in_time
                self.outcomes[1] += 1
            else:
                self.violated(request)
        super().on_end(worker, batch)

    def lapse(self, request: int) -> None:
        """Subtract the penalty of a request that was not scheduled in time."""
        self.violated(request)
        super().lapse(request)

    def violated(self, request: int) -> None:
        """Subtract the penalty of a violation from the reward."""
        self.outcomes[0] += 1
        alone_ms = self._alone_ms[self.model_of[request]]
        self.earned -= self.reward.violated + self.lost * alone_ms

    def answered_in_time(self, request: int, at_ms: float) -> bool:
        """Return whether an answer is neither late nor before the stream's earliest time."""
        return bool(self.engine.requests.earliest_ms[request] - _ROOM_MS <= at_ms
                    <= self.deadline_ms[request] + _ROOM_MS)

    def decided(self, worker: int) -> None:
        """Subtract the cost of the work that is queued on a worker."""
        pending_ms = max(self.free_ms[worker] - self.engine.now_ms, 0.0)
        self.earned -= self.reward.work * pending_ms

    def give(self, worker: int, model: int, size: int) -> float:
        """Add the expected reward of a batch and subtract its cost."""
        queue, reward = self.queues[model], self.reward
        row = self.rows[worker][model]
        requests = [queue[i] for i in range(size)] if reward.early else []
        end_ms = super().give(worker, model, size)
        in_time = sum([self.answered_in_time(request, end_ms) for request in requests])
        self.earned += reward.early * row[0] * in_time - reward.cost * row[size - 1]
        return end_ms
