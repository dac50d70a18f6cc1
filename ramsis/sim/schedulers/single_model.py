"""What schedulers of one model share: the model, a batch limit, and an objective."""

from __future__ import annotations

from dataclasses import dataclass

from ramsis.errors import check_positive
from ramsis.sim.fleet import Fleet
from ramsis.sim.plan import PerType
from ramsis.sim.schedulers.fixed import check_limit


@dataclass(frozen=True)
class SingleModel(PerType):
    """A scheduler of one model with a batch limit.

    Parameters
    ----------
    model : str
        Its name.
    batch : int
        Batch limit; 0: the largest.
    objective : float
        What counts as the deadline, as a share of the SLO; > 0.
    """

    model: str
    batch: int = 0
    objective: float = 1.0

    def __post_init__(self) -> None:
        check_objective(self.objective)

    def limit(self, fleet: Fleet) -> int:
        """The largest batch."""
        check_limit(fleet, self.batch)
        return self.batch or fleet.max_batch


def check_objective(objective: float) -> None:
    """Refuse an objective that is no share of the SLO."""
    check_positive("not a share of the SLO", objective=objective)
