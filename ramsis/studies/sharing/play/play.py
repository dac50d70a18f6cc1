"""Simulation of a sharing plan on the cluster engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf

import numpy as np

from ramsis.errors import InputFileError
from ramsis.scenario import (
    BatchTime,
    LoadOf,
    Requests,
    Scenario,
    ScenarioModel,
    ScenarioWorkerType,
    StartState,
    Stream,
    TimesOf,
)
from ramsis.sim.engine import Engine
from ramsis.sim.engine.progress import Running, Slowdown
from ramsis.sim.run import Run
from ramsis.studies.sharing.gpu.interference import THESIS, Interference, Load
from ramsis.studies.sharing.gpu.profile import between
from ramsis.studies.sharing.gpu.shared_gpu import Gpu, Replica, RouterSettings, SharedModel
from ramsis.studies.sharing.plan import SharingPolicy
from ramsis.studies.sharing.play.router import Placed, Router, SentBatch

_LANES = 1000  # concurrent batches on a GPU; no limit, as the router runs one per replica


@dataclass(frozen=True)
class SharedCluster:
    """Models with their loads, GPUs, router and interference: the inputs of a simulation."""

    models: tuple[SharedModel, ...]  # each is sent Poisson requests at its rate
    gpus: tuple[Gpu, ...]  # their names are unique
    # how batches are gathered and sent
    router: RouterSettings = RouterSettings()  # noqa: RUF009 - it is frozen
    # model of slow-downs, unless :attr:`slowdown` is set
    interference: Interference = THESIS
    slowdown: Slowdown | None = None  # another model of slow-downs
    duration_s: float = 8.0  # duration of the arrivals; all of these requests are finished
    # model → arrival times of its requests, in place of Poisson arrivals
    times_ms: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def scenario(self, replicas: Sequence[Replica] = ()) -> Scenario:
        """Return the engine's scenario: a worker type for each GPU, a stream for each model."""
        types = tuple(ScenarioWorkerType(gpu.name, 1, lanes=_LANES) for gpu in self.gpus)
        models = tuple(ScenarioModel(model.name, tuple(
            BatchTime(gpu.name, row.batch, row.latency_ms) for gpu in self.gpus
            for row in model.batches.get(gpu.gpu_type, ()))) for model in self.models)
        streams = tuple(
            Stream(model.name, model.name,
                   TimesOf(self.times_ms[model.name]) if model.name in self.times_ms
                   else LoadOf(model.rate_rps), model.slo_ms) for model in self.models)
        models_on: dict[str, dict[str, None]] = {}
        for replica in replicas:
            models_on.setdefault(replica.gpu, {})[replica.model] = None
        start = tuple(StartState(f"{gpu}-1", tuple(models)) for gpu, models in models_on.items())
        return Scenario("sharing", self.duration_s, types, models, streams, start)


@dataclass(frozen=True)
class Played:
    """Result of a simulated plan, with the batches that the router sent."""

    cluster: SharedCluster
    replicas: tuple[Replica, ...]  # the plan at the start
    run: Run  # the engine's record
    sent: tuple[SentBatch, ...]  # the batches that ran, in the order of the record


def play(
    cluster: SharedCluster, replicas: Sequence[Replica], seed: int = 0, *,
    changes: Sequence[tuple[float, Sequence[Replica]]] = (), requests: Requests | None = None,
) -> Played:
    """Simulate a plan on the cluster engine.

    Parameters
    ----------
    replicas : sequence of Replica
        Replicas that the GPUs can hold.
    seed : int
        Seed of the arrivals.
    changes : sequence of (time in ms, replicas)
        Plans that take effect later.
    requests : Requests, optional
        Requests in place of those that the seed draws.
    """
    everything = [*replicas, *(replica for _, plan in changes for replica in plan)]
    scenario = cluster.scenario(everything)
    largest = max((rows[-1].batch for model in cluster.models
                   for rows in model.batches.values()), default=1)
    placed = [_placed(cluster, replica) for replica in replicas]
    later = [(at_ms, [_placed(cluster, replica) for replica in plan]) for at_ms, plan in changes]
    engine = Engine.of_scenario(scenario, seed, requests=requests,
                           slowdown=cluster.slowdown or _slowdown(cluster, largest))
    # The engine creates the router, whose batches are needed afterwards.
    routers: list[Router] = []

    def start(used: Engine) -> Router:
        routers.append(Router(used, cluster.router, placed, later))
        return routers[0]

    run = engine.serve(start)
    return Played(cluster, tuple(replicas), run, tuple(routers[0].sent))


