"""What serving takes besides the model, measured by the server itself: the overhead.

A policy counts on service times, and on nothing else between arrival and answer. A live request
also waits in the socket until the front end reads it (*arrival*), its batch takes longer through a
worker process than was profiled (*batch*), and its answer waits for those before it (*answer*).
The overhead is the 95th percentile of the sum of the three, which are taken to be independent.
*Batch* counts from the 95th percentile that the policy knows, times the slowness by which the
dispatcher divides: so neither is taken from the slack twice.

The front end does not see how long bytes wait for it. It knows how long the message of a worker
does, together with the time until that worker begins, and takes an arrival to wait as long. Before
any request has come, answers to nobody are encoded in their place (:func:`answers_ms`).
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

# Quantile of the sum of the three parts, and of the policies' service times from which *batch*
# counts.
QUANTILE = 0.95
# Batches and answers that an estimate looks back on: more are steadier, fewer follow a change
# sooner.
_BATCHES, _ANSWERS = 512, 2048
# Draws of the sum of the parts. Their places in each part, as shares of its length, are drawn
# once, as estimates hold up the event loop.
_DRAWN = 4096
_DRAWS = np.random.default_rng(0).random((3, _DRAWN))
# Batches from which the slowness is told, and the fewest of them that say anything.
_RECENT, _LEAST_BATCHES = 64, 16
_ENCODED = 20  # answers that are encoded to time one; their median ignores a cold first one


class OverheadParts(NamedTuple):
    """The overhead in ms, and the 95th percentile of each part by itself."""

    overhead_ms: float
    arrival_ms: float
    batch_ms: float
    answer_ms: float


class _Batch(NamedTuple):
    """A batch that ended, in ms: by the front end's clock, and what of it the model took."""

    variant: str
    run_as: int
    service_ms: float
    model_ms: float


class OverheadWatch:
    """Estimate of the overhead from the last 512 batches and the last 2048 answers.

    Parameters
    ----------
    stated_ms
        95th percentile of service times, by variant and batch size, as the policies that serve
        know it; None where they do not.
    most_ms
        Upper limit on the overhead.
    """

    def __init__(
        self, stated_ms: Callable[[str, int], float | None], most_ms: Callable[[], float]
    ) -> None:
        self._stated_ms, self._most_ms = stated_ms, most_ms
        self._batches = deque[_Batch](maxlen=_BATCHES)
        self._answers = deque[float](maxlen=_ANSWERS)
        self.last = OverheadParts(0.0, 0.0, 0.0, 0.0)

    def batch(self, variant: str, run_as: int, service_ms: float, model_ms: float) -> None:
        """Note a batch that has ended: by the front end's clock, and by the worker's."""
        self._batches.append(_Batch(variant, run_as, service_ms, model_ms))

    def clear(self) -> None:
        """Forget all batches and answers."""
        self._batches.clear()
        self._answers.clear()

    def answered(self, after_ms: float) -> None:
        """Note an answer that was sent, so long after the end of its last batch."""
        self._answers.append(after_ms)

    def estimate(self, slowness: float = 1.0) -> OverheadParts:
        """Estimate the overhead; batches are compared with the policies that serve now.

        Parameters
        ----------
        slowness
            Batches are known to take so many times as long as the policies say.
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
        """Return how many times as long as profiled the last 64 batches took.

        Parameters
        ----------
        mean_ms
            Mean service times as profiled, by variant and batch size; None where the policies do
            not know them.

        Returns
        -------
        float
            1 while fewer than 16 are known.
        """
        took_ms, profiled_ms, compared = 0.0, 0.0, 0
        for variant, run_as, service_ms, _ in list(self._batches)[-_RECENT:]:
            expected_ms = mean_ms(variant, run_as)
            if expected_ms is not None:
                took_ms, profiled_ms, compared = (
                    took_ms + service_ms, profiled_ms + expected_ms, compared + 1)
        return took_ms / profiled_ms if compared >= _LEAST_BATCHES else 1.0


def answers_ms(name: str, outputs: Sequence[TensorSpec], batch: int) -> list[float]:
    """Measure the time until each answer of a batch is written, in the order of the requests.

    Answers are encoded without a connection, so the times are a little below those of serving.
    """
    arrays: Mapping[str, NDArray[Any]] = {spec.name: np.zeros((1, *spec.shape), spec.dtype)
                                          for spec in outputs}
    answer = Answer(arrays, {"variant": name, "batch": batch, "waiting_ms": 12.345})
    request = InferRequest("", [], 1, None, 0.0, dict.fromkeys(arrays, False))
    took_s = []
    for _ in range(_ENCODED):
        begun_s = time.perf_counter()
        answer_body(name, request, answer, outputs)
        took_s.append(time.perf_counter() - begun_s)
    return [1000.0 * float(np.median(took_s)) * (position + 1) for position in range(batch)]
