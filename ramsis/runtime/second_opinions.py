"""Dispatch of a queue whose policy has second opinions; see :mod:`.cascade`.

It replaces :meth:`~ramsis.runtime.station_queues.StationQueues.act`: besides fresh requests, the
queue holds requests that wait for a second opinion. First answers are sent at the deadline at the
latest, and at once while no worker is up. Standard library only.
"""

from __future__ import annotations

from heapq import heappop
from math import inf
from typing import Protocol, TypeVar

from ramsis.runtime.cascade import CascadeRule, Keep, WaitForEither
from ramsis.runtime.decisions import DROP, Decision
from ramsis.runtime.selector import Selector
from ramsis.runtime.station_queues import Player, QueueState, StationQueues

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class OpinionPlayer(Player[T_contra], Protocol[T_contra]):
    """Interface that carries out decisions, and sends first answers as final ones."""

    def keep(self, request: T_contra, /) -> None:
        """Send a request's first answer as the final one."""
        ...


def act(
    station: StationQueues[T], queue: QueueState[T], selector: Selector, rule: CascadeRule,
    now_ms: float, player: OpinionPlayer[T], at_most_ms: float = inf,
    unsure_at_most_ms: float = inf,
) -> None:
    """Carry out decisions of the rule until it decides to wait, or no worker is idle.

    ``at_most_ms`` and ``unsure_at_most_ms`` limit the slacks of the lookup at the end of a wait.
    """
    waiting, unsure, idle = queue.waiting, queue.unsure, queue.idle
    overhead_ms, slowness = station.overhead_ms, station.slowness
    queue.wake_ms = queue.wake_slack = queue.unsure_wake_slack = inf
    while unsure and (not queue.up or _due_ms(station, queue) <= now_ms + station.early_ms):
        keep_head(station, queue, player)
    level = None  # after a Keep, the level of the lookup that returned it
    while idle and (waiting or unsure):
        slack_ms = unsure_slack_ms = 0.0
        if waiting:
            slack_ms = min((waiting[0][0] - now_ms - overhead_ms) / slowness, at_most_ms)
        if unsure:
            unsure_slack_ms = min((unsure[0][0] - now_ms - overhead_ms) / slowness,
                                  unsure_at_most_ms)
        at_most_ms = unsure_at_most_ms = inf
        counts = len(waiting), slack_ms, len(unsure), unsure_slack_ms, level
        answer = rule(*counts) if slowness == 1.0 else rule.when_slow(slowness, *counts)
        level = None
        if isinstance(answer, Decision):
            heap, of_head_ms = (unsure, unsure_slack_ms) if answer.second else (waiting, slack_ms)
            queued, free = len(heap), len(idle)
            requests = [heappop(heap)[2] for _ in range(answer.batch)]
            player.start(idle.popleft(), answer, requests, of_head_ms, free, queued)
        elif isinstance(answer, Keep):
            level = answer.level
            keep_head(station, queue, player)
        elif answer is DROP:
            station.drop_head(queue, player)
        else:
            assert isinstance(answer, WaitForEither)
            _wait(station, queue, answer, now_ms)
            break
    if unsure and not idle:  # without a lookup, first answers must still be sent at the deadline
        queue.wake_ms = _due_ms(station, queue)
    if not queue.up:
        station.expire(queue, now_ms, player)


def keep_head(station: StationQueues[T], queue: QueueState[T], player: OpinionPlayer[T]) -> None:
    """Send the first answer of the head of the unsure queue."""
    _, _, request = heappop(queue.unsure)
    station.in_system[queue.number] -= 1
    player.keep(request)


def _due_ms(station: StationQueues[T], queue: QueueState[T]) -> float:
    """Return the time at which to send the first answer of the unsure queue's head."""
    return queue.unsure[0][0] - station.early_ms


def _wait(
    station: StationQueues[T], queue: QueueState[T], wait: WaitForEither, now_ms: float
) -> None:
    """Set the time of the next lookup, and the slack of the head that ends the wait."""
    wakes = [station.held_ms(heap[0]) - station.overhead_ms - slack_ms * station.slowness
             if heap else inf for heap, slack_ms in ((queue.waiting, wait.fresh_ms),
                                                     (queue.unsure, wait.unsure_ms))]
    wake_ms = min(wakes)
    if wake_ms < inf:
        queue.wake_ms = max(wake_ms, now_ms)
        if wakes[0] == wake_ms:
            queue.wake_slack = wait.fresh_ms
        else:
            queue.unsure_wake_slack = wait.unsure_ms
