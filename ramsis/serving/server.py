"""Server core: connects calls, dispatcher, workers and answers, independent of HTTP.

:mod:`ramsis.serving.app` is its HTTP front end. Call all methods in the event loop's thread. Every
call is answered: by the model, with an error if its batch fails, or with an
:class:`~ramsis.serving.calls.OverloadedError` if the policy drops one of its queries or the server
is full.
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, field, replace
from functools import partial
from itertools import product
from operator import attrgetter
from typing import Any, NamedTuple

from numpy.typing import NDArray

from ramsis.audit.drift import ArrivalDrift, DriftAlarm, ServiceDrift
from ramsis.errors import (
    InputFileError,
    RamsisError,
    check_not_negative,
    check_number_of,
    check_positive,
)
from ramsis.policy import Policy, PolicySet
from ramsis.reprs import dataclass
from ramsis.runtime.dispatcher import Dispatcher, DispatchSettings
from ramsis.runtime.fronts import AsyncFront
from ramsis.runtime.sized import SizedTables
from ramsis.runtime.sized_dispatcher import SizedDispatcher
from ramsis.runtime.station_queues import Start, Ticket
from ramsis.serving.calls import Call, FailedError, OverloadedError, Query, Rows, Served, Tell
from ramsis.serving.confidences import ConfidenceReader
from ramsis.serving.logs import Log, log_line
from ramsis.serving.overhead import QUANTILE, OverheadParts, OverheadWatch, answers_ms
from ramsis.serving.policies import (
    Expected,
    check_served,
    has_cascades,
    largest_batch,
    selectors_of,
)
from ramsis.serving.protocol import Answer, InferRequest
from ramsis.serving.recorder import RequestRecorder, ServerMetrics
from ramsis.serving.scaling.fleet import FleetPolicies
from ramsis.serving.sizes import SizeReader, lengths_of
from ramsis.serving.variants import VariantsFile
from ramsis.serving.workers.messages import Ended, RunBatch, Slots
from ramsis.serving.workers.pool import Pool, PoolSettings, WorkerEvents, WorkerPool

_NOT_READY = "the server is starting or stopping"
# Least batch size for which workers have memory, so that later policies may have larger batches
# than the first ones.
_LEAST_MAX_BATCH = 64
# Number of new objects between garbage collections. Waiting queries have many live objects, and a
# collection delays all requests.
_COLLECTED_AFTER = 20_000
_MOST_SLOTS = 1 << 20  # limit of slots, which take memory even if unused
_BETWEEN_ALARMS_MS = 60_000.0  # least time between alarms of a kind, as a drift lasts
# Time and rounds of the batches that estimate the overhead before the first request; they lengthen
# the start.
_CALIBRATION_S, _CALIBRATION_ROUNDS = 0.5, 20
_LOOKS_S = 0.25  # interval of overhead estimates, each of which blocks the event loop
_MOST_OVERHEAD = 0.5  # limit as a share of the shortest SLO; above it no batch would be in time
_LEAST_CHANGE_MS = 0.1  # smaller changes of the overhead are ignored, as timers have 1 ms
_CHANGE_MS, _CHANGE = 0.5, 0.25  # changes of the overhead, in ms and relative, that are logged
# Relative changes of the slowness: below the first they are ignored as noise, above the second
# logged.
_LIKE_BEFORE, _CHANGED_SPEED = 0.05, 0.15


@dataclass(frozen=True)
class ServerSettings:
    """Settings of a server."""

    # settings of the dispatcher; its timer must have the event loop's resolution, 1 ms
    dispatch: DispatchSettings = field(default_factory=lambda: DispatchSettings(timer_ms=1.0))
    # largest number of waiting and running queries; further ones replace waiting queries with
    # later deadlines, if any
    slots: int = 2048
    # longest deadline that a request may state
    max_wait_s: float = 600.0
    timeout_s: float = 10.0  # time limit of a batch, after which its worker is restarted
    retry: bool = False  # whether a batch whose worker is lost runs once more
    pin: bool = True  # whether each worker is pinned to its own core
    memory_mb: float | None = None  # limit on a worker's address space
    drain_s: float = 10.0  # time limit of draining at the end
    request_log: str | os.PathLike[str] | None = None  # file of the request log
    # whether the overhead is measured, at the start and while serving; the dispatcher's setting is
    # then the initial value
    measure_overhead: bool = False

    def __post_init__(self) -> None:
        check_positive(timeout_s=self.timeout_s, max_wait_s=self.max_wait_s)
        check_number_of("slots", self.slots, most=_MOST_SLOTS)
        if self.memory_mb is not None:
            check_positive(memory_mb=self.memory_mb)
        check_not_negative("not a length of time", drain_s=self.drain_s)


def check_sizes(variants: VariantsFile, tables: SizedTables) -> None:
    """Refuse variants without request sizes, or with larger sizes than in the policy."""
    if variants.size is None:
        raise InputFileError("the policy decides by request size, and the variants file does not "
                             "say where sizes come from",
                             where=f"{variants.path}: size",
                             allowed='size = "INPUT:1" and max_size in the variants file')
    if variants.max_size > tables.edges[-1]:
        raise InputFileError("sizes beyond those of the policy",
                             where=f"{variants.path}: max_size", value=variants.max_size,
                             allowed=f"at most {tables.edges[-1]}")


class _Running(NamedTuple):
    """Batch that is running on a worker, with its requests."""

    number: int
    start: Start[Query]
    started_ms: float


class Server:
    """Server of one model, whose variants are chosen by policies.

    ``log`` is the function for the structured log, ``make_pool`` creates the pool of workers, by
    default processes of this machine. ``fleet`` has the policies for each number of active
    workers, if that number changes, and ``at_first`` is the number that is started, by default
    all. ``tables`` are those of a policy for requests with a size. Variants that do not fit the
    policies are an InputFileError.
    """

    def __init__(
        self, policies: PolicySet[Policy], variants: VariantsFile,
        settings: ServerSettings | None = None, log: Log = log_line,
        make_pool: Callable[[VariantsFile, PoolSettings, WorkerEvents], Pool] = WorkerPool,
        fleet: FleetPolicies | None = None, at_first: int | None = None,
        tables: SizedTables | None = None,
    ) -> None:
        if tables is not None:
            check_sizes(variants, tables)
        self._tables = tables
        self._make_pool, self._fleet, self._at_first = make_pool, fleet, at_first
        self._lost = dict[int, str]()  # reasons by worker that was lost or does not start
        self._leaving: dict[int, Callable[[int], object]] = {}
        # Numbers of workers for the readiness endpoint, if they change.
        self.about_workers: Callable[[], Mapping[str, int]] | None = None
        self.variants, self.settings, self.log = variants, settings or ServerSettings(), log
        self.name = variants.name
        # Whether second opinions of the policies are used.
        self._opinions = variants.confidence is not None and tables is None
        self._sizes: SizeReader | None = None  # reader of request sizes, if any
        self._index = {variant.name: i for i, variant in enumerate(variants.variants)}
        check_served(policies, self._index, None, str(variants.path))
        self._warm_up = largest_batch(policies) if fleet is None else fleet.largest_batch
        self.max_batch = max(self._warm_up, _LEAST_MAX_BATCH)
        self.policies = policies
        self.workers = sum(policies.worker_types.values())
        self.process = self.settings.dispatch.process
        self.metrics = ServerMetrics()
        self.ready = False
        self._hear: Callable[[], object] = int  # no operation if another framework runs batches
        self._running: dict[int, _Running] = {}
        self._batches = 0
        self._expected: tuple[tuple[float, float, str], Expected] | None = None
        self._recorder = RequestRecorder(self.metrics, self.settings.request_log, log,
                                         sized=variants.size is not None)
        self._background: list[asyncio.Task[None]] = []
        self.arrived = 0  # number of queries so far
        self._ends_ms = math.inf
        self._service_drift = ServiceDrift(self._mean_ms)
        self._quiet_until_ms: dict[str, float] = {}
        self.on_drift: list[Callable[[DriftAlarm], object]] = []
        # Called with the variant, the size and the time in ms of each batch.
        self.on_batch: list[Callable[[str, int, float], object]] = []
        # Mean time of a batch by variant and size, if better known than from the policies.
        self.profiled_ms: Callable[[str, int], float | None] = lambda variant, run_as: None
        self.overhead = OverheadWatch(
            lambda variant, run_as: self.expected.stated_ms(variant, run_as, QUANTILE),
            lambda: _MOST_OVERHEAD * min(self.policies.slo_classes))
        self._probe: asyncio.Future[float | None] | None = None
        self._slowness_logged = 1.0
        self._overhead_logged_ms = -math.inf
        self._making_room = False  # whether waiting queries are dropped for more urgent ones

    async def start(self) -> None:
        """Start the workers and wait until they are ready."""
        settings = self.settings
        warm_up = tuple(sorted({1, 2, self._warm_up}))
        self.pool = self._make_pool(self.variants, PoolSettings(
            self.workers, self.max_batch, warm_up, settings.slots, settings.timeout_s,
            settings.pin, settings.memory_mb, self._at_first,
        ), WorkerEvents(self._worker_ready, self._ended, self._gone, self._not_started))
        dispatcher: Dispatcher[Query] | SizedDispatcher[Query]
        if self._tables is None:
            dispatcher = Dispatcher(selectors_of(self.policies), replace(
                settings.dispatch, second_opinions=self._opinions))
        else:
            dispatcher = SizedDispatcher(self._tables, attrgetter("size"), settings.dispatch,
                                         self.policies.levels[0])
        self.front: AsyncFront[Query] = AsyncFront(dispatcher, self._start, self._drop,
                                                   answer=self._keep)
        await self.pool.start()
        variants, where = self.variants, str(self.variants.path)
        try:
            if variants.confidence is not None:
                self._confidences = ConfidenceReader(variants.confidence, self.pool.outputs, where)
            if variants.size is not None:
                self._sizes = SizeReader(variants.size, self.pool.inputs, variants.max_size, where)
        except InputFileError:
            await self.pool.stop()
            raise
        self._say_without_opinions()
        if isinstance(self.pool, WorkerPool):
            self._hear = self.pool.hear
        first = self.workers if self._at_first is None else self._at_first
        for worker in range(first, self.workers):
            self.front.down(worker)
        if settings.measure_overhead:
            await self._calibrate()
        self._play()
        self._recorder.begun_ms = self.front.now_ms()
        self._watch_metrics(dispatcher)
        loop = asyncio.get_running_loop()
        self._background += [loop.create_task(self._flush_log()),
                             loop.create_task(self._watch_arrivals())]
        if settings.measure_overhead:
            self._background.append(loop.create_task(self._watch_overhead()))
        # Garbage collections delay requests: exclude the permanent objects so far.
        gc.collect()
        gc.freeze()
        gc.set_threshold(_COLLECTED_AFTER, *gc.get_threshold()[1:])
        self.ready = True
        self.log("ready", model=self.name,
                 processes=[self.pool.process(worker) for worker in range(first)],
                 variants=[variant.name for variant in self.variants.variants],
                 overhead_ms=round(dispatcher.overhead_ms, 3),
                 loads_qps=sorted({level.load_qps for level in self.policies.levels}))

    @property
    def not_ready(self) -> str | None:
        """Reason why no request can be served now; None if a worker can run the model."""
        if not self.ready:
            return _NOT_READY
        if self.front.dispatcher.workers_up:
            return None
        causes = "; ".join(f"worker {worker}: {reason}"
                           for worker, reason in sorted(self._lost.items()))
        return f"no worker can run the model ({causes})"

    @property
    def slo_ms(self) -> float:
        """Default deadline of a call: the longest SLO of the classes."""
        return max(self.policies.slo_classes)

    async def infer(self, request: InferRequest, arrival_ms: float) -> Answer:
        """Answer a call; if this is cancelled, its waiting queries are dropped.

        Raises an OverloadedError if it cannot be answered in time or the server is full, and a
        FailedError if a model or worker failed.
        """
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def tell(result: Answer | RamsisError) -> None:
            if done.done():
                return
            if isinstance(result, RamsisError):
                done.set_exception(result)
            else:
                done.set_result(result)

        call = self.submit(request, arrival_ms, tell)
        try:
            return await done
        except asyncio.CancelledError:  # the client is gone
            self.abandon(call)
            raise

    def submit(self, request: InferRequest, arrival_ms: float, tell: Tell) -> Call:
        """Submit a call; ``tell`` receives the answer.

        If the server is full, queries with the latest deadlines are dropped, if later than the
        call's.

        ``arrival_ms`` is on the front end's clock. ``tell`` is called once, possibly before this
        returns: with the answer; with an :class:`OverloadedError` if it cannot be given in time;
        or with a :class:`FailedError` if a model or worker failed. It must not raise. It is not
        called if this raises: an OverloadedError where the server is not ready or full, an
        InvalidValueError where a query has a size that is not served.
        """
        self._hear()
        slots = self._slots
        if not self.ready:
            raise OverloadedError(_NOT_READY)
        sizes = None if self._sizes is None else self._sizes(request.inputs, request.parameters)
        self.arrived += request.queries
        slo_ms = self.slo_ms if request.deadline_ms is None else request.deadline_ms
        if request.queries > slots.free:
            self._making_room = True
            self.front.make_room(request.queries - slots.free, arrival_ms + slo_ms)
            self._making_room = False
        if request.queries > slots.free:
            raise OverloadedError("no room for more queries")
        taken = slots.put(request.inputs)
        length = lengths_of(request.inputs, self.pool.inputs) if self._sizes is not None else 0
        request.inputs.clear()  # and with them the body
        call = Call(taken, arrival_ms, arrival_ms + slo_ms, tell)
        if sizes is not None and self._sizes is not None:
            for query, size in zip(call.queries, sizes, strict=True):
                query.size, query.length = size, size if self._sizes.is_mask else length
        self.front.arrive(call.queries, slo_ms, arrival_ms=arrival_ms)
        return call

    def abandon(self, call: Call) -> None:
        """Abandon a call: drop its waiting requests."""
        queries = call.queries
        call.forget()
        self.front.leave(queries)

    def swap(self, policies: PolicySet[Policy], where: str) -> None:
        """Exchange the policies; ``where`` names them in messages."""
        check_served(policies, self._index, self.max_batch, where)
        # The slowness is relative to the old profile: with policies for slower service it would
        # drop all waiting queries. The new one is estimated from the last batches at once.
        self.front.swap(selectors_of(policies), slowness=1.0)
        self.policies, self._expected = policies, None
        self._say_without_opinions()
        self._take_slowness()
        self._take_overhead()
        self._service_drift.clear()
        self.metrics.swaps.inc()
        self.log("policies", source=where,
                 loads_qps=sorted({level.load_qps for level in policies.levels}))

    def retire(self, worker: int, end: Callable[[int], object]) -> None:
        """Stop using a worker; queries in its queue are rerouted.

        ``end`` is called with the worker's number once it runs no batch, possibly at once.
        """
        self.front.down(worker)
        self._play()
        if worker in self._running:
            self._leaving[worker] = end
        else:
            end(worker)

    async def drain(self) -> None:
        """Accept no more calls; return when all are answered, with errors after a time limit."""
        self.ready = False
        self._ends_ms = min(self._ends_ms, self.front.now_ms() + 1000.0 * self.settings.drain_s)
        while ((self._running or self.front.dispatcher.queued)
               and self.front.now_ms() < self._ends_ms):
            await asyncio.sleep(0.005)
        self.front.close()
        abandoned = self.front.dispatcher.abandon()
        for ticket in abandoned.answers:
            self._keep(ticket)
        for ticket in abandoned.drops:
            self._drop(ticket, "the server has stopped")
        for running in self._running.values():
            self._fail(running, "the server has stopped")
        self._running.clear()

    def wait_no_longer(self) -> None:
        """Let :meth:`drain` end now, with errors for unanswered calls."""
        self._ends_ms = -math.inf

    async def stop(self) -> None:
        """Drain, with the time limit from the first :meth:`drain` on, and end the workers."""
        await self.drain()
        for task in self._background:
            task.cancel()
        await self.pool.stop()
        self._recorder.close()
        self.log("stopped")

    @property
    def expected(self) -> Expected:
        """Expected service times and violation rates of the current level."""
        present = self.front.dispatcher.level
        key = present.load_qps, present.slowness, present.arrivals
        if self._expected is None or self._expected[0] != key:
            level = next(level for level in self.policies.levels
                         if (level.load_qps, level.slowness, level.arrivals) == key)
            self._expected = key, Expected(level, self._opinions)
        return self._expected[1]

    def _watch_metrics(self, dispatcher: Dispatcher[Query] | SizedDispatcher[Query]) -> None:
        now_ms, watch = self.front.now_ms, self.metrics.watch
        watch("ramsis_queued", "Queries that wait", lambda: dispatcher.queued)
        watch("ramsis_running", "Batches that run", lambda: len(self._running))
        watch("ramsis_workers_up", "Workers that take batches", lambda: dispatcher.workers_up)
        watch("ramsis_load_qps", "Anticipated load", lambda: dispatcher.load_qps(now_ms()))
        watch("ramsis_level_qps", "Load of the level that serves",
              lambda: dispatcher.level.load_qps)
        watch("ramsis_overhead_ms", "Taken from every slack", lambda: dispatcher.overhead_ms)
        watch("ramsis_slowness", "How many times as long as profiled batches take",
              lambda: dispatcher.slowness)
        for part in OverheadParts._fields[1:]:
            watch(f"ramsis_overhead_{part}", "95th percentile of a part of the overhead",
                  partial(lambda part: float(getattr(self.overhead.last, part)), part))
        watch("ramsis_promised_violation_rate", "Violations that the level promises",
              lambda: self.expected.violation_rate)
        watch("ramsis_promised_effective_accuracy", "Effective accuracy that the level promises",
              lambda: self.expected.effective_accuracy)

    async def _flush_log(self) -> None:
        """Write the request log to its file once a second."""
        while True:
            await asyncio.sleep(1.0)
            self._recorder.flush()

    async def _watch_arrivals(self) -> None:
        """Compare the arrivals of each second with the highest level."""
        watched, before = ArrivalDrift(max(self.policies.loads(self.process))), self.arrived
        while True:
            await asyncio.sleep(1.0)
            highest_qps = max(self.policies.loads(self.process))
            if highest_qps != watched.highest_qps:
                watched = ArrivalDrift(highest_qps)
            self._alarm(watched.add(self.arrived - before))
            before = self.arrived

    async def _calibrate(self) -> None:
        """Run the smallest and largest batches of every variant, for half a second."""
        largest, loop = largest_batch(self.policies), asyncio.get_running_loop()
        ends_s = loop.time() + _CALIBRATION_S
        for turn, variant, size in product(range(_CALIBRATION_ROUNDS),
                                           self.variants.variants, sorted({1, largest})):
            if loop.time() >= ends_s or 0 in self._lost:
                break
            self._probe = loop.create_future()
            begun_ms = self.front.now_ms()
            self.pool.run(0, RunBatch(0, self._index[variant.name], size, [0] * size,
                                      int(self._sizes is not None)))
            model_ms = await self._probe
            if model_ms is None:
                break
            if turn == 1 and variant is self.variants.variants[0] and size == 1:
                self.overhead.clear()  # discard the first round, with cold caches
            self.overhead.batch(variant.name, size, self.front.now_ms() - begun_ms, model_ms)
        self._probe = None
        for after_ms in answers_ms(self.name, self.pool.outputs, largest):
            self.overhead.answered(after_ms)
        self._take_overhead()

    async def _watch_overhead(self) -> None:
        """Estimate overhead and slowness four times a second, if batches ran."""
        before = self._batches
        while True:
            await asyncio.sleep(_LOOKS_S)
            if self._batches != before:
                before = self._batches
                self._take_slowness()
                self._take_overhead()

    def _take_overhead(self) -> None:
        """Apply the current overhead to every slack, and log it after a change."""
        parts = self.overhead.estimate(self.front.dispatcher.slowness)
        taken_ms = self.front.dispatcher.overhead_ms
        if self.ready and abs(parts.overhead_ms - taken_ms) < _LEAST_CHANGE_MS:
            return
        self.front.take_overhead(parts.overhead_ms)
        before_ms = self._overhead_logged_ms
        if abs(parts.overhead_ms - before_ms) > max(_CHANGE_MS, _CHANGE * before_ms):
            self._overhead_logged_ms = parts.overhead_ms
            self.log("overhead", **{name: round(ms, 3) for name, ms in parts._asdict().items()})

    def _take_slowness(self) -> None:
        """Serve by the policies for the current slowness.

        Changes within 5 % are ignored as noise. With several worker types this is skipped, as only
        one of a variant's service times is known here.
        """
        dispatcher, slowness = self.front.dispatcher, self.overhead.slowness(self._mean_ms)
        # Relative to the largest size, batches of shorter requests would look fast.
        if (len(self.policies.worker_types) > 1 or self._sizes is not None
                or abs(slowness / dispatcher.slowness - 1.0) < _LIKE_BEFORE):
            return
        self.front.take_slowness(slowness)
        if abs(slowness / self._slowness_logged - 1.0) > _CHANGED_SPEED:
            self._slowness_logged, level = slowness, dispatcher.level
            self.log("slowness", times=round(slowness, 3), level_qps=level.load_qps,
                     level_slowness=level.slowness)

    def _alarm(self, alarm: DriftAlarm | None) -> None:
        """Report a drift, if any, at most once a minute for each kind."""
        if alarm is not None and self.front.now_ms() >= self._quiet_until_ms.get(alarm.what, 0.0):
            self._quiet_until_ms[alarm.what] = self.front.now_ms() + _BETWEEN_ALARMS_MS
            self.metrics.drifts.labels(alarm.what).inc()
            self.log("drift", **asdict(alarm))
            for report in self.on_drift:
                report(alarm)

    def _mean_ms(self, variant: str, run_as: int) -> float | None:
        """Return the mean time of a batch; None if unknown."""
        profiled_ms = self.profiled_ms(variant, run_as)
        if profiled_ms is None and self.expected.knows_means:
            return self.expected.service_ms(variant, run_as)
        return profiled_ms

    def _start(self, start: Start[Query]) -> None:
        """Send a batch to its worker."""
        self._batches += 1
        self._running[start.worker] = _Running(self._batches, start, self.front.now_ms())
        for ticket in start.tickets:
            ticket.request.tries += 1
            ticket.request.again = start.second
        self.pool.run(start.worker, RunBatch(
            self._batches, self._index[start.model], start.run_as,
            [ticket.request.slot for ticket in start.tickets],
            max(ticket.request.length for ticket in start.tickets)))

    def _ended(self, worker: int, ended: Ended, arrays: dict[str, NDArray[Any]]) -> None:
        """Answer the requests of a batch that has ended."""
        if self._probe is not None and not self._probe.done():
            self._probe.set_result(None if ended.error else ended.service_ms)
        running = self._running.get(worker)
        if running is None or running.number != ended.number:
            return
        del self._running[worker]
        now_ms, start = self.front.now_ms(), running.start
        count = len(start.tickets)
        # Copy before the worker gets another batch, whose outputs use the same memory.
        outputs = {name: array[:count].copy() for name, array in arrays.items()}
        served = Served(start.model, count, start.run_as, worker, running.started_ms, now_ms,
                        self._stage(start))
        unsure = ([] if ended.error or start.second or not self._opinions
                  else self._unsure(start, served, outputs))
        kept = {ticket.number for ticket in unsure}
        self._slots.give([ticket.request.slot for ticket in start.tickets
                          if ticket.number not in kept])
        if worker in self._leaving:
            self._leaving.pop(worker)(worker)
        else:
            self.front.finished(worker, unsure)
        if ended.error:
            self.log("batch failed", variant=start.model, batch=count, error=ended.error)
            self._fail(running, ended.error)
            return
        service_ms = now_ms - running.started_ms
        self.overhead.batch(start.model, start.run_as, service_ms, ended.service_ms)
        for row, ticket in enumerate(start.tickets):
            query = ticket.request
            if start.second:
                if query.first is None:  # it has been sent
                    continue
                query.first = None
                self.metrics.unsure.of["second",] += 1
            elif ticket.number in kept:
                continue
            self._answer(ticket, outputs, row, served, now_ms)
        self._recorder.batch(start, served, self.expected)
        for report in self.on_batch:
            report(start.model, start.run_as, service_ms)
        if self._sizes is None:
            self._alarm(self._service_drift.add(start.model, start.run_as, service_ms))

    def _gone(self, worker: int, reason: str) -> None:
        """Handle the loss of a worker; its batch is queued again, or fails."""
        if self._probe is not None and not self._probe.done():
            self._probe.set_result(None)
        running = self._running.pop(worker, None)
        end = self._leaving.pop(worker, None)
        if end is not None:
            end(worker)
        else:
            self.metrics.restarts.inc()
            self._lost[worker] = reason
        self.log("worker lost", worker=worker, reason=reason)
        again = None
        if running is not None:
            if self.settings.retry and all(ticket.request.tries == 1
                                           for ticket in running.start.tickets):
                again = running.start
            else:
                self._slots.give([ticket.request.slot for ticket in running.start.tickets])
                self._fail(running, f"its worker was lost: {reason}")
        self.front.down(worker, again)
        self._play()

    def _not_started(self, worker: int, reason: str, again_s: float) -> None:
        """Log that a worker could not be started, and will be tried again after a pause."""
        self.metrics.start_failures.inc()
        self._lost[worker] = reason
        self.log("worker not started", worker=worker, reason=reason, again_in_s=again_s)

    def _worker_ready(self, worker: int) -> None:
        event = "worker back" if worker in self._lost else "worker started"
        self._lost.pop(worker, None)
        self.log(event, worker=worker, process=self.pool.process(worker))
        self.front.up(worker)
        self._play()

    def _play(self) -> None:
        """Serve by the policies for the current number of active workers."""
        if self._fleet is None:
            return
        active = self.front.dispatcher.workers_up
        policies = self._fleet.policies(active)
        if policies is not self.policies:
            self.policies, self._expected = policies, None
            self.front.swap(self._fleet.selectors(active))

    def _drop(self, ticket: Ticket[Query], reason: str = "") -> None:
        query = ticket.request
        self._slots.give([query.slot])
        self._end_without(query.call, OverloadedError(reason or self._why_dropped(ticket)))
        self._recorder.query(ticket, "dropped", self.front.now_ms(), None)

    def _why_dropped(self, ticket: Ticket[Query]) -> str:
        dispatcher = self.front.dispatcher
        if self._making_room:
            return "the server is full, and others are due earlier"
        if self._lost and not dispatcher.workers_up:
            return f"the deadline cannot be kept: {self.not_ready}"
        slack_ms = ticket.deadline_ms - self.front.now_ms() - dispatcher.overhead_ms
        # Nothing but a queue beyond the table drops a request with more time than the table knows.
        if self._tables is None and slack_ms > self.slo_ms * max(1.0, dispatcher.slowness):
            return ("more samples wait than the longest queue of the policies: send fewer at "
                    "once, or make policies with a longer --max-queue")
        return "the deadline cannot be kept"

    def _stage(self, start: Start[Query]) -> str:
        """Return the stage of a batch's answers; empty without second opinions."""
        if not self._opinions:
            return ""
        return "second" if start.second else "first"

    def _unsure(
        self, start: Start[Query], served: Served, outputs: dict[str, NDArray[Any]]
    ) -> list[Ticket[Query]]:
        """Store the unsure first answers of a batch, and return their tickets."""
        unsure = self.front.unsure(start, self._confidences(outputs))
        numbers = {ticket.number for ticket in unsure}
        for row, ticket in enumerate(start.tickets if unsure else ()):
            if ticket.number in numbers:
                ticket.request.first = outputs, row, served
        return unsure

    def _keep(self, ticket: Ticket[Query]) -> None:
        """Send the first answer to a request as the final one."""
        query = ticket.request
        if query.first is None:
            return
        (outputs, row, served), query.first = query.first, None
        if not query.again:  # else its slot is that of a batch that runs
            self._slots.give([query.slot])
        now_ms = self.front.now_ms()
        self.metrics.unsure.of["first",] += 1
        self._answer(ticket, outputs, row, served, now_ms)

    def _answer(
        self, ticket: Ticket[Query], outputs: Rows, row: int, served: Served, now_ms: float
    ) -> None:
        query = ticket.request
        query.call.answer(query, outputs, row, served, now_ms)
        outcome = "served" if now_ms <= ticket.deadline_ms else "late"
        self._recorder.query(ticket, outcome, now_ms, served)

    def _say_without_opinions(self) -> None:
        """Log that second opinions of the policies cannot be used."""
        if not self._opinions and has_cascades(self.policies):
            self.log("no second opinions", reason=f"{self.variants.path}: confidence: not stated; "
                     "allowed: max, margin, or an output of the variants")

    def _fail(self, running: _Running, reason: str) -> None:
        start = running.start
        if start.second:  # first answers stand
            for ticket in start.tickets:
                self._keep(ticket)
            return
        served = Served(start.model, len(start.tickets), start.run_as, start.worker,
                        running.started_ms, self.front.now_ms(), self._stage(start))
        error = FailedError(f"{start.model}: {reason}")
        for ticket in start.tickets:
            self._end_without(ticket.request.call, error)
            self._recorder.query(ticket, "failed", served.finish_ms, served)

    def _end_without(self, call: Call, error: RamsisError) -> None:
        """End a call with an error, and drop its other queries."""
        queries = call.queries
        call.fail(error)
        if len(queries) > 1:  # not now: this may be in the middle of an event
            asyncio.get_running_loop().call_soon(self.front.leave, queries)

    @property
    def _slots(self) -> Slots:
        """Slots of shared memory for samples, of the started worker pool."""
        assert self.pool.slots is not None
        return self.pool.slots
