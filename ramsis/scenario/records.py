"""The records of a scenario file, a dataclass for each kind of object.

The annotations of the fields define how a record is read, and its JSON schema. References between
records are checked in :mod:`ramsis.scenario.reading`.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Annotated, Any

from ramsis.errors import POSITIVE
from ramsis.fields import Fields
from ramsis.records import (
    Count,
    Fraction,
    NonNegative,
    Positive,
    Reader,
    Record,
    record_of,
    schema_of,
)
from ramsis.reprs import dataclass
from ramsis.scenario.workloads import WorkloadOf, workload_from_fields, workload_schema

LOADINGS = ("beside", "blocking")
"""Whether batches run while a model is loaded onto the same worker, or not."""
BATCHINGS = ("static", "none", "continuous")
"""How requests share a run of a model."""
_QUANTILES = {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "minItems": 1}
_TOKENS = {"anyOf": [_QUANTILES["items"], _QUANTILES]}
_MODELS = {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}


def _one_or_more(item: Fields, key: str) -> tuple[float, ...]:
    """Read a field that holds a number, or a list of numbers."""
    alone = not isinstance(item.value(key), list)
    return (item.number(key, POSITIVE),) if alone else tuple(item.numbers(key, POSITIVE))


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
    """Type of identical workers in a scenario."""

    name: Annotated[str, "Name of the worker type, unique."]
    count: Annotated[Count, "Number of workers of the type."]
    memory_mb: Annotated[
        Positive | None, "Memory of one worker for models; all models fit if absent."] = None
    max_models: Annotated[
        Count | None,
        "Most models that a worker holds at a time, with those that are being loaded.",
    ] = None
    cores: Annotated[Count, "Cores of one worker, for processing before and after inference."] = 1
    lanes: Annotated[Count, "Most batches that a worker runs at a time."] = 1
    load_mb_per_s: Annotated[
        Positive | None,
        "Rate of loading models without a stated loading time; loading takes no time if absent.",
    ] = None
    loading: Annotated[
        str, LOADINGS,
        "Whether batches run while a model is loaded onto the same worker; with blocking a "
        "worker loads or runs batches, never both.",
    ] = "beside"
    loads_at_a_time: Annotated[Count, "Most models that a worker loads at a time."] = 1
    scale_up_ms: Annotated[
        NonNegative, "Time from the order to start a worker until it is active."] = 0.0
    active: Annotated[
        int | None, "Number of workers that are active at the start; all if absent."] = None

    def check(self, item: Fields) -> None:
        """Refuse more active workers than the count."""
        if self.active is not None and self.active > self.count:
            raise item.refusal("active", "more workers than there are", value=self.active,
                               allowed=f"at most count, {self.count}")

    def worker_names(self) -> tuple[str, ...]:
        """Return the workers' names, ``NAME-1`` to ``NAME-count``."""
        return tuple(f"{self.name}-{i + 1}" for i in range(self.count))


