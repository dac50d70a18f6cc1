"""Cases of the evaluation on a profile set: SLOs, loads, numbers of workers, traffic.

The paper states numbers for its own models. These rules give numbers for any others:

- *Models*: those on the front of accuracy against p95 latency at batch 1.
- *SLOs*: half, once and one and a half times the largest of these latencies, each rounded up to
  the next number of two digits whose second is 0 or 5 (90.1 → 95, 366.7 → 400).
- *Workers*: 20, 30, … 100; 60 where only the load changes.
- *Constant loads*: ten, in equal ratios, from what 60 workers carry under the smallest SLO with
  the most accurate model that can meet it, times 0.8, up to 0.9 of their capacity, rounded to two
  digits. Capacity is K·max b / l(m, b) over the batches that take no longer than the SLO.
- *Trace*: ``day``, scaled so that its mean load is the geometric mean of these two ends.
- *Length*: 30 s at constant loads, and all of the trace, but no more than MOST_QUERIES at the
  highest load.

``--quick`` has fewer points and shorter runs. Numbers that are given take the place of those by
the rules; constant loads are for 60 workers, and for others as many for each worker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ramsis import profiles
from ramsis.arrivals.load_table import read_rates
from ramsis.errors import InvalidValueError
from ramsis.profiles import LatencyTable, ProfileSet, pareto_front

__all__ = ["FLEET", "Case", "round_slo"]

FLEET = 60
"""Workers where only the load changes."""
STEP = 0.005
"""Distance in accuracy between models put between those of the front."""
_LOWEST, _HIGHEST = 0.8, 0.9
MOST_QUERIES = 4e6
MOST_QUERIES_QUICK = 1e5
TRACE = "day"


@dataclass(frozen=True)
class Case:
    """A profile set with the numbers that the rules above give for it.

    Attributes
    ----------
    name : str
        Of the profile set, or its file.
    quick : bool
    given_slos, given_loads : tuple of float
        In the place of those by the rules, if there are any.
    given_scale : float, optional
        The same for the trace.
    given_workers : tuple of int
        The same for the workers, on the trace and at constant loads.
    trace : str
        A rate trace: the name of a shipped one, or its file.
    given_schedulers : tuple of str
        What is compared in the place of our policies and the baselines.
    given_grids : tuple of str
        Slack grids, in the place of those that are compared, or of that of workers' policies.
    given_three : tuple of str
        Models of Fig. 12, in the place of those by the rule.
    """

    name: str
    quick: bool = False
    given_slos: tuple[float, ...] = ()
    given_loads: tuple[float, ...] = ()
    given_scale: float | None = None
    given_workers: tuple[int, ...] = ()
    trace: str = TRACE
    given_schedulers: tuple[str, ...] = ()
    given_grids: tuple[str, ...] = ()
    given_three: tuple[str, ...] = ()

    @cached_property
    def profile(self) -> ProfileSet:
        """The models of the front."""
        whole = profiles.load(self.name)
        return whole.subset(pareto_front(whole.latency_table("p95", 1)))

    @cached_property
    def table(self) -> LatencyTable:
        """Their p95 latencies."""
        return self.profile.latency_table("p95", 33)

    @property
    def label(self) -> str:
        """For titles and folders."""
        return Path(self.name).stem

    @cached_property
    def slos_ms(self) -> tuple[float, ...]:
        """Three, rising."""
        slowest = float(self.table.latency_ms[:, 0].max())
        return self.given_slos or tuple(round_slo(f * slowest) for f in (0.5, 1.0, 1.5))

    @property
    def slo_ms(self) -> float:
        """The smallest."""
        return self.slos_ms[0]

    @property
    def compared_slos_ms(self) -> tuple[float, ...]:
        """SLOs of the figures that are made at the smallest, unless SLOs are given."""
        return self.given_slos or (self.slo_ms,)

    @property
    def three_models(self) -> tuple[str, ...]:
        """The fastest, the middle and the most accurate model of the front, or those given."""
        names = [model.name for model in self.profile.models]
        if unknown := sorted(set(self.given_three) - set(names)):
            raise InvalidValueError("not a model of the front", where="--three", value=unknown[0],
                                    allowed=", ".join(names))
        chosen = self.given_three or (names[0], names[(len(names) - 1) // 2], names[-1])
        return tuple(dict.fromkeys(chosen))

    @cached_property
    def load_range(self) -> tuple[float, float]:
        """The lowest and the highest load."""
        latency_ms, batch = self.table.latency_ms, np.arange(1, self.table.max_batch + 1)
        rate = 1000.0 * FLEET * np.where(latency_ms <= self.slo_ms, batch / latency_ms, 0.0)
        carried = rate.max(axis=1)
        best = np.argmax(np.where(carried > 0, self.table.accuracy, -1.0))
        return _LOWEST * float(carried[best]), _HIGHEST * float(carried.max())

    @cached_property
    def loads_qps(self) -> tuple[float, ...]:
        """Constant loads for 60 workers."""
        low, high = self.load_range
        every = self.given_loads or tuple(
            float(f"{x:.2g}") for x in np.geomspace(low, high, 10))
        return every[1::3] if self.quick else every

    def loads_for(self, workers: int) -> tuple[float, ...]:
        """The same loads for each worker, for another number of workers."""
        if workers == FLEET:
            return self.loads_qps
        return tuple(float(f"{x * workers / FLEET:.4g}") for x in self.loads_qps)

    @property
    def workers(self) -> list[int]:
        """Numbers of workers on the trace."""
        if self.given_workers:
            return list(self.given_workers)
        return [20, 60, 100] if self.quick else list(range(20, 101, 10))

    @property
    def fleets(self) -> tuple[int, ...]:
        """Numbers of workers at constant loads."""
        return self.given_workers or (FLEET,)

    @cached_property
    def trace_scale(self) -> float:
        """Factor on the loads of the trace."""
        if self.given_scale is not None:
            return self.given_scale
        low, high = self.load_range
        return float(f"{math.sqrt(low * high) / read_rates(self.trace).load_qps:.3g}")

    @property
    def most_queries(self) -> float:
        """Of any run."""
        return MOST_QUERIES_QUICK if self.quick else MOST_QUERIES

    @property
    def duration_s(self) -> float:
        """Of runs at constant loads."""
        longest = max(max(self.loads_for(workers)) for workers in self.fleets)
        return self._seconds(5.0 if self.quick else 30.0, longest)

    @property
    def trace_s(self) -> float:
        """Of runs on the trace."""
        trace = read_rates(self.trace)
        return self._seconds(trace.duration_ms / 1000.0, trace.load_qps * self.trace_scale)

    def _seconds(self, longest: float, load_qps: float) -> float:
        return float(f"{min(longest, self.most_queries / load_qps):.3g}")


def round_slo(milliseconds: float) -> float:
    """The next number of two digits of which the second is 0 or 5.

    >>> [round_slo(x) for x in (90.1, 100.0, 366.7, 4.01)]
    [95.0, 100.0, 400.0, 4.5]
    """
    unit = 10.0 ** math.floor(math.log10(milliseconds)) / 2.0
    return float(f"{math.ceil(milliseconds / unit - 1e-9) * unit:.2g}")
