"""Any order of requests, deaths, failures and times: each request is answered, once and rightly.

The server and its pool are the real ones. Their processes are played, with the shared memory and
the messages of real ones, and so is the clock.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ramsis.policy import write_set
from ramsis.policy.policy_set import set_of
from tests.clock import Clock
from tests.serving.opinions import policy_with_opinions
from tests.serving.servers import make

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)

from ramsis.errors import RamsisError  # noqa: E402
from ramsis.runtime.dispatcher import DispatchSettings  # noqa: E402
from ramsis.runtime.fronts import AsyncFront  # noqa: E402
from ramsis.serving import server as server_module  # noqa: E402
from ramsis.serving.calls import Call, FailedError, OverloadedError  # noqa: E402
from ramsis.serving.policies import read_policies  # noqa: E402
from ramsis.serving.protocol import Answer, InferRequest  # noqa: E402
from ramsis.serving.server import Server, ServerSettings  # noqa: E402
from ramsis.serving.tensors import TensorSpec, specs_to_json  # noqa: E402
from ramsis.serving.variants import read_variants  # noqa: E402
from ramsis.serving.workers import pool as pool_module  # noqa: E402
from ramsis.serving.workers.messages import Block, Ended, RunBatch, arrays_in, size_of  # noqa: E402  # noqa: E402
from ramsis.serving.workers.pool import State, WorkerPool  # noqa: E402

INPUTS, OUTPUTS = (TensorSpec("x", "FP32", (3,)),), (TensorSpec("sum", "FP32", ()),)
WORKERS, SLOTS, TIMEOUT_S, LONGEST_PAUSE_S = 2, 8, 2.0, 5.0


class PlayedProcess:
    """A worker's process, which does its next thing when a rule says so."""

    numbers = iter(range(1, 1 << 30))

    def __init__(
        self, life: WorkerLife, config: dict[str, Any], heard: Callable[[bytes], object],
        ended: Callable[[str], object],
    ) -> None:
        life.tries.append(life.clock.now_s)
        if life.failing:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.life, self.pid, self.reason = life, next(self.numbers), ""
        self.dead: asyncio.Future[None] = life.clock.create_future()
        self.silenced = self.has_config = self.is_ready = self.has_memory = False
        self.batch: RunBatch | None = None
        self.outbox: list[bytes] = []
        self._heard, self._ended = heard, ended
        life.processes.append(self)

    def send(self, message: bytes) -> None:
        assert self.is_ready
        assert self.batch is None
        self.batch, self.sent_s = RunBatch.unpacked(message), self.life.clock.now_s

    def send_files(self, document: dict[str, Any], files: list[int]) -> None:
        if self.life.failing:
            return self.kill("no files")
        slots, most = document["slots"], document["max_batch"]
        self.inputs = arrays_in(Block(size_of(INPUTS, slots), files[0]), INPUTS, slots)["x"]
        self.outputs = arrays_in(Block(size_of(OUTPUTS, most), files[1]), OUTPUTS, most)["sum"]
        self.has_memory = True

    def read(self) -> None:
        while self.outbox and not self.silenced:
            self._heard(self.outbox.pop(0))

    def kill(self, reason: str) -> None:
        if "took longer" in reason:
            assert self.batch is not None
            assert self.life.clock.now_s - self.sent_s >= TIMEOUT_S
        self.reason = self.reason or reason
        self.life.clock.call_later(0.003, self.die)

    def end(self) -> None:
        self.silenced = True
        self.life.clock.call_later(0.003, self.die)

    def act(self, error: str = "") -> None:
        """Do the next thing: say what the tensors are, be ready, or run the batch."""
        if self.batch is not None:
            rows = list(self.batch.slots)
            self.outputs[:len(rows)] = self.inputs[rows].sum(axis=1)
            self.outbox.append(Ended(self.batch.number, 1.0, error).packed())
            self.batch = None
        elif not self.has_memory and not self.has_config:
            self.has_config = True
            self._say({"inputs": specs_to_json(INPUTS), "outputs": specs_to_json(OUTPUTS)}
                      if not error else {"failed": error})
        elif self.has_memory and not self.is_ready:
            self.is_ready = True
            self._say({"ready": True})
        self.life.clock.call_soon(self.read)

    def _say(self, document: dict[str, Any]) -> None:
        self.outbox.append(json.dumps(document).encode())

    def die(self) -> None:
        """The kernel says that it is dead; what it has sent is heard first."""
        if not self.dead.done():
            self.read()
            self.dead.set_result(None)
            if not self.silenced:
                self._ended(self.reason or "it died")


