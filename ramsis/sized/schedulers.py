"""Schedulers of requests with a size, by name and with the parameters of their sources.

Each serves one model from one queue for all workers. Where the model's back end pads, a budget of
tokens is on count × longest size, as padded positions are computed too; else on the total size.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from ramsis.errors import (
    FRACTION,
    InputFileError,
    InvalidValueError,
    check_known,
    check_not_negative,
    check_number_of,
)
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.sim.registry import read_parameters
from ramsis.sim.schedulers.greedy import LATE
from ramsis.sized.problem import MAX_BATCH_BY_DEFAULT, BatchTimes, SizedProblem

if TYPE_CHECKING:
    from ramsis.sized import _kernels as kernels

POLICY = "central-queue"
"""Scheduler that stands for policies made for the load."""
ORDERS = ("urgent", "dense")
"""Which batch of a plan runs first: the oldest request's, or that of most requests in its time."""
_NO_BUDGET = 2**62
_BUDGET_ORDERS = ("arrival", "size")
_BUDGETS = tuple(2**power for power in range(3, 21))  # of which the best is searched


class Serving(NamedTuple):
    """Input of a scheduler for one run, with the room for its record."""

    problem: SizedProblem  # its times are those that the scheduler assumes
    stream: kernels.Stream  # the requests
    terms: kernels.Terms
    room: kernels.Room  # state and record of the run

    @property
    def arguments(self) -> tuple[kernels.Stream, BatchTimes, kernels.Terms, kernels.Room]:
        """First arguments that every compiled kernel takes."""
        return self.stream, self.problem.times, self.terms, self.room

    @property
    def in_time(self) -> int:
        """Number of requests that were answered in time."""
        answered = self.room.batch_of >= 0
        finish_ms = self.room.finish_ms[self.room.batch_of[answered]]
        due_ms = self.stream.arrival_ms[answered] + self.terms.slo_ms
        return int((finish_ms <= due_ms + 2.0 * SLACK_TOLERANCE_MS).sum())

    def again(self) -> Serving:
        """Return the same run in its initial state, to serve it again."""
        from ramsis.sized import _kernels as kernels

        return self._replace(room=kernels.room_for(len(self.stream.size), self.terms.workers))


class SizedScheduler(Protocol):
    """Interface of a scheduler of requests with a size."""

    @property
    def name(self) -> str:
        """Return the scheduler's name in tables of results."""
        ...

    @property
    def max_batch(self) -> int:
        """Largest number of requests in a batch."""
        ...

    def serve(self, serving: Serving) -> Mapping[str, float]:
        """Simulate a run into the arrays of ``serving``; return extra figures, by name."""
        ...


@dataclass(frozen=True)
class _SingleModel:
    """Base class of schedulers of requests with a size that serve one model."""

    model: str | None = None  # its name; the only one by default

    def index(self, problem: SizedProblem, name: str) -> int:
        """Return the index of the model; refuse an unknown name, or none among several models."""
        if self.model is None:
            if len(problem.models) > 1:
                raise InvalidValueError(
                    "serves one model", where=f"scheduler {name}", value="no model",
                    allowed=f"{name}:model=… of {', '.join(problem.models)}")
            return 0
        check_known("no such model", self.model, problem.models, f"scheduler {name}: model")
        return problem.models.index(self.model)


@dataclass(frozen=True)
class Tei(_SingleModel):
    """The queue of Hugging Face text-embeddings-inference.

    First come, first served: a batch takes requests from the front of the queue while its padded
    tokens (total tokens for models that do not pad) stay within ``max_tokens``, up to
    ``max_batch`` requests. An idle worker does not wait for further requests, and late requests
    are served, too. While ``max_concurrent`` requests wait or are served, new ones are rejected.

    Source: version 1.7, ``core/src/queue.rs``, ``core/src/infer.rs``; defaults as there
    (``--max-batch-tokens``, ``--max-batch-requests``, ``--max-concurrent-requests``). Its ONNX
    back end sets ``max_batch`` to 8, that of CPUs by Candle to 4. It refuses a budget below the
    longest request. Chosen here: a batch is composed when a worker is idle. The source composes
    it while the batch before still runs, from fewer requests.
    """

    name: ClassVar[str] = "tei"

    max_tokens: int = 16384
    max_batch: int = 512  # by default no limit but max_concurrent
    max_concurrent: int = 512

    def __post_init__(self) -> None:
        _check_counts(self, "max_tokens", "max_batch", "max_concurrent")

    def serve(self, serving: Serving) -> Mapping[str, float]:
        """Simulate a run into the arrays of ``serving``; there are no extra figures."""
        longest = int(serving.stream.size.max(initial=1))
        if longest > self.max_tokens:
            raise InvalidValueError(
                "no batch may have the longest request", where="scheduler tei: max_tokens",
                value=self.max_tokens, allowed=f"{longest} {serving.problem.unit} or more")
        from ramsis.sized import _kernels as kernels

        serving = serving._replace(terms=serving.terms._replace(most_inside=self.max_concurrent))
        drop, wait_ms = False, 0.0
        kernels.first_come(*serving.arguments, self.index(serving.problem, self.name),
                           self.max_batch, self.max_tokens, drop, wait_ms)
        return {}


