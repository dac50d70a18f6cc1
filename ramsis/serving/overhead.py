"""Estimation of the overhead: latency of serving besides waiting and the model.

A policy accounts only for waiting and service times. A live request also waits in the socket until
the front end reads it (*arrival*), its batch takes longer in a worker process than profiled
(*batch*), and its answer waits for earlier ones (*answer*). The overhead is the 95th percentile of
the sum of the three, which are assumed to be independent. *Batch* is the excess over the 95th
percentile in the policy times the slowness by which the dispatcher divides, so that nothing is
subtracted from the slack twice.

The front end cannot measure how long arriving bytes wait. It measures the delay of messages to and
from a worker, and assumes the same for arrivals. Before the first request, answers are encoded
without a recipient to measure *answer* (:func:`answers_ms`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray
from ramsis.serving.protocol import Answer, InferRequest, answer_body
from ramsis.serving.tensors import TensorSpec

# Quantile of the sum of the three parts, and of the service times that *batch* exceeds.
QUANTILE = 0.95
# Numbers of recent batches and answers of an estimate: more are steadier, fewer adapt faster.
_BATCHES, _ANSWERS = 512, 2048
# Monte Carlo draws of the sum of the parts. Their random numbers are drawn once, to keep estimates
# short, as these block the event loop.
_DRAWN = 4096
_DRAWS = np.random.default_rng(0).random((3, _DRAWN))
# Number of recent batches for the slowness, and the least number for an estimate.
_RECENT, _LEAST_BATCHES = 64, 16
_ENCODED = 20  # answers encoded to measure one; the median ignores the cold first one


class OverheadParts(NamedTuple):
    """Overhead in ms, and the 95th percentile of each of its parts."""

    overhead_ms: float
    arrival_ms: float
    batch_ms: float
    answer_ms: float


class _Batch(NamedTuple):
    """Times of an ended batch, in ms: by the front end's clock, and of the model alone."""

    variant: str
    run_as: int
    service_ms: float
    model_ms: float


class OverheadWatch:
    """Estimator of the overhead from the last 512 batches and the last 2048 answers.

    ``stated_ms`` gives the 95th percentile of service times in the current policies, by variant
    and batch size, None if unknown; ``most_ms`` the upper limit on the overhead.
    """

    def __init__(
        self, stated_ms: Callable[[str, int], float | None], most_ms: Callable[[], float]
    ) -> None:
        self._stated_ms, self._most_ms = stated_ms, most_ms
        self._batches = deque[_Batch](maxlen=_BATCHES)
        self._answers = deque[float](maxlen=_ANSWERS)
        self.last = OverheadParts(0.0, 0.0, 0.0, 0.0)

    def batch(self, variant: str, run_as: int, service_ms: float, model_ms: float) -> None:
        """Record an ended batch, with times by the front end's and by the worker's clock."""
        self._batches.append(_Batch(variant, run_as, service_ms, model_ms))

    def clear(self) -> None:
        """Discard all batches and answers."""
        self._batches.clear()
        self._answers.clear()

    def answered(self, after_ms: float) -> None:
        """Record the time from the end of a request's last batch to sending its answer."""
        self._answers.append(after_ms)

    def estimate(self, slowness: float = 1.0) -> OverheadParts:
        """Estimate the overhead, relative to the service times of the current policies.

        ``slowness`` is the known service time as a multiple of the one in the policies.
        """
        stated_ms = {key: self._stated_ms(*key)
                     for key in {(batch.variant, batch.run_as) for batch in self._batches}}
        arrival_ms, batch_ms = [], []
        for variant, run_as, service_ms, model_ms in self._batches:
            expected_ms = stated_ms[variant, run_as]
            if expected_ms is not None:
                arrival_ms.append(max(service_ms - model_ms, 0.0))
                batch_ms.append(service_ms - slowness * expected_ms)
        parts = [np.asarray(values or [0.0])
                 for values in (arrival_ms, batch_ms, list(self._answers))]
        total_ms: FloatArray = sum((part[(drawn * len(part)).astype(int)]
                                    for part, drawn in zip(parts, _DRAWS, strict=True)),
                                   np.zeros(_DRAWN))
        overhead_ms = min(max(float(np.quantile(total_ms, QUANTILE)), 0.0), self._most_ms())
        self.last = OverheadParts(overhead_ms, *(float(np.quantile(part, QUANTILE))
                                                 for part in parts))
        return self.last

    def slowness(self, mean_ms: Callable[[str, int], float | None]) -> float:
        """Return the service time of the last 64 batches as a multiple of the profiled one.

        It is 1 while fewer than 16 batches are known. ``mean_ms`` gives profiled means by variant
        and batch size, None if unknown.
        """
        took_ms, profiled_ms, compared = 0.0, 0.0, 0
        for variant, run_as, service_ms, _ in list(self._batches)[-_RECENT:]:
            expected_ms = mean_ms(variant, run_as)
            if expected_ms is not None:
                took_ms, profiled_ms, compared = (
                    took_ms + service_ms, profiled_ms + expected_ms, compared + 1)
        return took_ms / profiled_ms if compared >= _LEAST_BATCHES else 1.0


def answers_ms(name: str, outputs: Sequence[TensorSpec], batch: int) -> list[float]:
    """Measure the time until each answer of a batch is encoded, in the order of the requests.

    No connection is involved, so the times are slightly below those of serving.
    """
    arrays: Mapping[str, NDArray[Any]] = {spec.name: np.zeros((1, *spec.shape), spec.dtype)
                                          for spec in outputs}
    answer = Answer(arrays, {"variant": name, "batch": batch, "waiting_ms": 12.345})
    request = InferRequest("", [], 1, None, dict.fromkeys(arrays, False))
    took_s = []
    for _ in range(_ENCODED):
        begun_s = time.perf_counter()
        answer_body(name, request, answer, outputs)
        took_s.append(time.perf_counter() - begun_s)
    return [1000.0 * float(np.median(took_s)) * (position + 1) for position in range(batch)]
