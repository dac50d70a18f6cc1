"""Schedulers as texts name them; policies are made for each cluster.

Policies are called by how requests reach the workers. The settings of ``ramsis generate`` follow a
colon, as in ``round-robin:grid=fixed:10,max_queue=16``, ``central-queue:violation_price=0`` and
``round-robin:paper``, which is what the EuroSys '24 paper does. Everything else is a scheduler of
:mod:`ramsis.sim`, as ``ramsis simulate --scheduler`` takes it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from ramsis.arrivals import Arrivals
from ramsis.arrivals.recorded import PROCESS as TRACE
from ramsis.arrivals.registry import arrivals_of
from ramsis.cluster import Cluster
from ramsis.cluster.routing import split
from ramsis.cluster.service_times import FIXED
from ramsis.errors import InvalidValueError, whole
from ramsis.files import canonical_json
from ramsis.policy import DISPATCHES, PolicySet
from ramsis.runtime.monitor import WINDOW_MS
from ramsis.settings import setting, settings_of
from ramsis.sim import (
    SCHEDULERS,
    ConstantLoad,
    FleetScheduler,
    Policies,
    RateTrace,
    Recorded,
    Workload,
    scheduler,
)
from ramsis.sim.registry import SchedulerSpec
from ramsis.sim.workload import Burst
from ramsis.synthesis.generate import check_measurable
from ramsis.synthesis.settings import SynthesisSettings, as_in_the_paper
from ramsis.synthesis.stations import ClusterProblem, set_header

POISSON = "poisson"
DEFAULT_LEVELS = 30
"""Load levels up to a trace's peak."""

_PAPER = "paper"
_KNOWN = SCHEDULERS.also(dict.fromkeys(DISPATCHES, Policies))  # by name
_SAME = {("central-queue", "max_batch"): "max_queue"}  # other names of settings, by dispatch
_NOT_OF_SCHEDULERS = ("slo_ms", "workers", "slo_classes", "dispatch", "slowness")
_SPREAD = 4.0  # standard deviations of the load monitor's reading that levels reach beyond
_WINDOW_S = WINDOW_MS / 1000.0


class Ready(NamedTuple):
    """Scheduler that can be simulated, with its policies where these were made."""

    spec: FleetScheduler
    policies: Policies | None


@dataclass(frozen=True)
class ComparedScheduler:
    """Scheduler as a text names it: one of :mod:`ramsis.sim`, or policies to be made."""

    name: str  # as in results; of policies one of :data:`ramsis.policy.DISPATCHES`
    spec: FleetScheduler | None = None  # the scheduler to simulate; None where policies are made
    given: Mapping[str, Any] = field(default_factory=dict)  # settings of the policies
    levels: int = setting(DEFAULT_LEVELS, "Load levels for a trace.",
                          rule=whole(2)._replace(wrong="not a number of levels"))

    @property
    def makes_policies(self) -> bool:
        """Whether policies are made, which promise something and improve with more workers."""
        return self.spec is None

    def settings(
        self, *, slo_ms: float, workers: int, service: str, arrivals: str = POISSON
    ) -> SynthesisSettings:
        """Return the settings of the policies for a cluster.

        Unless the text names others, policies are made from ``service`` and for ``arrivals``, as
        in the simulation.
        """
        if self.spec is not None:
            return SynthesisSettings(slo_ms, workers)
        return SynthesisSettings(**{"slo_ms": slo_ms, "workers": workers, "service": service,
                                    "arrivals": arrivals, "dispatch": self.name, **self.given})

    @property
    def largest_batch(self) -> int:
        """Largest batch that the scheduler asks of workers; 1 for policies without a limit."""
        if self.spec is not None:
            return self.spec.max_batch
        if "max_queue" not in self.given:
            return 1
        return self.settings(slo_ms=1.0, workers=1, service=FIXED).largest_batch

    def loads(self, trace: RateTrace) -> tuple[float, ...]:
        """Return equally spaced loads that cover the readings of the load monitor on a trace.

        The monitor counts over half a second, so its reading of a Poisson load λ has the standard
        deviation √(2λ). The range of loads is from four of these below the lowest rate to four
        above the highest. Of ``levels`` equal steps from 0 to the top of this range, those below
        the range are left out, but for the last. Without policies there are no loads.
        """
        if self.spec is not None:
            return ()
        busy = trace.rate_qps[trace.rate_qps > 0]
        return self._levels_between(float(busy.min()), float(busy.max()))

    def loads_for(self, workload: Workload) -> tuple[float, ...]:
        """Return the loads to make policies for: a constant load, else levels that cover it."""
        if self.spec is not None:
            return ()
        if isinstance(workload, RateTrace) and workload.varies:
            return self.loads(workload)
        if isinstance(workload, Recorded):
            return self._levels_between(0.0, workload.peak_qps)
        if workload.load_qps is None:
            raise InvalidValueError("no policies can be made: the load is not known",
                                    where="workload", value=workload)
        return (workload.load_qps,)

    def ready(
        self, cluster: Cluster, loads_qps: Sequence[float], *, service: str, source: str,
        arrivals: str = POISSON, on_level: Callable[[], object] | None = None,
    ) -> Ready:
        """Return the scheduler ready to be simulated on a cluster, its policies made.

        There are levels of policies for ``loads_qps``, made from the service times and for the
        ``arrivals`` of the simulation where the text names no others; ``source`` names the
        policies in messages.
        """
        if self.spec is not None:
            return Ready(self.spec, None)
        problem = ClusterProblem(cluster, self.settings(
            slo_ms=cluster.slo_ms, workers=cluster.workers, service=service, arrivals=arrivals))
        levels = []
        for load_qps in loads_qps:
            levels.append(problem.level(load_qps))
            if on_level is not None:
                on_level()
        policies = Policies(PolicySet(levels, *set_header(cluster)), source)
        return Ready(policies, policies)

    def document(
        self, loads_qps: Sequence[float], *, slo_ms: float, workers: int, service: str,
        arrivals: str,
    ) -> dict[str, Any]:
        """Return everything about the scheduler that results depend on, as JSON values."""
        if self.spec is not None:
            return scheduler_document(self.spec)
        settings = self.settings(slo_ms=slo_ms, workers=workers, service=service,
                                 arrivals=arrivals)
        return {"name": self.name, "settings": settings_document(settings),
                "loads": list(loads_qps)}

    def _levels_between(self, low_qps: float, high_qps: float) -> tuple[float, ...]:
        """Return the loads to make policies for, between a lowest and a highest load."""
        top = high_qps + _SPREAD * math.sqrt(high_qps / _WINDOW_S)
        bottom = low_qps - _SPREAD * math.sqrt(low_qps / _WINDOW_S)
        step = top / self.levels
        return tuple(float(f"{step * i:.6g}") for i in range(1, self.levels + 1)
                     if step * (i + 1) > bottom)


