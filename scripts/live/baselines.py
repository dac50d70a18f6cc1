"""Other schedulers as policies, so that a server that follows policies can run them.

At a stated load Jellyfish+ and ModelSwitching run one model in batches up to a limit, as soon as a
worker is idle: a table of a central queue that does not look at the slack. A fixed threshold of
confidence is a cascade of one level.
"""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter

import numpy as np

from ramsis.cluster import ServiceTimes
from ramsis.policy import Policy, PolicyModel
from ramsis.profiles.confidences import Confidences
from ramsis.sim import Fleet, FleetScheduler
from ramsis.sim.cascades import served
from ramsis.sim.tables import PlacedCascade
from ramsis.synthesis.cascades.gate import NO_PROMISE
from ramsis.synthesis.cascades.rule import padded, problems_of
from ramsis.synthesis.cascades.search import Sample
from ramsis.synthesis.recipes.recipe import sizes_stated
from ramsis.synthesis.simulated import prepared_policy

__all__ = ["as_policy", "with_fixed_threshold"]

_FEW, _MANY, _SEED = 30_000, 400_000, 1 << 20  # requests that compare thresholds, and promise


def as_policy(spec: FleetScheduler, fleet: Fleet, like: Policy) -> Policy:
    """What a scheduler does at the load of another policy, in that one's place.

    Parameters
    ----------
    spec : FleetScheduler
        Decides by load and queue.
    fleet : Fleet
        With models of the same names.
    like : Policy
        Of a central queue, for the same workers; its promise stays in the file, and means nothing.
    """
    compiled = spec.prepare(fleet).compiled
    assert compiled is not None
    tables = compiled.tables
    level = min(int(np.searchsorted(tables.load_qps, like.load_qps)), len(tables.load_qps) - 1)
    # One number of idle workers and one slack; the last queue length stands for longer ones, too.
    codes = tables.answer[level, 0, : int(tables.queue_row[level].max()) + 1, 0]
    # A scheduler may run batches that are always late, of which a policy has no times.
    models = _models(fleet.service_times.select(np.argsort(fleet.service_times.mean_ms[:, 0])))
    names = [model.name for model in models]
    actions = [[names.index(fleet.models[model]), batch] for model, batch in zip(
        tables.model[level, codes].tolist(), tables.batch[level, codes].tolist(), strict=True)]
    rows = len(actions)
    return replace(
        like, models=models, idle_levels=np.arange(fleet.workers + 1),
        queue_levels=np.arange(rows + 1), slack_ms=np.array([0.0]), actions=np.array(actions),
        codes=np.tile(np.arange(rows)[None, :, None], (fleet.workers, 1, 1)),
        longer_queue=rows - 1)


def _models(times: ServiceTimes) -> tuple[PolicyModel, ...]:
    """All models with all batches."""
    drawn = times.distributed
    return tuple(PolicyModel(
        name, float(times.accuracy[m]), tuple(times.mean_ms[m].tolist()),
        quantiles_ms=tuple(map(tuple, times.quantiles_ms[m].tolist())) if drawn else None,
        samples=tuple(times.samples[m].tolist()) if drawn else None,
        run_as=sizes_stated(times.run_as[m])) for m, name in enumerate(times.models))


def with_fixed_threshold(policy: Policy, confidences: Confidences) -> Policy:
    """Return a policy with the fixed threshold that is best at its load by simulation.

    Its promise states the simulated effective accuracy, violations and second opinions.

    Parameters
    ----------
    policy : Policy
        For a central queue, without second opinions.
    """
    fleet, _ = prepared_policy(policy)
    few, many = (Sample(policy, fleet, policy.load_qps, count, _SEED) for count in (_FEW, _MANY))
    _, problem, tables = max(
        ((few.worth(PlacedCascade(tables, problem.expected_increment), 0.0)[0], problem, tables)
         for problem in problems_of(policy, fleet, confidences)
         for tables in map(problem.fixed_tables, problem.fixed_thresholds())),
        key=itemgetter(0))
    _, outcomes = served(PlacedCascade(tables, padded(problem.stated, 0.0)), fleet, many.requests)
    in_time = many.in_time(outcomes.answered_ms, fleet.slo_ms)
    return replace(policy, cascade=problem.cascade(tables, replace(
        NO_PROMISE, effective_accuracy=float((outcomes.accuracy[many.counted] * in_time).mean()),
        violation_rate=1.0 - float(in_time.mean()),
        second_opinions=float(outcomes.second_opinion[many.counted].mean()))))
