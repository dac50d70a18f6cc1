"""The rule for requests with a size, beside the exact optimum for two sizes.

python scripts/two_sizes.py

Time is cut into slots of 10 ms. In each a short request and a long one come, each with a
probability of its own, and are due seven slots later; a batch takes a whole number of slots. Which
requests wait is then a state of finitely many, and the best value of a slot is computed exactly
(``tests/reference/two_sizes.py``). The schedulers' deadlines are half a slot later, which changes
nothing, as batches end with slots: a slack that is exactly a batch's time would be a question of
rounding to bins. Tables of times, probabilities and weights are random. The rule
is searched on one stream of requests, and plays another together with the optimal policy.

Each setting is written as soon as it has ended; those that the file has are not run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from study import keep_rows

from ramsis.arrays import BoolArray, FloatArray, IntArray
from ramsis.arrivals import SizeDistribution
from ramsis.sim import Recorded
from ramsis.sized import BatchTimes, SizedProblem, path_bound
from ramsis.sized.rule import IndexRule
from ramsis.sized.schedulers import SizedScheduler, sized_scheduler
from ramsis.sized.search import fit_rule
from ramsis.sized.simulate import serve_sized
from tests.reference.two_sizes import TwoSizes, simulated, solved

SLOT_MS, DEADLINE, MOST = 10.0, 7, 4
SEARCHED, PLAYED = 6_000, 20_000  # slots


class Stream(NamedTuple):
    """Requests that come in slots."""

    came: BoolArray  # whether a short and a long one came, shape (slots, 2)
    arrival_ms: FloatArray
    size: IntArray

    @classmethod
    def drawn(cls, problem: TwoSizes, slots: int, rng: np.random.Generator) -> Stream:
        """Return the requests of some slots."""
        came = rng.random((slots, 2)) < np.array(problem.probability)
        slot, kind = np.nonzero(came)
        return cls(came, SLOT_MS * slot.astype(float), kind + 1)


def drawn_setting(number: int) -> TwoSizes:
    """Return the problem of a setting: random times that fall with neither count nor size."""
    rng = np.random.default_rng(number)
    short = 1 + np.cumsum(rng.random(MOST) < 0.4)
    long = np.maximum(short, short[0] + rng.integers(0, 3) + np.cumsum(rng.integers(0, 2, MOST)))
    slots = np.minimum(np.array([short, long]), DEADLINE)
    load = rng.uniform(0.8, 1.5)  # of what full batches of like sizes would serve
    share = rng.uniform(0.5, 0.9)
    each = (slots / np.arange(1, MOST + 1)).min(axis=1)
    rate = load / (share * each[0] + (1.0 - share) * each[1])
    probability = (min(0.95, share * rate), min(0.95, (1.0 - share) * rate))
    return TwoSizes(slots, DEADLINE, probability, (1.0, float(rng.choice([1.0, 1.0, 2.0, 4.0]))))


def sized_problem(problem: TwoSizes) -> SizedProblem:
    """Return the same problem as ``ramsis.sized`` states it."""
    short, long = SLOT_MS * problem.slots
    time_ms = np.stack([short, short, long, long], axis=1)[None]
    return SizedProblem(
        models=("encoder",), accuracy=np.ones(1), times=BatchTimes(True, 1, time_ms),
        slo_ms=SLOT_MS * (problem.deadline + 0.5), workers=1,
        sizes=SizeDistribution((1, 2), problem.probability), edges=(1, 2),
        weights=problem.weight, unit="slots", max_size=2)


def value_of_slot(sized: SizedProblem, scheduler: SizedScheduler, stream: Stream) -> float:
    """Return the value that a scheduler earns in a slot."""
    slots = len(stream.came)
    run = serve_sized(sized, scheduler, stream.arrival_ms, stream.size,
                      duration_ms=SLOT_MS * slots).run
    answered = run.batch_of >= 0
    finish_ms = np.full(len(answered), np.inf)
    finish_ms[answered] = run.finish_ms[run.batch_of[answered]]
    in_time = finish_ms <= stream.arrival_ms + sized.slo_ms + 1e-6
    return float(np.array(sized.weights)[stream.size - 1] @ in_time) / slots


def played(setting: int) -> Iterator[dict[str, object]]:
    """Yield the row of the setting of a number."""
    problem = drawn_setting(setting)
    sized, optimum = sized_problem(problem), solved(problem)
    rng = np.random.default_rng(1000 + setting)
    searched, played = (Stream.drawn(problem, slots, rng) for slots in (SEARCHED, PLAYED))
    workload = Recorded(searched.arrival_ms, SLOT_MS * SEARCHED, sizes=searched.size)
    rule = IndexRule(fit_rule(sized, workload).tables)
    sharp = replace(sized, slo_ms=SLOT_MS * DEADLINE)
    bound = path_bound(sharp, played.arrival_ms, played.size, rounds=0)
    yield {
        "setting": setting, "short": " ".join(map(str, problem.slots[0])),
        "long": " ".join(map(str, problem.slots[1])), "weight": problem.weight[1],
        "load": round(sum(problem.probability), 4), "optimum": optimum.low,
        "rule": value_of_slot(sized, rule, played),
        "replanned_dp": value_of_slot(sized, sized_scheduler("replanned-dp"), played),
        "best_policy": simulated(problem, optimum, played.came) / PLAYED,
        "bound": bound.upper_bound * len(played.size) / PLAYED}


if __name__ == "__main__":
    keep_rows(__doc__, "two-sizes", [{"setting": number} for number in range(20)], played)