def planned_arrivals(workload: Workload, slo_ms: float, *, divided: bool) -> str:
    """Return the arrival process that policies for a workload are made for, by its text.

    ``slo_ms`` is the longest SLO; ``divided`` tells whether stations may share the requests, as
    in every cluster that is not simple.

    It is that of a constant load, and Poisson on a trace, whose loads change. It is Poisson, too,
    where no promise under the process can be made: several stations would each need a share of a
    process that is not split at random, its bursts come too seldom, or its text does not say what
    it is, as with parameters of a user's own process.
    """
    if isinstance(workload, Burst):
        return planned_arrivals(workload.workload, slo_ms, divided=divided)
    if not isinstance(workload, ConstantLoad):
        return POISSON
    arrivals = arrivals_of(workload.arrivals)
    try:
        if Arrivals.parse(arrivals.text) != arrivals:
            return POISSON
        check_measurable(SynthesisSettings(slo_ms, 1, arrivals=arrivals.text), workload.load_qps)
        if divided:
            split(arrivals(workload.load_qps), share=0.5)
    except InvalidValueError:
        return POISSON
    return arrivals.text


def settings_document(settings: SynthesisSettings) -> dict[str, Any]:
    """Return the settings that a policy depends on as JSON values; equal for 100 and 100.0 ms."""
    document: dict[str, Any] = json.loads(
        canonical_json({**asdict(settings), **settings.as_dict()}))
    return {**document, "arrivals": arrivals_document(settings.arrivals)}


def arrivals_document(text: str) -> Any:
    """Return an arrival process as JSON values: a recorded one by the contents of its file."""
    return dict(Arrivals.parse(text).parameters) if text.startswith(f"{TRACE}:") else text


def scheduler_document(spec: FleetScheduler) -> dict[str, Any]:
    """Return a scheduler's name and parameters, without the folder of its files."""
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
    ComparedScheduler(name='central-queue', spec=None, given={'violation_price': 0.0}, levels=8)
    """
    name, _, parameters = text.partition(":")
    if name not in DISPATCHES:
        spec = scheduler(text, _KNOWN, error=InvalidValueError).of_fleets
        return ComparedScheduler(spec.name, spec)
    values: dict[str, Any] = {}
    paper = False
    declared = {**settings_of(ComparedScheduler), **dict(sorted(
        (key, option) for key, option in settings_of(SynthesisSettings).items()
        if key not in _NOT_OF_SCHEDULERS))}
    # Split at commas before a parameter; others belong to a value, such as that of ``arrivals``.
    names = "|".join((*declared, "max_batch"))
    for part in filter(None, re.split(rf",(?=(?:{names})=|{_PAPER}(?:,|$))", parameters)):
        if part == _PAPER:
            paper = True
            continue
        key, equals, value = part.partition("=")
        key = _SAME.get((name, key), key)
        if not (equals and value) or key in values or key not in declared:
            raise InvalidValueError("not a parameter of the scheduler", where=name, value=part,
                                    allowed=", ".join((*declared, _PAPER)))
        values[key] = declared[key].read(value, f"{name}: {key}")
    levels = values.pop("levels", DEFAULT_LEVELS)
    if paper:
        values = as_in_the_paper(values)
    policies = ComparedScheduler(name, given=values, levels=levels)
    policies.settings(slo_ms=1.0, workers=1, service=FIXED)  # refuses unknown words
    if "arrivals" in values:
        Arrivals.parse(values["arrivals"])  # refuses unknown processes
    return policies
