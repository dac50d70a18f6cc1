"""The stations of a placement: how its groups of workers become queues and their workers.

*One family.* The workers of one type that hold the same variants for one family are a station
with one queue. If a row of a value table is for ``together`` workers, each sub-fleet of that many
workers is a station.

*A duty cycle.* Workers that hold the same variants and run them in turn are one station with a
queue for each variant. Their latencies include the slow-down of the placement file.

*Side by side.* Processes of a variant on one worker, such as an instance of a GPU, are lanes: the
station has as many servers as its workers have processes, with the latencies of a batch while all
run.

*At once.* A variant that runs beside others on a part of a worker, as fast as alone, is a server
of its own.

Requests of a family are routed to stations at random, by the loads of the placement.

A station gets a policy for one central queue. If that promises clearly less than the fluid bound,
a policy for round robin with batches of any size is made, too, and the one that promises more is
taken: with small batches of fixed length round robin keeps workers as busy as a central queue
does. Both promises are measured (:mod:`ramsis.synthesis.replayed`): at 99 % of the capacity the
model of round robin is off by 0.003, that of a central queue for one worker by up to 0.035.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from placement_milp import Family, Problem, Variant, WorkerType
from placement_milp.feasible import latencies
from placement_milp.result import Group, Use
from ramsis.errors import InfeasibleError
from ramsis.policy import Policy
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.reprs import dataclass
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import Plan
from ramsis.sim.schedulers import Policies
from ramsis.synthesis.generate import generate_policy
from ramsis.synthesis.replayed import replayed
from ramsis.synthesis.settings import SynthesisSettings

_CLEARLY = 0.005  # of effective accuracy
_GRID = "fixed:100"


@dataclass(frozen=True, slots=True)
class StationUse:
    """How a station serves one family: its variants, batch and load."""

    family: Family
    variants: tuple[str, ...]
    # largest batch that the placement has it run; ``None`` under a value table's policy
    batch: int | None
    latency_ms: float | None  # of that batch, with the slow-down of sharing
    load_qps: float  # sent to the whole station, > 0
    rate_qps: float  # that the placement takes the whole station for
    # accuracy, in_time: what the placement promises of the requests that are sent here
    accuracy: float
    in_time: float


@dataclass(frozen=True, eq=False)
class PlacedStation:
    """Workers of one type with one queue for each use."""

    worker_type: str
    # names; with several processes each worker has a name for each, ``WORKER#1`` onwards
    workers: tuple[str, ...]
    uses: tuple[StationUse, ...]  # one, or those of a duty cycle
    at_once: bool  # whether it has only a part of each worker
    # the variants with their latencies here; in a duty cycle a model for each use, in order
    profile: ProfileSet
    max_batch: int  # largest batch that runs

    @property
    def name(self) -> str:
        """Worker type, number of workers and variants."""
        held = " | ".join("+".join(use.variants) for use in self.uses)
        return f"{len(self.workers)} {self.worker_type}: {held}"

    @property
    def load_qps(self) -> float:
        """Load that is sent to the station."""
        return sum(use.load_qps for use in self.uses)

    @property
    def utilisation(self) -> float:
        """Share of the time that the placement takes its workers to be busy."""
        busy = [use.load_qps / use.rate_qps for use in self.uses]
        if len(self.uses) == 1:
            return busy[0]
        cycle = sum(use.latency_ms or 0.0 for use in self.uses)
        return sum(b * (use.latency_ms or 0.0) / cycle
                   for b, use in zip(busy, self.uses, strict=True))


def placed_stations(problem: Problem, groups: Sequence[Group]) -> tuple[PlacedStation, ...]:
    """Return the stations to which a placement sends requests; refuse a placement without one."""
    stations: dict[object, PlacedStation] = {}
    for group in groups:
        for key, station in _of_group(problem, group):
            stations[key] = _joined(stations[key], station) if key in stations else station
    sent = tuple(station for station in stations.values() if station.load_qps > 0)
    if not sent:
        raise InfeasibleError("the placement sends nothing to any worker", where=problem.name)
    return sent


def _of_group(problem: Problem, group: Group) -> Iterator[tuple[object, PlacedStation]]:
    """Yield the stations of a group, each with a key; stations with equal keys are joined."""
    kind = next(item for item in problem.instance_types if item.name == group.worker_type)
    if any(use.batch is None for use in group.uses):  # a policy for every ``together`` workers
        for first in range(0, len(group.workers), group.together):
            workers = group.workers[first : first + group.together]
            yield (workers, None), _station(problem, kind, workers, group.uses, times=1,
                                            at_once=False)
    elif group.cycle_ms is None:
        for use in group.uses:
            part = len(group.uses) > 1
            yield ((kind.name, use.variants, use.batch, part),
                   _station(problem, kind, group.workers, (use,), times=len(group.workers),
                            at_once=part))
    else:
        held = tuple((use.variants, use.batch, use.processes) for use in group.uses)
        times = len(group.workers) // group.together
        yield (kind.name, held), _station(problem, kind, group.workers, group.uses, times=times,
                                          at_once=False)


def _joined(station: PlacedStation, other: PlacedStation) -> PlacedStation:
    """Join two stations whose workers are equally fast into one."""
    uses = tuple(replace(a, load_qps=a.load_qps + b.load_qps, rate_qps=a.rate_qps + b.rate_qps)
                 for a, b in zip(station.uses, other.uses, strict=True))
    return replace(station, workers=station.workers + other.workers, uses=uses)


def _station(
    problem: Problem, kind: WorkerType, workers: tuple[str, ...], uses: Sequence[Use],
    times: int, at_once: bool,
) -> PlacedStation:
    """Return the station of ``times`` workers or sub-fleets with the same uses.

    ``at_once`` says whether the station has only a part of each worker.
    """
    # Loads and rates of a placement are those of one worker, or of one sub-fleet.
    station_uses = tuple(
        StationUse(problem.family(use.family), use.variants, use.batch, use.latency_ms,
                   times * use.load_qps, times * use.rate_qps, use.accuracy, use.in_time)
        for use in uses)
    processes = uses[0].processes
    profile, max_batch = _profile(problem, kind, station_uses, processes)
    lanes = workers if processes == 1 else tuple(
        f"{worker}#{lane + 1}" for worker in workers for lane in range(processes))
    return PlacedStation(kind.name, lanes, station_uses, at_once, profile, max_batch)


def _profile(
    problem: Problem, kind: WorkerType, uses: tuple[StationUse, ...], processes: int
) -> tuple[ProfileSet, int]:
    """Return the profile of some uses' variants on a worker type, and the largest batch."""
    by_name = {variant.name: variant for variant in problem.variants}
    slo_ms = max(use.family.slo_ms for use in uses)
    listed = []
    for use in uses:
        for name in use.variants:
            entries = _listed(by_name[name], kind, processes,
                              alone=len(uses) == 1 and use.batch is not None)
            factor = (use.latency_ms or 0.0) / entries[use.batch] if use.batch else 1.0
            listed.append((by_name[name], {b: factor * ms for b, ms in entries.items()}))
    largest = max(max(entries) for _, entries in listed)
    models = tuple(_model(variant, entries, slo_ms) for variant, entries in listed)
    return ProfileSet(f"{problem.name}: {kind.name}", models), largest