class WorkerLife(RuleBasedStateMachine):
    """Requests, signals and time in any order."""

    folder: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.raised = Clock(), list[dict[str, Any]]()
        self.clock.set_exception_handler(lambda _, context: self.raised.append(context))
        self.failing, self.draining = False, False
        self.processes: list[PlayedProcess] = []
        self.tries: list[float] = []
        self.calls: list[tuple[Call, np.ndarray[Any, Any]]] = []
        self.told = Counter[int]()
        self.left = set[int]()
        self.leaving = set[int]()
        self.events: list[tuple[str, dict[str, Any]]] = []

    @initialize(retry=st.booleans())
    def start(self, retry: bool) -> None:
        clock = self.clock
        server_module.AsyncFront = partial(  # type: ignore[misc, assignment]
            AsyncFront, clock_s=clock.time)
        pool_module.time = SimpleNamespace(  # type: ignore[assignment]
            monotonic=clock.time)
        self.retry = retry
        self.server = Server(
            read_policies(self.folder / "policies"), read_variants(self.folder / "variants.toml"),
            ServerSettings(slots=SLOTS, timeout_s=TIMEOUT_S, retry=retry, pin=False, drain_s=3.0,
                           dispatch=DispatchSettings(timer_ms=1.0)),
            log=lambda event, **fields: self.events.append((event, fields)),
            make_pool=lambda *settings: WorkerPool(*settings, launch=partial(PlayedProcess, self)))
        starting = clock.create_task(self.server.start())
        clock.settle()
        assert self.server.not_ready
        for _ in range(2):
            for process in list(self.processes):
                process.act()
            clock.settle()
        assert starting.done()
        starting.result()

    @property
    def pool(self) -> WorkerPool:
        assert isinstance(self.server.pool, WorkerPool)
        return self.server.pool

    def process_of(self, worker: int) -> PlayedProcess | None:
        process = self.pool._workers[worker].process
        assert process is None or isinstance(process, PlayedProcess)
        return process

    # Requests ------------------------------------------------------------------------------------

    @rule(queries=st.integers(1, 4), deadline_ms=st.sampled_from([None, 5.0, 400.0, 8000.0]))
    def request(self, queries: int, deadline_ms: float | None) -> None:
        number = len(self.calls)
        rows = (np.arange(3 * queries, dtype=np.float32) + 100 * number).reshape(queries, 3)
        self.calls.append((None, rows.sum(axis=1)))  # type: ignore[arg-type]

        def tell(result: Answer | RamsisError) -> None:
            self.told[number] += 1
            assert self.told[number] == 1
            assert number not in self.left
            if isinstance(result, Answer):
                assert result.outputs["sum"].tolist() == self.calls[number][1].tolist()
            else:
                assert isinstance(result, OverloadedError | FailedError)

        def submit() -> Call | None:
            try:
                return self.server.submit(
                    InferRequest("", [rows.copy()], queries, deadline_ms, {"sum": True}),
                    1000.0 * self.clock.now_s, tell)
            except OverloadedError:
                self.told[number] += 1
                return None

        call = self.clock.do(submit)
        self.calls[number] = (call, self.calls[number][1])  # type: ignore[assignment]

    @precondition(lambda self: len(self.told) + len(self.left) < len(self.calls))
    @rule(data=st.data())
    def a_client_leaves(self, data: st.DataObject) -> None:
        waiting = [number for number in range(len(self.calls))
                   if not self.told[number] and number not in self.left]
        if waiting:
            number = data.draw(st.sampled_from(waiting))
            self.left.add(number)
            self.clock.do(lambda: self.server.abandon(self.calls[number][0]))

    # Processes -----------------------------------------------------------------------------------

    @rule(worker=st.integers(0, WORKERS - 1), error=st.sampled_from(["", "", "", "it failed"]))
    def acts(self, worker: int, error: str) -> None:
        process = self.process_of(worker)
        if process is not None:
            self.clock.do(lambda: process.act(error))

    @rule(worker=st.integers(0, WORKERS - 1), sends=st.booleans())
    def dies(self, worker: int, sends: bool) -> None:
        process = self.process_of(worker)
        if process is None:
            return

        def death() -> None:
            if sends and process.batch is not None:
                process.act()
            process.die()

        self.clock.do(death)

    @rule(fails=st.booleans())
    def starts_fail(self, fails: bool) -> None:
        self.failing = fails

    # Time, signals, scaling ----------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.001, 0.01, 0.06, 0.3, 1.0, TIMEOUT_S, 7.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: not self.draining)
    @rule(worker=st.integers(0, WORKERS - 1))
    def begins_or_ends(self, worker: int) -> None:
        """As scaling does."""
        state = self.pool._workers[worker].state
        if worker in self.leaving:
            return
        if state is State.OFF:
            self.clock.do(lambda: self.pool.begin(worker))
        elif state is not State.READY:
            self.clock.do(lambda: self.pool.end(worker))
        else:
            self.leaving.add(worker)

            def ended(number: int) -> None:
                self.leaving.discard(number)
                self.pool.end(number)

            self.clock.do(lambda: self.server.retire(worker, ended))

    @precondition(lambda self: not self.draining)
    @rule()
    def drains(self) -> None:
        self.draining = True
        self.stopped = self.clock.create_task(self.server.stop())
        self.clock.settle()

    # What holds ----------------------------------------------------------------------------------

    @invariant()
    def each_slot_is_free_or_held_by_a_query(self) -> None:
        slots = self.pool.slots
        if slots is not None and not self.draining:
            running = sum(len(batch.start.tickets) for batch in self.server._running.values())
            assert SLOTS - slots.free == self.server.front.dispatcher.queued + running

    @invariant()
    def each_batch_runs_on_a_process_that_lives(self) -> None:
        for worker in getattr(self, "server", SimpleNamespace(_running=()))._running:
            process = self.process_of(worker)
            assert not process.dead.done()

    @invariant()
    def no_callback_has_raised(self) -> None:
        assert self.raised == []

    @invariant()
    def a_worker_has_one_process(self) -> None:
        alive = [process for process in self.processes
                 if not process.dead.done() and not process.silenced]
        assert len(alive) <= WORKERS

    @invariant()
    def it_is_ready_if_a_worker_can_run_the_model(self) -> None:
        if hasattr(self, "server") and not self.draining:
            able = [worker for worker in range(WORKERS)
                    if self.pool.takes_batches(worker) and worker not in self.leaving]
            assert (self.server.not_ready is None) == bool(able)

    def teardown(self) -> None:
        """All is answered and, unless it ends, all workers come back within the longest pause."""
        if not hasattr(self, "server"):
            return
        try:
            self._end()
        finally:
            if self.pool.slots is not None:
                self.pool.slots.block.close()
            for worker in self.pool._workers:
                if worker._outputs is not None:
                    worker._outputs.close()
            self.clock.close()

    def _end(self) -> None:
        self.failing = False
        wanted = [worker for worker in range(WORKERS)
                  if self.pool._workers[worker].state is not State.OFF]
        if not self.draining:
            self.clock.advance(LONGEST_PAUSE_S + 0.1)
            for _ in range(6):
                for worker in wanted:
                    self.acts(worker, "")
                self.clock.advance(0.05)
            for worker in wanted:
                process = self.process_of(worker)
                if process is not None:
                    assert self.pool.takes_batches(worker)
            for worker in range(WORKERS):
                if self.pool._workers[worker].state is State.OFF and worker not in self.leaving:
                    self.begins_or_ends(worker)
            for _ in range(40):
                for worker in range(WORKERS):
                    self.acts(worker, "")
                self.clock.advance(0.5)
            assert self.server.not_ready is None
            assert not self.server.front.dispatcher.queued
            self.drains()
        self.clock.advance(10.0)
        assert self.stopped.done()
        self.stopped.result()
        assert all(process.dead.done() for process in self.processes)
        unanswered = [number for number in range(len(self.calls))
                      if not self.told[number] and number not in self.left]
        assert unanswered == []
        assert self.raised == []
        known = {"worker lost", "worker not started", "worker back", "worker started", "ready",
                 "batch failed", "stopped"}
        assert {event for event, _ in self.events} <= known


