"""Lookup of the replanned dynamic program, for policy files that name it.

A file has ``plan`` where the synthesis found no better rule. Waiting requests are sorted by size
and cut into batches with the least total time. Of the batches that answer at least a share
``keep`` of their requests in time, the batch with the oldest request runs. If there is none, the
batch with the most requests in time per ms runs. Requests that the chosen batch would answer late
are left out of it. ``docs/policy-file.md`` states each step. Standard library only.
"""

from __future__ import annotations

from bisect import insort
from itertools import accumulate
from math import inf
from operator import add
from typing import Generic, NamedTuple, TypeVar

from ramsis.runtime.sized import SizedBatch, SizedRule
from ramsis.runtime.table import SLACK_TOLERANCE_MS

T = TypeVar("T")


class _Waiting(NamedTuple):
    size: int
    number: int  # in the order of arrival
    deadline_ms: float


class PlannedQueue(Generic[T]):
    """Queue of requests whose batches follow a plan over the whole queue, made anew each time.

    ``rule`` is that of a policy file with a plan.
    """

    def __init__(self, rule: SizedRule) -> None:
        plan = rule.tables.plan
        assert plan is not None
        self.rule, self.slowness = rule, 1.0
        self._model, self._keep = plan
        self._waiting: list[_Waiting] = []  # by size, then arrival
        self._requests: dict[int, T] = {}
        self._arrived = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def take_slowness(self, slowness: float) -> None:
        """Decide from now on for batches that take ``slowness`` times as long, 1 or more."""
        self.slowness = slowness

    def add(self, request: T, size: int, arrival_ms: float) -> None:
        """Add a request that has arrived, in the order of arrival.

        A size beyond the tables is an IndexError.
        """
        if size > self.rule.max_size:
            raise IndexError(size)
        self._requests[self._arrived] = request
        insort(self._waiting,
               _Waiting(size, self._arrived, arrival_ms + self.rule.tables.slo_ms))
        self._arrived += 1

    def decide(self, now_ms: float, free_ms: float = inf) -> SizedBatch[T]:
        """Take the next batch of an idle worker out of the queue, and requests without hope.

        The time until another worker is free does not matter to the plan.
        """
        now_ms -= SLACK_TOLERANCE_MS
        hopeless = [entry for entry in self._waiting if entry.deadline_ms - now_ms
                    < self._time_ms(1, entry.size)]
        dropped = self._without(hopeless)
        if not self._waiting:
            return SizedBatch(-1, [], 0.0, dropped)
        begin, end, time_ms = self._chosen(now_ms)
        members = [entry for entry in self._waiting[begin:end]
                   if entry.deadline_ms - now_ms >= time_ms] or self._waiting[begin:begin + 1]
        if len(members) < end - begin:
            total = members[-1].size if self.rule.padded else sum(
                entry.size for entry in members)
            time_ms = self._time_ms(len(members), total)
        return SizedBatch(self._model, self._without(members), time_ms / self.slowness, dropped)

    def alone_ms(self, size: int) -> float:
        """Return the time of a request in a batch of its own."""
        return self._time_ms(1, size)

    def _time_ms(self, count: int, size: int) -> float:
        return self.rule.time_ms(self._model, count, size) * self.slowness

    def _without(self, entries: list[_Waiting]) -> list[T]:
        """Remove some requests from the queue, and return them."""
        if entries:
            numbers = {entry.number for entry in entries}
            self._waiting = [entry for entry in self._waiting if entry.number not in numbers]
        return [self._requests.pop(entry.number) for entry in entries]

    def _chosen(self, now_ms: float) -> tuple[int, int, float]:
        """Return where the batch to run begins and ends in the waiting requests, and its time.

        Batches with at least the share ``keep`` of their requests in time come first, by their
        oldest request; all others come after these, by their requests in time per ms.
        """
        waiting = self._waiting
        totals = [0, *accumulate(entry.size for entry in waiting)]
        best, chosen = (True, inf), (0, 0, 0.0)
        for begin, end in self._cuts(totals):
            time_ms = self._time_ms(end - begin, waiting[end - 1].size if self.rule.padded
                                    else totals[end] - totals[begin])
            in_time = sum(entry.deadline_ms - now_ms >= time_ms for entry in waiting[begin:end])
            fits = in_time > 0 and in_time >= self._keep * (end - begin)
            rank = (not fits, float(min(entry.number for entry in waiting[begin:end])) if fits
                    else -in_time / time_ms)
            if rank < best:
                best, chosen = rank, (begin, end, time_ms)
        return chosen

    def _cuts(self, totals: list[int]) -> list[tuple[int, int]]:
        """Return the batches, as (begin, end), of the least total time by dynamic programming.

        ``totals`` are the cumulative sizes of the waiting requests. Of equal cuts, the last batch
        is the largest, then the one before it, and so on.
        """
        most, rule = self.rule.most, self.rule
        # Least total time of the first 0, 1, … requests, and the begin of their last batch.
        least_ms, begin_of, reversed_ms = [0.0], [0], {}
        for end, entry in enumerate(self._waiting, 1):
            begin = max(0, end - most)
            if rule.padded:
                size = entry.size
                if size not in reversed_ms:
                    row = rule.tables.times_ms[self._model][rule.place_of[size]]
                    reversed_ms[size] = list(reversed(row))
                times_ms = reversed_ms[size][most - (end - begin):]
            else:
                times_ms = [rule.time_ms(self._model, end - at, totals[end] - totals[at])
                            for at in range(begin, end)]
            sums = list(map(add, least_ms[begin:], times_ms))
            least = min(sums)
            least_ms.append(least)
            begin_of.append(begin + sums.index(least))
        cuts, end = [], len(self._waiting)
        while end:
            cuts.append((begin_of[end], end))
            end = begin_of[end]
        return cuts[::-1]