@dataclass(frozen=True)
class Infinity(_SingleModel):
    """The queue of infinity, which sorts the requests at its front by length.

    As many full batches of ``max_batch`` requests as wait are taken from the front, at most
    ``batches``, or one batch that is not full. The requests of several batches are sorted by size
    and cut into batches again, the shortest first. All of these batches run, with late requests,
    too, before others are taken. An idle worker does not wait for further requests.

    Source: version 0.0.7x of 2025, ``inference/queue.py`` (``pop_optimal_batches``) and
    ``inference/batch_handler.py``; defaults as there (``batch_size``, ``max_n_batches``). Chosen
    here: batches are taken when no other waits to run. The source takes up to eight ahead, from
    fewer requests. Sizes stand for the number of characters that it sorts by.
    """

    name: ClassVar[str] = "infinity"

    max_batch: int = 32
    batches: int = 8

    def __post_init__(self) -> None:
        _check_counts(self, "max_batch", "batches")

    def serve(self, serving: Serving) -> Mapping[str, float]:
        """Simulate a run into the arrays of ``serving``; there are no extra figures."""
        from ramsis.sized import _kernels as kernels

        kernels.sorted_window(*serving.arguments, self.index(serving.problem, self.name),
                              self.max_batch, self.batches)
        return {}


@dataclass(frozen=True)
class TokenBudget(_SingleModel):
    """First come, first served within a budget of tokens, without requests that are hopeless.

    Before each batch, requests that not even a batch of their own answers in time are dropped.
    Then the batch takes requests in the order of arrival, or with ``order=size`` the shortest
    first, while its padded tokens (total tokens without padding) stay within ``max_tokens``. The
    first request is served even if it is beyond the budget. With ``max_tokens=0``, the default,
    each run has the budget that is best for its own requests, among the powers of two from 8 on;
    a server could not know it beforehand.
    """

    name: ClassVar[str] = "token-budget"

    max_tokens: int = 0
    max_batch: int = MAX_BATCH_BY_DEFAULT
    order: str = "arrival"

    def __post_init__(self) -> None:
        _check_counts(self, "max_batch", *(["max_tokens"] if self.max_tokens else []))
        check_known("unknown order", self.order, _BUDGET_ORDERS, f"scheduler {self.name}: order")

    def serve(self, serving: Serving) -> Mapping[str, float]:
        """Simulate a run into the arrays of ``serving``; return the budget of tokens."""
        from ramsis.sized import _kernels as kernels

        model = self.index(serving.problem, self.name)

        def served(run: Serving, budget: int) -> None:
            if self.order == "size":
                kernels.shortest_first(*run.arguments, model, self.max_batch, budget)
            else:
                drop, wait_ms = True, 0.0
                kernels.first_come(*run.arguments, model, self.max_batch, budget, drop, wait_ms)

        budget = self.max_tokens
        if not budget:
            most = int(serving.stream.size.max(initial=1)) * self.max_batch
            best = -1
            for tried in [*(budget for budget in _BUDGETS if budget < most), most]:
                run = serving.again()
                served(run, tried)
                if run.in_time > best:
                    best, budget = run.in_time, tried
        served(serving, budget)
        return {"max_tokens": float(budget)}


@dataclass(frozen=True)
class TurboDP(_SingleModel):
    """TurboTransformers' batches, by a dynamic program over the sorted queue.

    All waiting requests are sorted by size and cut into the batches whose total time is least.
    All of these run, the shortest requests first, before others are planned.

    Source: Fang et al., "TurboTransformers: An Efficient GPU Serving System For Transformer
    Models", PPoPP 2021, algorithm 3, with its hungry strategy: an idle worker plans at once.
    Chosen here: the shortest go first, and with ``late=drop`` requests that not even a batch of
    their own answers in time are dropped before each plan; the paper knows no deadlines
    (``late=serve``).
    """

    name: ClassVar[str] = "turbo-dp"

    max_batch: int = MAX_BATCH_BY_DEFAULT
    late: str = "drop"

    def __post_init__(self) -> None:
        _check_counts(self, "max_batch")
        check_known("unknown rule for late requests", self.late, LATE,
                    f"scheduler {self.name}: late")

    def serve(self, serving: Serving) -> Mapping[str, float]:
        """Simulate a run into the arrays of ``serving``; there are no extra figures."""
        from ramsis.sized import _kernels as kernels

        kernels.planned(*serving.arguments, self.index(serving.problem, self.name),
                        self.max_batch, self.late == "drop")
        return {}


