"""Expectations of a policy under its stationary distribution: the promise in its file.

May import: bounds, central, cluster, policy, profiles, worker.
"""

from ramsis.analysis.worker import WorkerAnalysis, analyse_worker
from ramsis.lazy_names import names_from

__all__ = ["WorkerAnalysis", "analyse_worker"]

__getattr__, __dir__ = names_from(globals(), {
    "ramsis.analysis.central": "CentralAnalysis",
})
