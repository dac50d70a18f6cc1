"""What a policy promises: expectations under its stationary distribution.

May import: central, policy, profiles, worker.
"""

from ramsis.analysis.worker import WorkerAnalysis, analyse_worker
from ramsis.checks import check_arguments

__all__ = ["WorkerAnalysis", "analyse_worker"]

check_arguments(globals(), __all__)
