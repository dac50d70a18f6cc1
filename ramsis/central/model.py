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
    """Arrays of a problem for the compiled loops; shapes as in ``CentralProblem``."""

    queue: IntArray  # queue levels (N,), idle levels (I,)
    idle: IntArray
    # batch, accuracy, mean_ms: size, accuracy and mean service time of each action, (A,)
    batch: IntArray
    accuracy: FloatArray
    mean_ms: FloatArray
    held: FloatArray  # h: chance that a batch counts as a busy worker, mean / SLO <= 1, (A,)
    # distribution of the arrivals until the next worker is free, (A, k); the rest to 1 restarts
    arrivals: FloatArray
    slack_probability: FloatArray  # distribution of the slack bin
    # in_time, earned: expected requests in time of a batch; their accuracy less prices, (N, A, J)
    in_time: FloatArray
    earned: FloatArray
    # lowest, highest: first and last needed bin
    lowest: IntArray
    highest: IntArray
    # edge_ms, slack_ms, age_ms: low edge and middle of each bin; mean age of the head in it
    edge_ms: FloatArray
    slack_ms: FloatArray
    age_ms: FloatArray
    # left_age, parts: age of the next head as a share of the head's, by parts of its distribution
    left_age: FloatArray
    parts: FloatArray
    spacing_ms: FloatArray  # mean time until the next worker is free, given the arrivals meanwhile
    after_drop: NDArray[np.int16]  # bin after dropping from a level to a lower one
    # low, share: a queue of any length as a mix of two levels: the lower one, and the next's share
    low: IntArray
    share: FloatArray
    slo_ms: float
    carries: bool  # whether the head's age is kept when the last idle worker starts
    # load, leave, price, workers: λ per ms, 1/SLO, violation price, K
    load: float
    leave: float
    price: float
    workers: int
    restart: float  # rate per ms at which a queue with idle workers is returned to empty, all idle


def central_model(
    problem: CentralProblem, restart: float, actions: IntArray | None = None
) -> CentralArrays:
    """Build the arrays of a problem that returns to empty at a rate ``restart`` per ms.

    With ``actions``, sorted, the other ones have no rewards: enough for a policy without them.
    """
    lowest, highest = _kernels.needed_bins(problem.slack_distribution, problem.after_drop)
    low, share = _kernels.place(problem.queue, int(problem.queue[-1]))
    batch, mean_ms = problem.action_batch, problem.mean_ms
    in_time, earned = _kernels.worth_of_batches(
        problem.queue, problem.slack_in_queue_ms, uniform(_kernels.BatchTerms(
            batch, mean_ms, problem.accuracy, problem.quantiles_ms, problem.times.levels,
            problem.slo_ms, problem.price, problem.delay_price)),
        np.arange(len(batch)) if actions is None else actions)
    # While all workers are busy the chain may restart: the probabilities of the arrivals then sum
    # to less than 1.
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
        earned=earned,
        lowest=lowest, highest=highest, edge_ms=problem.slack_ms,
        slack_ms=(problem.slack_ms + np.append(problem.slack_ms[1:], problem.slo_ms)) / 2,
        age_ms=problem.mean_age_ms, left_age=left_age, parts=PARTS,
        spacing_ms=problem.spacing_ms,
        after_drop=problem.after_drop, low=low, share=share, slo_ms=problem.slo_ms,
        carries=carries, load=problem.load,
        leave=1.0 / problem.slo_ms, price=problem.price, workers=problem.workers,
        restart=restart,
    ))
