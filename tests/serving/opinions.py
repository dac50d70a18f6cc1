"""A policy with second opinions for the functions of :mod:`.servers`."""

from dataclasses import replace

import numpy as np

from ramsis.policy import Policy
from ramsis.policy.cascade import Cascade, CascadePromise
from ramsis.synthesis import SynthesisSettings, generate_policy
from tests.serving.servers import profile

SLO_MS, BATCH, SHARE = 250.0, 4, 0.4


def policy_with_opinions(tenth: float = 0.1, dispatch: str = "central-queue") -> Policy:
    """All requests go to the fast model at once; the least sure 4 of 10 get a second opinion.

    Parameters
    ----------
    tenth
        Width of a bin of confidence, of which there are ten from 0.
    """
    plain = generate_policy(profile(), 50.0, SynthesisSettings(
        slo_ms=SLO_MS, grid="fixed:20", max_queue=8, headroom=0.0, workers=2, late="drop",
        dispatch=dispatch))
    numbers = dict.fromkeys(("effective_accuracy", "effective_half_width", "violation_rate",
                             "violation_half_width", "gain", "gain_error"), 0.0)
    times = {f"response_{name}_ms": 10.0 for name in ("mean", "p50", "p95", "p99")}
    promise = CascadePromise(**numbers, **times, second_opinions=SHARE, upper_bound=1.0,
                             queries=1000, runs=2, seed=0)
    tenths = tuple(q * tenth for q in range(1, 10))
    return replace(plain, cascade=Cascade(
        second=1, levels_per_fresh=0.0, levels_per_unsure=0.0, step_ms=SLO_MS,
        actions=np.array([[0, b] for b in range(1, BATCH + 1)]),
        codes=np.arange(BATCH).reshape(1, BATCH, 1), unsure_bins=np.array([[4, 0]]),
        gather=np.array([BATCH]), least=np.array([1]), last_call_ms=0.0,
        second_ms=np.array([10.0, 12.0, 13.0, 14.0]), thresholds=(tenths, ()),
        share=((0.1,) * 10, ()), increment=((0.1,) * 4 + (0.0,) * 6, ()), promise=promise))
