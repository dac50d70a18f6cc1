"""What a table does in the model that it was made from."""

import numpy as np
from numpy.typing import NDArray

from ramsis.central.chain import Chain, SteadyState
from ramsis.central.model import central_model
from ramsis.central.problem import CentralProblem
from ramsis.central.solve import DROP, WAIT


def evaluated(problem: CentralProblem, table: NDArray[np.int16]) -> SteadyState:
    """The steady state under a file's table, its drops one by one made into one action."""
    shape = (len(problem.idle), len(problem.queue), len(problem.slack_ms))
    step = np.full(shape, WAIT, dtype=np.int16)
    step[1:, 1:] = table
    to, action = np.zeros_like(step), np.full_like(step, WAIT)
    for i, n, j in np.ndindex(*shape):
        level = n
        while level > 0 and step[i, level, problem.after_drop[n, level, j]] == DROP:
            level -= 1
        to[i, n, j] = level
        if level > 0:
            action[i, n, j] = step[i, level, problem.after_drop[n, level, j]]
    model = central_model(problem, 1e-9 * problem.load)
    found = Chain(model, to, action).steady_state()
    assert found is not None
    return found
