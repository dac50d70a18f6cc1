"""Rewards of scheduling agents, from the thesis on reinforcement learning in Clockwork.

At a decision on a worker the agent gets

    in_time · (answers in time since the last decision)
    - violated · (requests late or lapsed since then)
    - cost · (time of the batches that it starts)
    + early · (time alone of their requests that will be in time)
    - correction · early · (time alone of the requests late or lapsed since the last decision)
    - work · (time that the worker still has to work at the decision)

with times in ms, *alone* in a batch of one. Requests answered before their stream's
``earliest_ms`` count with the late ones. The thesis compares three:

``sparse``
    its first: 1 for an answer in time, -1 for a violation.
``early``
    its second: each request costs its share of the batch and earns twice its time alone when it
    is scheduled; three times that is subtracted on a violation. So larger batches earn more.
``work``
    its third: like ``early``, with a cost of the worker's queued work. The thesis states no factor
    for this. With ours, 1.5, and a discount of 0.9 a batch of one of 2.7 ms pays on a worker with
    less than 0.8 ms of work, so that requests wait where they can still form batches.

``work:work=1,early=3`` changes factors of a reward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches

from ramsis.errors import InvalidValueError, check_not_negative


@dataclass(frozen=True)
class Reward:
    """Factors of the terms in an agent's reward, all at least 0."""

    in_time: float = 0.0
    violated: float = 0.0
    cost: float = 0.0
    early: float = 0.0
    correction: float = 0.0
    work: float = 0.0

    def __post_init__(self) -> None:
        check_not_negative("factor of a reward out of range", inside="reward: ", **asdict(self))


REWARDS: Mapping[str, Reward] = {  # in the order of the thesis
    "sparse": Reward(in_time=1.0, violated=1.0),
    "early": Reward(cost=1.0, early=2.0, correction=3.0),
    "work": Reward(cost=1.0, early=2.0, correction=3.0, work=1.5),
}


def reward_named(text: str) -> Reward:
    """Parse ``name`` or ``name:factor=value,…`` as a reward with changed factors.

    >>> reward_named("work:work=1").work
    1.0
    """
    name, _, settings = text.partition(":")
    if name not in REWARDS:
        near = get_close_matches(name, REWARDS) or list(REWARDS)
        raise InvalidValueError("unknown reward", where="reward", value=name,
                                allowed=", ".join(near))
    names = [factor.name for factor in fields(Reward)]
    factors: dict[str, float] = {}
    for part in filter(None, settings.split(",")):
        key, _, value = part.partition("=")
        try:
            if key not in names or key in factors:
                raise ValueError(key)
            factors[key] = float(value)
        except ValueError:
            raise InvalidValueError("not a factor of the reward", where=f"reward {name}",
                                    value=part,
                                    allowed=", ".join(f"{name}=…" for name in names)) from None
    return replace(REWARDS[name], **factors)
