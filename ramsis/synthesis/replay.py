"""Back from a policy file: the worker problem it was made from, and its stationary behaviour."""

from __future__ import annotations

import numpy as np

from ramsis.analysis import WorkerAnalysis, analyse_worker
from ramsis.arrivals import Arrivals
from ramsis.errors import InputFileError, InvalidValueError, describe
from ramsis.policy import Policy
from ramsis.profiles import LatencyTable
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.shortest_queue import check_shortest_queue
from ramsis.worker.solve import evaluate_table

__all__ = ["analyse_policy", "problem_of"]

_ORIGINS = "mpie"


def problem_of(
    policy: Policy, where: str = "policy", *, own_arrivals: str | None = None
) -> WorkerProblem:
    """The worker problem that a policy file describes.

    Parameters
    ----------
    where : str
        Names the file in messages.
    own_arrivals : str, optional
        ``package.module:name`` of an arrival process of one's own. A module that only the file
        names is not imported.

    Raises
    ------
    InputFileError
        Its parts do not make a problem, or its arrival process cannot be made from its name.
    """
    letters = np.array([[_ORIGINS.index(c) for c in m.latency_origin or ()]
                        for m in policy.models])
    try:
        latency = LatencyTable(
            tuple(m.name for m in policy.models), policy.accuracy, policy.latency_ms,
            letters.astype(np.int8), policy.service,
        )
        problem = WorkerProblem.create(
            latency,
            slo_ms=policy.slo_ms,
            workers=policy.workers,
            arrivals=Arrivals.of(policy.arrivals, own=own_arrivals).counted(policy.load_qps),
            grid=policy.slack_ms,
            max_queue=policy.max_queue,
            objective=policy.objective,
            late=policy.late,
            batching=policy.batching,
            violation_price=policy.violation_price,
            quantiles_ms=policy.quantiles_ms,
        )
        if policy.dispatch == "shortest-queue":
            check_shortest_queue(problem)
    except InvalidValueError as error:
        raise InputFileError(
            describe(f"no problem can be made of it ({error})", where=where)
        ) from error
    return problem


def analyse_policy(
    policy: Policy, *, own_arrivals: str | None = None
) -> WorkerAnalysis:
    """The stationary behaviour of a policy file's table, distributions included.

    Parameters
    ----------
    own_arrivals : str, optional
        As of :func:`problem_of`.

    Raises
    ------
    InputFileError
        As :func:`problem_of`.
    """
    problem = problem_of(policy, own_arrivals=own_arrivals)
    model, batch = policy.model_and_batch()
    table = problem.policy_of(model[0], batch[0])
    found = evaluate_table(problem, table, policy.dispatch)
    return analyse_worker(problem, table, found.frequency, found.excess)
