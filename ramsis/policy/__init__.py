"""Policies: their data model, their schema, reading and writing, and sets of them.

May import: arrivals, cluster, profiles, runtime.
"""

from __future__ import annotations

from ramsis.checks import check_arguments
from ramsis.lazy_names import names_from
from ramsis.policy.cascade import Cascade, CascadePromise
from ramsis.policy.policy import OBJECTIVES, SERVICES, Policy
from ramsis.policy.policy_set import (
    SetFolder,
    level_of,
    made_by,
    policy_file_name,
    rates_of,
    read_set,
    replaced_set,
    set_of,
    station_name,
    validate_set,
    write_set,
)
from ramsis.policy.records import (
    BudgetRecord,
    CertificateRecord,
    Expectations,
    Inputs,
    PerDecision,
    PolicyModel,
    Rates,
    Spread,
)
from ramsis.policy.storage import policy_text, read, validate, write
from ramsis.policy.table import codes_among, encoded
from ramsis.runtime.manifest import MANIFEST_FORMAT, MANIFEST_NAME
from ramsis.runtime.policy_set import Choice, Level, PolicySet, Station
from ramsis.runtime.routing import DISPATCHES
from ramsis.runtime.table import BATCHINGS, LATE_RULES, POLICY_FORMAT, arrivals_label

__all__ = [
    "BATCHINGS",
    "DISPATCHES",
    "LATE_RULES",
    "MANIFEST_FORMAT",
    "MANIFEST_NAME",
    "OBJECTIVES",
    "POLICY_FORMAT",
    "SERVICES",
    "BudgetRecord",
    "Cascade",
    "CascadePromise",
    "CertificateRecord",
    "Choice",
    "Expectations",
    "Inputs",
    "Level",
    "PerDecision",
    "Policy",
    "PolicyModel",
    "PolicySet",
    "Rates",
    "SetFolder",
    "Spread",
    "Station",
    "arrivals_label",
    "codes_among",
    "encoded",
    "level_of",
    "made_by",
    "policy_file_name",
    "policy_text",
    "rates_of",
    "read",
    "read_set",
    "replaced_set",
    "set_of",
    "station_name",
    "validate",
    "validate_set",
    "write",
    "write_set",
]

__getattr__, __dir__ = names_from(globals())

check_arguments(globals(), ["Policy", "PolicySet", "read"])
