"""The compiled replay on raw samples, against the same by questions to the runtime."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from ramsis.synthesis import SynthesisSettings
from ramsis.synthesis.generate import modelled_policy
from tests.sim.raw_replay import Chance, compiled, through_runtime
from tests.sim.raw_samples import LAWS, Measured

MEASURED = Measured.of(LAWS["outlier"], 300, largest=9)
CHANCE = Chance.drawn(150.0, 1500, 5)


@cache
def made(dispatch: str, workers: int) -> Any:
    return modelled_policy(MEASURED.profile, 150.0, SynthesisSettings(
        slo_ms=60.0, workers=workers, dispatch=dispatch, max_queue=8, headroom=0.0)).to_document()


def replays(document: Any, load: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    chance = CHANCE._replace(arrival_ms=CHANCE.arrival_ms / load)
    return tuple(by(document, MEASURED.samples, chance)  # type: ignore[return-value]
                 for by in (compiled, through_runtime))


@pytest.mark.parametrize("load", [1.5, 5.0])
@pytest.mark.parametrize(("dispatch", "workers"), [
    ("round-robin", 1), ("round-robin", 3), ("central-queue", 1), ("central-queue", 3)])
def test_every_request_has_the_same_answer(dispatch, workers, load):
    one, other = replays(made(dispatch, workers), load)
    np.testing.assert_array_equal(one, other)
    assert len(set(one.tolist())) >= 2
