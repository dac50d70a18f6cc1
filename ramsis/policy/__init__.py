"""The policy file: its data model, its schema, reading and writing, and the set's manifest."""

from __future__ import annotations

from ramsis.policy.fleet import FLEET_SERVICES, FleetModel, FleetPolicy
from ramsis.policy.manifest import (
    ManifestEntry,
    entry_for,
    policy_file_name,
    read_manifest,
    read_set,
    validate_set,
    write_manifest,
)
from ramsis.policy.records import (
    BudgetRecord,
    CertificateRecord,
    Expectations,
    Inputs,
    PerDecision,
    PolicyModel,
    Spread,
)
from ramsis.policy.storage import Policy, policy_text, read, validate, write
from ramsis.policy.worker import DISPATCHES, OBJECTIVES, SERVICES, WorkerPolicy
from ramsis.runtime.manifest import MANIFEST_FORMAT, MANIFEST_NAME
from ramsis.runtime.table import BATCHINGS, KINDS, LATE_RULES, POLICY_FORMAT, arrivals_label

__all__ = [
    "BATCHINGS",
    "DISPATCHES",
    "FLEET_SERVICES",
    "KINDS",
    "LATE_RULES",
    "MANIFEST_FORMAT",
    "MANIFEST_NAME",
    "OBJECTIVES",
    "POLICY_FORMAT",
    "SERVICES",
    "BudgetRecord",
    "CertificateRecord",
    "Expectations",
    "FleetModel",
    "FleetPolicy",
    "Inputs",
    "ManifestEntry",
    "PerDecision",
    "Policy",
    "PolicyModel",
    "Spread",
    "WorkerPolicy",
    "arrivals_label",
    "entry_for",
    "policy_file_name",
    "policy_text",
    "read",
    "read_manifest",
    "read_set",
    "validate",
    "validate_set",
    "write",
    "write_manifest",
]
