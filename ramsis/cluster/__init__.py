"""What serves: service times, variants, worker types, stations, and how requests reach them.

Splits of arrivals are in :mod:`ramsis.cluster.routing`, which loads arrival processes.
"""

from ramsis.checks import check_arguments
from ramsis.cluster.service_times import DISTRIBUTION, ServiceTimes, default_service
from ramsis.cluster.slo_class import SloClass, merged_classes
from ramsis.cluster.station import Cluster, Station
from ramsis.cluster.worker_type import Variant, WorkerType

__all__ = ["DISTRIBUTION", "Cluster", "ServiceTimes", "SloClass", "Station", "Variant",
           "WorkerType", "default_service", "merged_classes"]

check_arguments(globals(), __all__)
