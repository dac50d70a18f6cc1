"""The worker's decision problem: what a state, a choice and a reward are.

A worker holds a queue. Its state is (n, T_j): n queued requests and the slack T_j of the
earliest deadline, rounded down to the slack grid. Beside these there are the empty state and
the full state (more than N queued, slack 0). With maximal batching a choice is a model m that
serves all n requests at once, admissible when l(m, n) <= T_j. Where none is admissible the
earliest request is late, and the fastest model serves everything that is queued
(EuroSys '24, §4.1-4.3). Round robin gives the worker every K-th central arrival.

A choice that is in time earns, per cost:

    per query     n·accuracy(m)   cost n
    per decision  accuracy(m)     cost 1

A late batch earns nothing at the same cost, and the wait in the empty state costs nothing; the
gain Σ reward / Σ cost is what a policy maximises. The full state is charged every request that
it holds, so that nothing is hidden by the size of the table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ramsis.arrivals import ArrivalProcess
from ramsis.errors import InfeasibleError, InvalidValueError, describe
from ramsis.mdp.grid import DEFAULT_GRID, slack_grid
from ramsis.profiles import LatencyTable

__all__ = ["MAX_NUMBERS", "MAX_QUEUE", "Choice", "Objective", "WorkerProblem"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MAX_QUEUE = 10_000
"""Longest queue that a table may tell apart."""
MAX_NUMBERS = 1_000_000_000
"""Most numbers of 8 bytes that solving a problem may hold at once, by a rough count."""


class Objective(StrEnum):
    """What the gain counts."""

    PER_QUERY = "per-query"
    """Accuracy of the queries answered in time, over all queries."""
    PER_DECISION = "per-decision"
    """Accuracy of the decisions in time, over all decisions: the paper's reward."""


@dataclass(frozen=True)
class Choice:
    """One model for one queue length.

    Attributes
    ----------
    model : int
        Row of the latency table.
    latency_ms : float
        l(m, n).
    first_bin : int
        The choice is admissible at slack bins j >= first_bin.
    """

    model: int
    latency_ms: float
    first_bin: int


@dataclass(frozen=True, eq=False)
class WorkerProblem:
    """One worker's MDP with maximal batching; make it with :meth:`create`.

    Attributes
    ----------
    latency : LatencyTable
        Models, accuracies and l(m, b) for b = 1 … N+1.
    slo_ms : float
    workers : int
        K: the worker gets every K-th central arrival.
    arrivals : ArrivalProcess
        The central arrivals.
    slack_ms : ndarray, shape (D+1,)
        T_0 = 0 < … < T_D = SLO.
    max_queue : int
        N: the longest queue that the table tells apart.
    objective : Objective
    """

    latency: LatencyTable
    slo_ms: float
    workers: int
    arrivals: ArrivalProcess
    slack_ms: FloatArray
    max_queue: int
    objective: Objective

    @classmethod
    def create(
        cls,
        latency: LatencyTable,
        *,
        slo_ms: float,
        workers: int,
        arrivals: ArrivalProcess,
        grid: str | FloatArray = DEFAULT_GRID,
        max_queue: int = 32,
        objective: Objective | str = Objective.PER_QUERY,
    ) -> WorkerProblem:
        """Check the parts and put them together.

        Parameters
        ----------
        latency : LatencyTable
            Must reach batch ``max_queue + 1``.
        grid : str or ndarray
            ``fixed:D``, ``model``, or the slack values themselves.

        Raises
        ------
        InvalidValueError
            When a number is out of range, the SLO is below every latency, the table is too
            short, or the problem is too large (:data:`MAX_NUMBERS`).
        """
        _check_whole("workers", workers)
        _check_whole("max_queue", max_queue, MAX_QUEUE)
        _check_rate(arrivals)
        if latency.max_batch < max_queue + 1:
            raise InvalidValueError(
                describe("latency table is too short", where="latency", value=latency.max_batch,
                         allowed=f"batches up to max_queue + 1 = {max_queue + 1}")
            )
        if isinstance(grid, str):
            slack_ms = slack_grid(grid, slo_ms, latency, max_queue)
        else:
            slack_ms = _checked_grid(grid, slo_ms)
        lowest = float(latency.latency_ms[:, 0].min())
        if slo_ms < lowest:
            raise InfeasibleError(
                describe("SLO is below every latency", where="slo_ms", value=slo_ms,
                         allowed=f"at least {lowest:g} ms, the fastest model's batch of 1")
            )
        try:
            objective = Objective(objective)
        except ValueError:
            raise InvalidValueError(
                describe("unknown objective", where="objective", value=str(objective),
                         allowed=" or ".join(Objective))
            ) from None
        problem = cls(latency, float(slo_ms), workers, arrivals, slack_ms, max_queue, objective)
        _check_size(problem)
        return problem

    @property
    def bins(self) -> int:
        """D: the number of slack bins below the SLO."""
        return len(self.slack_ms) - 1

    @cached_property
    def choices(self) -> tuple[tuple[Choice, ...], ...]:
        """For n = 1 … N (at n − 1) the models admissible at some slack, fastest first."""
        return tuple(self._choices(n) for n in range(1, self.max_queue + 1))

    def _choices(self, queued: int) -> tuple[Choice, ...]:
        column = self.latency.latency_ms[:, queued - 1]
        order = np.lexsort((-self.latency.accuracy, column))
        first = np.searchsorted(self.slack_ms, column, side="left")
        return tuple(
            Choice(int(m), float(column[m]), int(first[m])) for m in order if first[m] <= self.bins
        )

    @cached_property
    def late_latency_ms(self) -> FloatArray:
        """Latency of the fastest model's batch of n, for n = 1 … N+1; shape (N+1,)."""
        return self.latency.latency_ms[self.latency.fastest, : self.max_queue + 1]

    @cached_property
    def service_latencies_ms(self) -> FloatArray:
        """Every distinct latency that some choice or late batch can take, rising."""
        chosen = [c.latency_ms for row in self.choices for c in row]
        return np.unique(np.concatenate([self.late_latency_ms, chosen]))

    def cost(self, queued: int) -> float:
        """Cost of a decision with ``queued`` requests."""
        return float(queued) if self.objective is Objective.PER_QUERY else 1.0

    def reward(self, queued: int, model: int) -> float:
        """Reward of a decision in time."""
        return self.cost(queued) * float(self.latency.accuracy[model])

    def fastest_policy(self) -> IntArray:
        """The admissible policy of least latency, late where none is; shape (N, D+1)."""
        policy = np.full((self.max_queue, self.bins + 1), self.latency.fastest, dtype=np.int64)
        for row, choices in zip(policy, self.choices, strict=True):
            for choice in reversed(choices):
                row[choice.first_bin :] = choice.model
        return policy

    def in_time(self, policy: IntArray) -> NDArray[np.bool_]:
        """Where a policy's choice meets the earliest deadline; shape (N, D+1)."""
        queued = np.arange(self.max_queue)[:, None]
        result: NDArray[np.bool_] = (
            self.latency.latency_ms[policy, queued] <= self.slack_ms[None, :]
        )
        return result

    def check_policy(self, policy: IntArray) -> None:
        """Refuse a table that takes a late model where some model is in time, or late a slow one.

        Raises
        ------
        InvalidValueError
            When the table is not of shape (N, D+1), or naming its first bad entry.
        """
        shape = (self.max_queue, self.bins + 1)
        if np.shape(policy) != shape:
            raise InvalidValueError(
                describe("table has the wrong shape", where="policy", value=np.shape(policy),
                         allowed=f"{shape}")
            )
        known = (policy >= 0) & (policy < len(self.latency.models))
        table = np.where(known, policy, self.latency.fastest)
        reachable = self.in_time(self.fastest_policy())
        good = known & np.where(reachable, self.in_time(table), table == self.latency.fastest)
        if not good.all():
            n, j = (int(i) for i in np.argwhere(~good)[0])
            raise InvalidValueError(
                describe("model is not admissible", where=f"policy, {n + 1} queued, slack bin {j}",
                         value=int(policy[n, j]),
                         allowed="a model that is in time; the fastest where none is")
            )


