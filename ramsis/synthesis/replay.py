"""Back from a policy file: the worker problem it was made from, and its stationary behaviour."""

from __future__ import annotations

import numpy as np

from ramsis.analysis import WorkerAnalysis, analyse_worker
from ramsis.arrivals import from_description
from ramsis.errors import InputFileError, InvalidValueError, describe
from ramsis.mdp.problem import WorkerProblem
from ramsis.mdp.structured import build_structured
from ramsis.policy import WorkerPolicy
from ramsis.profiles import LatencyTable
from ramsis.solvers.slack_nodes import evaluate_on_nodes, state_visits

__all__ = ["analyse_policy", "problem_of"]

_ORIGINS = "mpie"


def problem_of(policy: WorkerPolicy, where: str = "policy") -> WorkerProblem:
    """The worker problem that a policy file describes; ``where`` names the file in messages.

    Raises
    ------
    InputFileError
        Its parts do not make a problem, or its arrival process cannot be made from its name.
    """
    letters = np.array([[_ORIGINS.index(c) for c in m.latency_origin] for m in policy.models])
    try:
        latency = LatencyTable(
            tuple(m.name for m in policy.models), policy.accuracy, policy.latency_ms,
            letters.astype(np.int8), policy.service,
        )
        return WorkerProblem.create(
            latency,
            slo_ms=policy.slo_ms,
            workers=policy.workers,
            arrivals=from_description(policy.arrivals, policy.load_qps),
            grid=policy.slack_ms,
            max_queue=policy.max_queue,
            objective=policy.objective,
        )
    except InvalidValueError as error:
        raise InputFileError(
            describe(f"no problem can be made of it ({error})", where=where)
        ) from error


def analyse_policy(policy: WorkerPolicy) -> WorkerAnalysis:
    """The stationary behaviour of a policy file's table, distributions included.

    Raises
    ------
    InputFileError
        As :func:`problem_of`.
    """
    mdp = build_structured(problem_of(policy))
    visits, excess = state_visits(mdp, evaluate_on_nodes(mdp, policy.model_table))
    return analyse_worker(mdp.problem, policy.model_table, visits, excess)
