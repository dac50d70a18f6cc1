"""The placement problem of a scenario: which models to hold where, for the demand of a window.

Each model that gets requests is a variant, and each family of models a family; its demand is the
largest over the windows of the scenario of its mean load in a window, and its SLO the tightest of
its streams. What loading costs, and when to load anew, is not a matter of the problem.
"""

from __future__ import annotations

import numpy as np

from placement_milp.problem import Family, Latency, Problem, Variant, WorkerType
from ramsis.arrays import FloatArray
from ramsis.errors import InputFileError, check_positive
from ramsis.scenario import Requests, Scenario, draw_requests

_LEAST_MB = 1e-6  # a problem has no models without memory


def placement_problem(
    scenario: Scenario, *, window_s: float | None = None, seed: int = 0
) -> Problem:
    """The placement problem of a scenario.

    Parameters
    ----------
    window_s : float, optional
        Length of a window, > 0; by default the whole scenario, so that demand is the mean.
    seed : int
        Seed of the simulated arrivals.
    """
    requests, arrays = draw_requests(scenario, seed), scenario.arrays
    peak_qps = _peak_qps(scenario, requests, window_s)
    asked = np.flatnonzero(peak_qps > 0).tolist()
    if not asked:
        raise InputFileError("no requests to place models for",
                             where=f"scenario {scenario.name}: streams",
                             allowed="streams that send requests by themselves")
    slo_ms = np.full(len(arrays.models), np.inf)
    slos = np.array([stream.slo_ms for stream in scenario.streams])[requests.stream]
    np.minimum.at(slo_ms, arrays.family[requests.model], slos)
    held = [model for model in range(len(arrays.models)) if arrays.family[model] in asked]
    all_mb = float(arrays.memory_mb.sum())
    return Problem(
        name=scenario.name,
        families=tuple(Family(arrays.models[f], float(peak_qps[f]), float(slo_ms[f]))
                       for f in asked),
        # A problem wants a number: memory without a limit is what all models take.
        worker_types=tuple(
            WorkerType(kind.name, kind.count * kind.lanes,
                       kind.memory_mb or max(all_mb, _LEAST_MB))
            for kind in scenario.worker_types),
        variants=tuple(_variant(scenario, model) for model in held),
    )


def _peak_qps(scenario: Scenario, requests: Requests, window_s: float | None) -> FloatArray:
    """Largest mean load of a window, by family; shape (M,), at the first model of each."""
    arrays = scenario.arrays
    if window_s is not None:
        check_positive(window_s=window_s)
    width_ms = scenario.duration_ms if window_s is None else 1000.0 * window_s
    count = max(1, int(np.ceil(scenario.duration_ms / width_ms)))
    window = np.minimum((requests.arrival_ms // width_ms).astype(np.int64), count - 1)
    family = arrays.family[requests.model]
    peak = np.zeros((count, len(arrays.models)))
    np.add.at(peak, (window, family), 1.0)
    lengths_s = np.minimum(width_ms, scenario.duration_ms - width_ms * np.arange(count)) / 1000.0
    return np.asarray((peak / lengths_s[:, None]).max(axis=0))


def _variant(scenario: Scenario, model: int) -> Variant:
    arrays = scenario.arrays
    kind = int(arrays.kind[model])
    latency = tuple(
        Latency(name, batch, float(arrays.latency_ms[t, kind, batch - 1]))
        for t, name in enumerate(arrays.types) for batch in arrays.batch_sizes[t][kind])
    return Variant(
        arrays.models[model], arrays.models[arrays.family[model]],
        float(arrays.accuracy[model]), max(float(arrays.memory_mb[model]), _LEAST_MB),
        float(arrays.load_ms[:, model].max()), latency)
