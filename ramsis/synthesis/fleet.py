"""Fleet policies: from a profile to a policy file, and back from the file to its problem."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ramsis import __version__
from ramsis.bounds import fluid_bound
from ramsis.cluster.checks import check_reachable
from ramsis.cluster.service_times import DISTRIBUTION, ServiceTimes
from ramsis.errors import InputFileError, NotConvergedError, describe
from ramsis.files import fingerprint
from ramsis.policy import (
    CertificateRecord,
    Expectations,
    Inputs,
    Policy,
    PolicyModel,
)
from ramsis.profiles import ProfileSet
from ramsis.profiles.file import to_document
from ramsis.runtime.table import DROP_CODE
from ramsis.synthesis.settings import SynthesisSettings
from ramsis.synthesis.simulated import SETTLES, simulated

if TYPE_CHECKING:  # at run time where they are used: their compiled loops take long to load
    from ramsis.central.problem import FleetProblem
    from ramsis.central.solve import FleetSolution

__all__ = ["fleet_expectations_of", "fleet_policy", "fleet_problem", "fleet_problem_of"]

CENTRAL_QUEUE = "central-queue"

_QUERIES, _RUNS = 100_000, 4  # of the simulation that a policy is replayed in
_NO_MATTER = 6e-4  # of accuracy that may be missing there
_MOST_QUERIES = 2e6  # of a run until the fleet has settled; longer ones take too long


def fleet_problem(
    profile: ProfileSet, load_qps: float, settings: SynthesisSettings
) -> FleetProblem:
    """The decision problem that the fleet policy for a load solves.

    Raises
    ------
    InvalidValueError
        A number out of range.
    InfeasibleError
        An SLO below every latency.
    """
    law = ServiceTimes.of(profile, settings.chosen_service(profile), settings.max_queue)
    from ramsis.central.classes import ClassesProblem
    from ramsis.central.problem import FleetProblem

    problem = FleetProblem.create(
        law.without_late(settings.slo_ms), slo_ms=settings.slo_ms, workers=settings.workers,
        load_qps=load_qps, price=settings.violation_price, steps=_steps(settings.grid),
    )
    if not settings.slo_classes:
        return problem
    check_reachable([law], settings.slo_classes)
    return ClassesProblem.of(problem, settings.slo_classes)


def _steps(grid: str | None) -> int | None:
    """Number of equal slack bins; None for the default of the service times."""
    return int(grid.partition(":")[2]) if grid and grid != "model" else None


def fleet_policy(
    profile: ProfileSet, problem: FleetProblem, settings: SynthesisSettings
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
    profile: ProfileSet, problem: FleetProblem, settings: SynthesisSettings
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