@dataclass(frozen=True)
class ReplannedDP(_SingleModel):
    """The dynamic program of TurboTransformers, planned again for each batch, with deadlines.

    Before each batch, requests that not even a batch of their own answers in time are dropped, and
    all others are cut into batches as :class:`TurboDP` cuts them. One of these batches runs,
    without the requests that it would answer late. It is chosen among the batches that answer at
    least a share ``keep`` of their requests in time: with ``order=urgent`` the batch with the
    oldest request, with ``order=dense`` the one with the most requests per ms of its time. If no
    batch reaches ``keep``, the one with the most answers in time per ms of its time runs.

    There is no source: it is the strongest of the simple rules, which a policy has to beat.
    """

    name: ClassVar[str] = "replanned-dp"

    max_batch: int = MAX_BATCH_BY_DEFAULT
    keep: float = 0.9
    order: str = "urgent"

    def __post_init__(self) -> None:
        _check_counts(self, "max_batch")
        FRACTION.check("not a share", inside=f"scheduler {self.name}: ", keep=self.keep)
        check_known("unknown order", self.order, ORDERS, f"scheduler {self.name}: order")

    def serve(self, serving: Serving) -> Mapping[str, float]:
        """Simulate a run into the arrays of ``serving``; there are no extra figures."""
        from ramsis.sized import _kernels as kernels

        kernels.replanned(*serving.arguments, self.index(serving.problem, self.name),
                          self.max_batch, ORDERS.index(self.order), float(self.keep))
        return {}


@dataclass(frozen=True)
class SizedDelay(_SingleModel):
    """Fixed delay: a batch waits until it is full, or its first request has waited ``wait_ms``.

    A batch is full with ``batch`` requests, or where the next one would take its padded tokens
    (total tokens without padding) beyond ``max_size``, if that is not 0. First come, first served;
    with ``late=drop`` requests that not even a batch of their own answers in time are dropped.

    This is the batching of most model servers: Triton (``max_queue_delay_microseconds``),
    TorchServe (``maxBatchDelay``), TensorFlow Serving (``batch_timeout_micros``). Their limit is
    on the count; one on the size is that of servers of encoders.
    """

    name: ClassVar[str] = "delay"

    batch: int = MAX_BATCH_BY_DEFAULT
    wait_ms: float = 0.0
    max_size: int = 0
    late: str = "serve"

    def __post_init__(self) -> None:
        _check_counts(self, "batch", *(["max_size"] if self.max_size else []))
        check_not_negative("not a time", inside=f"scheduler {self.name}: ", wait_ms=self.wait_ms)
        check_known("unknown rule for late requests", self.late, LATE,
                    f"scheduler {self.name}: late")

    @property
    def max_batch(self) -> int:
        """Largest number of requests in a batch."""
        return self.batch

    def serve(self, serving: Serving) -> Mapping[str, float]:
        """Simulate a run into the arrays of ``serving``; there are no extra figures."""
        from ramsis.sized import _kernels as kernels

        kernels.first_come(*serving.arguments, self.index(serving.problem, self.name), self.batch,
                           self.max_size or _NO_BUDGET, self.late == "drop", float(self.wait_ms))
        return {}


def _check_counts(scheduler: SizedScheduler, *names: str) -> None:
    """Refuse parameters that are no whole numbers >= 1."""
    for name in names:
        check_number_of(name, getattr(scheduler, name),
                        where=f"scheduler {scheduler.name}: {name}")


_Kind = Callable[..., SizedScheduler]
SIZED_SCHEDULERS: Mapping[str, _Kind] = {kind.name: kind for kind in (
    Tei, Infinity, TokenBudget, TurboDP, ReplannedDP, SizedDelay)}
"""What ``--scheduler`` names where requests have a size."""


def sized_scheduler(text: str) -> SizedScheduler:
    """Return the scheduler that a text names, as ``tei:max_tokens=16384,max_batch=8``.

    Raises
    ------
    InputFileError
        There is no such scheduler, or it has no such parameter.
    InvalidValueError
        A parameter is out of range.

    >>> sized_scheduler("replanned-dp:order=dense").order
    'dense'
    """
    name, _, parameters = text.partition(":")
    if name not in SIZED_SCHEDULERS:
        near = get_close_matches(name, SIZED_SCHEDULERS) or list(SIZED_SCHEDULERS)
        raise InputFileError("not a scheduler of requests with a size", where="scheduler",
                             value=name, allowed=", ".join(near))
    kind = SIZED_SCHEDULERS[name]
    return kind(**read_parameters(name, parameters, inspect.signature(kind).parameters,
                                  InputFileError))
