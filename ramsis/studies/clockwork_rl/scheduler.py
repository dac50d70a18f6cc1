"""Scheduler of the thesis on reinforcement learning in Clockwork (Saarland, 2022).

Every millisecond an agent decides for each worker in turn, with the decisions for the earlier
workers in its observation. It observes the 12 most urgent models with waiting requests on the
worker: the number of requests and the *laxity* of the oldest (deadline - now - time of a batch of
one); and the worker's remaining work: 25 numbers. An empty slot has 0 requests and a laxity of
1000 ms. The network of the agents that ramsis trains clips counts at 16 requests, laxities at -10
and 100 ms, work at 30 ms. So to it a model that is due in 100 ms differs from an empty slot only
in its count, and a deadline in 200 ms equals one in 2 s. For each slot the agent decides whether
to run the model, and the batch size; batches go to the worker in the order of the slots.
Infeasible choices (a slot without model, more requests than wait) are masked.

So an agent serves any number of workers and models: its observation does not identify the worker,
and on 6 GPUs it decides 6 times a millisecond. As in Clockwork, requests lapse when not even a
batch of one that started now would be in time. The thesis leaves loading to another module; here
models that no worker holds are loaded as by :mod:`~ramsis.sim.schedulers.loading.invoked`.

Agents come from a file (:mod:`ramsis.studies.clockwork_rl.agent`);
:mod:`ramsis.studies.clockwork_rl.training` trains them.
"""

from __future__ import annotations

from heapq import nsmallest

import numpy as np
from numpy.typing import NDArray

from ramsis.sim.engine import Engine
from ramsis.sim.schedulers.loading.invoked import Invoked
from ramsis.studies.clockwork_rl.agent import Agent, Mask, Vector, read_agent, shipped_agent

EMPTY_LAXITY_MS = 1000.0  # laxity of a slot without model
MOST_COUNT, MOST_MS = 1e4, 1e5  # limits to which observed counts and times are clipped


class AgentView(Invoked):
    """Observations of a worker for an agent, and the execution of its actions.

    Parameters
    ----------
    batch_sizes : tuple of int
        Batch sizes that an agent chooses from, increasing from 1.
    """

    def __init__(
        self, engine: Engine, every_ms: float, slots: int, batch_sizes: tuple[int, ...]
    ) -> None:
        super().__init__(engine, "rl", every_ms, slots)
        self.batch_sizes = batch_sizes
        self.shown: list[int] = []  # the models in the slots
        sizes = np.array(batch_sizes)
        self._fills = np.arange(batch_sizes[-1] + 1)[:, None] >= sizes
        self._fills[0, 0] = True  # an empty slot has one choice
        kinds = engine.workers.type
        self._most = [[min(batch_sizes[-1], max(by_model, default=0))
                       for by_model in engine.times.sizes[kind]] for kind in kinds]
        least = list(zip(*self.rows, strict=True))
        self._alone_ms: list[float] = [min(row[0] for row in rows) for rows in least]

    def room_ms(self, model: int) -> float:
        """Return the shortest time of a batch of one."""
        return self._alone_ms[model]

    def decide(self, worker: int) -> None:
        """Decide for a worker; subclasses and the environment override it."""

    def observe(self, worker: int) -> tuple[Vector, Mask]:
        """Return the observation of a worker, shape (2 slots + 1,), and the mask of choices.

        The mask has the choices of all parts of the action, one part after the other: for each
        slot whether to run, then for each the batch size.
        """
        now_ms, slots, queues = self.engine.now_ms, self.slots, self.queues
        loaded, rows, most = (self.engine.workers.loaded[worker], self.rows[worker],
                              self._most[worker])
        deadline_ms = self.deadline_ms
        urgent = nsmallest(slots, [(deadline_ms[queue[0]] - rows[model][0], model)
                                   for model, queue in queues.items()
                                   if queue and model in loaded])
        self.shown = [model for _, model in urgent]
        counts = [len(queues[model]) for model in self.shown]
        empty = slots - len(urgent)
        observation = np.array([
            *counts, *[0] * empty, *[latest_ms - now_ms for latest_ms, _ in urgent],
            *[EMPTY_LAXITY_MS] * empty, max(self.free_ms[worker] - now_ms, 0.0)], np.float32)
        if observation[-1] > MOST_MS or max(counts, default=0) > MOST_COUNT or (
                urgent and abs(urgent[-1][0] - now_ms) > MOST_MS):
            observation[:slots].clip(max=MOST_COUNT, out=observation[:slots])
            observation[slots:].clip(-MOST_MS, MOST_MS, out=observation[slots:])
        mask = np.ones((slots, 2 + len(self.batch_sizes)), dtype=bool)
        fill = [min(count, most[model])
                for count, model in zip(counts, self.shown, strict=True)] + [0] * empty
        flat = mask.reshape(-1)
        flat[1:2 * slots:2] = fill
        flat[2 * slots:] = self._fills[fill].reshape(-1)
        return observation, flat

    def carry_out(self, worker: int, action: NDArray[np.int64]) -> None:
        """Queue the batches of an action on the worker; skip those that cannot run."""
        choices: list[int] = action.tolist()
        for slot, model in enumerate(self.shown):
            if choices[slot]:
                size = self.batch_sizes[choices[self.slots + slot]]
                if size <= min(len(self.queues[model]), self._most[worker][model]):
                    self.give(worker, model, size)


class AgentScheduler(AgentView):
    """Scheduler that asks a trained agent for each worker, every millisecond."""

    def __init__(self, engine: Engine, agent: Agent) -> None:
        super().__init__(engine, agent.every_ms, agent.slots, agent.batch_sizes)
        self.agent = agent
        self.draws = np.random.default_rng(engine.seed) if agent.chance else None

    def decide(self, worker: int) -> None:
        """Ask the agent for an action on a worker, and carry it out."""
        observation, mask = self.observe(worker)
        if self.shown:
            self.carry_out(worker, self.agent.act(observation, mask, self.draws))


class RLScheduler(AgentScheduler):
    """Scheduler that asks the agent of a file every millisecond, for each worker in turn.

    Parameters
    ----------
    agent : str
        File of the agent; by default the one that is shipped with the package.
    """

    def __init__(self, engine: Engine, agent: str = "") -> None:
        super().__init__(engine, read_agent(agent) if agent else shipped_agent())
