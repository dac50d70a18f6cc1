"""Check the promise of a policy with second opinions by an independent simulator.

The simulator reads the object ``cascade`` by itself, as ``docs/lookup.md`` describes it, and
plays the rule event by event in plain Python on other requests than the promise was measured on.
It shares nothing with :mod:`ramsis.sim`. In every other run queues are full at first. Figures may
differ by twice the sum of the halves of their 95 % intervals.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.arrivals import Arrivals
from ramsis.policy import Policy
from ramsis.sim.result import Estimate
from ramsis.verify.checks import Check, close

_REQUESTS, _RUNS, _SEED = 15_000, 4, 1 << 28
_WARM_UP = 20.0  # SLOs
_WIDER = 2.0  # tolerance, as a multiple of the sum of both half-widths
_TOLERANCE_MS = 1e-6
_EXACT = 1e-9


class Answer(NamedTuple):
    """When and how a request of the replay was answered."""

    answered_ms: float  # infinite without an answer
    accuracy: float  # expected, of the answer
    second: bool  # whether it is a second opinion


def cascade_checks(policy: Policy) -> tuple[Check, ...]:
    """Check the promise of a policy's second opinions; () where it has none."""
    if policy.cascade is None:
        return ()
    promise, measured = policy.cascade.promise, _measured(policy)
    without, budget = policy.budget or policy.replay, policy.budget
    upper = promise.violation_rate + promise.violation_half_width
    return (
        *(() if budget is None else (Check(
            "violation rate with second opinions within the budget", budget.max_violation_rate,
            upper, upper <= budget.max_violation_rate),)),
        _within("effective accuracy with second opinions", promise.effective_accuracy,
                promise.effective_half_width, measured["effective_accuracy"]),
        _within("violation rate with second opinions", promise.violation_rate,
                promise.violation_half_width, measured["violation_rate"]),
        _within("second opinions", promise.second_opinions, 0.0, measured["second_opinions"]),
        close("gain of second opinions", promise.gain,
              promise.effective_accuracy - policy.expectations.effective_accuracy,
              _WIDER * (promise.effective_half_width + (
                  without.effective_half_width if without else 0.0))),
        Check("effective accuracy within the bound with second opinions",
              promise.effective_accuracy, promise.upper_bound, promise.effective_accuracy
              <= promise.upper_bound + _WIDER * promise.effective_half_width))


def _within(claim: str, stated: float, half_width: float, other: Estimate) -> Check:
    allowed = _WIDER * (half_width + (other.half_width or 0.0)) + 3.0 / _REQUESTS
    return close(claim, stated, other.mean, allowed)


def _measured(policy: Policy) -> dict[str, Estimate]:
    """Simulate independent runs of a policy; return means and intervals of its three rates."""
    document = policy.to_document()
    process = Arrivals.of(policy.arrivals).drawn(policy.load_qps)
    since_ms = _WARM_UP * policy.slo_ms
    until_ms = since_ms + 1000.0 * _REQUESTS / policy.load_qps
    seen: dict[str, list[float]] = {}
    for seed in range(_SEED, _SEED + _RUNS):
        rng = np.random.default_rng(seed)
        waiting = math.ceil(policy.load_qps / 1000.0 * policy.slo_ms) * (seed % 2)
        arrival_ms = np.concatenate([np.zeros(waiting),
                                     process.sample(until_ms + 2.0 * policy.slo_ms, rng)])
        answers = play(document, arrival_ms, rng)
        earned, late, opinions, count = 0.0, 0, 0, 0
        for came_ms, answer in zip(arrival_ms.tolist(), answers, strict=True):
            if since_ms <= came_ms < until_ms:
                in_time = answer.answered_ms <= came_ms + policy.slo_ms + 2.0 * _TOLERANCE_MS
                earned += answer.accuracy * in_time
                late += not in_time
                opinions += answer.second
                count += 1
        for name, value in (("effective_accuracy", earned), ("violation_rate", late),
                            ("second_opinions", opinions)):
            seen.setdefault(name, []).append(value / count)
    return {name: Estimate.of(values) for name, values in seen.items()}


