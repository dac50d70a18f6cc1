"""The records of a scenario file, a dataclass for each kind of object.

Each reads itself from a JSON object by the annotations of its fields. References between records
are checked in :mod:`ramsis.scenario.consistency`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from ramsis.errors import POSITIVE
from ramsis.runtime.fields import Fields
from ramsis.runtime.records import (
    Count,
    Fraction,
    NonNegative,
    Positive,
    Reader,
    Record,
    record_of,
)
from ramsis.scenario.workloads import WorkloadOf, workload_from_fields

LOADINGS = ("beside", "blocking")
"""Whether batches run while a model is loaded onto the same worker, or not."""
BATCHINGS = ("static", "none", "continuous")
"""How requests share a run of a model."""


def _one_or_more(item: Fields, key: str) -> tuple[float, ...]:
    """A number, or a list of them."""
    one = not isinstance(item.value(key), list)
    return (item.number(key, POSITIVE),) if one else tuple(item.numbers(key, POSITIVE))


def _check_rising(values: tuple[float, ...], item: Fields, key: str) -> None:
    if sorted(values) != list(values):
        raise item.refusal(key, "quantiles fall", value=values, allowed="rising numbers")


def _workload(item: Fields, key: str) -> WorkloadOf:
    return workload_from_fields(item.child(key))


def _models(item: Fields, key: str) -> tuple[str, ...]:
    """Read names of models; a name may occur twice."""
    models = item.items(key)
    for i, name in enumerate(models):
        if not isinstance(name, str) or not name:
            raise item.refusal(f"{key}[{i}]", "not a text", value=name,
                               allowed="the name of a model")
    return tuple(models)


@dataclass(frozen=True, slots=True)
class ScenarioWorkerType(Record):
    """Like workers."""

    name: str  # unique
    count: Count  # how many there are
    # of one worker for models, > 0; ``None`` where it does not matter
    memory_mb: Positive | None = None
    # most models that a worker holds at a time, those included that are being loaded
    max_models: Count | None = None
    cores: Count = 1  # of one worker, for the processing of requests before and after inference
    lanes: Count = 1  # most batches that a worker runs at a time
    # at this rate models are loaded that do not state a time; ``None``: they take none
    load_mb_per_s: Positive | None = None
    # ``beside`` inference, or ``blocking``: then a worker loads or runs batches, never both
    loading: Annotated[str, LOADINGS] = "beside"
    loads_at_a_time: Count = 1  # most models that a worker loads at a time
    scale_up_ms: NonNegative = 0.0  # time from the order to start a worker until it is active
    active: int | None = None  # how many workers are active at the start; ``None``: all

    def check(self, item: Fields) -> None:
        """Refuse more active workers than there are."""
        if self.active is not None and self.active > self.count:
            raise item.refusal("active", "more workers than there are", value=self.active,
                               allowed=f"at most count, {self.count}")

    def worker_names(self) -> tuple[str, ...]:
        """``NAME-1`` to ``NAME-count``."""
        return tuple(f"{self.name}-{i + 1}" for i in range(self.count))


@dataclass(frozen=True, slots=True)
class BatchTime(Record):
    """Time of a batch of a model on a worker type."""

    worker_type: str  # its name
    batch: Count  # requests in the batch, from 1
    # time of the batch, > 0; of an autoregressive model that of a step, in which each request of
    # the batch gets a token. ``None`` where there are quantiles.
    latency_ms: Positive | None = None
    # quantiles at the midpoints of as many equal parts, rising, of a time that is drawn
    quantiles_ms: tuple[Positive, ...] = ()

    def check(self, item: Fields) -> None:
        """Refuse a time that is stated nowhere or twice, and quantiles that fall."""
        if (self.latency_ms is None) == (not self.quantiles_ms):
            raise item.refusal("latency_ms", "stated nowhere, or twice",
                               allowed="one of latency_ms, quantiles_ms")
        _check_rising(self.quantiles_ms, item, "quantiles_ms")


@dataclass(frozen=True, slots=True)
class LoadTime(Record):
    """How long it takes to load a model onto a worker type, where that differs by type."""

    worker_type: str
    load_ms: NonNegative
    first_load_ms: NonNegative | None = None


@dataclass(frozen=True, slots=True)
class Inference(Record):
    """Inference of a model: how requests form batches, and how many tokens they make."""

    # ``static``: requests are put together before a batch starts, and end together; ``none``:
    # one request at a time; ``continuous``: requests join and leave a batch that runs, and the
    # speed of all depends on how many there are
    batching: Annotated[str, BATCHINGS] = "static"
    # quantiles, at the midpoints of as many equal parts, of the tokens that a request makes;
    # empty for one-shot inference. A static batch ends with its longest request.
    output_tokens: Annotated[tuple[float, ...], Reader(_one_or_more)] = ()

    def check(self, item: Fields) -> None:
        """Refuse quantiles that fall."""
        _check_rising(self.output_tokens, item, "output_tokens")


@dataclass(frozen=True, slots=True)
class ScenarioModel(Record):
    """A model, or several copies of it that count as separate models."""

    name: str  # unique. Several copies are called ``NAME-1`` to ``NAME-copies``.
    # by worker type and batch. A batch of a size that is not listed runs as the next larger one
    # that is; a worker type without any cannot run the model.
    latency: tuple[BatchTime, ...]
    memory_mb: NonNegative = 0.0  # once loaded, >= 0
    # time to load it; ``None``: memory over the bandwidth of the worker type
    load_ms: NonNegative | None = None
    # time of the first load in the whole cluster; ``None``: as any other
    first_load_ms: NonNegative | None = None
    load: tuple[LoadTime, ...] = ()  # times by worker type that differ from these
    copies: Count = 1  # how many models there are of this kind
    inference: Inference = field(default_factory=Inference)  # what a run does
    # the task: requests for a model of a family can be answered by any other of it; ``None``: by
    # the model alone
    family: str | None = None
    accuracy: Fraction = 1.0  # of its answers, a fraction

    def instance_names(self) -> tuple[str, ...]:
        """The name of each copy."""
        if self.copies == 1:
            return (self.name,)
        return tuple(f"{self.name}-{i + 1}" for i in range(self.copies))


@dataclass(frozen=True, slots=True)
class Stream(Record):
    """Requests of one kind."""

    name: str  # unique
    # name of the model, or of one copy. Each request of a model with several copies goes to one
    # of them at random.
    model: str
    # when requests come; see :mod:`ramsis.scenario.workloads`
    workload: Annotated[WorkloadOf, Reader(_workload)]
    slo_ms: Positive  # deadline after arrival, > 0
    # an answer earlier than this after arrival is not in time either
    earliest_ms: NonNegative = 0.0
    shares: tuple[NonNegative, ...] = ()  # weights of the copies, >= 0; empty: all alike
    tenant: str = ""  # whose requests these are
    # pre_ms, post_ms: processing of a request before and after inference, on a machine
    pre_ms: NonNegative = 0.0
    post_ms: NonNegative = 0.0
    cores: int = 0  # of the machine, that a request holds from its start to its end
    # network_ms, network_back_ms: time to an inference that runs on another machine, and back
    network_ms: NonNegative = 0.0
    network_back_ms: NonNegative = 0.0
    # name of another stream: the time of this one begins when all requests of the other have
    # been answered or dropped
    after: str | None = None

    @property
    def processed(self) -> bool:
        """Whether requests need a machine besides inference."""
        return self.cores > 0

    @classmethod
    def from_fields(cls, item: Fields) -> Stream:
        """The stream in an entry of ``streams``; with processing it holds a core."""
        stream = record_of(cls, item)
        processing = stream.pre_ms or stream.post_ms or stream.network_ms or stream.network_back_ms
        return replace(stream, cores=1) if processing and "cores" not in item else stream

    def check(self, item: Fields) -> None:
        """Refuse answers that are early and late at once."""
        if self.earliest_ms >= self.slo_ms:
            raise item.refusal("earliest_ms", "not before the deadline", value=self.earliest_ms,
                               allowed=f"less than slo_ms, {self.slo_ms:g}")


@dataclass(frozen=True, slots=True)
class StartState(Record):
    """Models that are loaded at the start."""

    worker: str  # name of a worker (``TYPE-1``), or of a type: all workers of it
    # names of models or of copies; of a model with several copies all of them
    models: Annotated[tuple[str, ...], Reader(_models)]
