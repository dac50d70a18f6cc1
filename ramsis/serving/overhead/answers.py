"""What answers take before any has been given: measured on answers that nobody asked for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.serving.protocol import Answer, InferRequest, answer_body
from ramsis.serving.tensors import TensorSpec

_ENCODED = 20


def answers_ms(
    name: str, outputs: Sequence[TensorSpec], batch: int
) -> list[float]:
    """How long each answer of a batch waits until it is written, those before it included.

    It is measured here and now, without a connection, so it is a little less than serving shows.
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
    return [1000.0 * float(np.median(took_s)) * (place + 1) for place in range(batch)]
