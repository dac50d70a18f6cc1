"""Schedulers as texts name them; policies are made for each cluster.

Policies are called by how requests reach the workers.

The settings of ``ramsis generate`` follow a colon, as in
``round-robin:grid=fixed:10,max_queue=16``, ``central-queue:violation_price=0`` and
``round-robin:paper``, which is what the EuroSys '24 paper does. Everything else
is a scheduler of :mod:`ramsis.sim`, as ``ramsis simulate --scheduler`` takes it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

from ramsis.arrivals import Arrivals
from ramsis.cluster import Cluster
from ramsis.cluster.service_times import FIXED
from ramsis.errors import InvalidValueError, whole
from ramsis.files import canonical_json
from ramsis.policy import DISPATCHES, SERVICES, PolicySet
from ramsis.runtime.monitor import WINDOW_MS
from ramsis.settings import setting, settings_of
from ramsis.sim import (
    SCHEDULERS,
    FleetScheduler,
    Policies,
    RateTrace,
    Recorded,
    Workload,
    scheduler,
)
from ramsis.sim.registry import SchedulerSpec
from ramsis.synthesis.settings import SynthesisSettings, as_in_the_paper
from ramsis.synthesis.stations import ClusterProblem, set_header

DEFAULT_LEVELS = 30
"""Load levels up to a trace's peak."""

_PAPER = "paper"
_KNOWN = SCHEDULERS.also(dict.fromkeys(DISPATCHES, Policies))  # by name
_SAME = {("central-queue", "max_batch"): "max_queue"}  # the longest batch of a central queue
_NOT_OF_SCHEDULERS = ("slo_ms", "workers", "slo_classes", "dispatch", "slowness")
_SPREAD = 4.0  # standard deviations of the load monitor's reading that levels reach beyond
_WINDOW_S = WINDOW_MS / 1000.0


class Ready(NamedTuple):
    """A scheduler that can be simulated; its policies, where these were made."""

    spec: FleetScheduler
    policies: Policies | None


class ComparedScheduler(Protocol):
    """A scheduler as a text names it; :class:`PolicyScheduler` has policies made first."""

    @property
    def name(self) -> str:
        """As in results."""
        ...

    @property
    def makes_policies(self) -> bool:
        """Whether policies are made, which promise something and improve with more workers."""
        ...

    @property
    def spec(self) -> FleetScheduler | None:
        """Return the scheduler to simulate; None where policies are made first."""
        ...

    @property
    def largest_batch(self) -> int:
        """Return the largest batch that it may run."""
        ...

    def settings(self, *, slo_ms: float, workers: int, service: str) -> SynthesisSettings:
        """The settings that policies for some workers are made with."""
        ...

    def loads(self, trace: RateTrace) -> tuple[float, ...]:
        """Loads in queries per second that policies are made for on a trace; none without."""
        ...

    def loads_for(self, workload: Workload) -> tuple[float, ...]:
        """Return the loads of a workload."""
        ...

    def ready(
        self, cluster: Cluster, loads_qps: Sequence[float], *, service: str, source: str,
        on_level: Callable[[], object] | None = None,
    ) -> Ready:
        """The scheduler, ready to be simulated on a cluster.

        Parameters
        ----------
        loads_qps : sequence of float
            Levels of policies, > 0; each once.
        service : str
            Service times of the simulation, which policies are made from where they can be.
        source : str
            Names the policies in messages.
        on_level : callable, optional
            Called as each level is finished.
        """
        ...

    def document(
        self, loads_qps: Sequence[float], *, slo_ms: float, workers: int, service: str
    ) -> dict[str, Any]:
        """All that results depend on, as plain JSON values."""
        ...


@dataclass(frozen=True)
class GivenScheduler:
    """One of :mod:`ramsis.sim`, which nothing is made for; see :class:`ComparedScheduler`."""

    spec: FleetScheduler
    makes_policies = False

    @property
    def name(self) -> str:
        """As in results."""
        return self.spec.name

    @property
    def largest_batch(self) -> int:
        """The scheduler's own."""
        return self.spec.max_batch

    def settings(self, *, slo_ms: float, workers: int, service: str) -> SynthesisSettings:
        """The usual ones; nothing is made with them."""
        return SynthesisSettings(slo_ms, workers)

    def loads(self, trace: RateTrace) -> tuple[float, ...]:
        """None."""
        return ()

    def loads_for(self, workload: Workload) -> tuple[float, ...]:
        """None."""
        return ()

    def ready(
        self, cluster: Cluster, loads_qps: Sequence[float], *, service: str, source: str,
        on_level: Callable[[], object] | None = None,
    ) -> Ready:
        """The scheduler as it is."""
        return Ready(self.spec, None)

    def document(
        self, loads_qps: Sequence[float], *, slo_ms: float, workers: int, service: str
    ) -> dict[str, Any]:
        """Name and parameters."""
        return scheduler_document(self.spec)


