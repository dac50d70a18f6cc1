"""Slow-downs of batches that run on one GPU at once.

The engine asks for speeds whenever a batch starts or ends; a slow-down is a function of a worker
and what runs there. A function of one's own, of the same form, may stand in its place.
"""

from __future__ import annotations

from collections.abc import Sequence

from ramsis.cluster.interference import Interference, Load
from ramsis.sim.engine.progress import Running


class InterferenceSlowdown:
    """Speeds by an :class:`~ramsis.cluster.interference.Interference`.

    Parameters
    ----------
    interference : Interference
    names : sequence of str
        Of the models, as the engine numbers them.
    utilisation : sequence of sequence of sequence of float
        ``utilisation[w][m][n]``: of a batch of n of model m on worker w.
    """

    def __init__(
        self, interference: Interference, names: Sequence[str],
        utilisation: Sequence[Sequence[Sequence[float]]],
    ) -> None:
        self._interference, self._names, self._utilisation = interference, names, utilisation

    def __call__(self, worker: int, running: Sequence[Running]) -> list[float]:
        """Speeds of the batches."""
        used = self._utilisation[worker]
        loads = [Load(self._names[one.model], one.size, used[one.model][one.size], one.share)
                 for one in running]
        return [1.0 / factor for factor in self._interference.beside(loads)]
