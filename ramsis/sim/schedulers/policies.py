"""Policies: each queue of a station is served as its decision table says.

The queues are the runtime's own (:mod:`ramsis.runtime.station_queues`), with the engine's clock.
After each arrival and each end of a batch, and when the slack of the head has fallen as far as the
last answer said, the table of the lowest load level that meets the anticipated load is asked
(``docs/lookup.md``). Nothing but tables decides: what a policy promises is never looked at.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from math import inf
from pathlib import Path
from typing import cast

from ramsis.errors import InputFileError, InvalidValueError, check_known
from ramsis.policy import Level, Policy, PolicySet, read, read_set
from ramsis.policy.policy_set import level_of as level_of_policy
from ramsis.runtime import DISPATCHES, Decision, DecisionTable, Selector, set_of_selectors
from ramsis.runtime.policy_set import ALL_WORKERS, Choice, types_in_words
from ramsis.runtime.station_queues import QueueState, StationQueues
from ramsis.sim.engine import Scheduler, WorkerGroup
from ramsis.sim.fleet import Fleet, Fleets
from ramsis.sim.plan import ClusterPlan, Plan, StationPlan
from ramsis.sim.tables import Compiled, PlacedCascade, level_of, stack

_Division = tuple[tuple[range, float, tuple[float, ...]], ...]


class Policies:
    """Scheduler that follows policies by load, for one station or several.

    Policies without a set are of one arrival process, for one station or like ones, and for
    different loads. ``source`` says in messages where they are from. ``dispatch`` is another rule
    than they were made for: ``round-robin`` or ``shortest-queue`` for each other's. Batches take
    ``slowness`` times as long as the policies count on (:meth:`when_slow`).
    """

    def __init__(
        self, policies: PolicySet[Policy] | Iterable[Policy], source: str = "policies",
        dispatch: str | None = None, slowness: float = 1.0,
    ) -> None:
        self.levels = policies if isinstance(policies, PolicySet) else _simple_set(policies)
        self.source, self.dispatch, self.slowness = source, dispatch, slowness

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, process: str | None = None,
        dispatch: str | None = None,
    ) -> Policies:
        """Load the policies that a folder's manifest lists, or a single policy file.

        ``process`` is the label of the arrival process whose policies to take; it is needed when
        the set has several and none of them is ``poisson``.
        """
        policy_set = read_set(path) if Path(path).is_dir() else _simple_set([read(path)])
        labels = policy_set.processes
        if process is None:
            process = labels[0] if len(labels) == 1 else "poisson"
        check_known("no policy for this process", process, labels, str(path))
        chosen = PolicySet([level for level in policy_set.levels if level.arrivals == process],
                           policy_set.worker_types, policy_set.slo_classes)
        return cls(chosen, str(path), dispatch)

    @cached_property
    def policies(self) -> tuple[Policy, ...]:
        """Policies of all levels and stations."""
        return tuple(station.policy for level in self.levels.levels for station in level.stations)

    @property
    def name(self) -> str:
        """Dispatch rule that the policies were made for."""
        return self.policies[0].dispatch

    @property
    def max_batch(self) -> int:
        """Largest batch that a policy asks for."""
        return max(policy.max_batch for policy in self.policies)

    def at(self, load_qps: float, slowness: float = 1.0) -> Choice[Policy]:
        """Return the level that serves at a load and slowness, with its promise."""
        return self.levels.at(load_qps, slowness=slowness)

    def when_slow(self, slowness: float) -> Policies:
        """Return the policies that serve when batches take so many times as long as profiled.

        Those that :meth:`ramsis.runtime.PolicySet.at` chooses, with the slowness that it leaves.
        """
        chosen = self.at(0.0, slowness)
        levels = [level for level in self.levels.levels
                  if level.slowness == chosen.level.slowness]
        return Policies(
            PolicySet(levels, self.levels.worker_types, self.levels.slo_classes), self.source,
            self.dispatch, chosen.slowness)

    def on_cluster(self, fleets: Fleets) -> ClusterPlan:
        """Return the stations of each level; refuse policies for other workers or SLO classes."""
        serving, source = self.when_slow(fleets.fleets[0].slowness), self.source
        policies = serving.levels
        if len(fleets.fleets) == 1 and all(len(level.stations) == 1 for level in policies.levels):
            return ClusterPlan.of_one(self.prepare(fleets.fleets[0]), fleets)
        classes = {slo_class.slo_ms: slo_class.share for slo_class in fleets.classes}
        if policies.worker_types != dict(fleets.worker_types):
            raise InputFileError(
                "made for other worker types", where=source,
                value=types_in_words(policies.worker_types),
                allowed=types_in_words(fleets.worker_types))
        if policies.slo_classes != classes:
            raise InputFileError("made for other SLO classes", where=source,
                                 value=policies.slo_classes, allowed=str(classes))
        # Levels that divide the workers in the same way share their schedulers, which then change
        # tables with the load as those of a simple set do.
        alike: dict[_Division, list[Level[Policy]]] = {}
        for level in policies.levels:
            alike.setdefault(_division(level, fleets, source), []).append(level)
        levels: list[Level[StationPlan]] = []
        for division, part in alike.items():
            plans = [serving._station_plan(part, number, workers, slo_ms, fleets)
                     for number, (workers, slo_ms, _) in enumerate(division)]
            levels += [level._replace(stations=tuple(
                station._replace(policy=plan)  # type: ignore[arg-type]
                for station, plan in zip(level.stations, plans, strict=True)))  # type: ignore[misc]
                for level in part]
        return ClusterPlan(self.name, fleets,
                           PolicySet(levels, policies.worker_types, policies.slo_classes))

    def _station_plan(
        self, levels: Sequence[Level[Policy]], number: int, workers: range, slo_ms: float,
        fleets: Fleets,
    ) -> StationPlan:
        """Return one station's plan, its tables by the load of the whole cluster."""
        stations = [level.stations[number] for level in levels]
        kind = fleets.fleets[fleets.fleet_of[stations[0].worker_types[0]]]
        fleet = replace(kind, workers=len(workers), slo_ms=slo_ms,
                        classes=stations[0].policy.slo_classes)
        part_policies = Policies([replace(station.policy, load_qps=level.load_qps)
                                  for level, station in zip(levels, stations, strict=True)],
                                 f"{self.source}: {stations[0].name}", self.dispatch,
                                 self.slowness)
        for policy in part_policies.policies:
            part_policies.check_models(policy, fleet)
        return StationPlan(number, fleet, workers, part_policies.prepared(fleet))

    def prepare(self, fleet: Fleet) -> Plan:
        """Check that the policies are for this fleet, and stack their tables."""
        for policy in self.policies:
            self._check_fits(policy, fleet)
        return self.when_slow(fleet.slowness).prepared(fleet)

    def prepared(self, fleet: Fleet) -> Plan:
        """Return a plan with the tables of policies that fit a fleet, by load alone."""
        rule = self._rule()
        index = {name: i for i, name in enumerate(fleet.models)}
        placed = [(policy, [index[model.name] for model in policy.models])
                  for policy in self.policies]
        start = partial(_Run, tables=cache(lambda: [p.decision_table() for p in self.policies]),
                        index=index, dispatch=rule, slowness=self.slowness)
        compiled = Compiled(rule, stack(level_of(*policy) for policy in placed), self.slowness,
                            self._cascades(fleet, placed))
        return Plan(self.name, start, compiled, self.max_batch)

    def _cascades(
        self, fleet: Fleet, placed: Sequence[tuple[Policy, list[int]]]
    ) -> tuple[PlacedCascade | None, ...]:
        """Return the second opinions of each policy by rising load; empty where none has any."""
        if all(policy.cascade is None for policy in self.policies):
            return ()
        if self.slowness != 1.0:
            raise InvalidValueError("second opinions are for service times as profiled",
                                    where=f"{self.source}: slowness", value=self.slowness,
                                    allowed="1, or policies without --cascades")
        if not DISPATCHES[self._rule()].in_turn:
            raise InvalidValueError(
                "second opinions are for queues that requests join in turn",
                where=f"{self.source}: dispatch", value=self._rule(),
                allowed="the dispatch of the policies")
        ordered = sorted(placed, key=lambda pair: pair[0].load_qps)
        return tuple(None if policy.cascade is None else
                     PlacedCascade.of(policy.cascade, index, len(fleet.models))
                     for policy, index in ordered)

    def _rule(self) -> str:
        """Return the dispatch rule by which requests reach the queues."""
        named = {policy.dispatch for policy in self.policies}
        kinds = {DISPATCHES[name].own_queues for name in named}
        rule = self.dispatch or next(iter(named))
        if len(kinds) > 1 or (self.dispatch is None and len(named) > 1):
            raise InputFileError("policies with several dispatch rules",
                                 where=f"{self.source}: dispatch",
                                 value=", ".join(sorted(named)),
                                 allowed=" or ".join(DISPATCHES) + " for all")
        if rule not in DISPATCHES or DISPATCHES[rule].own_queues not in kinds:
            raise InvalidValueError("not a dispatch rule for these policies",
                                    where="dispatch", value=rule,
                                    allowed=", ".join(
                                        name for name, dispatch in DISPATCHES.items()
                                        if dispatch.own_queues in kinds))
        return rule

    def _check_fits(self, policy: Policy, fleet: Fleet) -> None:
        """Refuse a policy that was not made for a fleet."""
        self.check_models(policy, fleet)
        where = f"{self.source}: policy for {policy.load_qps:g} QPS"
        for what, stated, wanted in (
            ("made for another number of workers", policy.workers, fleet.workers),
            ("made for another SLO", policy.slo_ms, fleet.slo_ms),
            ("made for other SLO classes", policy.slo_classes, fleet.classes),
        ):
            if stated != wanted:
                raise InputFileError(what, where=where, value=stated, allowed=str(wanted)
                                     or "none")

    def check_models(self, policy: Policy, fleet: Fleet) -> None:
        """Refuse a policy whose models or batches a fleet lacks."""
        where = f"{self.source}: policy for {policy.load_qps:g} QPS"
        missing = [model.name for model in policy.models if model.name not in fleet.models]
        if missing:
            raise InputFileError("made for models that the profile lacks", where=where,
                                 value=missing, allowed=", ".join(fleet.models))
        if self.max_batch > fleet.max_batch:
            raise InputFileError("batches beyond those of the fleet", where=where,
                                 value=self.max_batch, allowed=f"up to {fleet.max_batch}")


