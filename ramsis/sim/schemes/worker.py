"""Worker policies: each worker serves a queue of its own as a policy file says.

Queries go to the workers by round robin (every K-th to one), or to the worker with the fewest
queries waiting or in service, ties to the next in turn. When a worker is idle and its queue is
not empty it looks up the number that wait and the slack of the first, in the policy of the lowest
load level that meets the anticipated load (``docs/lookup.md``), and again after each query that it
is told to drop. Nothing but files decides: what a
policy promises is never looked at.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, get_args

from ramsis.errors import InputFileError, InvalidValueError, describe
from ramsis.policy import WorkerPolicy, read, read_set
from ramsis.runtime import Drop, PolicySet, Selector
from ramsis.runtime.fields import Fields
from ramsis.runtime.table import LookupTable, lookup_table
from ramsis.sim.engine import Engine, Scheme
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import Plan
from ramsis.sim.schemes.policy_levels import check_fits, level_for
from ramsis.sim.tables import Compiled, Dispatch, Level, stack

__all__ = ["WorkerPolicies"]


@dataclass(frozen=True, eq=False)
class WorkerPolicies:
    """A set of worker policies for one arrival process.

    Parameters
    ----------
    policies : tuple of WorkerPolicy
        One or more, of different loads.
    source : str
        Where they are from, for messages.
    dispatch : str, optional
        ``round-robin`` or ``shortest-queue``; by default what the policies were made for.
    """

    name: ClassVar[str] = "worker"

    policies: tuple[WorkerPolicy, ...]
    source: str = "policies"
    dispatch: Dispatch | None = None

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, process: str | None = None,
        dispatch: Dispatch | None = None,
    ) -> WorkerPolicies:
        """The policies of a folder's manifest, or of one file.

        Parameters
        ----------
        path : path
        process : str, optional
            Label of the arrival process whose policies to take; needed when the set has several
            and none of them is ``poisson``.
        dispatch : str, optional
            As above.

        Raises
        ------
        InputFileError
            When a file cannot be read or breaks its format.
        InvalidValueError
            The set has no policy for the process.
        """
        found = read_set(path) if Path(path).is_dir() else (read(path),)
        policies = tuple(policy for policy in found if isinstance(policy, WorkerPolicy))
        if len(policies) < len(found):
            raise InputFileError(describe("not all are worker policies", where=str(path),
                                          value="fleet", allowed="kind worker"))
        labels = {policy.arrivals_label for policy in policies}
        if process is None:
            process = next(iter(labels)) if len(labels) == 1 else "poisson"
        chosen = tuple(p for p in policies if p.arrivals_label == process)
        if not chosen:
            raise InvalidValueError(describe("no policy for this process", where=str(path),
                                             value=process, allowed=", ".join(sorted(labels))))
        return cls(chosen, str(path), dispatch)

    @property
    def max_batch(self) -> int:
        """Largest batch that a policy asks for."""
        return max(max(p.overflow_batch, int(p.batch_table.max())) for p in self.policies)

    @property
    def highest_qps(self) -> float:
        """The highest load level."""
        return max(policy.load_qps for policy in self.policies)

    def at(self, load_qps: float) -> WorkerPolicy:
        """The policy of the lowest level that meets a load, else the highest."""
        return level_for(self.policies, load_qps)

    def prepare(self, fleet: Fleet) -> Plan:
        """Check that the policies are for this fleet, and stack their tables.

        Raises
        ------
        InputFileError
            A policy for other models, workers or SLO, with larger batches than the fleet runs,
            or for another dispatch than the others.
        """
        for policy in self.policies:
            check_fits(policy, fleet, source=self.source, max_batch=self.max_batch)
        dispatch = self.dispatch or self._dispatch()
        tables = [lookup_table(Fields(p.to_document(), self.source)) for p in self.policies]
        index = {name: i for i, name in enumerate(fleet.models)}
        levels = [Level.of(table, [index[name] for name in table.models]) for table in tables]
        start = partial(_Run, tables=tables, index=index, dispatch=dispatch)
        return Plan(self.name, start, Compiled(dispatch, stack(levels)),
                    self.max_batch)

    def _dispatch(self) -> Dispatch:
        named = {policy.dispatch for policy in self.policies}
        for known in get_args(Dispatch):
            if named == {known}:
                return known  # type: ignore[no-any-return]
        raise InputFileError(describe("not one way of dispatch", where=f"{self.source}: dispatch",
                                      value=", ".join(sorted(named)),
                                      allowed="round-robin or shortest-queue for all"))


class _Run(Scheme):
    """Lookups through the runtime, at the moment of each decision."""

    def __init__(
        self, engine: Engine, tables: Sequence[LookupTable], index: dict[str, int],
        dispatch: Dispatch,
    ) -> None:
        super().__init__(engine)
        self.head = 0
        policies = PolicySet([Selector(table, self.chance) for table in tables])
        self.policies, self.index = policies, index
        self.selector = policies.at(0.0 if engine.monitored else engine.load_qps()).selector
        self.by_turns = dispatch == "round-robin"
        self.queues: list[deque[int]] = [deque() for _ in range(engine.fleet.workers)]
        self.serving = [0] * engine.fleet.workers
        self.turn = 0

    def chance(self) -> float:
        """The uniform number of the query that is decided about."""
        coins = self.engine.coins
        return coins[self.head % len(coins)]

    def on_arrival(self, query: int) -> None:
        worker = self.turn if self.by_turns else self.shortest()
        self.turn = (worker + 1) % len(self.queues)
        self.queues[worker].append(query)
        if self.engine.idle[worker]:
            self.serve(worker)

    def on_idle(self, worker: int) -> None:
        self.serving[worker] = 0
        if self.queues[worker]:
            self.serve(worker)

    def shortest(self) -> int:
        """The worker with fewest queries, the next in turn among these."""
        count = len(self.queues)
        in_turn = [(self.turn + step) % count for step in range(count)]
        return min(in_turn, key=lambda w: len(self.queues[w]) + self.serving[w])

    def serve(self, worker: int) -> None:
        engine, queue = self.engine, self.queues[worker]
        selector = self.selector
        if engine.monitored:
            selector = self.policies.at(engine.load_qps()).selector
        while queue:
            self.head = queue[0]
            answer = selector(len(queue), engine.deadline_ms(queue[0]) - engine.now_ms)
            if isinstance(answer, Drop):
                engine.drop(queue.popleft())
                continue
            self.serving[worker] = answer.batch
            queries = [queue.popleft() for _ in range(answer.batch)]
            engine.dispatch(worker, queries, self.index[answer.model])
            return
