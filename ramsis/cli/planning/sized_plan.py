"""``ramsis plan`` for requests with a size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ramsis.cli.planning.plan_run import PlanRun
from ramsis.files import write_atomic
from ramsis.sim import Recorded
from ramsis.sized.capacity import SizedTrial
from ramsis.sized.schedulers import POLICY

_SIZES = "sizes.csv"  # in the folder, of a trace


@dataclass(kw_only=True)
class SizedPlanRun(PlanRun):
    """A plan in progress for requests with a size, with policies for the mean load."""

    # sizes, by_class: options of commands; none where the trace has the sizes, and where no share
    # is asked for
    sizes: tuple[str, ...]
    by_class: tuple[str, ...]
    shares: Sequence[float] | None  # in time of each class
    queues: tuple[str, ...] = (POLICY,)

    each_policy_s: ClassVar[float] = 10.0
    requests_each_s: ClassVar[float] = 2e5

    @property
    def loads_qps(self) -> tuple[float, ...]:
        """The mean load, which `capacity` makes policies for, too."""
        return (self.workload.load_qps or 0.0,)

    @property
    def options(self) -> list[str]:
        """What was asked for, as options of commands."""
        return [*super().options, *self.by_class]

    def scheduler(self, dispatch: str) -> str:
        """Return the ``--scheduler`` value for policies."""
        return dispatch

    def search_of(self, dispatches: Iterable[str], arrivals: Sequence[str]) -> list[str]:
        """Return the command that finds the fewest workers for some arrivals."""
        return [*super().search_of(dispatches, arrivals), *self.by_class]

    def making(self, dispatch: str, workers: int, policies: str) -> list[str]:
        """Return the command that makes policies for some workers."""
        at = self.arrivals.index("--arrivals") if "--arrivals" in self.arrivals else None
        process = () if at is None else self.arrivals[at:at + 2]
        return [*self.making_for_loads(workers), *process, "--dispatch", dispatch,
                *(self.sizes or ("--sizes", _SIZES)), *self.by_class, "--out", policies, "--json"]

    def further(self, dispatch: str, workers: int) -> Mapping[str, Any]:
        """Simulate policies for some workers with other seeds, and return the row."""
        return self.confirmed(dispatch, workers)[0]

    def trial(self, played: Mapping[str, Any]) -> SizedTrial:
        """Hold the row of a simulation against the targets."""
        return SizedTrial.of_row(played, self.targets, self.shares)

    def begin(self, inputs: Mapping[str, Any]) -> None:
        """Make the folder, with the sizes of the trace, or go on with the plan that it holds."""
        super().begin(inputs)
        if not self.sizes:
            assert isinstance(self.workload, Recorded)
            assert self.workload.sizes is not None
            sizes, counts = np.unique(self.workload.sizes, return_counts=True)
            write_atomic(self.folder / _SIZES, "size,count\n" + "".join(
                f"{size},{count}\n" for size, count in zip(
                    sizes.tolist(), counts.tolist(), strict=True)))