def _division(level: Level[Policy], fleets: Fleets, source: str) -> _Division:
    """Return each station's workers, SLO and classes; workers are taken in order."""
    free = list(fleets.first_workers)
    stations = []
    for station in level.stations:
        kind = fleets.fleet_of[station.worker_types[0]]
        workers = range(free[kind], free[kind] + station.workers)
        free[kind] = workers.stop
        if workers.stop > fleets.first_workers[kind] + fleets.fleets[kind].workers:
            raise InputFileError(
                "more workers than the cluster has of this type", value=station.workers,
                where=f"{source}: station {station.name} at {level.load_qps:g} QPS",
                allowed=f"{fleets.fleets[kind].workers} in all stations")
        stations.append((workers, station.policy.slo_ms, tuple(sorted(station.share))))
    return tuple(stations)


def _simple_set(policies: Iterable[Policy]) -> PolicySet[Policy]:
    """Return a set with a level of one station for each policy, unchecked."""
    listed = list(policies)
    workers = {ALL_WORKERS: int(listed[0].workers)} if listed else {}
    classes = {slo_class.slo_ms: slo_class.share
               for slo_class in listed[0].classes} if listed else {}
    return PolicySet(map(level_of_policy, listed), workers, classes)


class _Run(Scheduler[WorkerGroup]):
    """Scheduler of a run by the runtime's queues, with the engine's clock."""

    def __init__(
        self, engine: WorkerGroup, tables: Callable[[], Sequence[DecisionTable]],
        index: dict[str, int], dispatch: str, slowness: float,
    ) -> None:
        super().__init__(engine)
        workers, self.serving = range(engine.fleet.workers), engine.in_service()
        self.queues = StationQueues[int](dispatch, workers, engine.idle_workers(), self.serving,
                                         [True] * len(workers), 0.0)
        self.queues.slowness = slowness
        self.index = index
        self.policies = set_of_selectors([Selector(table) for table in tables()])
        self.monitored = engine.monitored
        self.selector = self.policies.at(0.0 if self.monitored else engine.load_qps()).selector
        self.timer_of: dict[QueueState[int], object] = {}

    def on_arrival(self, query: int) -> None:
        queue = self.queues.join(self.engine.deadline_ms(query), query, query)
        if queue.idle or not self.queues.own:
            self.act(queue)

    def on_arrivals(self, queries: Sequence[int]) -> None:
        for query in queries:
            self.queues.join(self.engine.deadline_ms(query), query, query)
        for queue in self.queues.queues:
            self.act(queue)

    def on_end(self, worker: int, batch: int) -> None:
        queue = self.queues.ended(worker, self.serving[worker])
        queue.idle.append(worker)
        if queue.waiting:
            self.act(queue)

    def on_timer(self, token: object) -> None:
        (queue,) = cast("tuple[QueueState[int]]", token)
        if token is self.timer_of[queue] and queue.wake_ms < inf:  # nothing has happened since
            self.act(queue, queue.wake_slack)

    def act(self, queue: QueueState[int], at_most_ms: float = inf) -> None:
        """Look up and carry out decisions for a queue; ``at_most_ms`` caps the slack looked up."""
        engine = self.engine
        selector = (self.policies.at(engine.load_qps()).selector if self.monitored
                    else self.selector)
        self.queues.act(queue, selector, engine.now_ms, self, at_most_ms)
        if queue.wake_ms < inf:
            self.timer_of[queue] = token = (queue,)
            engine.wake_at(queue.wake_ms, token)

    def start(
        self, worker: int, answer: Decision, queries: Sequence[int], slack_ms: float, idle: int,
        queued: int,
    ) -> None:
        """Run the batch that a policy has decided on."""
        self.serving[worker] = len(queries)
        self.engine.run(worker, self.index[answer.model], queries)

    def drop(self, query: int) -> None:
        """Drop a request, as a policy has decided."""
        self.engine.drop(query)
