"""Variants of a placement problem from a latency profile."""

from __future__ import annotations

from collections.abc import Sequence

from placement_milp.problem import Latency, Variant
from ramsis.errors import InvalidValueError, describe
from ramsis.profiles import ProfileSet, Statistic

__all__ = ["variants_from_profile"]


def variants_from_profile(
    profile: ProfileSet, family: str, worker_type: str, *, statistic: Statistic = "p95",
    batches: Sequence[int] = (1, 2, 4, 8, 16, 32),
) -> tuple[Variant, ...]:
    """A variant for each model of a profile, named ``FAMILY/MODEL``.

    Parameters
    ----------
    profile : ProfileSet
        Models need ``memory_mb``.
    family : str
        That the variants answer.
    worker_type : str
        That the profile was measured on.
    statistic : str
        Which latency of the profile is the batch's.
    batches : sequence of int
        Batch sizes; those that the profile did not measure are left out.

    Raises
    ------
    InvalidValueError
        A model without memory, or a profile without the statistic.
    """
    table = profile.latency_table(statistic, max(batches))
    found = []
    for model in profile.models:
        if model.memory_mb is None:
            raise InvalidValueError(describe("model has no memory_mb", where=model.name,
                                             allowed="a profile with the memory of each model"))
        measured = {batch.batch for batch in model.batches}
        row = table.latency_ms[table.models.index(model.name)]
        found.append(Variant(
            f"{family}/{model.name}", family, model.accuracy, model.memory_mb,
            model.load_ms or 0.0,
            tuple(Latency(worker_type, batch, float(row[batch - 1]))
                  for batch in batches if batch in measured),
        ))
    return tuple(found)
