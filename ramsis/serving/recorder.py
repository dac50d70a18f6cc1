"""Recorder of queries and batches: Prometheus metrics, and lines of the request log."""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections import Counter as Counted
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from ramsis.audit.request_log import Request, RequestLogWriter
from ramsis.errors import OutputError
from ramsis.runtime.station_queues import Start, Ticket
from ramsis.serving.calls import Query, Served
from ramsis.serving.logs import Log
from ramsis.serving.policies import Expected

# Bounds of histogram bins, finer in the usual range of deadlines.
_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_MS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_RATIO = (0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0, 5.0)
_SLACK = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

_MOST_HELD = 1 << 24  # largest number of waiting characters for a file; further lines are lost
_LAST_LINES_S = 1.0  # time for writing the last lines when the server ends


class RequestRecorder:
    """Recorder of requests in the metrics, and in the file ``request_log`` if there is one.

    While that file cannot be written, lines are lost. ``log`` is the function for the structured
    log; ``sized`` says whether requests have a size.
    """

    def __init__(
        self, metrics: ServerMetrics, request_log: str | os.PathLike[str] | None, log: Log,
        *, sized: bool = False,
    ) -> None:
        self.metrics, self._log = metrics, log
        self.begun_ms = 0.0  # when the log starts, on the front end's clock
        self._failing = False
        self._thread: threading.Thread | None = None  # that brings lines to the file
        self._observed: dict[str, list[Any]] = {}
        self._writer = RequestLogWriter(request_log, sized=sized) if request_log else None

    def query(
        self, ticket: Ticket[Query], outcome: str, now_ms: float, served: Served | None
    ) -> None:
        """Record an ended query; ``served`` is None if it did not run."""
        variant = served.variant if served else ""
        self.metrics.queries.of[outcome, variant] += 1
        if self._writer is None:
            return
        call, zero = ticket.request.call, self.begun_ms
        line = Request((call.arrival_ms - zero) / 1000.0, None, (now_ms - zero) / 1000.0,
                       call.deadline_ms - call.arrival_ms, outcome,
                       size=ticket.request.size or None)
        if served is not None:
            line = line._replace(
                start_s=(served.start_ms - zero) / 1000.0,
                finish_s=(served.finish_ms - zero) / 1000.0, model=served.variant,
                batch=served.batch, run_as=served.run_as, worker=served.worker)
        self._writer.write(line)

    def batch(self, start: Start[Query], served: Served, expected: Expected) -> None:
        """Record a batch that has ended, in the metrics."""
        metrics, service_ms = self.metrics, served.finish_ms - served.start_ms
        of_variant = self._observed.get(served.variant)
        if of_variant is None:
            of_variant = self._observed[served.variant] = [
                histograms.labels(served.variant)
                for histograms in (metrics.batch, metrics.service, metrics.ratio)]
        batch, service, ratio = of_variant
        batch.observe(served.batch)
        service.observe(service_ms)
        metrics.slack.observe(max(start.slack_ms, 0.0))
        metrics.waiting.observe(served.start_ms - start.tickets[0].request.call.arrival_ms)
        expected_ms = expected.service_ms(served.variant, served.run_as)
        if expected_ms:
            ratio.observe(service_ms / expected_ms)

    def flush(self) -> None:
        """Start writing lines to the log's file, unless earlier lines are still being written.

        A thread writes them, as the file may be a pipe whose reader has stopped.
        """
        if self._writer is None:
            return
        if not self._flushes():
            thread = threading.Thread(
                target=self._put, args=(self._writer, self._writer.take()), daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the system gives no more threads
                self._failed(str(error))
            else:
                self._thread = thread
        elif self._writer.held > _MOST_HELD:
            self._writer.take()
            self._failed("its reader has stopped")

    def close(self) -> None:
        """Close the log, with a short wait for its file."""
        if self._writer is None:
            return
        self._flushes(_LAST_LINES_S)
        self.flush()
        if not self._flushes(_LAST_LINES_S):
            self._writer.close()

    def _flushes(self, wait_s: float = 0.0) -> bool:
        """Wait up to ``wait_s`` for the writing thread; return whether it still runs."""
        if self._thread is not None:
            self._thread.join(wait_s)
        return self._thread is not None and self._thread.is_alive()

    def _put(self, writer: RequestLogWriter, lines: bytes) -> None:
        try:
            writer.put(lines)
        except OutputError as error:
            self._failed(str(error))
        else:
            self._failing = False

    def _failed(self, reason: str) -> None:
        """Report a failure once, until it works again."""
        self.metrics.log_failures.inc()
        if not self._failing:
            self._log("request log failed", reason=reason)
        self._failing = True


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
