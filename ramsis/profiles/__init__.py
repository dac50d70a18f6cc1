"""Latency and accuracy profiles of models: data model, files, and the latency table.

May import: logs.
"""

from __future__ import annotations

from ramsis.checks import check_arguments
from ramsis.lazy_names import names_from
from ramsis.profiles.batch import STATISTICS, BatchProfile, Statistic
from ramsis.profiles.confidences import Confidences, ModelConfidence, Pair
from ramsis.profiles.file import FORMAT, load, save, shipped_names
from ramsis.profiles.model import ModelProfile, ProfileSet
from ramsis.profiles.pareto import between_models, interpolate_front, pareto_front, prune
from ramsis.profiles.sized import SizedTimes
from ramsis.profiles.table import LatencyTable, Origin
from ramsis.profiles.values import ProfileError

__all__ = [
    "FORMAT",
    "STATISTICS",
    "BatchProfile",
    "Confidences",
    "LatencyTable",
    "ModelConfidence",
    "ModelProfile",
    "Origin",
    "Pair",
    "ProfileError",
    "ProfileSet",
    "SizedTimes",
    "Statistic",
    "between_models",
    "interpolate_front",
    "load",
    "pareto_front",
    "prune",
    "save",
    "shipped_names",
]

__getattr__, __dir__ = names_from(globals(), {
    "ramsis.profiles.checks": "Finding check_profile",
    "ramsis.profiles.importers": "import_profile",
    "ramsis.profiles.measure": "measure_profile sample_batches",
})

check_arguments(globals(), ["ProfileSet", "load"])
