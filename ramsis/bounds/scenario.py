"""The bound on requests in time for a scenario of models that come and go.

The bound on goodput is taken of a simpler problem, in which no run of the engine can do worse:

- a request can start inference once its preprocessing can be over; if it must not be answered
  before some time, it starts at most its postprocessing and its longest batch earlier;
- postprocessing on the machine ends by the deadline;
- a batch takes its shortest time, on the fastest model of the request's family;
- a request that a machine processes holds its cores from the start of preprocessing to the end of
  postprocessing;
- all workers of a type are up from the start, each with all its lanes, and at once begin to load
  the models that no worker holds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.bounds.goodput import GoodputBound, ReleasedRequests, Servers, goodput_bound
from ramsis.scenario import Requests, Scenario

_MOST_IN_A_WORKER = 32


def scenario_bound(
    scenario: Scenario, requests: Requests, *, rounds: int = 120
) -> GoodputBound | None:
    """Bound the number of a scenario's requests that any scheduler can answer in time.

    Parameters
    ----------
    requests : Requests
        As drawn with the seed of the run that is compared.
    rounds : int
        As for :func:`~ramsis.bounds.goodput.goodput_bound`.

    Returns
    -------
    GoodputBound or None
        None where requests depend on answers (closed loops, streams after others), or batches
        are continuous: the bound is not for these.
    """
    if any(stream.after is not None or stream.workload.loop is not None
           for stream in scenario.streams):
        return None
    if any(model.inference.batching == "continuous" for model in scenario.models):
        return None
    batch_ms = _batch_ms(scenario)
    longest = np.where(np.isfinite(batch_ms), batch_ms, 0.0).max(axis=(0, 2))
    before = np.array([stream.pre_ms for stream in scenario.streams])[requests.stream]
    after = np.array([stream.post_ms for stream in scenario.streams])[requests.stream]
    release = np.maximum(requests.arrival_ms + before,
                         requests.earliest_ms - after - longest[requests.model])
    bound = goodput_bound(ReleasedRequests(release, requests.deadline_ms - after, requests.model),
                          _servers(scenario, batch_ms), rounds=rounds)
    by_cores = _by_cores(scenario, requests, batch_ms, rounds)
    if by_cores < bound.in_time:
        bound = replace(bound, in_time=by_cores, share=by_cores / len(requests.model))
    return bound


def _by_cores(
    scenario: Scenario, requests: Requests, batch_ms: FloatArray, rounds: int
) -> int:
    """Return the most requests in time that the machines' cores allow, inference aside.

    A request holds its cores at least for what comes before and after inference and for the
    shortest batch. A machine has no more such requests at a time than of those with fewest cores.
    """
    streams = scenario.streams
    cores = np.array([stream.cores for stream in streams], dtype=np.int64)
    needs_cores = cores[requests.stream] > 0
    others = int((~needs_cores).sum())
    if not needs_cores.any():
        return others
    fewest = int(cores[requests.stream[needs_cores]].min())
    places = sum(kind.count * (kind.cores // fewest) for kind in scenario.worker_types)
    around = np.array([stream.pre_ms + stream.post_ms for stream in streams])
    shortest = batch_ms[:, :, 0].min(axis=0)
    holds = np.array([shortest[models].min() for models in scenario.arrays.stream_models]) + around
    bound = goodput_bound(
        ReleasedRequests(requests.arrival_ms[needs_cores], requests.deadline_ms[needs_cores],
                         requests.stream[needs_cores]),
        Servers(holds[None, :, None], np.array([float(places)])), rounds=rounds)
    return others + bound.in_time


def _batch_ms(scenario: Scenario) -> FloatArray:
    """Return the shortest time of a batch for each model's requests, (T, M, B)."""
    arrays = scenario.arrays
    shortest = arrays.quantiles_ms.min(axis=3)
    for k, model in enumerate(scenario.models):
        if model.inference.output_tokens:
            shortest[:, k] *= min(model.inference.output_tokens)
    of_model = shortest[:, arrays.kind]
    if len(np.unique(arrays.family)) == len(arrays.family):
        return np.asarray(of_model)
    return np.stack([of_model[:, arrays.family == family].min(axis=1)
                     for family in arrays.family], axis=1)


def _servers(scenario: Scenario, batch_ms: FloatArray) -> Servers:
    """Return the workers, and the models that have to be loaded before they run."""
    arrays, types = scenario.arrays, scenario.worker_types
    lanes = np.array([worker_type.lanes for worker_type in types])
    workers = np.bincount(arrays.worker_type, minlength=len(types)) * lanes
    held = np.zeros((len(types), len(arrays.models)))
    load_ms = np.minimum(arrays.load_ms, arrays.first_load_ms)
    load_ms[~np.isfinite(arrays.quantiles_ms[:, arrays.kind, 0, 0])] = np.inf
    family, room = arrays.family, _room(scenario)
    if len(np.unique(family)) < len(family):  # any model of the family will do
        load_ms = np.stack([load_ms[:, family == label].min(axis=1) for label in family], axis=1)
        room = np.stack([room[:, family == label].min(axis=1) for label in family], axis=1)
    for worker_type, models in zip(arrays.worker_type, arrays.start, strict=True):
        held[worker_type, np.isin(family, family[np.array(models, dtype=int)])] += 1.0
    return Servers(
        batch_ms, workers.astype(float), load_ms, held,
        np.array([worker_type.loading == "blocking" for worker_type in types]), room,
        np.bincount(arrays.worker_type, minlength=len(types)).astype(float),
        np.array([float(worker_type.loads_at_a_time) for worker_type in types]))


def _room(scenario: Scenario) -> FloatArray:
    """Return a lower bound on the share of a worker's memory or places of each model, (T, M).

    By the number of models, by their memory x, or by (ceil((k + 1) x) − 1) / k for some k, of
    which the sum is at most 1 where that of x is (S. P. Fekete, J. Schepers, Mathematical
    Programming 91, 2001); on each type whichever is most in all. Infinite where the type cannot
    run the model.
    """
    arrays, types = scenario.arrays, scenario.worker_types
    memory = np.array([worker_type.memory_mb or np.inf for worker_type in types])
    places = np.array([float(worker_type.max_models or np.inf) for worker_type in types])
    # a little less than it is, as the engine allows for rounding
    x = np.maximum(arrays.memory_mb - 1e-6, 0.0) * (1.0 - 1e-9) / memory[:, None]
    usable = np.isfinite(arrays.quantiles_ms[:, arrays.kind, 0, 0]) & (x <= 1.0)
    kinds = [np.broadcast_to(1.0 / places[:, None], x.shape), x]
    kinds += [np.maximum(np.ceil((k + 1) * x) - 1.0, 0.0) / k for k in range(1, _MOST_IN_A_WORKER)]
    rooms = np.stack([np.where(usable, kind, 0.0) for kind in kinds])
    most = rooms.sum(axis=2).argmax(axis=0)
    chosen = rooms[most, np.arange(len(types))]
    return np.where(usable, chosen, np.where(usable.any(axis=0), np.inf, 0.0))