@dataclass(frozen=True, slots=True)
class BatchTime(Record):
    """Time of a batch of a model on a worker type."""

    worker_type: Annotated[str, "Name of the worker type."]
    batch: Annotated[Count, "Requests in the batch, from 1."]
    latency_ms: Annotated[
        Positive | None,
        "Time of the batch; of an autoregressive model that of a step, in which each request of "
        "the batch gets a token.",
    ] = None
    quantiles_ms: Annotated[
        tuple[Positive, ...],
        "Instead of latency_ms, a random time: its rising quantiles at the midpoints of as many "
        "equal parts.",
    ] = ()

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema, which requires exactly one of time and quantiles."""
        return {**schema_of(cls),
                "oneOf": [{"required": ["latency_ms"]}, {"required": ["quantiles_ms"]}]}

    def check(self, item: Fields) -> None:
        """Refuse a missing or twofold time, and decreasing quantiles."""
        if (self.latency_ms is None) == (not self.quantiles_ms):
            raise item.refusal("latency_ms", "stated nowhere, or twice",
                               allowed="one of latency_ms, quantiles_ms")
        item.check_rising("quantiles_ms", self.quantiles_ms, strictly=False)


@dataclass(frozen=True, slots=True)
class LoadTime(Record):
    """Time to load a model onto a worker type, where it differs by type."""

    worker_type: str
    load_ms: NonNegative
    first_load_ms: NonNegative | None = None


@dataclass(frozen=True, slots=True)
class Inference(Record):
    """Inference of a model: batching of its requests, and tokens of their answers."""

    batching: Annotated[
        str, BATCHINGS,
        "static: requests are put together before a batch starts, and end together; none: one "
        "request at a time; continuous: requests join and leave a batch that runs, and the speed "
        "of all depends on how many there are.",
    ] = "static"
    output_tokens: Annotated[
        tuple[float, ...], Reader(_one_or_more, _TOKENS),
        "Tokens that a request makes, or their quantiles at the midpoints of as many equal "
        "parts; one-shot inference if absent. A static batch ends with its longest request.",
    ] = ()

    def check(self, item: Fields) -> None:
        """Refuse decreasing quantiles."""
        item.check_rising("output_tokens", self.output_tokens, strictly=False)


@dataclass(frozen=True, slots=True)
class ScenarioModel(Record):
    """A model, or several copies of it that count as separate models."""

    name: Annotated[
        str, "Name of the model, unique; several copies are called NAME-1 to NAME-copies."]
    latency: Annotated[
        tuple[BatchTime, ...],
        "A batch of a size that is not listed runs as the next larger one that is; a worker type "
        "without any cannot run the model.",
    ]
    memory_mb: Annotated[NonNegative, "Memory of the loaded model."] = 0.0
    load_ms: Annotated[
        NonNegative | None, "Time to load the model; memory over bandwidth if absent."] = None
    first_load_ms: Annotated[
        NonNegative | None,
        "Time of the first load in the whole cluster; that of any other load if absent.",
    ] = None
    load: Annotated[tuple[LoadTime, ...], "Loading times of worker types that differ."] = ()
    copies: Annotated[Count, "Number of models of this kind, called NAME-1, NAME-2 and so on."] = 1
    inference: Annotated[Inference, "How long a run of the model takes."] = field(
        default_factory=Inference)
    family: Annotated[
        str | None,
        "The task: any model of a family answers the requests of the others; the model alone if "
        "absent.",
    ] = None
    accuracy: Annotated[Fraction, "Accuracy of the answers."] = 1.0

    def instance_names(self) -> tuple[str, ...]:
        """Return the name of each copy of the model."""
        if self.copies == 1:
            return (self.name,)
        return tuple(f"{self.name}-{i + 1}" for i in range(self.copies))


@dataclass(frozen=True, slots=True)
class Stream(Record):
    """Stream of requests for one model, with its deadline and workload."""

    name: Annotated[str, "Name of the stream, unique."]
    model: Annotated[
        str,
        "Model or copy that is asked for; requests of a model with several copies go to them at "
        "random.",
    ]
    workload: Annotated[
        WorkloadOf, Reader(_workload, workload_schema()), "When requests arrive."]
    slo_ms: Annotated[Positive, "Deadline after arrival."]
    earliest_ms: Annotated[
        NonNegative, "Answers earlier than this after arrival are not in time."] = 0.0
    shares: Annotated[
        tuple[NonNegative, ...], "Weights of the copies in the requests; equal if absent."] = ()
    tenant: Annotated[str, "Tenant that sends the requests."] = ""
    pre_ms: Annotated[NonNegative, "Time of processing on a machine before inference."] = 0.0
    post_ms: Annotated[NonNegative, "Time of processing after inference."] = 0.0
    cores: Annotated[
        int,
        "Cores of the machine that a request holds from its start to its end; if absent, 1 where "
        "there is processing or network time, else 0.",
    ] = 0
    network_ms: Annotated[NonNegative, "Time to send a request to another machine."] = 0.0
    network_back_ms: Annotated[NonNegative, "Time to send its answer back."] = 0.0
    best_effort: Annotated[
        bool,
        "Whether its requests give way to other streams; only the σOS schedulers know it.",
    ] = False
    after: Annotated[
        str | None,
        "Name of another stream: this one begins when all requests of that one have been answered "
        "or dropped.",
    ] = None

    @property
    def processed(self) -> bool:
        """Whether requests need a CPU machine besides inference."""
        return self.cores > 0

    @classmethod
    def from_fields(cls, item: Fields) -> Stream:
        """Read the stream in an entry of ``streams``; with processing it holds a core."""
        stream = record_of(cls, item)
        processing = stream.pre_ms or stream.post_ms or stream.network_ms or stream.network_back_ms
        return replace(stream, cores=1) if processing and "cores" not in item else stream

    def check(self, item: Fields) -> None:
        """Refuse an earliest time that is not before the deadline."""
        if self.earliest_ms >= self.slo_ms:
            raise item.refusal("earliest_ms", "not before the deadline", value=self.earliest_ms,
                               allowed=f"less than slo_ms, {self.slo_ms:g}")


@dataclass(frozen=True, slots=True)
class StartState(Record):
    """Models that some workers hold when the simulation starts."""

    worker: Annotated[str, "A worker (TYPE-1), or a type: all its workers."]
    models: Annotated[
        tuple[str, ...], Reader(_models, _MODELS),
        "Models or copies; of a model with several copies all of them.",
    ]
