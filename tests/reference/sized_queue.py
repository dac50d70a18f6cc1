"""A central queue of requests with a size, played request by request in plain Python.

It shares no code with the kernels but the function that gives the time of a batch. A rule is a
function of the queue (request numbers, the oldest first) and the time. It returns the batches that
it composes, the requests that it gives up, and when it wants to be asked again at the latest.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

TOLERANCE_MS = 1e-6


@dataclass
class Played:
    """Batches in the order in which they were composed, and requests given up."""

    batches: list[tuple[int, float, float, tuple[int, ...]]] = field(default_factory=list)
    dropped: list[tuple[int, float]] = field(default_factory=list)


@dataclass
class Queue:
    """What rules see: requests, deadlines, and times of batches of given requests."""

    arrival_ms: Sequence[float]
    size: Sequence[int]
    slo_ms: float
    padded: bool
    time_ms: Callable[[int, int], float]  # of a count, and the longest or the total size

    def slack_ms(self, request: int, now_ms: float) -> float:
        """Time left, with the tolerance that all comparisons have."""
        return self.arrival_ms[request] - (now_ms - self.slo_ms - TOLERANCE_MS)

    def measure(self, members: Sequence[int]) -> int:
        """Longest size, or the total size without padding."""
        sizes = [self.size[request] for request in members]
        return max(sizes) if self.padded else sum(sizes)

    def batch_ms(self, members: Sequence[int]) -> float:
        """Time of a batch, infinite where the table ends."""
        return self.time_ms(len(members), self.measure(members))

    def hopeless(self, waiting: Sequence[int], now_ms: float) -> list[int]:
        """Requests that cannot be in time even alone."""
        return [r for r in waiting if self.slack_ms(r, now_ms) < self.batch_ms([r])]


Decision = tuple[list[list[int]], list[int], float]
Rule = Callable[[Queue, list[int], float], Decision]


def play(
    queue: Queue, rule: Rule, *, workers: int, slower: float = 1.0, most_inside: float = math.inf
) -> Played:
    """Serve all requests by a rule."""
    played, waiting, committed = Played(), [], []
    idle = list(range(workers))
    running: list[tuple[float, int, int, int]] = []  # end, order, worker, requests
    order, inside, wake_ms = 0, 0, math.inf
    coming = list(range(len(queue.arrival_ms)))[::-1]
    while True:
        now_ms = min([wake_ms, *(queue.arrival_ms[r] for r in coming[-1:]),
                      *(end for end, *_ in running[:1])])
        if math.isinf(now_ms):
            return played
        wake_ms = math.inf
        while running and running[0][0] <= now_ms:
            _, _, worker, count = heapq.heappop(running)
            idle.append(worker)
            inside -= count
        while coming and queue.arrival_ms[coming[-1]] <= now_ms:
            request = coming.pop()
            if inside >= most_inside:
                played.dropped.append((request, now_ms))
            else:
                waiting.append(request)
                inside += 1
        while idle and (committed or waiting):
            if not committed:
                batches, dropped, wake_ms = rule(queue, list(waiting), now_ms)
                gone = {*dropped, *(r for batch in batches for r in batch)}
                waiting = [r for r in waiting if r not in gone]
                played.dropped += [(r, now_ms) for r in dropped]
                inside -= len(dropped)
                if not batches:
                    break
                committed += batches
            members = committed.pop(0)
            end_ms = now_ms + slower * queue.batch_ms(members)
            worker = idle.pop(0)
            played.batches.append((worker, now_ms, end_ms, tuple(members)))
            heapq.heappush(running, (end_ms, order, worker, len(members)))
            order += 1


def first_come(
    most: int, budget: float, *, drop: bool = False, wait_ms: float = 0.0, by_size: bool = False
) -> Rule:
    """First come, or shortest, first, with a limit on the count and the padded or total size."""
    def rule(queue: Queue, waiting: list[int], now_ms: float) -> Decision:
        dropped = queue.hopeless(waiting, now_ms) if drop else []
        left = [r for r in waiting if r not in dropped]
        if by_size:
            left.sort(key=lambda r: (queue.size[r], r))
        if not left:
            return [], dropped, math.inf
        count = 1
        while count < min(most, len(left)):
            more = left[:count + 1]
            x = queue.measure(more) * (len(more) if queue.padded else 1)
            if x > budget or math.isinf(queue.batch_ms(more)):
                break
            count += 1
        due_ms = queue.arrival_ms[left[0]] + wait_ms
        if wait_ms and count == len(left) < most and now_ms < due_ms - TOLERANCE_MS:
            return [], dropped, due_ms
        return [left[:count]], dropped, math.inf
    return rule


def sorted_window(most: int, batches: int) -> Rule:
    """Whole batches from the front of the queue, sorted by size where they are several."""
    def rule(queue: Queue, waiting: list[int], now_ms: float) -> Decision:
        whole = max(1, min(batches, len(waiting) // most))
        window = waiting[:whole * most]
        if whole > 1:
            window.sort(key=lambda r: (queue.size[r], r))
        result: list[list[int]] = [[]]
        for r in window:
            last = result[-1]
            if len(last) == most or (last and math.isinf(queue.batch_ms([*last, r]))):
                result.append([])
            result[-1].append(r)
        return result, [], math.inf
    return rule


def least_time(queue: Queue, ordered: list[int], most: int) -> list[list[int]]:
    """Cuts of requests in order with the least total time, the last batch as large as can be."""
    best: list[tuple[float, list[list[int]]]] = [(0.0, [])]
    for end in range(1, len(ordered) + 1):
        options = []
        for begin in range(max(0, end - most), end):
            batch = ordered[begin:end]
            options.append((best[begin][0] + queue.batch_ms(batch), best[begin][1], batch))
        total, before, batch = min(options, key=lambda option: option[0])
        best.append((total, [*before, batch]))
    return best[-1][1]


def planned(most: int, *, drop: bool) -> Rule:
    """All that waits, cut for the least total time."""
    def rule(queue: Queue, waiting: list[int], now_ms: float) -> Decision:
        dropped = queue.hopeless(waiting, now_ms) if drop else []
        left = sorted(set(waiting) - set(dropped), key=lambda r: (queue.size[r], r))
        return least_time(queue, left, most), dropped, math.inf
    return rule


def replanned(most: int, *, order: str, keep: float) -> Rule:
    """One batch of the plan, less the requests that it makes late."""
    def rule(queue: Queue, waiting: list[int], now_ms: float) -> Decision:
        dropped = queue.hopeless(waiting, now_ms)
        left = sorted(set(waiting) - set(dropped), key=lambda r: (queue.size[r], r))
        if not left:
            return [], dropped, math.inf
        plan = []
        for batch in least_time(queue, left, most):
            length_ms = queue.batch_ms(batch)
            plan.append((batch, length_ms,
                         [r for r in batch if queue.slack_ms(r, now_ms) >= length_ms]))
        good = [item for item in plan if item[2] and len(item[2]) >= keep * len(item[0])]
        if good and order == "urgent":
            chosen = min(good, key=lambda item: min(item[0]))
        elif good:
            chosen = max(good, key=lambda item: len(item[0]) / item[1])
        else:
            chosen = max(plan, key=lambda item: len(item[2]) / item[1])
        return [chosen[2] or chosen[0][:1]], dropped, math.inf
    return rule