def _listed(
    variant: Variant, kind: WorkerType, processes: int, *, alone: bool
) -> dict[int, float]:
    """Return a variant's latency by batch size; ``alone``: only batches that fit into memory."""
    return {entry.batch: entry.latency_ms for entry in latencies(variant, kind)
            if entry.processes == processes and (
                not alone or (entry.memory_mb or variant.memory_mb) <= kind.memory_mb)}


def _model(variant: Variant, entries: dict[int, float], slo_ms: float) -> ModelProfile:
    """Return a variant as a profiled model.

    Profiles need a batch of 1, which is padded to the smallest, and an end of the useful batches:
    one more that is always late.
    """
    padded = {1: entries[min(entries)], **entries}
    padded[max(padded) + 1] = 2.0 * slo_ms + max(padded.values())
    return ModelProfile(variant.name, variant.accuracy,
                        tuple(BatchProfile(b, p95_ms=ms) for b, ms in sorted(padded.items())))


def station_policies(
    stations: Sequence[PlacedStation], on_policy: Callable[[], object] | None = None
) -> tuple[Policy | None, ...]:
    """Generate a policy for each station with one use; ``None`` for a duty cycle.

    Like stations have the same policy.

    Parameters
    ----------
    on_policy : callable, optional
        Called after each station.
    """
    generated: dict[object, Policy] = {}
    policies: list[Policy | None] = []
    for station in stations:
        key = (station.profile.fingerprint, len(station.workers), station.load_qps)
        if len(station.uses) == 1 and key not in generated:
            generated[key] = _policy(station)
        policies.append(generated[key] if len(station.uses) == 1 else None)
        if on_policy is not None:
            on_policy()
    return tuple(policies)


def _policy(station: PlacedStation) -> Policy:
    """Generate a station's policy: central queue, or round robin where that promises more."""
    (use,) = station.uses
    settings = SynthesisSettings(use.family.slo_ms, len(station.workers), service="p95",
                                 dispatch="central-queue", max_queue=station.max_batch,
                                 headroom=0.0)
    central = generate_policy(station.profile, station.load_qps, settings)
    promised, bound = central.expectations.effective_accuracy, central.expectations.upper_bound
    if len(station.workers) == 1 or bound is None or bound - promised <= _CLEARLY:
        return central
    in_turn = SynthesisSettings(
        use.family.slo_ms, len(station.workers), service="p95", grid=_GRID, late="drop",
        batching="variable", violation_price=1.0, headroom=0.0)
    by_turns = replayed(generate_policy(station.profile, station.load_qps, in_turn))
    return by_turns if by_turns.expectations.effective_accuracy > promised else central


def station_fleet(station: PlacedStation, max_batch: int) -> Fleet:
    """Return a station's workers for simulation; the SLO is the longest of its families'."""
    slo_ms = max(use.family.slo_ms for use in station.uses)
    return Fleet.of(station.profile, workers=len(station.workers), slo_ms=slo_ms, service="p95",
                    max_batch=max_batch)


def station_plan(station: PlacedStation, policy: Policy) -> tuple[Fleet, Plan]:
    """Return a station's workers for simulation, and its policy ready to run on them."""
    policies = Policies((policy,), station.name)
    fleet = station_fleet(station, max(station.max_batch, policies.max_batch))
    return fleet, policies.prepare(fleet)
