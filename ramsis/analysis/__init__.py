"""What a policy promises: expectations under its stationary distribution.

May import: central, policy, profiles, worker.
"""

from ramsis.analysis.worker import WorkerAnalysis, analyse_worker

__all__ = ["WorkerAnalysis", "analyse_worker"]
