"""What the server measures of itself, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

__all__ = ["ServerMetrics"]

_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_MS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_RATIO = (0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0, 5.0)
_SLACK = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class ServerMetrics:
    """Counters, histograms and gauges of one server.

    Attributes
    ----------
    registry
        That holds them.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.queries = Counter("ramsis_queries", "Queries by outcome and variant",
                               ["outcome", "variant"], registry=registry)
        self.refused = Counter("ramsis_refused", "Requests that were not accepted, by status",
                               ["status"], registry=registry)
        self.batch = Histogram("ramsis_batch_size", "Queries in a batch", ["variant"],
                               buckets=_BATCHES, registry=registry)
        self.service = Histogram("ramsis_service_ms", "Time from the start of a batch to its end",
                                 ["variant"], buckets=_MS, registry=registry)
        self.ratio = Histogram("ramsis_service_ratio",
                               "Service time of a batch as a multiple of the profile's mean",
                               ["variant"], buckets=_RATIO, registry=registry)
        self.waiting = Histogram("ramsis_waiting_ms", "Time from arrival to the start of a batch",
                                 buckets=_MS, registry=registry)
        self.slack = Histogram("ramsis_slack_at_start_ms",
                               "Slack of the earliest deadline when a batch starts, 0 if past",
                               buckets=_SLACK, registry=registry)
        self.restarts = Counter("ramsis_worker_restarts", "Workers started anew",
                                registry=registry)
        self.swaps = Counter("ramsis_policy_swaps", "Policy sets taken into service",
                             registry=registry)
        self.log_failures = Counter(
            "ramsis_request_log_failures", "Times that the request log could not be written",
            registry=self.registry)
        self.bad_sets = Counter("ramsis_policy_errors",
                                "Policy sets that were found and could not be served",
                                registry=registry)
        self.drifts = Counter("ramsis_drift_alarms", "Alarms of drift, by what drifts", ["what"],
                              registry=registry)

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read when it is asked for."""
        Gauge(name, text, registry=self.registry).set_function(read)

    def text(self, accepted: str) -> tuple[bytes, str]:
        """All of it and its content type: OpenMetrics, but for who accepts only Prometheus' own.

        Parameters
        ----------
        accepted
            The request's header ``Accept``, or nothing.
        """
        encoded, content_type = choose_encoder(
            accepted if "text/plain" in accepted else "application/openmetrics-text")
        return encoded(self.registry), content_type
