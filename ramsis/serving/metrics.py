"""What the server measures of itself, for Prometheus."""

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

_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_MS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_RATIO = (0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0, 5.0)
_SLACK = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class _Observed:
    """How many values were up to each bound, and their sum; the last count is of those beyond."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.total = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Counts(Collector):
    """A counter by labels, for a single thread; see :class:`Histograms`."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        self._made = partial(CounterMetricFamily, name, text, labels=labels)
        self.of: Counted[tuple[str, ...]] = Counted()
        registry.register(self)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """As the library has it."""
        found = self._made()
        for values, count in self.of.items():
            found.add_metric(values, count)
        yield found


class Histograms(Collector):
    """Histograms of one name by variant, or one alone, for a single thread.

    Those of the library lock and count in Python objects, at each batch; these count in lists,
    and are made the library's when they are asked for.
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
        """The one of these values of the labels."""
        return self._of.setdefault(values, _Observed(self._bounds))

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """As the library has them."""
        found = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        for values, one in self._of.items():
            found.add_metric(values, list(zip(names, accumulate(one.counts), strict=True)),
                             one.total)
        yield found


class ServerMetrics:
    """Counters, histograms and gauges of one server, held by ``registry``."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.queries = Counts("ramsis_queries", "Queries by outcome and variant",
                              ["outcome", "variant"], registry)
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
        """A gauge that is read when it is asked for."""
        Gauge(name, text, registry=self.registry).set_function(read)

    def text(self, accepted: str) -> tuple[bytes, str]:
        """All of it and its content type, by ``Accept``: OpenMetrics, or only Prometheus' own."""
        encoded, content_type = choose_encoder(
            accepted if "text/plain" in accepted else "application/openmetrics-text")
        return encoded(self.registry), content_type
