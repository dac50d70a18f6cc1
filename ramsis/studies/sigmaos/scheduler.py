"""Default scheduler of σOS: queues of tenants, machines with cores, a proxy on each machine.

A request waits in the queue of its tenant. Tenants take turns; the first of a tenant's requests
that can be placed is sent to a *machine*, whose cores it holds and whose processor prepares it,
and to a *proxy*, the inference server of the same or of another machine. A proxy runs the requests
for a model one at a time, in order of arrival, and loads the model for the first of them if
necessary. A copy of a model is registered when the first request is sent to it. Requests of
streams without processing need no cores; their machine is that of their proxy.

Streams of *best effort* give way to the others, which are latency-critical: their requests are
sent only while no critical one waits for a machine, and run after critical ones at a proxy.
Requests that have been sent keep their cores, and are not preempted.

The schedulers of the family differ in where they place a request: ``sigmaos`` (any machine),
:mod:`~ramsis.studies.sigmaos.colocation`,
:mod:`~ramsis.studies.sigmaos.registry` and
:mod:`~ramsis.studies.sigmaos.dynamic`.

Source: K. Liu, Enabling Efficient ML Inference in SigmaOS with Model-Aware Scheduling, MIT, 2025.
Its list of steps registers a model when a request exits; then its two colocation schedulers would
be equal, but its measured times differ. It never unloads models. Here, when memory runs out,
models without ongoing requests are unloaded, the least recently used first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from random import Random

from ramsis.sim.engine import Engine, Scheduler, check_at_least
from ramsis.sim.engine.workers import ACTIVE

Place = tuple[int, int]  # a machine, and the worker whose proxy runs the inference
# Queue of a tenant's requests of one stream and model, which have the same possible places.
Queues = dict[tuple[int, int], deque[int]]

_STALE = 64  # number of stale heap entries below which a heap is not cleaned


@dataclass(slots=True, eq=False)
class Copy:
    """Registered copy of a model at a proxy, loaded or not yet."""

    worker: int
    model: int
    used: int = 0  # sequence number of the last request that was sent to it
    ongoing: int = 0  # number of its requests that have not left their machine
    ahead: int = 0  # number of its requests whose inference has not ended
    waiting: deque[int] = field(default_factory=deque)  # requests that wait at the proxy


class SigmaOS(Scheduler[Engine]):
    """Default scheduler: any machine with enough free cores and room for the model.

    Subclasses override :meth:`place` or :meth:`choose`.

    Parameters
    ----------
    enqueue_ms : float
        Time from the arrival of a request until it is in its queue, >= 0.
    """

    def __init__(self, engine: Engine, enqueue_ms: float = 0.0) -> None:
        super().__init__(engine)
        check_at_least(0.0, "scheduler sigmaos", enqueue_ms=enqueue_ms)
        self.enqueue_ms = enqueue_ms
        self.rng = Random(engine.seed)
        self.streams = engine.world.streams
        self.processed = engine.requests.processed
        # A group is a tenant's latency-critical requests, or its best-effort ones.
        groups = list(dict.fromkeys(
            sorted(((stream.best_effort, stream.tenant) for stream in self.streams),
                   key=lambda group: group[0])))
        self.group = [groups.index((stream.best_effort, stream.tenant))
                      for stream in self.streams]
        self.critical = sum(not best_effort for best_effort, _ in groups)  # these groups are first
        self.least_cores = [
            min(stream.cores for stream, of_group in zip(self.streams, self.group, strict=True)
                if of_group == group) for group in range(len(groups))]
        self.queues: list[Queues] = [{} for _ in groups]
        # Heaps of the first request of each queue, with lazily deleted entries.
        self.heads: list[list[tuple[int, tuple[int, int]]]] = [[] for _ in groups]
        # Next group in turn, among critical ones and among best-effort ones.
        self.turn = [0, self.critical]
        self.copies: list[dict[int, Copy]] = [{} for _ in range(len(engine.workers))]
        self.used = 0
        # By worker: memory without copies that have requests, and the number of such copies.
        self.spare_mb = list(engine.workers.memory_mb)
        self.busy = [0] * len(engine.workers)
        # Heaps of copies without requests, least recently used first, with stale entries.
        self.idle: list[list[tuple[int, Copy]]] = [[] for _ in range(len(engine.workers))]
        self.registered: dict[int, list[Copy]] = {}
        self.sent: dict[int, Copy] = {}
        # Copies with requests at their proxy: loaded ones, and ones that need loading.
        self.at_proxy: list[dict[int, Copy]] = [{} for _ in range(len(engine.workers))]
        self.to_load: list[dict[int, Copy]] = [{} for _ in range(len(engine.workers))]
        # Memory reserved for models that will be loaded when a request reaches the proxy.
        self.promised: list[set[int]] = [set() for _ in range(len(engine.workers))]
        self.promised_mb = [0.0] * len(engine.workers)
        for worker, models in enumerate(engine.workers.loaded):
            for model in sorted(models):
                copy = self.register(worker, model)
                self.idle[worker].append((copy.used, copy))
        self.active = self.active_now()

    # Placing a request.

    def place(self, request: int) -> Place | None:
        """Return the place of a request now; None if it waits until something changes."""
        return self.anywhere(request)

    def choose(self, queue: Sequence[int]) -> tuple[int, Place] | None:
        """Choose a request of a queue, by its index, and its place; None if all wait."""
        place = self.place(queue[0])
        return None if place is None else (0, place)

    def anywhere(self, request: int) -> Place | None:
        """Return a random machine with free cores that holds the model or has room for it."""
        model, free = self.engine.requests.model[request], self.free(request)
        if not free:
            return None
        worker = self.any_of(free)
        if not self.hosts(worker, model):
            able = [machine for machine in free if self.hosts(machine, model)]
            if not able:
                return None
            worker = self.any_of(able)
        return worker, worker

    def free(self, request: int) -> list[int]:
        """Return the machines with enough free cores for a request."""
        workers, state = self.engine.workers, self.engine.requests
        cores = self.streams[state.stream[request]].cores
        if not cores:
            return self.active
        return [worker for worker in self.active if workers.free_cores[worker] >= cores]

    def active_now(self) -> list[int]:
        """Return the machines that are active."""
        return [worker for worker, status in enumerate(self.engine.workers.status)
                if status == ACTIVE]

    def any_of(self, among: Sequence[int]) -> int:
        """Return an element of a list, drawn uniformly at random."""
        return among[int(len(among) * self.rng.random())]

    def hosts(self, worker: int, model: int) -> bool:
        """Return whether the proxy of a worker has the model, or could load it."""
        workers = self.engine.workers
        if model in self.copies[worker]:
            return True
        if (workers.status[worker] != ACTIVE
                or not self.engine.times.runs(workers.type[worker], model)):
            return False
        return workers.has_room(model, self.spare_mb[worker],
                                workers.max_models[worker] - self.busy[worker])

    # Sending a request.

    def register(self, worker: int, model: int) -> Copy:
        """Register a copy of a model at a proxy; later requests can be sent there."""
        self.used += 1
        copy = Copy(worker, model, self.used)
        self.copies[worker][model] = copy
        self.registered.setdefault(model, []).append(copy)
        return copy

    def new_copy(self, worker: int, model: int) -> Copy:
        """Create a copy of a model at a proxy, and reserve memory for it."""
        workers, idle = self.engine.workers, self.idle[worker]
        while idle and not workers.has_room(
                model, workers.free_mb[worker] - self.promised_mb[worker],
                workers.places(worker) - len(self.promised[worker])):
            used, other = heappop(idle)
            if used == other.used and not other.ongoing:
                self.engine.unload(worker, other.model)
                del self.copies[worker][other.model]
                self.registered[other.model].remove(other)
        self.promised[worker].add(model)
        self.promised_mb[worker] += workers.model_mb[model]
        return self.register(worker, model)

    def use(self, copy: Copy) -> None:
        """Add a request to the ongoing ones of a copy."""
        if not copy.ongoing:
            self.busy[copy.worker] += 1
            self.spare_mb[copy.worker] -= self.engine.workers.model_mb[copy.model]
        self.used += 1
        copy.used = self.used
        copy.ongoing += 1
        copy.ahead += 1

    def leave(self, copy: Copy) -> None:
        """Remove a request from the ongoing ones of a copy."""
        copy.ongoing -= 1
        if copy.ongoing:
            return
        workers, worker, idle = self.engine.workers, copy.worker, self.idle[copy.worker]
        self.busy[worker] -= 1
        self.spare_mb[worker] += workers.model_mb[copy.model]
        if not self.busy[worker]:
            self.spare_mb[worker] = workers.memory_mb[worker]  # removes rounding errors
        heappush(idle, (copy.used, copy))
        if len(idle) > 2 * len(self.copies[worker]) + _STALE:
            idle[:] = [(used, other) for used, other in idle
                       if used == other.used and not other.ongoing]
            heapify(idle)

    def send(self, request: int, place: Place) -> None:
        """Start a request on a machine, with inference at a proxy."""
        engine = self.engine
        machine, worker = place
        model = engine.requests.model[request]
        copy = self.copies[worker].get(model) or self.new_copy(worker, model)
        self.use(copy)
        self.sent[request] = copy
        if self.processed[engine.requests.stream[request]]:
            engine.process(request, machine, worker)
        else:
            self.on_ready(request)

    def send_all(self) -> None:
        """Send requests of tenants in turn while any can be placed, best-effort ones last."""
        self.send_of_class(0)
        if not self.critical_waits():
            self.send_of_class(1)

    def critical_waits(self) -> bool:
        """Return whether a latency-critical request waits for a machine."""
        return any(self.queues[:self.critical])

    def send_of_class(self, kind: int) -> None:
        """Send waiting requests to machines, of critical (0) or best-effort (1) groups in turn."""
        groups = range(self.critical, len(self.queues)) if kind else range(self.critical)
        idle, workers = 0, self.engine.workers
        while idle < len(groups) and any(self.queues[groups.start:groups.stop]):
            free = zip(workers.free_cores, workers.status, strict=True)
            most = max((cores for cores, status in free if status == ACTIVE), default=-1)
            group = self.turn[kind]
            self.pass_turn(group)
            idle = 0 if self.send_one(group, most) else idle + 1

    def pass_turn(self, group: int) -> None:
        """Pass the turn to the next group of the same class."""
        kind = int(group >= self.critical)
        first, end = (self.critical, len(self.queues)) if kind else (0, self.critical)
        self.turn[kind] = group + 1 if group + 1 < end else first

    def send_one(self, group: int, most_cores: int) -> bool:
        """Send the first request of a group that can be placed; return whether there was one."""
        if self.least_cores[group] > most_cores:
            return False
        queues, heads, stay = self.queues[group], self.heads[group], []
        sent = False
        while heads and not sent:
            head, key = heads[0]
            if key not in queues or queues[key][0] != head:
                heappop(heads)
                continue
            sent = self.streams[key[0]].cores <= most_cores and self.send_of(group, key)
            if not sent:
                stay.append(heappop(heads))
        for entry in stay:
            heappush(heads, entry)
        return sent

    def send_of(self, group: int, key: tuple[int, int]) -> bool:
        """Send a request of a queue, if one can be placed; return whether one was sent."""
        queue = self.queues[group][key]
        choice = self.choose(queue)
        if choice is None:
            return False
        which, place = choice
        request = queue[which]
        del queue[which]
        if not queue:
            del self.queues[group][key]
        elif not which:
            heappush(self.heads[group], (queue[0], key))
        self.send(request, place)
        return True

    def serve(self, worker: int) -> None:
        """Let a proxy start the loads and batches that it can."""
        engine, workers, here = self.engine, self.engine.workers, self.at_proxy[worker]
        if self.to_load[worker]:
            if workers.may_load(worker):
                self.load(worker)
            if workers.blocking[worker]:
                return
        while here and workers.free_lanes[worker] > 0:
            model = next(iter(here))
            if workers.running[worker] and engine.runs_now(worker, model):
                model = next((m for m in here if not engine.runs_now(worker, m)), -1)
                if model < 0:
                    return
            copy = here.pop(model)
            engine.run(worker, model, [copy.waiting.popleft()])
            if copy.waiting:
                here[model] = copy  # at the end: models of a proxy take turns

    def load(self, worker: int) -> None:
        """Begin to load models that requests wait for, as many at once as a machine can."""
        workers = self.engine.workers
        for model in self.to_load[worker]:
            # The event of an ended load may still be pending.
            if model not in workers.loading[worker] and model not in workers.loaded[worker]:
                if model in self.promised[worker]:
                    self.promised[worker].remove(model)
                    self.promised_mb[worker] -= workers.model_mb[model]
                    if not self.promised[worker]:
                        self.promised_mb[worker] = 0.0  # removes accumulated rounding errors
                self.engine.load(worker, model)
                if not workers.may_load(worker):
                    return

    # Events.

    def on_arrival(self, request: int) -> None:
        """Queue a request once it has reached the scheduler, after ``enqueue_ms``."""
        if self.enqueue_ms:
            self.engine.wake_at(self.engine.now_ms + self.enqueue_ms, request)
        else:
            self.enqueue(request)

    def on_timer(self, token: object) -> None:
        """Queue the request that has reached the scheduler."""
        assert isinstance(token, int)
        self.enqueue(token)

    def enqueue(self, request: int) -> None:
        """Queue a request of its tenant, and send it if it can go."""
        state = self.engine.requests
        stream = state.stream[request]
        group, key = self.group[stream], (stream, state.model[request])
        queues = self.queues[group]
        gives_way = group >= self.critical and self.critical_waits()
        # Other requests still cannot be placed.
        if key in queues:
            queues[key].append(request)
            sent = not gives_way and self.send_of(group, key)
        else:
            choice = None if gives_way else self.choose((request,))
            sent = choice is not None
            if choice is not None:
                self.send(request, choice[1])
            else:
                queues[key] = deque((request,))
                heappush(self.heads[group], (request, key))
        if sent:
            self.pass_turn(group)

    def on_ready(self, request: int) -> None:
        """Queue the request at its proxy, which it has reached."""
        copy = self.sent[request]
        self.wait(copy, request)
        if copy.model not in self.to_load[copy.worker]:
            loaded = copy.model in self.engine.workers.loaded[copy.worker]
            (self.at_proxy if loaded else self.to_load)[copy.worker].setdefault(copy.model, copy)
        self.serve(copy.worker)

    def wait(self, copy: Copy, request: int) -> None:
        """Queue a request at its copy, critical ones before best-effort ones."""
        stream, queue = self.engine.requests.stream, copy.waiting
        place = len(queue)
        if not self.streams[stream[request]].best_effort:
            while place and self.streams[stream[queue[place - 1]]].best_effort:
                place -= 1
        queue.insert(place, request)

    def on_loaded(self, worker: int, model: int) -> None:
        """Run the requests that waited for the model."""
        self.at_proxy[worker][model] = self.to_load[worker].pop(model)
        self.serve(worker)

    def on_end(self, worker: int, batch: int) -> None:
        """Run the next request; one without processing has left."""
        state = self.engine.requests
        for request in self.engine.members(batch):
            self.sent[request].ahead -= 1
            if not self.processed[state.stream[request]]:
                self.left(request)
        self.serve(worker)
        self.send_all()

    def on_processed(self, request: int) -> None:
        """Free a request's cores, and send waiting requests."""
        self.left(request)
        self.send_all()

    def on_scaled(self, worker: int) -> None:
        """Use an added machine."""
        self.active = self.active_now()
        self.send_all()

    def left(self, request: int) -> None:
        """Remove a request that has left its machine."""
        self.leave(self.sent.pop(request))
