"""Estimate of the goodput of replicas by simulation: batching, queues, interference.

Poisson arrivals are drawn for each of several seeds. The batches that the router sends depend on a
model's replicas alone, and a GPU's schedule on the batches sent to it. Both are cached, so that
after a changed replica only the GPUs with its model are simulated again.
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
    """Replica on a GPU: index of its model, batch size, share of the multiprocessors."""

    model: int
    batch: int
    mps_share: float | None = None


State = tuple[tuple[Item, ...], ...]  # plan: the replicas of each GPU


@dataclass(frozen=True)
class _Sent:
    """Batches that the router sends to one replica."""

    first: _Ints
    size: _Ints
    at_gpu_ms: _Floats


class _Table(NamedTuple):
    """Latency alone, and multiprocessors in use, by batch size from 0."""

    work_ms: _Floats
    used: _Floats


class Estimator:
    """Estimator of the goodput of plans, by simulated arrivals of several seeds."""

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
            [[number[model], size, number[other], other_size, ratio - 1]
             for ((model, size), (other, other_size)), ratio in interference.pairs.items()
             if model in number and other in number], dtype=float).reshape(-1, 5)

    def see(self, arrivals: Sequence[Sequence[_Floats]]) -> None:
        """Set the arrivals in ms, for each seed and model, in place of drawn ones."""
        if not arrivals:
            raise ValueError("no arrivals")
        self.arrivals = [list(of_models) for of_models in arrivals]
        self._last = [max((float(times[-1]) for times in of_models if len(times)), default=0.0)
                      for of_models in self.arrivals]
        # Caches by a GPU's replicas, and by the replicas of a model.
        self._sent = lru_cache(20_000)(self._sent_of)
        self._in_time = lru_cache(400_000)(self._in_time_of)

    def served(self, state: State, seeds: int | None = None) -> _Floats:
        """Return the share of each model's requests in time, over the first ``seeds`` seeds."""
        count = len(self.arrivals) if seeds is None else seeds
        order = [[item.batch for items in state for item in items if item.model == m]
                 for m in range(len(self.models))]
        targets = [tuple(batches) for batches in order]
        turn = [0] * len(self.models)
        in_time_of = np.zeros((count, len(self.models)))
        for g, items in enumerate(state):
            if not items:
                continue
            keys = []
            for item in items:
                keys.append((item, targets[item.model], turn[item.model]))
                turn[item.model] += 1
            for s in range(count):
                in_time = self._in_time(s, self.gpus[g].gpu_type, tuple(keys))
                for (item, _, _), count_of in zip(keys, in_time, strict=True):
                    in_time_of[s, item.model] += count_of
        requested = np.array([[len(a) for a in of_models] for of_models in self.arrivals[:count]])
        return np.asarray(in_time_of.sum(axis=0) / np.maximum(requested.sum(axis=0), 1))

    def _in_time_of(
        self, seed: int, kind: str, keys: tuple[tuple[Item, tuple[int, ...], int], ...]
    ) -> tuple[int, ...]:
        """Return the number of requests in time of each replica of a GPU.

        A key has the replica, the batch sizes of its model's replicas, and its index in these.
        """
        sent = [self._sent(seed, item.model, targets)[turn] for item, targets, turn in keys]
        tables = [self._table(item.model, item.mps_share, kind) for item, _, _ in keys]
        begin = np.array([0, *itertools.accumulate(len(batches_of.size) for batches_of in sent)])
        sizes = np.concatenate([batches_of.size for batches_of in sent])
        batches = Sent(
            begin, np.array([item.model for item, _, _ in keys]),
            np.concatenate([batches_of.at_gpu_ms for batches_of in sent]),
            np.concatenate([t.work_ms[of.size] for t, of in zip(tables, sent, strict=True)]),
            np.concatenate([t.used[of.size] for t, of in zip(tables, sent, strict=True)]), sizes)
        ends = run_gpu(batches, self._beside, self.interference.per_utilisation,
                       self.interference.saturates)
        return tuple(
            int(in_time(self.arrivals[seed][item.model], batches_of.first, batches_of.size,
                        ends[begin[r]:begin[r + 1]], float(self.models[item.model].slo_ms)))
            for r, ((item, _, _), batches_of) in enumerate(zip(keys, sent, strict=True)))

    def _sent_of(self, seed: int, model: int, targets: tuple[int, ...]) -> list[_Sent]:
        """Return the batches that the router sends to each replica of a model."""
        first, size, replica, sent = gathered(
            self.arrivals[seed][model], np.array(targets, dtype=np.int64),
            float(self.router.waiting_ms), self.router.lazy, self._last[seed])
        at_gpu = sent + self._network[model][size]
        batches = []
        for r in range(len(targets)):
            own_batches = np.flatnonzero(replica == r)
            # Sort, as a larger batch travels longer, and a later one can overtake it.
            own_batches = own_batches[np.argsort(at_gpu[own_batches], kind="stable")]
            copies = np.array([self.router.copies_ms(int(n)) for n in size[own_batches]])
            batches.append(_Sent(first[own_batches], size[own_batches],
                                 copied(at_gpu[own_batches], copies)))
        return batches

    def _table_of(self, m: int, mps_share: float | None, kind: str) -> _Table:
        """Return time alone and multiprocessors in use of batches on a share, by size."""
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
    """Draw arrival times of a Poisson process, at least one."""
    rng = np.random.default_rng(np.random.SeedSequence(list(seed), spawn_key=(77,)))
    expected = rate_per_ms * duration_ms
    gaps = rng.exponential(1 / rate_per_ms, size=int(expected + 6 * expected**0.5 + 20))
    times = np.cumsum(gaps)
    return np.asarray(times[: max(1, int(np.searchsorted(times, duration_ms)))])
