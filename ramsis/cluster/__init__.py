"""What serves: service times, variants, worker types, stations, and how requests reach them."""

from ramsis.cluster.service_times import DISTRIBUTION, ServiceLaw
from ramsis.cluster.slo_class import SloClass, merged_classes

__all__ = ["DISTRIBUTION", "ServiceLaw", "SloClass", "merged_classes"]
