"""Open-loop load generator: requests are sent at scheduled times, independent of answers.

Latencies count from the *scheduled* time of a request. A generator that waits for answers, or is
delayed itself, sends too late, and would omit the time that its requests would have waited
("coordinated omission"); this way it is included. The delay of sending is reported separately.

A thread sleeps until each scheduled time and wakes the event loop, as the timers of event loops
are coarse (a millisecond). The number of connections is unlimited.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import orjson

from ramsis.arrays import FloatArray
from ramsis.arrivals.process import check_amount
from ramsis.audit.request_log import OUTCOMES, Request
from ramsis.cluster import SloClass
from ramsis.errors import InputFileError, InvalidValueError, printable
from ramsis.reprs import dataclass
from ramsis.serving.event_loop import event_loop
from ramsis.serving.load.client import HEAD_LENGTH, RemoteModel, Samples, heard
from ramsis.serving.load.connections import ConnectionPool, Response
from ramsis.serving.load.settings import LoadSettings
from ramsis.sim import Workload
from ramsis.sim.experiment import streams
from ramsis.sim.fleet import drawn_slos

_LEAD_S = 0.2  # time between the preparations and the first request
_BYTES_EACH = 400.0  # memory per scheduled request
_DROPPED = (429, 503)  # status codes by which servers refuse load
_SHOWN = 200  # shown characters of an error
_NEVER = 10**6  # new objects before a garbage collection, which is practically never
_SWITCHES_S = 2e-4  # interpreter's switch interval: longest wait of the sending thread


@dataclass(frozen=True, eq=False)
class LoadResult:
    """Outcomes of the requests of a load generator's run."""

    requests: list[Request]  # by scheduled time; times are relative to the start
    lag_ms: FloatArray  # delay of sending after the scheduled time, shape (n,)
    first_failure: str  # error of the first failed request; empty without failures
    stages: Mapping[str, int]  # number of answers by stage; empty if none states one


@dataclass(frozen=True, eq=False)
class Timetable:
    """Times and deadlines of the requests to send, and the random generator for their contents."""

    # arrival_s, slo_ms: shape (n,)
    arrival_s: FloatArray
    slo_ms: FloatArray
    rng: np.random.Generator


def planned(workload: Workload, classes: Sequence[SloClass], seed: int) -> Timetable:
    """Return the arrivals and SLO classes of a simulation with the same seed."""
    arrivals, _, slos, other = streams(seed)
    arrival_ms = workload.arrivals_ms(arrivals)
    check_amount(len(arrival_ms), bytes_each=_BYTES_EACH)
    if not len(arrival_ms):
        raise InvalidValueError("no request in this time", where="workload",
                                allowed="a higher load, or more seconds")
    slo_ms = drawn_slos(classes, len(arrival_ms), slos)
    if slo_ms is None:
        slo_ms = np.full(len(arrival_ms), classes[0].slo_ms)
    return Timetable(arrival_ms / 1000.0, slo_ms, other)


def summary(result: LoadResult, duration_ms: float) -> dict[str, Any]:
    """Return the figures of a run, by the names that all commands use.

    Accuracies are shares of correct answers, None if these are unknown. ``second_opinions`` is the
    share of requests answered by one, if answers state their stage.
    """
    requests = result.requests
    counts = Counter(request.outcome for request in requests)
    answered = [request for request in requests if request.outcome in ("served", "late")]
    response_ms = [1000.0 * ((request.finish_s or 0.0) - request.arrival_s)
                   for request in answered]
    judged = [request.correct for request in answered
              if request.outcome == "served" and request.correct is not None]
    judges_all = len(judged) == counts["served"] > 0
    models = Counter(request.model for request in answered)
    p50, p95, p99 = (np.quantile(response_ms, (0.5, 0.95, 0.99)).tolist() if response_ms
                     else [None] * 3)
    return {
        "requests": len(requests), "duration_s": duration_ms / 1000.0,
        "offered_qps": 1000.0 * len(requests) / duration_ms,
        **{name: counts[name] for name in OUTCOMES},
        "accuracy": float(np.mean(judged)) if judges_all else None,
        "violation_rate": 1.0 - counts["served"] / len(requests),
        "effective_accuracy": sum(judged) / len(requests) if judges_all else None,
        "response_p50_ms": p50, "response_p95_ms": p95, "response_p99_ms": p99,
        "lag_p50_ms": float(np.median(result.lag_ms)),
        "lag_p99_ms": float(np.quantile(result.lag_ms, 0.99)),
        "model_share": {name: count / len(answered) for name, count in models.most_common()},
        **({"second_opinions": result.stages.get("second", 0) / len(requests)} if result.stages
           else {}),
    }


