"""Discrete-event engine of a simulation run.

Events happen in the order of their times. At one instant the order is: batches end, in the order
in which they were started; machines finish with requests; loads of models end; workers become
active; requests arrive, in the order of their numbers; timers ring, in the order in which they
were set. After each event the scheduler decides, which takes no time, before the next event
happens. So a run is a function of arrivals, random draws and scheduler alone.

A request waits, is run in a batch on a worker that holds its model (or another of its family), and
is answered when the batch ends. A request of a stream that needs a machine is first *processed*
there (:meth:`Engine.process`): it holds cores of the machine from then on, waits for inference
once it is prepared and has reached the worker, and is answered when the machine has processed the
answer. A fleet is the plain case: all workers hold all models, so no model is loaded or unloaded,
and no request needs a machine.

A batch's service time is drawn with the uniform number of its first request. Numbers belong to
requests and have their own random generator. So schedulers that are compared get the same arrivals
and the same numbers, whatever the order in which they serve.

Actions of a scheduler are checked; an impossible one ends the run with a :class:`SchedulerError`
that names time and event. The run ends when no event is left; a request that still waits then
counts as never answered.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from math import inf
from typing import Any, NoReturn, Self

import numpy as np

from ramsis.arrivals.process import check_amount
from ramsis.cluster.service_times import quantile
from ramsis.memory import without_collection
from ramsis.runtime import LoadMonitor
from ramsis.runtime.monitor import WINDOW_MS
from ramsis.scenario import Requests, Scenario, draw_requests
from ramsis.sim.engine.progress import Running, Slowdown, WorkInProgress
from ramsis.sim.engine.recorder import Recorder
from ramsis.sim.engine.requests import (
    AT_MACHINE,
    BYTES_EACH,
    NOT_COME,
    TO_PROCESS,
    WAITING,
    RequestState,
)
from ramsis.sim.engine.scheduler import Scheduler, SchedulerError
from ramsis.sim.engine.workers import ACTIVE, OFF, STARTING, Workers
from ramsis.sim.engine.world import World
from ramsis.sim.fleet import Fleet
from ramsis.sim.run import DROPPED, Run
from ramsis.sim.slow_spells import DrawnSpells
from ramsis.sim.workload import ClosedLoop

_MOST = 200_000  # timers in a row, drops at one instant, or loads while nothing is served
_END, _PROCESSED, _LOADED, _SCALED = range(4)  # kinds of events, in their order at one instant
_READY, _ANSWERED = range(2)  # what a machine has finished: preparing a request, or its answer

class Engine:
    """Event engine of one run.

    ``slowdown`` is how batches that run on one worker slow each other down, by default not at
    all; ``spells`` are the times in which workers are slow, by default none. An impossible action
    of a scheduler raises :class:`SchedulerError`.

    Attributes
    ----------
    now_ms : float
        The present time.
    seed : int
        For schedulers that draw random numbers.
    site : Site
        Names and numbers of workers and models.
    workers : Workers
        State of the workers: what each holds, loads and runs.
    requests : RequestState
        ``requests.model[r]``, ``deadline_ms[r]`` and so on of each request.
    times : Times
        Times of batches and loads.
    deadline_ms : callable
        When the answer to a request is due.
    progress : WorkInProgress or None
        Work left in the running batches, if batches slow each other down or are continuous.
    """

    monitor: LoadMonitor | None = None  # of the arrivals, if the load is to be anticipated
    known_qps: float | None = None  # the stated load, if there is one

    def __init__(
        self, world: World, requests: RequestState, *, seed: int = 0,
        slowdown: Slowdown | None = None, spells: DrawnSpells | None = None,
    ) -> None:
        self.now_ms, self.seed = 0.0, seed
        self.world, self.site, self.times, self.requests = world, world.site, world.times, requests
        self.deadline_ms: Callable[[int], float] = requests.deadline_ms.__getitem__
        self.workers = Workers(world.site, world.types, world.memory_mb)
        self._streams, self._family = world.streams, world.family
        self._network_ms, self._spells = world.network_ms, spells
        self._come = len(requests) - len(requests.coming)
        self._any_model = len(set(world.family)) == 1
        self._oldest = 0  # all requests before this one have been served or dropped
        self._events: list[tuple[float, int, int, int, int]] = []
        self._timers: list[tuple[float, int, object]] = []
        self._set = 0  # events and timers set so far
        self._waiting = 0  # requests that wait for inference or a machine
        self._served, self._in_vain = 0, 0  # batches and drops; loads since the last of these
        self._pausing = False
        self._event: tuple[object, ...] = ("start",)
        self._record = Recorder()
        kinds, times = self.workers.type, world.times
        self._rows = [times.rows[kind] for kind in kinds]
        self._quantiles = [times.quantiles[kind] for kind in kinds]
        self._levels = [times.levels[kind] for kind in kinds]
        self._by_tokens = any(times.tokens)
        self._plain = times.plain and spells is None
        self._members: dict[int, Sequence[int]] = {}
        self._at_machine: dict[int, tuple[int, int]] = {}
        self._loaded_once: set[int] = {m for held in world.site.start for m in held}
        self.progress = (
            WorkInProgress(slowdown, self._events, self._record.finish_ms)
            if slowdown is not None or times.any_continuous else None)

    @classmethod
    def of_scenario(
        cls, scenario: Scenario, seed: int = 0, *, requests: Requests | None = None,
        slowdown: Slowdown | None = None,
    ) -> Self:
        """Return the engine of one run on a scenario.

        ``seed`` draws arrivals and random service times. ``requests`` are those whose arrivals do
        not depend on the run, by default drawn with the seed.
        """
        requests = draw_requests(scenario, seed) if requests is None else requests
        check_amount(len(requests), where="streams", bytes_each=BYTES_EACH)
        world = World.of_scenario(scenario)
        draws = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
        return cls(world, RequestState(requests, world, seed, draws), seed=seed,
                   slowdown=slowdown)

    @classmethod
    def of_fleets(
        cls, fleets: Sequence[Fleet], requests: Requests | ClosedLoop, duration_ms: float,
        rng: np.random.Generator, load_qps: float | None, *, monitor_ms: float = WINDOW_MS,
        seed: int = 0, spells: DrawnSpells | None = None,
    ) -> Self:
        """Return the engine of one run on fleets, one for each type of workers.

        One scheduler may decide about all workers, or each fleet may have a scheduler of its own
        (:mod:`ramsis.sim.routed`). Users of a closed loop have the SLO of the first fleet, batches
        its network delay. ``rng`` draws service times. Without ``load_qps`` the load monitor, with
        a window of ``monitor_ms``, anticipates the load.
        """
        loop = requests if isinstance(requests, ClosedLoop) else None
        came = fleets[0].requests(np.empty(0)) if isinstance(requests, ClosedLoop) else requests
        slos_ms, stream = np.unique(came.slo_ms if len(came.slo_ms) else fleets[0].slo_ms,
                                    return_inverse=True)
        world = World.of_fleets(fleets, slos_ms.tolist(), duration_ms, loop)
        came = replace(came, model=np.full(len(came), world.stream_models[0]),
                       stream=np.broadcast_to(stream, len(came)))
        engine = cls(world, RequestState(came, world, seed, rng), seed=seed, spells=spells)
        engine.monitor = LoadMonitor(monitor_ms) if load_qps is None else None
        engine.known_qps = load_qps
        return engine

    # What schedulers ask.

    def load_ms(self, worker: int, model: int) -> float:
        """Return how long it would take to load a model onto a worker now."""
        first = model not in self._loaded_once
        return self.times.load_ms(self.workers.type[worker], model, first)

    def members(self, batch: int) -> Sequence[int]:
        """Return the requests of a batch that runs, or has just ended."""
        return self._members[batch]

    def runs_now(self, worker: int, model: int) -> bool:
        """Return whether a batch of a model runs on a worker."""
        models = self._record.models
        return any(models[batch] == model for batch in self.workers.running[worker])

    @property
    def monitored(self) -> bool:
        """Whether the load is anticipated by the monitor and so changes during the run."""
        return self.monitor is not None

    def load_qps(self) -> float:
        """Return the load that schedulers may use: the stated one, or the monitor's average."""
        if self.known_qps is not None:
            return self.known_qps
        if self.monitor is None:
            self._refuse("the load is unknown", None, "a stated load, or a load monitor")
        return self.monitor.load_qps(self.now_ms)

    @property
    def fleet(self) -> Fleet:
        """The workers as a fleet, for schedulers of equal workers that hold all models."""
        return self.world.fleet

    def waiting(self) -> list[int]:
        """Return the requests that wait for inference, in the order of arrival."""
        state, waiting = self.requests.batch, list[int]()
        while self._oldest < len(state) and state[self._oldest] not in (WAITING, NOT_COME):
            self._oldest += 1
        for request in range(self._oldest, len(state)):
            if state[request] == NOT_COME:  # nor have the requests behind it
                break
            if state[request] == WAITING:
                waiting.append(request)
        return waiting

    @property
    def waiting_count(self) -> int:
        """Number of requests that wait for inference or a machine."""
        return self._waiting

    def is_idle(self, worker: int) -> bool:
        """Return whether a worker can start a batch now."""
        return self.workers.free_lanes[worker] > 0

    def idle_workers(self) -> list[int]:
        """Return the idle workers in the order of their numbers."""
        return [worker for worker, free in enumerate(self.workers.free_lanes) if free > 0]

    def in_service(self) -> list[int]:
        """Return for each worker how many requests are in its running batches."""
        return [sum(len(self._members[batch]) for batch in running)
                for running in self.workers.running]

    # What schedulers do.

    def run(
        self, worker: int, model: int, requests: Sequence[int], *,
        work_ms: float | None = None, share: float | None = None,
    ) -> int:
        """Start a batch of requests that wait, on a worker that holds the model.

        Return its number; for a continuous batch that is the number of the group that others can
        join. ``requests`` must not be changed afterwards. ``work_ms`` is the time of the batch if
        it runs alone, by default that of the scenario; ``share`` is the share of the worker that
        the batch gets, for the slow-down function.
        """
        workers = self.workers
        size = len(requests)
        try:
            if workers.free_lanes[worker] <= 0 or worker < 0:
                self._refuse("a batch on a worker that cannot start one", self._worker(worker),
                             "a worker that is active, with a free lane")
            if model not in workers.loaded[worker]:
                self._refuse("a batch of a model that is not loaded", self._pair(worker, model),
                             f"loaded there: {self._names(workers.loaded[worker])}")
            alone_ms = self._rows[worker][model][size - 1] if size else inf
        except IndexError:
            alone_ms = inf
        if alone_ms == inf:
            self._refuse("no such batch", f"{self._pair(worker, model)}, {size} requests",
                         "a worker's number, sizes that the model is run at")
        took_ms = alone_ms
        if work_ms is not None or not self._plain:
            took_ms = self._drawn_ms(worker, model, requests, work_ms)
        if self.progress is not None:
            return self._run_shared(worker, model, requests, took_ms, share, alone_ms)
        now_ms = self.now_ms
        finish_ms = now_ms + self._network_ms + took_ms
        record = self._record  # as Recorder.batch does, without a call: speed counts here
        batch = len(record.starts)
        record.starts.append(now_ms)
        record.finishes.append(finish_ms)
        record.workers.append(worker)
        record.models.append(model)
        record.sizes.append(size)
        if self._any_model and not self._at_machine:
            states = self.requests.batch
            self._waiting -= size
            count = len(states)
            for request in requests:
                if request < 0 or request >= count or states[request] != WAITING:
                    self._refuse_to_run(request)
                states[request] = batch
        else:
            self._take(requests, worker, model, batch)
        workers.free_lanes[worker] -= 1
        workers.running[worker].append(batch)
        workers.busy_until_ms[worker] = now_ms + self._network_ms + alone_ms
        self._members[batch] = requests
        heappush(self._events, (finish_ms, _END, batch, 0, worker))
        return batch

    def join(self, batch: int, requests: Sequence[int]) -> None:
        """Let requests join a continuous batch that runs and has room."""
        progress = self.progress
        running = None if progress is None else progress.held_by.get(batch)
        if progress is None or running is None or running.steps_ms is None:
            self._refuse("not a running continuous batch", batch, "what run() returned")
        if progress.groups[batch] + len(requests) > len(running.steps_ms):
            self._refuse("more requests than a continuous batch holds",
                         progress.groups[batch] + len(requests),
                         f"at most {len(running.steps_ms)}")
        self._add_continuous(running.worker, running.model, requests, running.steps_ms, batch)

    def drop(self, request: int) -> None:
        """Give up a request that waits for inference or a machine."""
        state = self.requests
        if not (0 <= request < len(state.batch)
                and state.batch[request] in (WAITING, TO_PROCESS)):
            self._refuse("drop of a request that is not waiting", request,
                         "requests that have arrived, each once")
        state.batch[request] = DROPPED
        self._waiting -= 1
        drops = self._record.drops
        drops.append((request, self.now_ms))
        # A closed loop sends a new request for each one dropped, and could do so for ever.
        if state.reacts and len(drops) > _MOST and drops[-_MOST][1] == self.now_ms:
            self._refuse("the scheduler never stops dropping requests", request,
                         f"{_MOST} at one instant")
        if request in self._at_machine:
            self._free_cores(request)
        if state.reacts:
            state.answered(request, self.now_ms)

    def load(self, worker: int, model: int) -> float:
        """Begin to load a model, and return when it will be loaded.

        The worker must be active, able to run the model and to load it now, and have room for it.
        A run in which models come and go without end, and none is for the requests that wait, is
        stopped.
        """
        workers = self.workers
        if not (0 <= worker < len(workers) and 0 <= model < len(self._family)):
            self._refuse("load of an unknown worker or model", f"worker {worker}, model {model}",
                         "numbers of workers and models")
        if model in workers.loaded[worker] or model in workers.loading[worker]:
            self._refuse("load of a model that is loaded already", self._pair(worker, model),
                         "models that are neither loaded nor being loaded")
        if not self.times.runs(workers.type[worker], model):
            self._refuse("load of a model that the worker cannot run", self._pair(worker, model),
                         "models with a latency on its type")
        if not workers.may_load(worker):
            self._refuse("load on a worker that cannot load now", self._worker(worker),
                         "an active worker with no load on the way, and no batch where loading "
                         "blocks")
        if not workers.fits(worker, model):
            self._refuse("load beyond the memory of a worker", self._pair(worker, model),
                         f"{workers.free_mb[worker]:g} MB are free, "
                         f"{workers.max_models[worker]:g} models at most")
        self._check_progress()
        # Asked for before the model is noted as loaded once, as a first load may take longer.
        ready_ms = self.now_ms + self.load_ms(worker, model)
        self._loaded_once.add(model)
        workers.reserve(worker, model, ready_ms)
        self._record.loads.append((self.now_ms, ready_ms, worker, model))
        self._push(ready_ms, _LOADED, worker, model)
        return ready_ms

    def unload(self, worker: int, model: int) -> None:
        """Give up a model that a worker holds and does not run."""
        workers = self.workers
        if not (0 <= worker < len(workers) and model in workers.loaded[worker]):
            self._refuse("unload of a model that is not loaded", self._pair(worker, model),
                         "models that the worker holds")
        if self.runs_now(worker, model):
            self._refuse("unload of a model that runs", self._pair(worker, model),
                         "models without a batch")
        workers.unload(worker, model)
        self._record.unloads.append((worker, model, self.now_ms))

    def process(self, request: int, machine: int, inference_on: int | None = None) -> None:
        """Take cores of an active machine for a request, and prepare it there for inference.

        ``on_ready`` is called once it is prepared and has reached the worker ``inference_on``, by
        default the machine itself; then it waits for inference.
        """
        state, workers = self.requests, self.workers
        if not (0 <= request < len(state.batch) and state.batch[request] == TO_PROCESS):
            self._refuse("processing of a request that is not waiting for a machine", request,
                         "requests of streams with cores, once each")
        where = machine if inference_on is None else inference_on
        stream = self._streams[state.stream[request]]
        if not (0 <= machine < len(workers) and 0 <= where < len(workers)
                and workers.status[machine] == ACTIVE
                and workers.free_cores[machine] >= stream.cores):
            self._refuse("processing on a machine without room", self._worker(machine),
                         f"an active machine with {stream.cores} free cores")
        state.batch[request] = AT_MACHINE
        workers.free_cores[machine] -= stream.cores
        self._at_machine[request] = machine, where
        self._waiting -= 1
        far = where != machine
        self._push(self.now_ms + stream.pre_ms + (stream.network_ms if far else 0.0), _PROCESSED,
                   _READY, request)

    def wake_at(self, at_ms: float, token: object = None) -> None:
        """Have ``on_timer`` called with ``token`` at a finite time that is not past."""
        if not self.now_ms <= at_ms < inf:
            self._refuse("timer for a time in the past or without end", at_ms,
                         f"a finite time >= {self.now_ms}")
        self._set += 1
        heappush(self._timers, (at_ms, self._set, token))

    def pause(self) -> None:
        """Make :meth:`play` pause once the timer that is ringing has been handled."""
        self._pausing = True

    def scale_up(self, worker_type: int) -> int | None:
        """Start a worker of a type that is off, and return it; ``None`` where none is."""
        workers = self.workers
        for worker, status in enumerate(workers.status):
            if status == OFF and workers.type[worker] == worker_type:
                workers.status[worker] = STARTING
                spec = self.world.types[worker_type]
                self._record.scaling.append((worker, True, self.now_ms))
                self._push(self.now_ms + spec.scale_up_ms, _SCALED, worker, 0)
                return worker
        return None

    def scale_down(self, worker: int) -> None:
        """Stop an active worker that runs, loads and processes nothing; it loses its models."""
        workers = self.workers
        exists = 0 <= worker < len(workers)
        if not (exists and workers.status[worker] == ACTIVE and not workers.running[worker]
                and not workers.loading[worker]
                and not any(worker in places for places in self._at_machine.values())):
            self._refuse("stop of a worker that is not idle", self._worker(worker),
                         "an active worker that runs, loads and processes nothing")
        workers.stop(worker)
        self._record.scaling.append((worker, False, self.now_ms))

    # The run.

    def serve(self, start: Callable[[Engine], Scheduler[Any]]) -> Run:
        """Let a scheduler serve the requests to the end.

        Events create no reference cycles, so Python's collector of cycles is disabled meanwhile.
        """
        with without_collection():
            playing = self.play(start(self))
            try:
                while True:
                    next(playing)
            except StopIteration as end:
                run: Run = end.value
                return run

    def play(self, scheduler: Scheduler[Any]) -> Generator[None, None, Run]:
        """Play the run in pieces, for decisions that are made outside of the scheduler.

        It pauses after each timer at which the scheduler has called :meth:`pause`, and returns
        the record of the run.
        """
        on_arrival, on_end = scheduler.on_arrival, scheduler.on_end
        events, timers, state, workers = self._events, self._timers, self.requests, self.workers
        coming, states, members = state.coming, state.batch, self._members
        free_lanes, running = workers.free_lanes, workers.running
        arrivals, streams, processed = state.arrival_ms, state.stream, state.processed
        machines = any(processed)
        simple = self.progress is None and not state.reacts and not machines
        record = None if self.monitor is None else self.monitor.record
        place, count, in_a_row = 0, self._come, 0
        own_ms = arrivals[0] if count else inf  # next arrival that does not depend on the run
        scheduler.on_start()
        while True:
            next_ms = own_ms
            if coming and coming[0][0] < next_ms:
                next_ms = coming[0][0]
            event_ms = events[0][0] if events else inf
            if timers and timers[0][0] < next_ms and timers[0][0] < event_ms:
                # Timers alone, with nothing that waits, keep no run going.
                if next_ms == inf and event_ms == inf and not self._waiting:
                    break
                in_a_row += 1
                self.now_ms, _, token = heappop(timers)
                self._event = "timer", token
                if in_a_row > _MOST:
                    self._refuse("the scheduler sets timers without end", in_a_row,
                                 f"{_MOST} with nothing between")
                scheduler.on_timer(token)
                if self._pausing:
                    self._pausing = False
                    yield
                continue
            in_a_row = 0
            if event_ms <= next_ms:
                if event_ms == inf:
                    break
                event = heappop(events)
                self.now_ms = event_ms
                if event[1]:
                    self._happen(scheduler, event)
                    continue
                batch, worker = event[2], event[4]
                if simple:
                    free_lanes[worker] += 1
                    running[worker].remove(batch)
                elif not self._end(worker, batch, event[3]):
                    continue
                self._event = "end of batch", batch
                on_end(worker, batch)
                # Only now, as the scheduler may ask for the members of the batch.
                del members[batch]
            else:
                self.now_ms = next_ms
                if own_ms == next_ms:
                    request = place
                    place += 1
                    own_ms = arrivals[place] if place < count else inf
                else:
                    request = heappop(coming)[1]
                states[request] = (
                    TO_PROCESS if machines and processed[streams[request]] else WAITING)
                self._waiting += 1
                self._event = "arrival of request", request
                if record is not None:
                    record(next_ms)
                on_arrival(request)
        return self._record.run(self.site, state, self.world.duration_ms, self.now_ms,
                                scheduler.figures())

    def _happen(self, scheduler: Scheduler[Any], event: tuple[float, int, int, int, int]) -> None:
        """Dispatch an event other than the end of a batch to its handler."""
        _, kind, _, first, second = event
        if kind == _LOADED:
            self.workers.arrived(first, second)
            self._event = "load on worker", first, "model", second
            scheduler.on_loaded(first, second)
        elif kind == _SCALED:
            self.workers.activate(first)
            self._event = "start of worker", first
            scheduler.on_scaled(first)
        elif first == _READY:
            self.requests.batch[second] = WAITING
            self._waiting += 1
            self._event = "request prepared", second
            scheduler.on_ready(second)
        else:
            self._free_cores(second)
            self._record.answered[second] = self.now_ms
            self._event = "request processed", second
            if self.requests.reacts:
                self.requests.answered(second, self.now_ms)
            scheduler.on_processed(second)

    def _end(self, worker: int, batch: int, version: int) -> bool:
        """End a batch; return False if it ends at another time by now."""
        free = True
        if self.progress is not None:
            if self.progress.is_stale(batch, version):
                return False
            free = self.progress.end(batch, self.now_ms)
        workers = self.workers
        workers.free_lanes[worker] += free
        workers.running[worker].remove(batch)
        state = self.requests
        for request in self._members[batch]:
            if request in self._at_machine:
                stream = self._streams[state.stream[request]]
                far = self._at_machine[request][0] != worker
                back_ms = stream.network_back_ms if far else 0.0
                self._push(self.now_ms + back_ms + stream.post_ms, _PROCESSED, _ANSWERED, request)
            elif state.reacts:
                state.answered(request, self.now_ms)
        return True

    # Within.

    def _take(self, requests: Sequence[int], worker: int, model: int, batch: int) -> None:
        """Put requests into a batch; refuse those that do not wait for this model and worker."""
        state, models, anything = self.requests.batch, self.requests.model, self._any_model
        self._waiting -= len(requests)
        for request in requests:
            if not 0 <= request < len(state) or state[request] != WAITING:
                self._refuse_to_run(request)
            if not anything and models[request] != model and (
                    self._family[models[request]] != self._family[model]):
                self._refuse("run of a request for another model", request,
                             f"requests for {self.site.models[model]}, or its family")
            state[request] = batch
        if self._at_machine:
            for request in requests:
                if self._at_machine.get(request, (0, worker))[1] != worker:
                    self._refuse("run on another worker than the request was sent to", request,
                                 f"worker {self._at_machine[request][1]}")

    def _refuse_to_run(self, request: int) -> NoReturn:
        """Raise the error that says why a request cannot be run now."""
        state = self.requests
        if 0 <= request < len(state) and state.batch[request] == TO_PROCESS:
            self._refuse("run of a request that needs cores and has none",
                         f"request {request} of the stream "
                         f"{self._streams[state.stream[request]].name}",
                         "after process() on a machine; the schedulers sigmaos… do that, "
                         "others serve streams without cores")
        self._refuse("run of a request that is not waiting", request,
                     "requests that have arrived and are prepared, each once")

    def _drawn_ms(
        self, worker: int, model: int, requests: Sequence[int], work_ms: float | None
    ) -> float:
        """Return the time of a batch alone: stated, drawn, or by its longest request."""
        if work_ms is not None:
            if not 0 < work_ms < inf:
                self._refuse("not a batch's time", work_ms, "a finite number > 0")
            return work_ms
        kind = self.times.kind[model]
        row = self._quantiles[worker][kind][len(requests) - 1]
        took_ms: float = row[0]
        if len(row) > 1:
            first, drawn = requests[0], self.requests.drawn
            uniform = drawn[first] if first < len(drawn) else self.requests.uniform(first)
            took_ms = quantile(row, self._levels[worker], uniform)
        if self._by_tokens and not self.times.continuous[kind]:
            tokens = self.times.tokens[kind]
            if tokens:
                took_ms *= max(self.requests.tokens(request, tokens) for request in requests)
        if self._spells is not None:
            took_ms *= self._spells.factor_at(worker, self.now_ms)
        return took_ms

    def _run_shared(
        self, worker: int, model: int, requests: Sequence[int], took_ms: float,
        share: float | None, expected_ms: float,
    ) -> int:
        """Start a batch whose speed may change."""
        self.workers.free_lanes[worker] -= 1
        self.workers.busy_until_ms[worker] = self.now_ms + expected_ms
        kind = self.times.kind[model]
        if self.times.continuous[kind]:
            steps_ms = [row[0] for row in self.times.quantiles[self.workers.type[worker]][kind]]
            group = len(self._record.starts)
            self._add_continuous(worker, model, requests, steps_ms, group)
            return group
        batch = self._record.batch(self.now_ms, inf, worker, model, len(requests))
        self._take(requests, worker, model, batch)
        self._members[batch] = requests
        self.workers.running[worker].append(batch)
        assert self.progress is not None
        self.progress.start([Running(batch, worker, model, len(requests), batch, share, None,
                                     took_ms, self.now_ms)], self.now_ms)
        return batch

    def _add_continuous(
        self, worker: int, model: int, requests: Sequence[int], steps_ms: Sequence[float],
        group: int,
    ) -> None:
        """Record each request of a continuous batch as its own batch."""
        tokens = self.times.tokens[self.times.kind[model]]
        new = []
        for request in requests:
            batch = self._record.batch(self.now_ms, inf, worker, model, 1)
            self._take((request,), worker, model, batch)
            self._members[batch] = (request,)
            self.workers.running[worker].append(batch)
            work_ms = steps_ms[0] * (self.requests.tokens(request, tokens) if tokens else 1.0)
            new.append(Running(batch, worker, model, 1, group, None, steps_ms, work_ms,
                               self.now_ms))
        assert self.progress is not None
        if new:
            self.progress.start(new, self.now_ms)

    def _free_cores(self, request: int) -> None:
        machine, _ = self._at_machine.pop(request)
        stream = self._streams[self.requests.stream[request]]
        self.workers.free_cores[machine] += stream.cores

    def _push(self, at_ms: float, kind: int, first: int, second: int) -> None:
        self._set += 1
        heappush(self._events, (at_ms, kind, self._set, first, second))

    def _worker(self, worker: int) -> str:
        exists = 0 <= worker < len(self.workers)
        return f"{self.site.workers[worker]} (worker {worker})" if exists else f"worker {worker}"

    def _pair(self, worker: int, model: int) -> str:
        name = self.site.models[model] if 0 <= model < len(self.site.models) else model
        return f"{self._worker(worker)}, model {name}"

    def _names(self, models: set[int]) -> str:
        names = [self.site.models[model] for model in sorted(models)[:10]]
        return ", ".join(names) + (", …" if len(models) > 10 else "") if names else "nothing"

    def _check_progress(self) -> None:
        """Count a load; end the run if very many loads serve none of the waiting requests."""
        served = len(self._record.starts) + len(self._record.drops)
        if served != self._served or not self._waiting:
            self._served, self._in_vain = served, 0
        self._in_vain += 1
        if self._in_vain > _MOST:
            state = self.requests
            first = next(request for request, batch in enumerate(state.batch)
                         if batch in (WAITING, TO_PROCESS))
            self._refuse(
                f"models are loaded without end while {self._waiting} requests wait, the first "
                f"for {self.site.models[state.model[first]]}", self._in_vain,
                f"{_MOST} loads since a request was served")

    def _refuse(self, what: str, value: object, allowed: str) -> NoReturn:
        # A token may be any object; one without a text of its own would show as its address.
        event = " ".join(str(word) for word in self._event
                         if type(word).__repr__ is not object.__repr__)
        raise SchedulerError(what, where=f"at {self.now_ms:g} ms, {event}", value=value,
                             allowed=allowed)


