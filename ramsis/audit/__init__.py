"""Audits of served requests: how good serving was, why not better, and what has changed.

The room stands below the servers, which write request logs, and above synthesis: audits compare
with policies that are generated and simulated.

May import: arrivals, bounds, cluster, logs, profiles, runtime, sim, sized,
synthesis.
"""

from __future__ import annotations

from ramsis.lazy_names import names_from

__getattr__, __dir__ = names_from(globals(), {
    "ramsis.audit.audit": "Achieved Audit AuditSettings audit_log",
    "ramsis.audit.drift": "ArrivalDrift DriftAlarm ServiceDrift",
    "ramsis.audit.request_log": "Request RequestLog RequestLogWriter read_request_log "
                                "write_request_log",
    "ramsis.audit.sized": "SizedAudit audit_sized",
})
