"""Goodput of replicas as the engine sees it: batch building, waiting limit, queues, interference.

For each of some seeds the planner draws Poisson arrivals of its own. What the router sends follows
from a model's replicas alone, and what a GPU does from what is sent to it; both are kept, so that
a changed replica costs only the GPUs that its model is on.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.studies.sharing._kernels import Sent, copied, gathered, in_time, run_gpu
from ramsis.studies.sharing.gpu.interference import Interference
from ramsis.studies.sharing.gpu.profile import between
from ramsis.studies.sharing.gpu.shared_gpu import Gpu, RouterSettings, SharedModel

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]


class Item(NamedTuple):
    """A replica on a GPU: number of its model, batch, share."""

    model: int
    batch: int
    mps_share: float | None = None


State = tuple[tuple[Item, ...], ...]
"""The replicas of each GPU."""


@dataclass(frozen=True)
class _Sent:
    """Batches that the router sends to one replica."""

    first: _Ints
    size: _Ints
    at_gpu_ms: _Floats


class _Table(NamedTuple):
    """By size of a batch, from 0: time alone and multiprocessors in use."""

    work_ms: _Floats
    used: _Floats


class Estimator:
    """Estimates of plans, by arrivals of a duration: one set of them for each seed."""

    def __init__(
        self, models: Sequence[SharedModel], gpus: Sequence[Gpu], router: RouterSettings,
        interference: Interference, duration_ms: float, seeds: Sequence[int],
    ) -> None:
        self.models, self.gpus = models, gpus
        self.router, self.interference = router, interference
        self.see([[_poisson(model.rate_rps / 1000, duration_ms, (seed, m))
                   for m, model in enumerate(models)] for seed in seeds])
        self._network = [np.array([0.0] + [router.network_of(model.name).ms(n) for n in range(
            1, 1 + max(rows[-1].batch for rows in model.batches.values()))])
            if model.batches else np.zeros(1) for model in models]
        self._table = cache(self._table_of)
        number = {model.name: m for m, model in enumerate(models)}
        self._beside = np.array(
            [[number[one], size, number[other], its, ratio - 1]
             for ((one, size), (other, its)), ratio in interference.pairs.items()
             if one in number and other in number], dtype=float).reshape(-1, 5)

    def see(self, arrivals: Sequence[Sequence[_Floats]]) -> None:
        """Go by these arrivals in ms, for each seed and model."""
        if not arrivals:
            raise ValueError("no arrivals")
        self.arrivals = [list(mine) for mine in arrivals]
        self._last = [max((float(a[-1]) for a in mine if len(a)), default=0.0)
                      for mine in self.arrivals]
        # A changed replica costs only the GPUs that its model is on.
        self._sent = lru_cache(20_000)(self._sent_of)
        self._in_time = lru_cache(400_000)(self._in_time_of)

    def served(self, state: State, seeds: int | None = None) -> _Floats:
        """Share of each model's requests that are in time, shape (models,), by the first seeds."""
        count = len(self.arrivals) if seeds is None else seeds
        order = [[item.batch for there in state for item in there if item.model == m]
                 for m in range(len(self.models))]
        targets = [tuple(batches) for batches in order]
        turn = [0] * len(self.models)
        right = np.zeros((count, len(self.models)))
        for g, there in enumerate(state):
            if not there:
                continue
            keys = []
            for item in there:
                keys.append((item, targets[item.model], turn[item.model]))
                turn[item.model] += 1
            for s in range(count):
                in_time = self._in_time(s, self.gpus[g].gpu_type, tuple(keys))
                for (item, _, _), count_of in zip(keys, in_time, strict=True):
                    right[s, item.model] += count_of
        asked = np.array([[len(a) for a in mine] for mine in self.arrivals[:count]])
        return np.asarray(right.sum(axis=0) / np.maximum(asked.sum(axis=0), 1))

    def _in_time_of(
        self, seed: int, kind: str, keys: tuple[tuple[Item, tuple[int, ...], int], ...]
    ) -> tuple[int, ...]:
        """Requests in time of each replica of a GPU: item, batches of its model, its turn."""
        sent = [self._sent(seed, item.model, targets)[turn] for item, targets, turn in keys]
        tables = [self._table(item.model, item.mps_share, kind) for item, _, _ in keys]
        begin = np.array([0, *itertools.accumulate(len(one.size) for one in sent)])
        sizes = np.concatenate([one.size for one in sent])
        batches = Sent(
            begin, np.array([item.model for item, _, _ in keys]),
            np.concatenate([one.at_gpu_ms for one in sent]),
            np.concatenate([t.work_ms[one.size] for t, one in zip(tables, sent, strict=True)]),
            np.concatenate([t.used[one.size] for t, one in zip(tables, sent, strict=True)]), sizes)
        ends = run_gpu(batches, self._beside, self.interference.per_utilisation,
                       self.interference.saturates)
        return tuple(
            int(in_time(self.arrivals[seed][item.model], one.first, one.size,
                        ends[begin[r]:begin[r + 1]], float(self.models[item.model].slo_ms)))
            for r, ((item, _, _), one) in enumerate(zip(keys, sent, strict=True)))
    def _sent_of(self, seed: int, model: int, targets: tuple[int, ...]) -> list[_Sent]:
        """Return the batches that the router sends to each replica of a model."""
        first, size, replica, sent = gathered(
            self.arrivals[seed][model], np.array(targets, dtype=np.int64),
            float(self.router.waiting_ms), self.router.lazy, self._last[seed])
        at_gpu = sent + self._network[model][size]
        found = []
        for r in range(len(targets)):
            mine = np.flatnonzero(replica == r)
            # A larger batch is longer under way, so that a later one can overtake it.
            mine = mine[np.argsort(at_gpu[mine], kind="stable")]
            copies = np.array([self.router.copies_ms(int(n)) for n in size[mine]])
            found.append(_Sent(first[mine], size[mine], copied(at_gpu[mine], copies)))
        return found

    def _table_of(self, m: int, mps_share: float | None, kind: str) -> _Table:
        model = self.models[m]
        rows = model.batches[kind]
        work, used = [0.0], [0.0]
        for n in range(1, rows[-1].batch + 1):
            row = between(rows, n)
            assert row is not None
            slow = self.interference.on_share(model.name, row.utilisation, mps_share)
            work.append(row.latency_ms * slow - self.router.copies_ms(n))
            used.append(min(row.utilisation, mps_share or 1.0))
        return _Table(np.array(work), np.array(used))


def _poisson(rate_per_ms: float, duration_ms: float, seed: Sequence[int]) -> _Floats:
    """Arrival times of a Poisson process; one at least."""
    rng = np.random.default_rng(np.random.SeedSequence(list(seed), spawn_key=(77,)))
    expected = rate_per_ms * duration_ms
    gaps = rng.exponential(1 / rate_per_ms, size=int(expected + 6 * expected**0.5 + 20))
    times = np.cumsum(gaps)
    return np.asarray(times[: max(1, int(np.searchsorted(times, duration_ms)))])
