"""Pruning of dominated models from a profile.

Two rules:

- :func:`prune`, lossless: model m is removed if another is at least as accurate and at least as
  fast at *every* batch size, and better somewhere (or equal everywhere and earlier). A policy can
  replace m by the other one without loss.
- :func:`pareto_front`, the rule of Mendoza et al., EuroSys '24, §4: accuracy against the
  latency of a single batch size. A model that is slower at batch 1 but faster at batch 8 is
  lost with it.

Mendoza et al., EuroSys '24, study the effect of a finer choice of models by filling the front of
accuracy against latency in steps of 0.5 % accuracy: nine image models become sixty (their Figures
8 and 9, Table 2). Between neighbours on the front, with accuracies a < a', models are added at

    a + step, a + 2·step, … < a',

each with l(b) = (1 - w)·l_a(b) + w·l_a'(b) at every batch size b, where w is its relative position
between a and a'. These models are not measured: they are for what-if studies only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ramsis.errors import InvalidValueError, Rule, whole
from ramsis.profiles.batch import BatchProfile, Statistic
from ramsis.profiles.model import ModelProfile, ProfileSet
from ramsis.profiles.table import LatencyTable

_ROUNDING = 1e-9
"""A step that ends this close below the next model's accuracy is that model."""
_STEP = Rule("a fraction of accuracy in [1e-05, 1]", lambda step: 1e-5 <= step <= 1)


def prune(table: LatencyTable) -> LatencyTable:
    """Return the table without dominated models, by increasing batch-1 latency (lossless rule).

    Of equal batch-1 latencies the more accurate model is first, so that row 0 is
    :attr:`LatencyTable.fastest`.
    """
    return table.select(_front(table, table.latency_ms))


def pareto_front(table: LatencyTable, batch: int = 1) -> tuple[str, ...]:
    """Return the models on the Pareto front at a batch size of the table, fastest first."""
    whole(1, table.max_batch).check("batch size out of range", batch=batch)
    return _front(table, table.latency_ms[:, batch - 1 : batch])


