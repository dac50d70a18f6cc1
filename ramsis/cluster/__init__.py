"""Service times, worker types, SLO classes, and the cluster that they form.

Splits of arrivals are in :mod:`ramsis.cluster.routing`, which loads arrival processes.

May import: arrivals, profiles, runtime.
"""

from ramsis.checks import check_arguments
from ramsis.cluster.cluster import Cluster, SloClass, WorkerType, merged_classes
from ramsis.cluster.service_times import DISTRIBUTION, ServiceTimes, default_service
from ramsis.lazy_names import names_from

__all__ = ["DISTRIBUTION", "Cluster", "ServiceTimes", "SloClass", "WorkerType",
           "default_service", "merged_classes"]

__getattr__, __dir__ = names_from(globals())

check_arguments(globals(), ["Cluster", "SloClass", "WorkerType"])