def _check_whole(name: str, value: int, most: float = math.inf) -> None:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not (whole and 1 <= value <= most):
        allowed = "a whole number >= 1" + (f" and <= {most}" if most < math.inf else "")
        raise InvalidValueError(
            describe("not a number in range", where=name, value=value, allowed=allowed)
        )


def _check_size(problem: WorkerProblem) -> None:
    """Refuse a problem that would fill the memory, by a count that is rather too high."""
    latencies = problem.service_latencies_ms
    states = (problem.max_queue + 1) * (problem.bins + 1)
    nodes = 200 + 2 * (problem.bins + int((latencies < problem.slo_ms).sum()))
    longest_ms = max(problem.slo_ms, float(latencies[-1]))
    arrivals = problem.arrivals.rate_per_ms * longest_ms
    numbers = (states * (problem.workers + nodes) + len(latencies) * nodes * problem.workers
               + 250 * arrivals)
    if numbers > MAX_NUMBERS:
        raise InvalidValueError(
            describe("the problem is too large", where="worker problem",
                     value=f"{problem.workers} workers, {states:.3g} states, "
                           f"{arrivals:.3g} arrivals in {longest_ms:.3g} ms",
                     allowed="fewer workers, a coarser grid, a smaller max_queue or a lower load")
        )


def _check_rate(arrivals: ArrivalProcess) -> None:
    rate = arrivals.rate_per_ms
    if not (math.isfinite(rate) and rate > 0):
        raise InvalidValueError(
            describe("arrival rate is not positive", where="arrivals.rate_per_ms", value=rate,
                     allowed="a finite number > 0")
        )


def _checked_grid(grid: FloatArray, slo_ms: float) -> FloatArray:
    values = np.array(grid, dtype=float)
    good = values.ndim == 1 and len(values) >= 2 and bool(np.isfinite(values).all())
    if not good or values[0] != 0 or values[-1] != slo_ms or (np.diff(values) <= 0).any():
        raise InvalidValueError(
            describe("not a slack grid", where="grid", value=values.tolist(),
                     allowed="rising values from 0 to the SLO")
        )
    return values
