"""Other schedulers as policies, so that a server that follows policies can run them.

At a stated load Jellyfish+ and ModelSwitching run one model in batches up to a limit, as soon as a
worker is idle: a table of a central queue that does not look at the slack.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ramsis.cluster import ServiceTimes
from ramsis.policy import Policy, PolicyModel
from ramsis.sim import Fleet, FleetScheduler
from ramsis.synthesis.recipes.recipe import sizes_stated

__all__ = ["as_policy"]


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
        longer_queue=rows - 1, spare_idle=None)


def _models(times: ServiceTimes) -> tuple[PolicyModel, ...]:
    """All models with all batches."""
    drawn = times.distributed
    return tuple(PolicyModel(
        name, float(times.accuracy[m]), tuple(times.mean_ms[m].tolist()),
        quantiles_ms=tuple(map(tuple, times.quantiles_ms[m].tolist())) if drawn else None,
        samples=tuple(times.samples[m].tolist()) if drawn else None,
        run_as=sizes_stated(times.run_as[m])) for m, name in enumerate(times.models))
