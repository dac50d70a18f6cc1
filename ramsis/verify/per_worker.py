"""Independent, slower re-derivation of a per-worker policy file's claims.

The synthesis solves the worker's MDP on slack nodes. Here the MDP is written out in full (explicit
rows, four-interval sums). Then

- the file's table is compared with the decision problem: admissible choices, late states, batches;
- power iteration gives the stationary distribution of the table, hence every expectation;
- value iteration gives the optimal gain, which the policy's gain must reach;
- the fluid bound is computed from its dual, the minimum over y >= 0 of
  y + max(0, max_{m,b} accuracy(m) − y·p_{m,b}), where p_{m,b} is the share of the workers' time
  that serving every request by (m, b) would take. The dual is convex in y, so bisection by its
  slope finds the minimum.

Three kinds of policies differ:

- With shortest-queue dispatch, the table and its certificate are those of round robin. The rates
  depend on the routing, and are measured.
- A table for arrivals other than Poisson was planned for Poisson arrivals at a multiple of the
  load, and is derived for these. Its figures under its own arrivals are measured.
- A table with headroom was planned for longer service times. Its choices and its certificate are
  checked at these times, its figures derived at the profiled times.

A claim holds if it is within the tolerance of the derived figure. The file's quadrature alone
causes errors of about 1e-6 at D = 100, and much larger ones in overload with a small table. So
some tolerances are wider:

- distributions, shares of the models, utilisation, and everything in overload: ten times;
- a gain, which also changes with the violations at their price p: 1 + p times, and where more than
  a few requests are late, its difference from the measured gain;
- the accuracy of the requests in time, if at most 1 in 100 is in time;
- utilisation and full queues in overload: a few per cent, as requests beyond the table are counted
  only roughly.

Figures of a policy within a budget of violations are measured (:mod:`ramsis.verify.budget`). The
rest of the certificate, the computed figures that such a policy states, and everything in overload
are also compared, to the tolerance itself, with a fresh solution by the file's solver
(:mod:`ramsis.verify.solved_again`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ramsis.analysis import WorkerAnalysis, analyse_worker
from ramsis.analysis.worker import OVERLOAD_VIOLATION_RATE
from ramsis.arrays import IntArray
from ramsis.errors import InputFileError, InvalidValueError, check_known
from ramsis.mdp.result import Certificate
from ramsis.mdp.stationary import power_iteration, stationary_distribution
from ramsis.policy import CertificateRecord, Expectations, Policy, Spread
from ramsis.runtime.table import AS_LAST_CODE, DROP_CODE
from ramsis.synthesis.recipes import problem_of
from ramsis.synthesis.recipes.per_worker import certificate_of
from ramsis.synthesis.recipes.recipe import bounded_by
from ramsis.verify.budget import budget_checks
from ramsis.verify.checks import Check, close, interval_checks, least_dual
from ramsis.verify.replay import not_measured_checks, replay_checks
from ramsis.verify.solved_again import certificate_checks, rate_checks, solved_again_checks
from ramsis.worker.problem import Objective, WorkerProblem
from ramsis.worker.problem.actions import LateRule
from ramsis.worker.solve import SOLVERS, evaluate_table, solve_worker

if TYPE_CHECKING:
    from ramsis.worker.explicit import ExplicitWorkerMDP

_LOOSER = 10.0  # factor on the tolerance, see the module's text
_BEYOND_THE_TABLE = 0.05  # tolerance of utilisation and full queues in overload
_POWER_STEPS = 2_000
_BELOW_ANALYSIS = 1e-3  # by which simulated effective accuracy may be below the analysis
_FEW_VIOLATIONS = 0.002  # violation rate above which the analysis is too inexact to compare


def worker_claims(policy: Policy, where: str, tolerance: float) -> tuple[Check, ...]:
    """Check every claim of a policy file, which ``where`` names, against its problem."""
    problem: WorkerProblem = problem_of(policy, where)
    check_known("unknown solver", policy.certificate.solver, SOLVERS,
                f"{where}: certificate.solver", InputFileError)
    plan = problem if policy.planned_factor == 1.0 else problem.slower(
        policy.planned_factor, problem.slack_ms)
    again, certificate = _solved_again(policy, problem, plan)
    table = _table_check(policy, plan)
    # The rest is derived from the table's choices, which must be admissible.
    if not table.holds:
        return (table,)
    bound, capacity = _dual_bound(policy, problem)
    bounds = (
        close("upper bound", policy.expectations.upper_bound, bound, tolerance),
        close("capacity (QPS)", policy.expectations.capacity_qps, capacity, 1e-6 * capacity),
        Check("effective accuracy within the bound", policy.expectations.effective_accuracy,
              bound, policy.expectations.effective_accuracy <= bound + tolerance),
    )
    if policy.budget is not None:
        return (table, _overflow_check(policy, problem),
                *budget_checks(policy, again.expectations().interval),
                *replay_checks(policy),
                *bounds,
                close("gain", policy.certificate.gain, certificate.gain, tolerance),
                *certificate_checks(policy.certificate, certificate, tolerance))
    analysis, proofs = _memoryless(problem, plan, policy, tolerance)
    derived = analysis.expectations(capacity_qps=capacity, upper_bound=bound)
    again_checks = [close("gain, again", policy.certificate.gain, certificate.gain, tolerance),
                    *certificate_checks(policy.certificate, certificate, tolerance)]
    if policy.replay is None and derived.overloaded:
        again_checks += solved_again_checks(
            policy.expectations, again.expectations(capacity_qps=capacity, upper_bound=bound),
            tolerance)
    # The checks above compare figures of the same solver; those below may differ more in overload.
    if derived.overloaded:
        tolerance *= _LOOSER
    return (
        table,
        _overflow_check(policy, problem),
        *(_measured_checks(policy, derived) if policy.replay is not None
          else _modelled_checks(policy.expectations, analysis, derived, tolerance)),
        *not_measured_checks(policy),
        *interval_checks(policy.expectations, derived.interval, tolerance, policy.replay),
        *proofs,
        *bounds,
        *again_checks,
    )


def _solved_again(
    policy: Policy, problem: WorkerProblem, plan: WorkerProblem
) -> tuple[WorkerAnalysis, CertificateRecord]:
    """Solve a file's problem again with the solver that it names.

    ``problem`` has the profiled service times, ``plan`` those that the policy is planned for.
    """
    solver: Any = policy.certificate.solver
    try:
        solution = solve_worker(plan, solver)
    except InvalidValueError as error:
        raise InputFileError(str(error)) from error
    frequency = solution if plan is problem else evaluate_table(problem, solution.policy)
    analysis = analyse_worker(problem, solution.policy, frequency.frequency, frequency.excess)
    return analysis, certificate_of(solution)


def _measured_checks(policy: Policy, derived: Expectations) -> list[Check]:
    """Check measured figures; for Poisson arrivals the analysis is a lower bound.

    It rounds slack down. For batch arrivals it may still be above what is measured, by 0.003.
    """
    checks = list(replay_checks(policy))
    assert policy.replay is not None
    stated, least = policy.expectations.effective_accuracy, derived.effective_accuracy
    poisson = policy.arrivals["process"] == "poisson"
    if poisson and policy.rule.in_turn and derived.violation_rate <= _FEW_VIOLATIONS:
        spare = _BELOW_ANALYSIS + 2.0 * policy.replay.effective_half_width
        checks.append(Check("effective accuracy at least that of the analysis", stated, least,
                            stated >= least - spare))
    return checks


def _modelled_checks(
    stated: Expectations, analysis: WorkerAnalysis, derived: Expectations, tolerance: float
) -> list[Check]:
    """Check computed figures, which a file states where they cannot be measured."""
    loose = _LOOSER * tolerance
    near = abs(derived.violation_rate - OVERLOAD_VIOLATION_RATE) <= tolerance
    busy = max(loose, _BEYOND_THE_TABLE) if derived.overloaded else loose
    return [*rate_checks(stated, derived, tolerance, busy=busy, shares=loose, near=near),
            *_spread_checks(stated, analysis, loose)]


def _table_check(policy: Policy, problem: WorkerProblem) -> Check:
    """Check that all entries of the table are admissible; figures are shares of entries."""
    share = float(np.mean(problem.admissible(_table(problem, policy))[:-1]))
    return Check("table entries that the model allows", 1.0, share, share == 1.0)


def _table(problem: WorkerProblem, policy: Policy) -> IntArray:
    """Return the file's table in the problem's action codes."""
    model, batch = policy.model_and_batch()
    return problem.policy_of(model[0], batch[0])


def _overflow_check(policy: Policy, problem: WorkerProblem) -> Check:
    """Check that queues beyond the table are handled as the stated figures assume.

    If late requests are served, the fastest model has to serve such a queue. Under the late rule
    ``drop`` the queue has to be treated like one of the last level, or its earliest request has to
    be dropped, as the decision problem assumes.
    """
    if problem.late is LateRule.DROP:
        code = policy.longer_queue
        return Check("overflow as the last level", float(AS_LAST_CODE), float(code),
                     code in (AS_LAST_CODE, DROP_CODE))
    model, batch = (policy.actions[policy.longer_queue].tolist() if policy.longer_queue >= 0
                    else (0, 0))
    fastest = problem.latency.fastest
    holds = model == fastest and batch >= problem.max_queue
    return Check("overflow model", float(model), float(fastest), holds)


def _memoryless(
    problem: WorkerProblem, plan: WorkerProblem, policy: Policy, tolerance: float
) -> tuple[WorkerAnalysis, list[Check]]:
    """Re-derive the table's figures; check its gain and the optimum against the certificate.

    Where more than a few requests are late, the computed gain may be off by as much as it differs
    from the measured one: the tolerance is widened by this difference.
    """
    # Imported here: loading their compiled loops takes longer than making a policy.
    from ramsis.mdp._value_iteration import value_iteration
    from ramsis.worker.explicit import build_explicit

    explicit = build_explicit(problem)
    analysis, gain = _stationary(explicit, policy)
    derived = analysis.expectations()
    planned_gain = gain
    if plan is not problem:
        explicit = build_explicit(plan)
        planned_gain = _stationary(explicit, policy)[1]
    optimum = value_iteration(explicit.mdp, tolerance=tolerance / 100)
    tolerance *= (_LOOSER if derived.overloaded else 1.0) * (1.0 + policy.violation_price)
    if (derived.violation_rate > _FEW_VIOLATIONS and policy.replay is not None
            and problem.objective is Objective.PER_QUERY):
        stated = policy.expectations
        measured = stated.effective_accuracy - policy.violation_price * stated.violation_rate
        tolerance += abs(measured - gain)
    return analysis, [close("gain", policy.certificate.gain, planned_gain, tolerance),
                      *_gain_checks(policy, optimum.certificate, tolerance)]


def _stationary(
    explicit: ExplicitWorkerMDP, policy: Policy
) -> tuple[WorkerAnalysis, float]:
    """Compute figures and gain of the file's table by power iteration on explicit rows.

    The gain is the mean reward divided by the mean cost of a step, (share · reward) / (share ·
    costs).
    """
    table = _table(explicit.problem, policy)
    rows = explicit.mdp.pairs_of(explicit.labels(table))
    chain = explicit.mdp.transition[rows]
    start = np.zeros(explicit.mdp.n_states)
    # The empty system; it selects the closed class if rounding splits the chain into several.
    start[0] = 1.0
    solution = power_iteration(chain, max_iterations=_POWER_STEPS, start=start)
    if not solution.converged:  # the chain mixes slowly
        solution = stationary_distribution(chain, start=start)
    share = solution.distribution
    gain = float(share @ explicit.mdp.reward[rows]) / float(share @ explicit.mdp.costs[rows])
    return analyse_worker(explicit.problem, table, explicit.visits(share, rows),
                          float(share @ explicit.excess[rows])), gain


def _spread_checks(
    stated: Expectations, analysis: WorkerAnalysis, tolerance: float
) -> list[Check]:
    """Check means, with a tolerance relative to the largest value, and quantiles."""
    checks = []
    for name, (values, probabilities) in analysis.distributions().items():
        claimed: Spread = getattr(stated, name)
        what = name.removesuffix("_ms").replace("_", " ")
        mean = float(values @ probabilities)
        checks.append(close(f"mean {what}", claimed.mean, mean, tolerance * values[-1]))
        upto = np.cumsum(probabilities)
        for level, value in ((0.5, claimed.p50), (0.99, claimed.p99)):
            below = float(probabilities[values < value].sum())
            within = float(probabilities[values <= value].sum())
            quantile = float(values[min(int(np.searchsorted(upto, level)), len(values) - 1)])
            checks.append(
                Check(f"{what} p{100 * level:.0f}", value, quantile,
                      level - within <= tolerance and below - level <= tolerance)
            )
    return checks


def _gain_checks(
    policy: Policy, optimum: Certificate, tolerance: float
) -> list[Check]:
    """Check that the stated gain is optimal in this model, and that its bounds are valid."""
    stated = policy.certificate
    upper = stated.gain if stated.gain_upper is None else stated.gain_upper
    lower = stated.gain if stated.gain_lower is None else stated.gain_lower
    return [
        Check("gain against the optimum", stated.gain, optimum.upper_bound,
              stated.gain >= optimum.lower_bound - tolerance),
        Check("stated upper bound on the gain", upper, optimum.lower_bound,
              upper >= optimum.lower_bound - tolerance),
        Check("stated lower bound on the gain", lower, optimum.upper_bound,
              lower <= optimum.upper_bound + tolerance),
    ]


def _dual_bound(policy: Policy, problem: WorkerProblem) -> tuple[float, float]:
    """Return the fluid bound and the capacity in requests per second from the dual."""
    times = bounded_by(problem)
    service_ms = times.mean_ms[:, : problem.max_queue]
    in_time = times.cdf(problem.slo_ms)[:, : problem.max_queue]
    usable = in_time > 0.0
    reward = (problem.latency.accuracy[:, None] * in_time)[usable]
    rate = (np.arange(1, problem.max_queue + 1) / service_ms)[usable]
    capacity = 1000.0 * policy.workers * float(rate.max())
    price = policy.load_qps / (1000.0 * policy.workers * rate)
    return least_dual(reward, price), capacity
