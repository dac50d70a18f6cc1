"""A fleet that scales, event by event in plain Python, written from what ramsis.scaling says."""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ramsis.policy import Policy
from ramsis.runtime import LoadMonitor
from ramsis.runtime.decisions import Decision, Drop
from ramsis.runtime.policy_set import set_of_selectors
from ramsis.runtime.selector import Selector, wake_slack
from ramsis.scaling import Observation


@dataclass
class Worker:
    """One of a fleet with queues of their own."""

    slot: int
    queue: list[int] = field(default_factory=list)
    batch: list[int] = field(default_factory=list)
    model: str = ""
    free_ms: float = math.inf
    leaves: bool = False


class Twin:
    """What both kinds of fleets share: the clock, the rule, and who is paid."""

    def __init__(
        self, arrival_ms: Sequence[float], policies: dict[int, list[Policy]], rule: Any, *,
        slo_ms: float, startup_s: float, interval_s: float, least: int, most: int, start: int,
        duration_s: float, seed: int, failures: Sequence[float] = (),
    ) -> None:
        every = [one for levels in policies.values() for one in levels]
        self.arrival_ms, self.slo_ms = arrival_ms, slo_ms
        rng = np.random.default_rng(seed)
        self.rng = rng.spawn(1)[0]
        self.sets = {n: set_of_selectors([Selector(one.decision_table())
                                          for one in levels]) for n, levels in policies.items()}
        self.time_of = {(model.name, b): policy.latency_ms[m, b - 1] for policy in every
                        for m, model in enumerate(policy.models)
                        for b in range(1, len(model.latency_ms) + 1)}
        self.rule, self.least, self.most = rule, least, most
        self.startup_ms, self.interval_ms = 1000 * startup_s, 1000 * interval_s
        self.duration_ms = 1000 * duration_s
        self.monitor = LoadMonitor()
        self.starting: list[float] = []
        self.failures = sorted(1000 * one for one in failures)
        self.now_ms, self.arrived, self.before, self.decisions = 0.0, 0, 0, 0
        self.worker_ms = self.busy_ms = self.serving_ms = 0.0
        self.finish_ms = [math.inf] * len(arrival_ms)
        self.fate: list[Any] = ["never"] * len(arrival_ms)
        self.seen: list[Observation] = []
        self.wanted = [start]
        self.begin(start)

    def selector(self) -> Selector:
        """For the active workers and the load."""
        known = [n for n in self.sets if n <= self.active()]
        levels = self.sets[max(known) if known else min(self.sets)]
        return levels.at(self.monitor.load_qps(self.now_ms)).policy

    def run(self) -> Twin:
        """All of it."""
        while True:
            next_ms, event = self.next_event()
            controls = [(self.starting[0] if self.starting else math.inf, 0),
                        (self.failures[0] if self.failures else math.inf, 1)]
            decision_ms = (self.decisions + 1) * self.interval_ms
            if decision_ms < self.duration_ms:
                controls.append((decision_ms, 2))
            control_ms, kind = min(controls)
            if math.isinf(min(next_ms, control_ms)):
                self.passed(max(self.now_ms, self.duration_ms))
                return self
            if next_ms < control_ms:
                self.passed(next_ms)
                event()
                continue
            self.passed(control_ms)
            before = self.active()
            if kind == 0:
                self.starting.pop(0)
                self.add()
            elif kind == 1:
                self.failures.pop(0)
                if self.active():
                    self.fail(int(self.rng.random() * self.active()))
            else:
                self.decide()
            if self.active() != before:
                self.changed()

    def passed(self, until_ms: float) -> None:
        """Time passes, and is paid for."""
        span = min(until_ms, self.duration_ms) - min(self.now_ms, self.duration_ms)
        serving, busy = self.serving()
        self.worker_ms += span * (serving + len(self.starting))
        self.busy_ms += span * busy
        self.serving_ms += span * serving
        self.now_ms = until_ms

    def decide(self) -> None:
        """Ask the rule, and do what it wants."""
        self.decisions += 1
        queued, in_service = self.held()
        seen = Observation(
            self.now_ms / 1000, 1000 * (self.arrived - self.before) / self.interval_ms,
            self.active(), len(self.starting), queued, in_service,
            self.busy_ms / self.serving_ms if self.serving_ms else 0.0)
        self.seen.append(seen)
        self.before, self.busy_ms, self.serving_ms = self.arrived, 0.0, 0.0
        wanted = min(max(self.rule.wanted(seen), self.least), self.most)
        self.wanted.append(wanted)
        while self.active() + len(self.starting) < wanted:
            if self.startup_ms:
                self.starting.append(self.now_ms + self.startup_ms)
            else:
                self.add()
        while self.active() + len(self.starting) > wanted and self.starting:
            self.starting.pop()
        if self.active() > wanted:
            self.remove(self.active() - wanted)

    def answered(self, batch: list[int], model: str) -> None:
        """A batch has ended."""
        for request in batch:
            self.fate[request], self.finish_ms[request] = model, self.now_ms


