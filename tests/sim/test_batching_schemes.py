"""Batching of two serving systems: BentoML's adaptive one, and deferred batches as in Symphony."""

import asyncio
import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ramsis.errors import InvalidValueError
from ramsis.sim import BentoML, Fleet, Run, Symphony
from tests.sim.samples import fleet, run

LATENCY_MS = [6.0 + 1.5 * n for n in range(1, 9)]
SLO_MS = 40.0


def one_worker(latency_ms: list[float] = LATENCY_MS, slo_ms: float = SLO_MS) -> Fleet:
    return fleet([latency_ms], slo_ms=slo_ms, workers=1)


def poisson(load_qps: float, count: int, seed: int) -> list[float]:
    gaps: NDArray[np.float64] = np.random.default_rng(seed).exponential(1000.0 / load_qps, count)
    return np.cumsum(gaps).tolist()  # type: ignore[no-any-return]


def played(spec: BentoML | Symphony, own: Fleet, arrivals: list[float]) -> Run:
    return run(own, spec.prepare(own).start, arrivals, arrivals[-1] + 1.0)


# Symphony


def test_a_batch_starts_when_one_request_more_would_make_its_head_late():
    own = fleet([[10.0, 14.0, 18.0]], slo_ms=100.0, workers=2)
    alone = played(Symphony("m0"), own, [5.0])
    assert alone.start_ms.tolist() == [5.0 + 100.0 - 14.0]
    two = played(Symphony("m0"), own, [0.0, 30.0])
    assert (two.start_ms.tolist(), two.size.tolist()) == ([82.0], [2])
    full = played(Symphony("m0"), own, [0.0, 30.0, 31.0])
    assert (full.start_ms.tolist(), full.size.tolist()) == ([31.0], [3])
    earlier = played(Symphony("m0", objective=0.5), own, [0.0])
    assert earlier.start_ms.tolist() == [50.0 - 14.0]
    limited = played(Symphony("m0", batch=1), own, [0.0, 1.0])
    assert limited.start_ms.tolist() == [0.0, 1.0]


def test_a_head_that_is_late_anyway_is_dropped():
    own = fleet([[60.0, 65.0]], slo_ms=100.0, workers=1)
    done = played(Symphony("m0"), own, [0.0, 0.0, 10.0, 60.0])
    # Two start at once, up to 65. The third could be in time until 50; the fourth is, from 65.
    assert done.batch_of.tolist() == [0, 0, -2, 1]
    assert done.start_ms.tolist() == [0.0, 95.0]


def test_deferred_batches_start_inside_their_window_and_are_in_time():
    own = fleet([LATENCY_MS], slo_ms=SLO_MS, workers=3)
    done = played(Symphony("m0"), own, poisson(250.0, 3000, 2))
    assert done.in_time[done.answered].all()
    inside = 0
    for batch, (size, start) in enumerate(zip(done.size, done.start_ms, strict=True)):
        head = done.arrival_ms[done.batch_of == batch].min() + SLO_MS
        assert start <= head - LATENCY_MS[size - 1] + 1e-5
        if size < len(LATENCY_MS):  # a full batch starts at once
            assert start >= head - LATENCY_MS[size] - 1e-5
            inside += 1
    assert inside > 100


def test_at_a_low_load_deferred_batches_leave_the_last_workers_unused():
    own = fleet([LATENCY_MS], slo_ms=SLO_MS, workers=8)
    done = played(Symphony("m0"), own, poisson(200.0, 2000, 3))
    assert done.worker.max() < 4
    assert done.size.mean() > 4.0


# BentoML


def test_a_worker_starts_at_once_while_batches_do_not_wait():
    own = one_worker()
    done = played(BentoML("m0"), own, [50.0 * i for i in range(40)])
    waited = done.start_ms - done.arrival_ms
    # The tenth trains with two requests: it waits for a second one, then goes alone.
    assert np.flatnonzero(waited > 0).tolist() in ([9], [9, 10])
    assert done.size.tolist() == [1] * 40


def test_a_busy_worker_gives_up_what_cannot_be_in_time():
    own = one_worker([30.0, 31.0, 32.0], slo_ms=40.0)
    done = played(BentoML("m0"), own, [40.0 * i for i in range(20)] + [761.0, 762.0])
    # At 760 the last alone starts; then two wait. The line says some 31 ms for both.
    assert done.batch_of.tolist()[-2:] == [-2, 20]


class _VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next event."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def bentoml_itself(
    own: Fleet, arrivals: list[float], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[list[int]], list[float]]:
    """The batches that BentoML's own dispatcher makes in virtual time, and their starts in ms."""
    module: Any = importlib.import_module("bentoml._internal.marshal.dispatcher")
    loop = _VirtualLoop()
    clock = SimpleNamespace(time=loop.time)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(importlib.import_module("bentoml._internal.utils.alg"), "time", clock)
    batches: list[list[int]] = []
    starts: list[float] = []

    async def model(queries: Any) -> Any:
        batches.append([int(query) for query in queries])
        starts.append(1000.0 * loop.time())
        await asyncio.sleep(own.table.latency_ms[0, len(queries) - 1] / 1000.0)
        return queries

    dispatcher = module.CorkDispatcher(
        SLO_MS, own.max_batch, fallback=lambda: None, get_batch_size=lambda query: 1)
    ask = dispatcher(model)

    async def play() -> None:
        tasks = []
        for query, at_ms in enumerate(arrivals):
            await asyncio.sleep(at_ms / 1000.0 - loop.time())
            tasks.append(asyncio.ensure_future(ask(query)))
        await asyncio.gather(*tasks)

    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(play())
        dispatcher.shutdown()
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    return batches, starts


@pytest.mark.parametrize(("load_qps", "seed"), [(40.0, 0), (150.0, 1), (300.0, 2), (600.0, 3)])
def test_batches_are_those_of_bentoml_itself(load_qps, seed, monkeypatch):
    pytest.importorskip("bentoml", reason="compares with BentoML itself: pip install bentoml")
    own = one_worker([6.0137 + 1.5071 * n for n in range(1, 9)])  # no ties with the ticks
    arrivals = poisson(load_qps, 4000, seed)
    done = played(BentoML("m0"), own, arrivals)
    ours = [np.flatnonzero(done.batch_of == batch).tolist() for batch in range(len(done.size))]
    theirs, starts = bentoml_itself(own, arrivals, monkeypatch)
    assert ours == theirs
    np.testing.assert_allclose(done.start_ms, starts, rtol=0, atol=1e-3)


# Both


def test_models_and_limits_are_those_of_the_fleet():
    with pytest.raises(InvalidValueError, match="unknown model"):
        BentoML("m9").prepare(one_worker())
    with pytest.raises(InvalidValueError, match=r"batch limit.*1 to 8, 0 the largest"):
        Symphony("m0", 9).prepare(one_worker())
