"""Agents for tests."""

import numpy as np

from ramsis.studies.clockwork_rl.agent import Agent, Layer, Scaling

PLAIN = {"count": Scaling(0, 100, 1), "laxity_ms": Scaling(-1e5, 1e5, 1),
         "work_ms": Scaling(0, 1e5, 1)}


def urgent_first() -> Agent:
    """One slot; runs it where the worker has less than 2 ms of work, in the largest batch."""
    weights = np.zeros((3, 5), np.float32)
    weights[2, 1] = -1.0  # work speaks against running
    return Agent(1, (1, 2, 4), 1.0, **PLAIN, layers=(
        Layer(weights, np.array([0, 2, 0, 1, 2], np.float32)),))
