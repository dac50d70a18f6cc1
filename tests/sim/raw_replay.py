"""A policy file replayed on raw samples.

This shares no code with ``ramsis.sim`` or with what computes promises. It is one event loop: a
request arrives, a worker becomes idle, or a wait ends; then the queue's lookup is asked, by the
arrays that ``ramsis.verify`` reads from the file, until it has nothing more to do. A batch takes
one of the measured samples of the size that the answer says to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numba
import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.policy import Policy
from ramsis.verify.simulator import TableArrays, ask, table_of
from tests.sim.raw_samples import Samples

Document = Mapping[str, Any]
"""A policy file as JSON has it."""

_STRETCHES = 40
_WAIT, _DROP = -1, -2


class Replayed(NamedTuple):
    """What a policy delivered."""

    violation_rate: float
    effective_accuracy: float
    error: float  # standard error of the violation rate, by the means of stretches


class Chance(NamedTuple):
    """All that a replay leaves to chance; arrays of shape (n,)."""

    arrival_ms: FloatArray  # rising
    luck: FloatArray  # in [0, 1): the sample that each batch takes, in the order of their starts

    @classmethod
    def drawn(cls, load_qps: float, queries: int, seed: int) -> Chance:
        """Poisson arrivals."""
        rng = np.random.default_rng(seed)
        return cls(np.cumsum(rng.exponential(1000.0 / load_qps, queries)), rng.random(queries))


def replayed(policy: Policy, samples: Samples, queries: int, seed: int) -> Replayed:
    """A policy on Poisson arrivals at its load and raw samples, after a while to settle."""
    chance = Chance.drawn(policy.load_qps, queries, seed)
    document = policy.to_document()
    earned = events(
        table_of(document), _batches(document, samples), chance, document["slo_ms"],
        document["workers"], document["dispatch"] == "central-queue")[queries // 50:]
    late = [float(part.mean()) for part in np.array_split(earned == 0.0, _STRETCHES)]
    return Replayed(float((earned == 0.0).mean()), float(earned.mean()),
                    float(np.std(late, ddof=1)) / _STRETCHES**0.5)


class _Batches(NamedTuple):
    """What the actions do: queries, accuracy, and where their samples stand in ``sample_ms``."""

    size: IntArray
    accuracy: FloatArray
    first: IntArray
    count: IntArray
    sample_ms: FloatArray


def _batches(document: Document, samples: Samples) -> _Batches:
    size, accuracy, drawn = [], [], []
    for m, batch in document["table"]["actions"]:
        model = document["models"][m]
        run_as = model.get("run_as") or []
        size.append(batch)
        accuracy.append(model["accuracy"])
        drawn.append(samples[model["name"]][run_as[batch - 1] if batch <= len(run_as) else batch])
    count = np.array([len(one) for one in drawn])
    return _Batches(np.array(size), np.array(accuracy), np.cumsum(count) - count, count,
                    np.concatenate(drawn))


@numba.njit(cache=True)
def events(
    table: TableArrays, batches: _Batches, chance: Chance, slo_ms: float, workers: int,
    central: bool,
) -> FloatArray:
    """What each request earns; request i joins queue i modulo their number."""
    queues = 1 if central else workers
    arrival, luck = chance.arrival_ms, chance.luck
    earned = np.zeros(arrival.size)
    joined, taken = np.zeros(queues, np.int64), np.zeros(queues, np.int64)
    idle = np.full(queues, workers // queues)
    end = np.full(workers, np.inf)
    rings, below, slack = np.inf, np.inf, np.inf
    coming, started = 0, 0
    while True:
        arrives = arrival[coming] if coming < arrival.size else np.inf
        worker = 0
        for other in range(1, workers):
            if end[other] < end[worker]:
                worker = other
        ends = end[worker]
        if arrives == np.inf and ends == np.inf:
            return earned
        slack = np.inf
        if rings < min(arrives, ends):
            q, now, slack = 0, rings, below
        elif ends <= arrives:
            q, now = worker % queues, ends
            idle[q] += 1
            end[worker] = np.inf
        else:
            q, now = coming % queues, arrives
            joined[q] += 1
            coming += 1
        rings = np.inf
        while joined[q] > taken[q] and (idle[q] > 0 or central):
            deadline = arrival[q + taken[q] * queues] + slo_ms
            code, low = ask(table, joined[q] - taken[q], min(deadline - now, slack), idle[q])
            slack = np.inf
            if code == _DROP:
                taken[q] += 1
                continue
            if code == _WAIT:
                if low > 0:
                    rings = max(deadline - table.edge_ms[low], now)
                    below = np.nextafter(table.edge_ms[low], -np.inf)
                break
            sample = batches.first[code] + int(luck[started] * batches.count[code])
            until = now + batches.sample_ms[sample]
            started += 1
            for _ in range(batches.size[code]):
                query = q + taken[q] * queues
                if until <= arrival[query] + slo_ms:
                    earned[query] = batches.accuracy[code]
                taken[q] += 1
            idle[q] -= 1
            worker = q
            while end[worker] < np.inf:
                worker += queues
            end[worker] = until