def play(
    document: Mapping[str, Any], arrival_ms: FloatArray, rng: np.random.Generator,
    sureness: FloatArray | None = None,
) -> list[Answer]:
    """Serve requests, in the order of their arrival, by the rule of a policy file.

    ``sureness`` is the rank of each request's confidence, in [0, 1), which ``rng`` draws by
    default.
    """
    rank = rng.random(len(arrival_ms)) if sureness is None else sureness
    came, ranks = arrival_ms.tolist(), rank.tolist()
    if document["dispatch"] == "central-queue":
        return _Player(document, came, ranks, rng).answers()
    # Each worker has queues of its own, which requests join in turn.
    workers, alone = document["workers"], {**document, "workers": 1}
    answers: list[Answer] = [Answer(math.inf, 0.0, False)] * len(came)
    for worker in range(workers):
        answers[worker::workers] = _Player(
            alone, came[worker::workers], ranks[worker::workers], rng).answers()
    return answers


class _Player:
    """Simulation of a run: its workers, the queues of fresh and unsure requests, its events."""

    def __init__(
        self, document: Mapping[str, Any], arrival_ms: Sequence[float], rank: Sequence[float],
        rng: np.random.Generator,
    ) -> None:
        self.rule, self.models = document["cascade"], document["models"]
        self.overhead_ms = float(document.get("overhead_ms", 0.0))
        self.quantile_levels = document.get("quantile_levels")
        self.slo_ms, self.came, self.rank, self.rng = document["slo_ms"], arrival_ms, rank, rng
        self.idle = document["workers"]
        self.fresh: deque[int] = deque()
        self.unsure: deque[int] = deque()
        self.ends: list[tuple[float, int, list[int], int, bool]] = []
        self.batches = 0
        self.first_model: dict[int, int] = {}  # of each request that became unsure
        self.result = [Answer(math.inf, 0.0, False) for _ in arrival_ms]
        self.again_ms = math.inf

    def answers(self) -> list[Answer]:
        """Simulate all events; batches end before requests arrive at the same instant."""
        arrived = 0
        while True:
            next_ms = self.came[arrived] if arrived < len(self.came) else math.inf
            end_ms = self.ends[0][0] if self.ends else math.inf
            now_ms = min(next_ms, end_ms, self.again_ms)
            if now_ms == math.inf:
                return self.result
            if end_ms == now_ms:
                self._end()
            elif next_ms == now_ms:
                self.fresh.append(arrived)
                arrived += 1
            self.again_ms = math.inf
            while self.idle and (self.fresh or self.unsure) and self._decide(now_ms):
                pass

    def _level(self) -> int:
        waiting = (len(self.fresh) * self.rule["levels_per_fresh"]
                   + len(self.unsure) * self.rule["levels_per_unsure"])
        return min(int(waiting), len(self.rule["gather"]) - 1)

    def _slack_ms(self, request: int, now_ms: float) -> float:
        return float(self.came[request] + self.slo_ms - now_ms)

    def _end(self) -> None:
        """Record the answers of the next batch to end; unsure requests queue up again."""
        now_ms, _, requests, model, second = heappop(self.ends)
        self.idle += 1
        if second:
            for request in requests:
                first = self.result[request]
                if self._slack_ms(request, now_ms) >= -_TOLERANCE_MS:
                    self.result[request] = Answer(now_ms, first.accuracy + self._increment(
                        request, self.first_model[request]), True)
                else:
                    self.result[request] = first._replace(
                        answered_ms=self.came[request] + self.slo_ms)
            return
        bins = self.rule["unsure_bins"][self._level()][model]
        for request in requests:
            self.result[request] = Answer(now_ms, self.models[model]["accuracy"], False)
            if self._bin(request, model) < bins and self._slack_ms(request, now_ms) > 0:
                self.first_model[request] = model
                self.unsure.append(request)
        self.unsure = deque(sorted(self.unsure))  # by deadline

    def _bin(self, request: int, model: int) -> int:
        upto, shares = 0.0, self.rule["models"][model]["share"]
        for place, share in enumerate(shares[:-1]):
            upto += share
            if self.rank[request] < upto:
                return place
        return max(len(shares) - 1, 0)

    def _increment(self, request: int, model: int) -> float:
        return float(self.rule["models"][model]["increment"][self._bin(request, model)])

    def _decide(self, now_ms: float) -> bool:
        """Make one decision by the rule; return whether another may follow at this instant."""
        rule, level = self.rule, self._level()
        second_ms, gather = rule["second_ms"], rule["gather"][level]
        # Steps 1 to 4 of the rule in :mod:`ramsis.policy.cascade`.
        while self.unsure and (self._slack_ms(self.unsure[0], now_ms) + _TOLERANCE_MS
                               < second_ms[min(len(self.unsure), gather) - 1]):
            request = self.unsure.popleft()
            self.result[request] = self.result[request]._replace(
                answered_ms=min(now_ms, self.came[request] + self.slo_ms))
        again, wake_ms = 0, math.inf
        if self.unsure:
            slack_ms = self._slack_ms(self.unsure[0], now_ms)
            again = sum(time <= slack_ms + _TOLERANCE_MS
                        for time in second_ms[: len(self.unsure)])
            spare_ms = slack_ms - second_ms[again - 1] - rule["last_call_ms"]
            if again >= gather or spare_ms <= _TOLERANCE_MS:
                return self._start(self.unsure, again, rule["second"], now_ms, second=True)
            wake_ms = now_ms + spare_ms
        if self.fresh:
            code, below_ms = self._code(level, now_ms)
            if code >= 0:
                model, batch = rule["actions"][code]
                return self._start(self.fresh, batch, model, now_ms, second=False)
            if code == -2:
                self.fresh.popleft()
                return True
            wake_ms = min(wake_ms, below_ms)
        if again and again >= rule["least"][level]:
            return self._start(self.unsure, again, rule["second"], now_ms, second=True)
        # After months, at a very low load, the tolerance is below the spacing of times.
        self.again_ms = max(wake_ms, now_ms + _TOLERANCE_MS, math.nextafter(now_ms, math.inf))
        return False

    def _code(self, level: int, now_ms: float) -> tuple[int, float]:
        """Look up the code for fresh requests, and the time at which a wait for them ends."""
        rule = self.rule
        index = rule["index"][level]
        row = rule["rows"][index[min(len(self.fresh), len(index)) - 1]]
        slack_ms = self._slack_ms(self.fresh[0], now_ms)
        place = max(min(int((slack_ms + _TOLERANCE_MS) / rule["step_ms"]), rule["bins"] - 1), 0)
        pair = max(i for i, start in enumerate(row[::2]) if start <= place)
        begins = row[2 * pair]
        below_ms = (now_ms + slack_ms - begins * rule["step_ms"] + 2.0 * _TOLERANCE_MS
                    if begins else math.inf)
        return row[2 * pair + 1], below_ms

    def _start(
        self, queue: deque[int], batch: int, model: int, now_ms: float, *, second: bool
    ) -> bool:
        requests = [queue.popleft() for _ in range(batch)]
        heappush(self.ends, (now_ms + self._time_ms(model, batch), self.batches, requests, model,
                             second))
        self.batches += 1
        self.idle -= 1
        return True

    def _time_ms(self, model: int, batch: int) -> float:
        drawn = self.models[model].get("quantiles_ms")
        if drawn is None:
            return float(self.models[model]["latency_ms"][batch - 1]) + self.overhead_ms
        times = drawn[batch - 1]
        levels = self.quantile_levels or (np.arange(len(times)) + 0.5) / len(times)
        return float(np.interp(self.rng.random(), levels, times)) + self.overhead_ms