def replanned(
    cluster: SharedCluster, policy: SharingPolicy, period_ms: float, requests: Requests
) -> list[tuple[float, Sequence[Replica]]]:
    """Return the changes of a plan by a policy that runs at the end of each period.

    Parameters
    ----------
    policy : SharingPolicy
        Called with the models that had requests in the period, at their rates in it.
    period_ms : float
        Time between two plans, > 0.
    requests : Requests
        Requests that will be played; each plan sees only those that came before it.

    Returns
    -------
    list of (time in ms, replicas)
        For ``changes`` of :func:`play`, without periods in which no request came.
    """
    if not 0.0 < period_ms < inf:
        raise InputFileError("parameter out of range", where="period_ms", value=period_ms,
                             allowed="a number above 0")
    changes = []
    for number in range(1, ceil(1000.0 * cluster.duration_s / period_ms)):
        end_ms = number * period_ms
        came = (requests.arrival_ms >= end_ms - period_ms) & (requests.arrival_ms < end_ms)
        counts = np.bincount(requests.model[came], minlength=len(cluster.models))
        models = [replace(model, rate_rps=1000.0 * float(count) / period_ms)
                  for model, count in zip(cluster.models, counts, strict=True) if count]
        if models:
            changes.append((end_ms, policy(models, cluster.gpus)))
    return changes


def _placed(cluster: SharedCluster, replica: Replica) -> Placed:
    """Return a replica with indices of model and GPU, and the times of its batch sizes."""
    names = [model.name for model in cluster.models]
    gpus = [gpu.name for gpu in cluster.gpus]
    if replica.model not in names or replica.gpu not in gpus:
        raise InputFileError("replica of what does not exist", value=(replica.model, replica.gpu),
                             allowed=f"{', '.join(names)}; {', '.join(gpus)}")
    m, g = names.index(replica.model), gpus.index(replica.gpu)
    rows = cluster.models[m].batches.get(cluster.gpus[g].gpu_type, ())
    work = [0.0]
    for n in range(1, replica.batch + 1):
        row = between(rows, n)
        if row is None:
            raise InputFileError("batch does not fit the GPU", where=replica.model,
                                 value=replica.batch)
        alone = row.latency_ms * cluster.interference.on_share(
            replica.model, row.utilisation, replica.mps_share)
        if cluster.router.copies_ms(n) >= alone:
            raise InputFileError("copies take longer than their batch",
                                 where="copy_ms", value=cluster.router.copy_ms)
        work.append(alone)
    return Placed(m, g, replica.batch, replica.mps_share, tuple(work))


class InterferenceSlowdown:
    """Interference as the engine's model of slow-downs.

    Parameters
    ----------
    names : sequence of str
        Names of the models, as the engine numbers them.
    utilisation : sequence of sequence of sequence of float
        ``utilisation[w][m][n]`` of a batch of n of model m on worker w.
    """

    def __init__(
        self, interference: Interference, names: Sequence[str],
        utilisation: Sequence[Sequence[Sequence[float]]],
    ) -> None:
        self._interference, self._names, self._utilisation = interference, names, utilisation

    def __call__(self, worker: int, running: Sequence[Running]) -> list[float]:
        """Return the speed of each batch on a GPU beside the others, 1 if it runs alone."""
        used = self._utilisation[worker]
        loads = [Load(self._names[batch.model], batch.size, used[batch.model][batch.size],
                      batch.share) for batch in running]
        return [1.0 / factor for factor in self._interference.beside(loads)]


def _slowdown(cluster: SharedCluster, largest: int) -> InterferenceSlowdown:
    """Return a cluster's interference as the engine's model of slow-downs."""
    by_type: dict[tuple[str, str], list[float]] = {}
    for model in cluster.models:
        for kind, rows in model.batches.items():
            batches = [between(rows, n) for n in range(1, largest + 1)]
            by_type[model.name, kind] = [0.0] + [
                np.nan if row is None else row.utilisation for row in batches]
    nothing = [np.nan] * (largest + 1)
    return InterferenceSlowdown(
        cluster.interference, [model.name for model in cluster.models],
        [[by_type.get((model.name, gpu.gpu_type), nothing) for model in cluster.models]
         for gpu in cluster.gpus])