def generate_load(
    url: str, arrival_s: FloatArray, samples: Callable[[RemoteModel], Samples],
    settings: LoadSettings, *, rng: np.random.Generator, on_done: Callable[[], object] = int,
) -> LoadResult:
    """Send requests to a model at scheduled times, and return the outcomes.

    Parameters
    ----------
    url : str
        URL from :func:`ramsis.serving.load.settings.model_url`.
    arrival_s : ndarray, shape (n,)
        Scheduled times from the start, non-decreasing; one or more.
    samples : callable
        Returns the samples to send to a model.
    rng : Generator
        Draws the order of the samples: each is sent once before any is repeated.
    on_done : callable
        Called at each answer.
    """
    with event_loop() as runner:
        return runner.run(_Run(url, arrival_s, settings, on_done).run(samples, rng))


class _Run:
    """One run of the load generator against a server."""

    def __init__(
        self, url: str, arrival_s: FloatArray, settings: LoadSettings,
        on_done: Callable[[], object],
    ) -> None:
        self.url, self.arrival_s, self.settings = url, arrival_s.tolist(), settings
        self.on_done, self.first_failure = on_done, ""
        self.outcomes: list[Request | None] = [None] * len(self.arrival_s)
        self.lag_ms = np.zeros(len(self.arrival_s))
        self.stages = Counter[str]()

    async def run(
        self, samples: Callable[[RemoteModel], Samples], rng: np.random.Generator
    ) -> LoadResult:
        self.server = ConnectionPool(self.url, self.settings.timeout_s)
        try:
            self.model = await self._model()
            self.samples = samples(self.model)
            self.places = _places(len(self.samples), len(self.arrival_s), rng)
            with _undisturbed():
                await self._send_all()
        finally:
            self.server.close()
        return LoadResult([request for request in self.outcomes if request is not None],
                          self.lag_ms, self.first_failure, self.stages)

    async def _model(self) -> RemoteModel:
        """Request the model's metadata from its server."""
        base = self.url.partition("/v2/models/")[0]
        metadata = await self._json(self.url)
        about = await self._json(f"{base}/v2", required=False)
        extensions = about.get("extensions") if isinstance(about, dict) else None
        if not isinstance(extensions, list):
            extensions = []
        return RemoteModel.of(self.url, metadata, extensions, self.settings.tensors)

    async def _json(self, url: str, *, required: bool = True) -> Any:
        answer = await self.server.get(_path(url))
        failure = answer.failure
        if answer.status == 200:
            try:
                return orjson.loads(answer.body)
            except orjson.JSONDecodeError as error:
                failure = str(error)
        if not required:
            return None
        if failure:
            raise InputFileError(f"no answer of the server ({failure})", where=url)
        raise InputFileError(f"the server answers {_shown(answer)}", where=url)

    async def _send_all(self) -> None:
        loop = asyncio.get_running_loop()
        self.left, self.all_done = len(self.arrival_s), asyncio.Event()
        self.path = _path(self.model.url)
        self.begun = time.perf_counter() + _LEAD_S
        pace = threading.Thread(target=self._pace, args=(loop,), daemon=True)
        pace.start()
        await self.all_done.wait()

    def _pace(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake the event loop at each scheduled time; runs in a thread until the last one."""
        for first, after in _instants(self.arrival_s):
            wait = self.begun + self.arrival_s[first] - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            try:
                loop.call_soon_threadsafe(self._send, first, after)
            except RuntimeError:  # the loop was stopped
                return

    def _send(self, first: int, after: int) -> None:
        for number in range(first, after):
            place, slo_ms = self.places[number], float(self.settings.slo_ms[number])
            body = self.model.body(self.samples, place,
                                   slo_ms if self.settings.send_deadline else None)
            headers = {**body.headers, "Accept-Encoding": "identity"}
            self.lag_ms[number] = 1000.0 * (time.perf_counter() - self.begun
                                            - self.arrival_s[number])
            self.server.send("POST", self.path, partial(self._ended, number), headers, body.data)

    def _ended(self, number: int, answer: Response) -> None:
        """Record the outcome of a request that has been answered or has failed."""
        line = Request(self.arrival_s[number], deadline_ms=float(self.settings.slo_ms[number]),
                       finish_s=answer.at_s - self.begun, outcome="failed",
                       size=self.samples.size_of(self.places[number]))
        self.left -= 1
        if not self.left:
            self.all_done.set()
        try:
            line = self._read(answer, line, number)
        except InvalidValueError as error:
            self._failed(str(error))
        self.outcomes[number] = line
        self.on_done()

    def _read(self, answer: Response, line: Request, number: int) -> Request:
        """Return a request's record with the contents of its answer."""
        if answer.status != 200:
            if answer.status in _DROPPED:
                return line._replace(outcome="dropped")
            self._failed(answer.failure or _shown(answer))
            return line
        if encoding := answer.headers.get("content-encoding"):
            raise InvalidValueError("answer is compressed, which was not asked for",
                                    value=encoding, allowed="identity")
        contents = heard(answer.body, self.samples, self.places[number],
                         answer.headers.get(HEAD_LENGTH.lower()))
        took_ms = 1000.0 * (answer.at_s - self.begun - line.arrival_s)
        in_time = took_ms <= self.settings.slo_ms[number]
        fields = contents._asdict()
        if stage := fields.pop("stage"):
            self.stages[stage] += 1
        return line._replace(outcome="served" if in_time else "late", **fields)

    def _failed(self, why: str) -> None:
        self.first_failure = self.first_failure or printable(why)


def _shown(answer: Response) -> str:
    """Return status and text of an error, or the target of a redirect."""
    if to := answer.headers.get("location"):
        return f"{answer.status}, to {to[:_SHOWN]}, which is not followed"
    return f"{answer.status} {answer.body[:_SHOWN].decode(errors='replace')}".rstrip()


def _path(url: str) -> str:
    """Return a URL's path, percent-encoded by RFC 3986."""
    return quote(urlsplit(url).path, safe="/%!$&'()*+,;=:@~")


def _places(samples: int, requests: int, rng: np.random.Generator) -> list[int]:
    """Draw the sample of each request: random permutations of all samples, one after another."""
    rounds = -(-requests // samples)
    return [place for _ in range(rounds) for place in rng.permutation(samples).tolist()][:requests]


def _instants(arrival_s: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Yield index ranges of requests with equal scheduled times: first, and last plus one."""
    first = 0
    for number in range(1, len(arrival_s) + 1):
        if number == len(arrival_s) or arrival_s[number] > arrival_s[first]:
            yield first, number
            first = number


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Context that defers garbage collection and shortens thread switches, as both delay sends."""
    gc.collect()
    collects, switches_s = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(_NEVER, *collects[1:])
    sys.setswitchinterval(_SWITCHES_S)
    try:
        yield
    finally:
        sys.setswitchinterval(switches_s)
        gc.set_threshold(*collects)