def dominators(
    accuracy: NDArray[np.float64], latency_ms: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return for each model the index of an undominated model that dominates it, or -1.

    ``accuracy`` has shape (M,), ``latency_ms`` shape (M, B), a column per considered batch size.
    """
    count = len(accuracy)
    dominator = np.full(count, -1, dtype=np.int64)
    # In lexicographic order of the columns, a dominating model precedes the dominated one.
    order = np.lexsort((np.arange(count), -accuracy, *latency_ms.T[::-1]))
    kept = np.empty(count, dtype=np.int64)
    size = 0
    columns = np.unique(np.linspace(0, latency_ms.shape[1] - 1, 4).astype(int))
    for model in order.tolist():
        able = kept[:size]
        able = able[accuracy[able] >= accuracy[model]]
        for column in columns:  # most are told apart by few batch sizes
            able = able[latency_ms[able, column] <= latency_ms[model, column]]
        for other in able.tolist():
            if (latency_ms[other] <= latency_ms[model]).all():
                dominator[model] = other
                break
        else:
            kept[size] = model
            size += 1
    return dominator


def _front(table: LatencyTable, latency_ms: NDArray[np.float64]) -> tuple[str, ...]:
    """Return the models that no other dominates in accuracy and ``latency_ms``, fastest first."""
    undominated = np.flatnonzero(dominators(table.accuracy, latency_ms) < 0)
    order = np.lexsort((-table.accuracy[undominated], latency_ms[undominated, 0]))
    return tuple(table.models[i] for i in undominated[order])


def interpolate_front(
    profile: ProfileSet,
    step: float = 0.005,
    statistic: Statistic = "p95",
    max_batch: int = 33,
) -> ProfileSet:
    """Return the Pareto front of a profile at batch 1, with interpolated models in between.

    The fastest model is first. Measured models keep their names (and memory and load time);
    interpolated ones are called ``LOWER+k``, k = 1, 2, … steps above the model LOWER. An argument
    out of range, or a statistic that the profile lacks, is an InvalidValueError.

    Parameters
    ----------
    profile : ProfileSet
    step : float
        Distance in accuracy, a fraction in [1e-5, 1].
    statistic : str
        Latency statistic; the only one of the result.
    max_batch : int
        Largest batch size of the result; unmeasured sizes are filled as in a latency table.

    Examples
    --------
    >>> def model(name, accuracy, latency_ms):
    ...     return ModelProfile(name, accuracy, (BatchProfile(1, p95_ms=latency_ms),))
    >>> two = ProfileSet("two", (model("small", 0.7, 10.0), model("large", 0.72, 50.0)))
    >>> [(m.name, round(m.accuracy, 4), m.batches[0].p95_ms)
    ...  for m in interpolate_front(two, step=0.01, max_batch=1).models]
    [('small', 0.7, 10.0), ('small+1', 0.71, 30.0), ('large', 0.72, 50.0)]
    """
    _STEP.check("step out of range", step=step)
    every = profile.latency_table(statistic, max_batch)
    table = every.select(pareto_front(every))
    names, accuracy = zip(*_points(table, step), strict=True)
    filled = between_models(table, accuracy, names)
    measured = {model.name: model for model in profile.models}
    note = {**profile.measurement, "interpolated": f"{len(table.models)} measured models on the "
            f"front and {len(names) - len(table.models)} in between, every {step:g} of accuracy"}
    confidences = profile.confidences and profile.confidences.select(names)
    return ProfileSet(profile.name, tuple(_models(filled, measured)), profile.hardware, note,
                      confidences)


def between_models(
    table: LatencyTable, accuracy: ArrayLike, names: tuple[str, ...] | None = None
) -> LatencyTable:
    """Interpolate latencies at accuracies between the models of a table.

    The models must differ in accuracy, as on a Pareto front, and ``accuracy``, shape (P,), must be
    within their range; otherwise there is an InvalidValueError. ``names`` are by default
    ``front-0``, ``front-1``, ….
    """
    order = np.argsort(table.accuracy)
    accuracies, latency_ms = table.accuracy[order], table.latency_ms[order]
    wanted = np.atleast_1d(np.asarray(accuracy, dtype=float))
    if wanted.ndim != 1 or (names is not None and len(names) != len(wanted)):
        raise InvalidValueError("not an accuracy for each name", where="accuracy",
                                value=wanted.shape, allowed="one dimension")
    if (np.diff(accuracies) <= 0).any():
        raise InvalidValueError("two models of one accuracy", where="table")
    if not ((accuracies[0] <= wanted) & (wanted <= accuracies[-1])).all():
        raise InvalidValueError("outside the accuracies of the table", where="accuracy",
                                value=wanted.tolist(),
                                allowed=f"{accuracies[0]:g} … {accuracies[-1]:g}")
    columns = [np.interp(wanted, accuracies, column) for column in latency_ms.T]
    chosen = names or tuple(f"front-{i}" for i in range(len(wanted)))
    return LatencyTable.measured(chosen, wanted, np.array(columns).T, table.statistic)


def _points(table: LatencyTable, step: float) -> Iterator[tuple[str, float]]:
    """Yield names and accuracies of the models along a front, by increasing accuracy."""
    rows = sorted(zip(table.accuracy.tolist(), table.models, strict=True))
    for (low, name), (high, _) in pairwise(rows):
        yield name, low
        for k in range(1, math.ceil((high - low) / step - _ROUNDING)):
            yield f"{name}+{k}", low + k * step
    yield rows[-1][1], rows[-1][0]


def _models(
    table: LatencyTable, measured: dict[str, ModelProfile]
) -> Iterator[ModelProfile]:
    field = f"{table.statistic}_ms"
    for name, accuracy, row in zip(table.models, table.accuracy.tolist(),
                                   table.latency_ms.tolist(), strict=True):
        batches = tuple(BatchProfile(b, **cast(dict[str, float], {field: value}))  # type: ignore[arg-type]
                        for b, value in enumerate(row, 1))
        # Times by size are not interpolated, so no model of the result has them.
        yield (replace(measured[name], batches=batches, sized=None) if name in measured
               else ModelProfile(name, accuracy, batches))
