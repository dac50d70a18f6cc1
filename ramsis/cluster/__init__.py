"""What serves: service times, variants, worker types, stations, and how requests reach them."""

from ramsis.cluster.routing import StationArrivals, split
from ramsis.cluster.service_times import DISTRIBUTION, ServiceTimes
from ramsis.cluster.slo_class import SloClass, merged_classes
from ramsis.cluster.station import Cluster, Station
from ramsis.cluster.worker_type import Variant, WorkerType

__all__ = ["DISTRIBUTION", "Cluster", "ServiceTimes", "SloClass", "Station", "StationArrivals",
           "Variant", "WorkerType", "merged_classes", "split"]