@dataclass(frozen=True)
class PolicyScheduler:
    """Policies to generate; see :class:`ComparedScheduler`."""

    name: str  # how requests reach the workers: one of :data:`ramsis.policy.DISPATCHES`
    given: Mapping[str, Any]  # settings that were given
    levels: int = setting(DEFAULT_LEVELS, "Load levels for a trace.",
                          rule=whole(2)._replace(wrong="not a number of levels"))
    makes_policies = True
    spec = None

    def settings(self, *, slo_ms: float, workers: int, service: str) -> SynthesisSettings:
        """The settings for some workers: by default made from their own service times.

        Where policies cannot be made from these, from their p95.
        """
        own = service if service in SERVICES else FIXED
        return SynthesisSettings(**{"slo_ms": slo_ms, "workers": workers, "service": own,
                                    "dispatch": self.name, **self.given})

    @property
    def largest_batch(self) -> int:
        """What policies may run, where the settings given say so; else 1."""
        if "max_queue" not in self.given:
            return 1
        return self.settings(slo_ms=1.0, workers=1, service=FIXED).largest_batch

    def loads(self, trace: RateTrace) -> tuple[float, ...]:
        """Return equally spaced loads that cover the readings of the load monitor on a trace.

        Over its window of half a second a Poisson load λ is read with a standard deviation of
        √(2λ); levels go four of these below the lowest and above the highest rate. There are
        ``levels`` of them from 0 to the top, of which those below the range are left out.
        """
        busy = trace.rate_qps[trace.rate_qps > 0]
        return self.levels_between(float(busy.min()), float(busy.max()))

    def loads_for(self, workload: Workload) -> tuple[float, ...]:
        """The load of a constant workload, else levels that cover it."""
        if isinstance(workload, RateTrace) and workload.varies:
            return self.loads(workload)
        if isinstance(workload, Recorded):
            return self.levels_between(0.0, workload.peak_qps)
        if workload.load_qps is None:
            raise InvalidValueError("no policies can be made: the load is not known",
                                    where="workload", value=workload)
        return (workload.load_qps,)

    def ready(
        self, cluster: Cluster, loads_qps: Sequence[float], *, service: str, source: str,
        on_level: Callable[[], object] | None = None,
    ) -> Ready:
        """Make the policies."""
        problem = ClusterProblem(cluster, self.settings(
            slo_ms=cluster.slo_ms, workers=cluster.workers, service=service))
        levels = []
        for load_qps in loads_qps:
            levels.append(problem.level(load_qps))
            if on_level is not None:
                on_level()
        made = Policies(PolicySet(levels, *set_header(cluster)), source)
        return Ready(made, made)

    def document(
        self, loads_qps: Sequence[float], *, slo_ms: float, workers: int, service: str
    ) -> dict[str, Any]:
        """Name, settings and loads."""
        settings = self.settings(slo_ms=slo_ms, workers=workers, service=service)
        return {"name": self.name, "settings": settings_document(settings),
                "loads": list(loads_qps)}

    def levels_between(self, low_qps: float, high_qps: float) -> tuple[float, ...]:
        """Return equally spaced loads between two ends."""
        top = high_qps + _SPREAD * math.sqrt(high_qps / _WINDOW_S)
        bottom = low_qps - _SPREAD * math.sqrt(low_qps / _WINDOW_S)
        step = top / self.levels
        return tuple(float(f"{step * i:.6g}") for i in range(1, self.levels + 1)
                     if step * (i + 1) > bottom)


def settings_document(settings: SynthesisSettings) -> dict[str, Any]:
    """All that a policy depends on but its load and the models, the same for 100 and 100.0 ms.

    Plain JSON values, as a file gives them back.
    """
    known: dict[str, Any] = json.loads(canonical_json({**asdict(settings), **settings.as_dict()}))
    return known


def scheduler_document(spec: FleetScheduler) -> dict[str, Any]:
    """Name and parameters of a scheduler, without where it keeps its files."""
    if isinstance(spec, SchedulerSpec):
        return spec.document()
    parameters = asdict(spec)  # type: ignore[call-overload]
    parameters.pop("store", None)
    return {"name": spec.name, **parameters}


def fleet_scheduler(text: str) -> ComparedScheduler:
    """Parse the text of a scheduler.

    >>> fleet_scheduler("round-robin:grid=fixed:10").given
    {'grid': 'fixed:10'}
    >>> fleet_scheduler("central-queue:violation_price=0,levels=8")
    PolicyScheduler(name='central-queue', given={'violation_price': 0.0}, levels=8)
    """
    name, _, rest = text.partition(":")
    if name not in DISPATCHES:
        return GivenScheduler(scheduler(text, _KNOWN, error=InvalidValueError).of_fleets)
    given: dict[str, Any] = {}
    paper = False
    known = {**settings_of(PolicyScheduler), **dict(sorted(
        (key, declared) for key, declared in settings_of(SynthesisSettings).items()
        if key not in _NOT_OF_SCHEDULERS))}
    # The commas before a parameter; others belong to a value, such as that of ``arrivals``.
    names = "|".join((*known, "max_batch"))
    for part in filter(None, re.split(rf",(?=(?:{names})=|{_PAPER}(?:,|$))", rest)):
        if part == _PAPER:
            paper = True
            continue
        key, equals, value = part.partition("=")
        key = _SAME.get((name, key), key)
        if not (equals and value) or key in given or key not in known:
            raise InvalidValueError("not a parameter of the scheduler", where=name, value=part,
                                    allowed=", ".join((*known, _PAPER)))
        given[key] = known[key].read(value, f"{name}: {key}")
    levels = given.pop("levels", DEFAULT_LEVELS)
    if paper:
        given = as_in_the_paper(given)
    made = PolicyScheduler(name, given, levels)
    made.settings(slo_ms=1.0, workers=1, service=FIXED)  # refuses unknown words
    if "arrivals" in given:
        Arrivals.parse(given["arrivals"])  # and code that the user has not named
    return made