@pytest.fixture
def restored(tmp_path):
    """A folder; what a server and the played clock change is as before in the end."""
    thresholds, front, time = gc.get_threshold(), server_module.AsyncFront, pool_module.time
    gc.freeze()  # each start of a server collects cycles
    yield make(tmp_path, workers=WORKERS, slo_ms=100.0, dispatch="central-queue")
    server_module.AsyncFront, pool_module.time = front, time  # type: ignore[misc]
    gc.set_threshold(*thresholds)


@pytest.mark.parametrize(("examples", "opinions"), [
    (20, False), (20, True), pytest.param(400, False, marks=pytest.mark.slow),
    pytest.param(130, True, marks=pytest.mark.slow)])
def test_each_request_is_answered_whatever_becomes_of_workers(restored, examples, opinions):
    if opinions:
        variants = restored / "variants.toml"
        variants.write_text('confidence = "sum"\n' + variants.read_text())
        shutil.rmtree(restored / "policies")
        write_set(restored / "policies", set_of([policy_with_opinions(tenth=700.0)]),
                  created_by="tests")
    machine = type("Machine", (WorkerLife,), {"folder": restored})
    run_state_machine_as_test(machine, settings=settings(
        max_examples=examples, stateful_step_count=40, deadline=None,
        suppress_health_check=list(HealthCheck)))
