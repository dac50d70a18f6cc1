"""Fleet policies: one queue for all workers, decided by a policy file as ``docs/lookup.md`` says.

After each arrival and each end of a batch, and when the slack of the head has fallen as far as the
last answer said, the table is asked with the idle workers, the queue and the head's slack: it
starts a batch on the worker that has been idle longest, drops the head, or waits. The queue stands
by deadline, which with one SLO is the order of arrival. Nothing but files decides: what a policy
promises is never looked at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import ClassVar

from ramsis.policy import FleetPolicy
from ramsis.runtime import Drop, FleetSelector, PolicySet, Wait
from ramsis.runtime.fields import Fields
from ramsis.runtime.fleet import FleetTable, fleet_table, wake_slack
from ramsis.sim.engine import Engine, Scheme
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import Plan
from ramsis.sim.schemes.policy_levels import check_fits, level_for
from ramsis.sim.tables import Compiled, stack_fleet

__all__ = ["FleetPolicies"]


@dataclass(frozen=True, eq=False)
class FleetPolicies:
    """A set of fleet policies for one arrival process.

    Parameters
    ----------
    policies : tuple of FleetPolicy
        One or more, of different loads.
    source : str
        Where they are from, for messages.
    """

    name: ClassVar[str] = "fleet"

    policies: tuple[FleetPolicy, ...]
    source: str = "policies"

    @property
    def max_batch(self) -> int:
        """Largest batch that a policy asks for."""
        return max(int(policy.options[:, 1].max()) for policy in self.policies)

    @property
    def highest_qps(self) -> float:
        """The highest load level."""
        return max(policy.load_qps for policy in self.policies)

    def at(self, load_qps: float) -> FleetPolicy:
        """The policy of the lowest level that meets a load, else the highest."""
        return level_for(self.policies, load_qps)

    def prepare(self, fleet: Fleet) -> Plan:
        """Check that the policies are for this fleet, and stack their tables.

        Raises
        ------
        InputFileError
            A policy for other models, workers or SLO, or with larger batches than the fleet runs.
        """
        for policy in self.policies:
            check_fits(policy, fleet, source=self.source, max_batch=self.max_batch)
        tables = [fleet_table(Fields(p.to_document(), self.source)) for p in self.policies]
        index = {name: i for i, name in enumerate(fleet.models)}
        start = partial(_Run, tables=tables, index=index)
        stacked = stack_fleet([(table, [index[name] for name in table.models], policy.table)
                               for table, policy in zip(tables, self.policies, strict=True)])
        return Plan(self.name, start, Compiled("fleet", stacked), self.max_batch)


class _Run(Scheme):
    """Lookups through the runtime, at the moment of each decision."""

    def __init__(
        self, engine: Engine, tables: Sequence[FleetTable], index: dict[str, int]
    ) -> None:
        super().__init__(engine)
        self.drawn = 0
        policies = PolicySet([FleetSelector(table, self.chance) for table in tables])
        self.policies, self.index = policies, index
        self.selector = policies.at(0.0 if engine.monitored else engine.load_qps()).selector
        self.queue: list[tuple[float, int]] = []  # a heap by deadline
        self.idle = deque(range(engine.fleet.workers))
        self.asked = 0

    def chance(self) -> float:
        """The next uniform number."""
        coins, drawn = self.engine.coins, self.drawn
        self.drawn += 1
        return coins[drawn % len(coins)]

    def on_arrival(self, query: int) -> None:
        heappush(self.queue, (self.engine.deadline_ms(query), query))
        self.act()

    def on_idle(self, worker: int) -> None:
        self.idle.append(worker)
        self.act()

    def on_timer(self, token: object) -> None:
        asked, slack_ms = token if isinstance(token, tuple) else (-1, inf)
        if asked == self.asked:  # nothing has happened since
            self.act(slack_ms)

    def act(self, at_most_ms: float = inf) -> None:
        """Do what the table says until it says to wait; a timer's slack may be rounded up."""
        engine, queue = self.engine, self.queue
        self.asked += 1
        while queue:
            if engine.monitored:
                self.selector = self.policies.at(engine.load_qps()).selector
            deadline_ms = queue[0][0]
            slack_ms = min(deadline_ms - engine.now_ms, at_most_ms)
            answer = self.selector(len(self.idle), len(queue), slack_ms)
            if isinstance(answer, Wait):
                wake = wake_slack(answer)
                if wake is not None:
                    engine.wake_at(max(deadline_ms - wake, engine.now_ms), (self.asked, wake))
                return
            at_most_ms = inf
            if isinstance(answer, Drop):
                engine.drop(heappop(queue)[1])
            else:
                batch = [heappop(queue)[1] for _ in range(answer.batch)]
                engine.dispatch(self.idle.popleft(), batch, self.index[answer.model])
