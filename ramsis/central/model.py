"""The arrays of a central queue's problem, as the compiled loops take them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.arrays import FloatArray, IntArray
from ramsis.central import _kernels
from ramsis.central.problem import PARTS, CentralProblem
from ramsis.compiling import uniform


class CentralArrays(NamedTuple):
    """Everything that the loops need of a problem.

    Attributes
    ----------
    queue : (N,), idle : (I,)
        Levels.
    batch : (A,), accuracy : (A,), mean_ms : (A,)
    held : (A,)
        Probability that a batch occupies its worker, mean / SLO, at most 1.
    arrivals : (A, k)
        Distribution of the arrivals until the next worker is free; what is missing to 1 restarts.
    slack_probability : (2, N, J)
        Distribution of the slack bin.
    in_time, earned : (N, A, J)
        Expected queries in time of a batch, and accuracy earned by it less price paid.
    after_drop : (N, N, J)
        Bin after dropping from a level to a lower one.
    lowest, highest : (N,)
        First and last needed bin.
    edge_ms, slack_ms, age_ms : (J,), (J,), (N, J)
        Low edge and middle of each bin; mean age of the head in it.
    left_age : (N, A, P), parts : (P,)
        Age of the next head as a share of the head's, by parts of its distribution; how
        probable these are.
    spacing_ms : (A, k)
        Mean time until the next worker is free, given the arrivals meanwhile.
    low, share : (longest + 1,)
        A queue of any length as two levels: index of the lower one, probability of the next.
    slo_ms : float
    carries : bool
        Whether the head's age is kept when the last idle worker starts.
    load, leave, price, workers
        λ per ms, 1/SLO, violation price, K.
    restart : float
        Rate per ms at which a queue with idle workers is returned to empty, all idle.
    """

    queue: IntArray
    idle: IntArray
    batch: IntArray
    accuracy: FloatArray
    mean_ms: FloatArray
    held: FloatArray
    arrivals: FloatArray
    slack_probability: FloatArray
    in_time: FloatArray
    earned: FloatArray
    lowest: IntArray
    highest: IntArray
    edge_ms: FloatArray
    slack_ms: FloatArray
    age_ms: FloatArray
    left_age: FloatArray
    parts: FloatArray
    spacing_ms: FloatArray
    after_drop: NDArray[np.int16]
    low: IntArray
    share: FloatArray
    slo_ms: float
    carries: bool
    load: float
    leave: float
    price: float
    workers: int
    restart: float


def central_model(problem: CentralProblem, restart: float) -> CentralArrays:
    """The arrays of a problem; it is returned to empty at a rate ``restart`` per ms."""
    lowest, highest = _kernels.needed_bins(problem.slack_distribution, problem.after_drop)
    low, share = _kernels.place(problem.queue, int(problem.queue[-1]))
    batch, mean_ms = problem.action_batch, problem.mean_ms
    in_time = _kernels.count_in_time(problem.queue, problem.slack_in_queue_ms, batch,
                                     problem.quantiles_ms,
                                     np.require(problem.times.levels, requirements=("C", "W")))
    # While all workers are busy the chain may restart, which what follows loses as probability.
    stays = np.exp(-restart * mean_ms / problem.workers)
    carries = problem.carries_age
    left_age = problem.left_age if carries else np.zeros((1, 1, len(PARTS)))
    return uniform(CentralArrays(
        queue=problem.queue, idle=problem.idle, batch=batch,
        accuracy=problem.accuracy, mean_ms=mean_ms,
        held=np.minimum(mean_ms / problem.slo_ms, 1.0),
        arrivals=problem.arrivals_between * stays[:, None],
        slack_probability=problem.slack_distribution,
        in_time=in_time,
        earned=(problem.accuracy[:, None] * in_time
                - problem.price * (batch[:, None] - in_time) - problem.preference),
        lowest=lowest, highest=highest, edge_ms=problem.slack_ms,
        slack_ms=(problem.slack_ms + np.append(problem.slack_ms[1:], problem.slo_ms)) / 2,
        age_ms=problem.mean_age_ms, left_age=left_age, parts=PARTS,
        spacing_ms=problem.spacing_ms,
        after_drop=problem.after_drop, low=low, share=share, slo_ms=problem.slo_ms,
        carries=carries, load=problem.load,
        leave=1.0 / problem.slo_ms, price=problem.price, workers=problem.workers,
        restart=restart,
    ))