class Central(Twin):
    """Workers that share a queue. They are alike, so they are counted."""

    def begin(self, start: int) -> None:
        self.idle, self.leaving = start, 0
        self.queue: list[int] = []
        self.running: list[tuple[float, int, str, list[int]]] = []  # end, number, model, requests
        self.batches, self.timer = 0, (math.inf, math.inf)
        self.pending: float | None = None

    def active(self) -> int:
        return self.idle + len(self.running) - self.leaving

    def serving(self) -> tuple[int, int]:
        return self.idle + len(self.running), len(self.running)

    def held(self) -> tuple[int, int]:
        return len(self.queue), sum(len(one[3]) for one in self.running)

    def next_event(self) -> tuple[float, Any]:
        if self.pending is not None:
            return self.pending, self.ask_again
        end = self.running[0][0] if self.running else math.inf
        arrival = (self.arrival_ms[self.arrived] if self.arrived < len(self.arrival_ms)
                   else math.inf)
        if self.timer[0] < min(end, arrival):
            return self.timer[0], lambda: self.act(self.timer[1])
        return (end, self.end) if end <= arrival else (arrival, self.arrive)

    def changed(self) -> None:
        self.pending = self.now_ms

    def ask_again(self) -> None:
        self.pending = None
        self.act(math.inf)

    def arrive(self) -> None:
        self.monitor.record(self.now_ms)
        self.queue.append(self.arrived)
        self.arrived += 1
        self.act(math.inf)

    def end(self) -> None:
        _, _, model, batch = self.running.pop(0)
        self.answered(batch, model)
        if self.leaving:
            self.leaving -= 1
        else:
            self.idle += 1
            self.act(math.inf)

    def act(self, at_most: float) -> None:
        self.timer = (math.inf, math.inf)
        while self.queue:
            head = self.queue[0]
            deadline = self.arrival_ms[head] + self.slo_ms
            answer = self.selector()(len(self.queue), min(deadline - self.now_ms, at_most),
                                     self.idle)
            at_most = math.inf
            if isinstance(answer, Decision):
                batch, self.queue = self.queue[:answer.batch], self.queue[answer.batch:]
                self.idle -= 1
                self.batches += 1
                end = self.now_ms + self.time_of[answer.model, answer.batch]
                insort(self.running, (end, self.batches, answer.model, batch))
            elif isinstance(answer, Drop):
                self.fate[self.queue.pop(0)] = "dropped"
            else:
                wake = wake_slack(answer)
                if wake is not None:
                    self.timer = (max(deadline - wake, self.now_ms), wake)
                return

    def add(self) -> None:
        self.idle += 1

    def remove(self, count: int) -> None:
        idle = min(count, self.idle)
        self.idle -= idle
        self.leaving += count - idle

    def fail(self, one: int) -> None:
        if one < self.idle:
            self.idle -= 1
            return
        for request in self.running.pop(self.leaving + one - self.idle)[3]:
            self.fate[request] = "lost"


class OwnQueues(Twin):
    """Workers with queues of their own."""

    def begin(self, start: int) -> None:
        self.workers = [Worker(slot) for slot in range(start)]
        self.turn = 0

    def staying(self) -> list[Worker]:
        return sorted((one for one in self.workers if not one.leaves), key=lambda one: one.slot)

    def active(self) -> int:
        return len(self.staying())

    def serving(self) -> tuple[int, int]:
        return len(self.workers), sum(bool(one.batch) for one in self.workers)

    def held(self) -> tuple[int, int]:
        return (sum(len(one.queue) for one in self.workers),
                sum(len(one.batch) for one in self.workers))

    def next_event(self) -> tuple[float, Any]:
        first = min(self.workers, key=lambda one: (one.free_ms, one.slot), default=None)
        end = first.free_ms if first else math.inf
        arrival = (self.arrival_ms[self.arrived] if self.arrived < len(self.arrival_ms)
                   else math.inf)
        return (end, lambda: self.end(first)) if end <= arrival else (arrival, self.arrive)

    def changed(self) -> None:
        """The turn stands at a worker: where it leaves at the next, without any at the first."""
        among = self.staying()
        self.turn = next((one.slot for one in among if one.slot >= self.turn),
                         among[0].slot if among else 0)

    def arrive(self) -> None:
        self.monitor.record(self.now_ms)
        request, among = self.arrived, self.staying()
        self.arrived += 1
        if not among:
            self.fate[request] = "dropped"
            return
        one = next((one for one in among if one.slot >= self.turn), among[0])
        self.turn = one.slot + 1
        one.queue.append(request)
        if not one.batch:
            self.act(one)
        self.changed()  # who comes later does not get in between

    def end(self, one: Worker) -> None:
        self.answered(one.batch, one.model)
        one.batch, one.free_ms = [], math.inf
        self.act(one)
        if one.leaves and not one.batch:
            self.workers.remove(one)

    def act(self, one: Worker) -> None:
        while one.queue:
            head = one.queue[0]
            answer = self.selector()(len(one.queue),
                                     self.arrival_ms[head] + self.slo_ms - self.now_ms, 1)
            if isinstance(answer, Decision):
                one.batch, one.queue = one.queue[:answer.batch], one.queue[answer.batch:]
                one.model = answer.model
                one.free_ms = self.now_ms + self.time_of[answer.model, answer.batch]
                return
            assert isinstance(answer, Drop)
            self.fate[one.queue.pop(0)] = "dropped"

    def add(self) -> None:
        used = Counter(one.slot for one in self.workers)
        self.workers.append(Worker(next(slot for slot in range(len(used) + 1)
                                        if slot not in used)))

    def remove(self, count: int) -> None:
        order = sorted(self.staying(), key=lambda one: (len(one.queue) + len(one.batch),
                                                        -one.slot))
        for one in order[:count]:
            one.leaves = True
            if not one.batch:
                self.workers.remove(one)

    def fail(self, at: int) -> None:
        one = self.staying()[at]
        for request in one.queue + one.batch:
            self.fate[request] = "lost"
        self.workers.remove(one)
