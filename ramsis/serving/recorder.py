"""Recorder of queries and batches: counters, and lines of the request log."""

from __future__ import annotations

import os
import threading
from typing import Any

from ramsis.audit.request_log import Request, RequestLogWriter
from ramsis.errors import OutputError
from ramsis.runtime.station_queues import Start, Ticket
from ramsis.serving.calls import Query, Served
from ramsis.serving.logs import Log
from ramsis.serving.metrics import ServerMetrics
from ramsis.serving.policies import Expected

_MOST_HELD = 1 << 24  # largest number of waiting characters for a file; further lines are lost
_LAST_LINES_S = 1.0  # time for writing the last lines when the server ends


class RequestRecorder:
    """Recorder of requests in the metrics, and in the request log if there is one.

    Parameters
    ----------
    request_log
        File of the request log, if any. While it cannot be written, lines are lost.
    log
        Function for the structured log.
    sized
        Whether requests have a size.
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
        """Record an ended batch."""
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
        """Wait for the writing thread, and return whether it is still running."""
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
