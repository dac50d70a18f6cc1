"""Arrival processes with their count probabilities PF(k, T); arrival traces and process fitting.

May import: logs.
"""

from ramsis.arrivals.loads import parse_loads
from ramsis.arrivals.modulated import MarkovModulated
from ramsis.arrivals.negative_binomial import NegativeBinomial
from ramsis.arrivals.process import ArrivalProcess, Sampler, is_orderly
from ramsis.arrivals.registry import SHIPPED, Arrivals, describe_process, patterns
from ramsis.arrivals.renewal import FixedRate, Poisson, Renewal
from ramsis.checks import check_arguments
from ramsis.lazy_names import names_from

__all__ = [
    "SHIPPED",
    "ArrivalProcess",
    "Arrivals",
    "FixedRate",
    "MarkovModulated",
    "NegativeBinomial",
    "Poisson",
    "Renewal",
    "Sampler",
    "describe_process",
    "is_orderly",
    "parse_loads",
    "patterns",
]

__getattr__, __dir__ = names_from(globals(), {
    "ramsis.arrivals.fitting": "ProcessFit TraceFit fit_trace",
    "ramsis.arrivals.load_table": "shipped_traces",
    "ramsis.arrivals.reading": "ReadTrace read_any_trace",
    "ramsis.arrivals.sizes": "SizeDistribution",
    "ramsis.arrivals.timestamps": "read_timestamps",
    "ramsis.arrivals.trace": "RateTrace Recorded",
    "ramsis.arrivals.trace_formats.sizes": "ReadSizes read_sizes",
})

check_arguments(globals(), ["Poisson", "parse_loads"])
