"""Prometheus metrics of the server."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Counted
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

# Bounds of histogram bins, finer in the usual range of deadlines.
_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_MS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_RATIO = (0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0, 5.0)
_SLACK = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class _Observed:
    """Histogram with upper bounds and the sum of values; the last bin is unbounded."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.total = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Counts(Collector):
    """Counter by labels, not thread-safe; see :class:`Histograms`."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        self._family = partial(CounterMetricFamily, name, text, labels=labels)
        self.of: Counted[tuple[str, ...]] = Counted()
        registry.register(self)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Return the counts as the library's metric."""
        family = self._family()
        for values, count in self.of.items():
            family.add_metric(values, count)
        yield family


class Histograms(Collector):
    """Histograms by variant, or a single one, not thread-safe.

    The library's histograms take a lock at each observation. These count in lists, and are
    converted to the library's on collection.
    """

    def __init__(
        self, name: str, text: str, bounds: Sequence[float], registry: CollectorRegistry,
        labels: Sequence[str] = (),
    ) -> None:
        self._name, self._text, self._bounds, self._labels = name, text, bounds, labels
        self._of = dict[tuple[str, ...], _Observed]()
        if not labels:
            self.labels()
        registry.register(self)

    def labels(self, *values: str) -> _Observed:
        """Return the histogram for values of the labels."""
        return self._of.setdefault(values, _Observed(self._bounds))

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Return the histograms as the library's metric."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        for values, observed in self._of.items():
            family.add_metric(values, list(zip(names, accumulate(observed.counts), strict=True)),
                              observed.total)
        yield family


class ServerMetrics:
    """Counters, histograms and gauges of one server, held by ``registry``."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.queries = Counts("ramsis_queries", "Queries by outcome and variant",
                              ["outcome", "variant"], registry)
        self.unsure = Counts(
            "ramsis_unsure_queries", "Queries with an unsure first answer, by the answer that was "
            "sent", ["stage"], registry)
        self.refused = Counts("ramsis_refused", "Requests that were not accepted, by status",
                              ["status"], registry)
        self.batch = Histograms("ramsis_batch_size", "Queries in a batch", _BATCHES, registry,
                                ["variant"])
        self.service = Histograms("ramsis_service_ms", "Time from the start of a batch to its end",
                                  _MS, registry, ["variant"])
        self.ratio = Histograms(
            "ramsis_service_ratio", "Service time of a batch as a multiple of the profile's mean",
            _RATIO, registry, ["variant"])
        self.waiting = Histograms("ramsis_waiting_ms", "Time from arrival to the start of a batch",
                                  _MS, registry).labels()
        self.slack = Histograms("ramsis_slack_at_start_ms",
                                "Slack of the earliest deadline when a batch starts, 0 if past",
                                _SLACK, registry).labels()
        self.restarts = Counter("ramsis_worker_restarts", "Workers started anew",
                                registry=registry)
        self.start_failures = Counter(
            "ramsis_worker_start_failures", "Times that a worker could not be started anew",
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
        """Add a gauge whose value is read when metrics are collected."""
        Gauge(name, text, registry=self.registry).set_function(read)

    def text(self, accepted: str) -> tuple[bytes, str]:
        """Encode all metrics as OpenMetrics or Prometheus' text, by ``Accept``."""
        encoded, content_type = choose_encoder(
            accepted if "text/plain" in accepted else "application/openmetrics-text")
        return encoded(self.registry), content_type
