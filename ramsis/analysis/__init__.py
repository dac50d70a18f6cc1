"""What a policy promises: expectations under its stationary distribution.

May import: bounds, central, cluster, policy, profiles, worker.
"""

from ramsis.analysis.worker import WorkerAnalysis, analyse_worker

__all__ = ["WorkerAnalysis", "analyse_worker"]
