"""Fleet policies: from a profile to a policy file, and back from the file to its problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ramsis import __version__
from ramsis.bounds import fluid_bound
from ramsis.cluster.checks import check_reachable
from ramsis.cluster.service_times import DISTRIBUTION, ServiceTimes, carries_quantiles
from ramsis.cluster.slo_class import SloClass, merged_classes
from ramsis.errors import InputFileError, InvalidValueError, NotConvergedError, describe
from ramsis.files import fingerprint
from ramsis.policy import (
    SERVICES,
    CertificateRecord,
    Expectations,
    Inputs,
    Policy,
    PolicyModel,
)
from ramsis.profiles import ProfileSet
from ramsis.profiles.file import to_document
from ramsis.runtime.table import DROP_CODE
from ramsis.synthesis.settings import check_budget
from ramsis.synthesis.simulated import SETTLES, simulated
from ramsis.worker.problem import MAX_QUEUE

if TYPE_CHECKING:  # at run time where they are used: their compiled loops take long to load
    from ramsis.central.problem import FleetProblem
    from ramsis.central.solve import FleetSolution

__all__ = ["FleetSettings", "fleet_expectations_of", "fleet_policy", "fleet_problem",
           "fleet_problem_of"]

CENTRAL_QUEUE = "central-queue"

_QUERIES, _RUNS = 100_000, 4  # of the simulation that a policy is replayed in
_NO_MATTER = 6e-4  # of accuracy that may be missing there
_MOST_QUERIES = 2e6  # of a run until the fleet has settled; longer ones take too long

@dataclass(frozen=True)
class FleetSettings:
    """Settings shared by all load levels of a fleet policy set.

    Attributes
    ----------
    slo_ms : float
        Deadline of a request after its arrival.
    workers : int
        Workers K that take from the central queue.
    service : str, optional
        ``p95``, ``p99``, ``mean`` or ``distribution``; by default the distribution where the
        profile carries quantiles of every batch, else p95.
    violation_price : float
        What a query that is late or dropped costs, in units of accuracy, >= 0. At 1, the default,
        a violation takes away as much as a perfect answer brings, on top of the answer that is
        missing: where all queries can be answered, all are. At 0 effective accuracy alone counts,
        and in overload queries are given up so that the others get better answers.
    grid : str, optional
        Slack bins: ``fixed:D`` or ``model`` (the distinct latencies); by default ``model`` for a
        statistic, ``fixed:60`` for the distribution.
    max_batch : int
        Largest batch.
    classes : tuple of SloClass
        Where queries have several SLOs: two or more by rising SLO, ``slo_ms`` the last one's,
        shares that sum to 1. Else none.
    max_violation : float, optional
        Budget of violations, in (0, 1]: the price is found at which the policy is the most
        accurate one whose violation rate stays within it; see :mod:`ramsis.synthesis.budget`.

    Raises
    ------
    InvalidValueError
        An unknown word, a largest batch out of range, or classes that do not fit. Other numbers
        are checked where they are used.
    """

    slo_ms: float
    workers: int
    service: str | None = None
    violation_price: float = 1.0
    grid: str | None = None
    max_batch: int = 32
    classes: tuple[SloClass, ...] = ()
    max_violation: float | None = None

    def __post_init__(self) -> None:
        if self.service is not None and self.service not in SERVICES:
            raise InvalidValueError(describe("unknown service", where="service",
                                             value=self.service,
                                             allowed=", ".join(SERVICES)))
        if not 1 <= self.max_batch <= MAX_QUEUE:
            raise InvalidValueError(describe("largest batch is out of range", where="max_batch",
                                             value=self.max_batch,
                                             allowed=f"a whole number from 1 to {MAX_QUEUE}"))
        if self.classes and (len(self.classes) < 2 or self.classes[-1].slo_ms != self.slo_ms
                             or merged_classes(self.classes) != self.classes):
            raise InvalidValueError(describe("not two or more rising SLOs up to slo_ms",
                                             where="classes", value=self.classes))
        self.steps()
        check_budget(self.max_violation)

    def steps(self) -> int | None:
        """Number of equal slack bins; None for the distinct latencies, or by default."""
        if self.grid is None or (self.grid == "model" and self.service != DISTRIBUTION):
            return None
        kind, _, count = self.grid.partition(":")
        if kind != "fixed" or not count.isdecimal() or not 2 <= int(count) <= 1000:
            raise InvalidValueError(
                describe("not a slack grid of a fleet", where="grid", value=self.grid,
                         allowed="fixed:D with D from 2 to 1000, or model for a statistic"))
        return int(count)

    def chosen_service(self, profile: ProfileSet) -> str:
        """The service times for a profile."""
        if self.service is not None:
            return self.service
        return DISTRIBUTION if carries_quantiles(profile) else "p95"

    def as_dict(self) -> Mapping[str, Any]:
        """The settings as plain JSON values, the same for 100 and 100.0 ms."""
        known = {**asdict(self), "scheme": "fleet", "slo_ms": float(self.slo_ms),
                 "violation_price": float(self.violation_price)}
        if not self.classes:
            del known["classes"]
        if self.max_violation is None:
            del known["max_violation"]
        return known


def fleet_problem(
    profile: ProfileSet, load_qps: float, settings: FleetSettings
) -> FleetProblem:
    """The decision problem that the fleet policy for a load solves.

    Raises
    ------
    InvalidValueError
        A number out of range.
    InfeasibleError
        An SLO below every latency.
    """
    law = ServiceTimes.of(profile, settings.chosen_service(profile), settings.max_batch)
    from ramsis.central.classes import ClassesProblem
    from ramsis.central.problem import FleetProblem

    problem = FleetProblem.create(
        law.without_late(settings.slo_ms), slo_ms=settings.slo_ms, workers=settings.workers,
        load_qps=load_qps, price=settings.violation_price, steps=settings.steps(),
    )
    if not settings.classes:
        return problem
    check_reachable([law], settings.classes)
    return ClassesProblem.of(problem, settings.classes)


def fleet_policy(
    profile: ProfileSet, problem: FleetProblem, settings: FleetSettings
) -> Policy:
    """The best fleet policy of a problem, with its promise and certificate.

    The policy of several workers is replayed in simulation, but for fleets so large that this
    would take millions of queries. Where it earns less there than it promises, batches do not
    end as evenly as the model has it. Then another is made for batches that end at random,
    and the one that earns more in simulation is the answer.

    Raises
    ------
    NotConvergedError
        The solver did not come to rest, or met a policy that it could not evaluate.
    """
    made = _solved(profile, problem, settings)
    if problem.workers == 1 or problem.load * problem.slo_ms * SETTLES > _MOST_QUERIES:
        return made
    earned, error = _in_simulation(made)
    if earned >= made.certificate.gain - error:
        return made
    try:
        other = _solved(profile, replace(problem, uneven=True), settings)
    except NotConvergedError:
        return made
    return other if _in_simulation(other)[0] > earned else made


def _in_simulation(policy: Policy) -> tuple[float, float]:
    """The gain in simulation, and what it may err by."""
    found = simulated(policy, queries=_QUERIES, runs=_RUNS, seed=0)
    gain = found.effective_accuracy - policy.violation_price * found.violation_rate
    return gain, max(found.effective_half_width, _NO_MATTER)


def _solved(
    profile: ProfileSet, problem: FleetProblem, settings: FleetSettings
) -> Policy:
    """The policy that is optimal in the model."""
    expectations, solution = fleet_expectations_of(problem)
    totals, law = solution.totals, problem.law
    return Policy(
        models=tuple(_model(law, m) for m in range(len(law.models))),
        slo_ms=problem.slo_ms,
        workers=problem.workers,
        load_qps=problem.load_qps,
        service=law.service,
        arrivals={"process": "poisson"},
        dispatch=CENTRAL_QUEUE,
        batching="variable",
        late="drop",
        objective="per-query",
        idle_levels=problem.idle,
        queue_levels=problem.queue,
        slack_ms=problem.slack_ms,
        actions=np.stack([problem.option_model, problem.option_batch], axis=1),
        codes=solution.table.astype(np.int64),
        longer_queue=DROP_CODE,
        expectations=expectations,
        certificate=CertificateRecord(
            solver="policy-iteration", converged=True, iterations=solution.rounds,
            bellman_residual=solution.residual, gain=totals.gain, gain_lower=None,
            gain_upper=expectations.upper_bound, truncated_mass=totals.restart,
        ),
        inputs=Inputs(
            profile=fingerprint(to_document(profile)), profile_name=profile.name,
            settings=fingerprint(settings.as_dict()),
        ),
        created_by=f"ramsis {__version__}",
        violation_price=problem.price,
        slo_classes=problem.classes,
        spare_idle=solution.spare_idle,
        random_ends=problem.uneven,
    )


def _model(law: ServiceTimes, m: int) -> PolicyModel:
    """A model with the batches that may be in time."""
    rows = law.quantiles_ms[m]
    rows = rows[np.isfinite(rows).all(axis=1)]
    means = np.maximum.accumulate(rows.mean(axis=1))
    drawn = law.service == DISTRIBUTION
    return PolicyModel(
        law.models[m], float(law.accuracy[m]),
        tuple((means if drawn else rows[:, 0]).tolist()),
        quantiles_ms=tuple(tuple(row) for row in rows.tolist()) if drawn else None)


def fleet_expectations_of(
    problem: FleetProblem
) -> tuple[Expectations, FleetSolution]:
    """What the best policy promises, and the solution that it comes from."""
    from ramsis.analysis.fleet import fleet_expectations
    from ramsis.central.solve import solve_fleet

    solution = solve_fleet(problem)
    bound = fluid_bound(problem.law, slo_ms=problem.slo_ms, workers=problem.workers,
                        load_qps=problem.load_qps, max_batch=problem.law.max_batch)
    most = bound.effective_accuracy
    if problem.classes:
        most = fluid_bound(problem.law, slo_ms=problem.classes, workers=problem.workers,
                           load_qps=problem.load_qps).effective_accuracy
    expectations = fleet_expectations(problem, solution.totals, capacity_qps=bound.capacity_qps,
                                      upper_bound=most)
    return expectations, solution


def fleet_problem_of(policy: Policy, where: str = "policy") -> FleetProblem:
    """The problem that a fleet policy's file describes; ``where`` names the file in messages.

    Raises
    ------
    InputFileError
        Its arrivals are not Poisson.
    """
    from ramsis.central.classes import ClassesProblem
    from ramsis.central.problem import FleetProblem

    if policy.arrivals_label != "poisson":
        raise InputFileError(describe("no fleet problem for this arrival process",
                                      where=f"{where}: arrivals", value=policy.arrivals_label,
                                      allowed="poisson"))
    law = ServiceTimes(tuple(model.name for model in policy.models), policy.accuracy,
                     policy.service_ms, policy.service)
    problem = FleetProblem(
        law=law, slo_ms=policy.slo_ms, workers=policy.workers, load=policy.load_qps / 1000.0,
        price=policy.violation_price, option_model=policy.actions[:, 0].copy(),
        option_batch=policy.actions[:, 1].copy(), slack_ms=policy.slack_ms.copy(),
        idle=policy.idle_levels.copy(), queue=policy.queue_levels.copy(),
        uneven=policy.random_ends,
    )
    return ClassesProblem.of(problem, policy.slo_classes) if policy.slo_classes else problem
