"""The records of a scenario file, a dataclass for each kind of object.

Each reads itself from the fields of a JSON object, where ranges are checked; references between
records are checked in :mod:`ramsis.scenario.consistency`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ramsis.runtime.fields import FRACTION, NON_NEGATIVE, POSITIVE, Fields
from ramsis.runtime.records import default, names
from ramsis.scenario.workloads import WorkloadOf, workload_from_fields

__all__ = ["BATCHINGS", "LOADINGS", "BatchTime", "Inference", "LoadTime", "ScenarioModel",
           "ScenarioWorkerType", "StartState", "Stream"]

LOADINGS = ("beside", "blocking")
"""Whether batches run while a model is loaded onto the same worker, or not."""
BATCHINGS = ("static", "none", "continuous")
"""How requests share a run of a model."""


@dataclass(frozen=True, slots=True)
class ScenarioWorkerType:
    """Like workers.

    Attributes
    ----------
    name
        Unique.
    count
        How many there are.
    memory_mb
        Of one worker for models, > 0; ``None`` where it does not matter.
    max_models
        Most models that a worker holds at a time, those included that are being loaded.
    cores
        Of one worker, for the processing of requests before and after inference.
    lanes
        Most batches that a worker runs at a time.
    load_mb_per_s
        At this rate models are loaded that do not state a time; ``None``: they take none.
    loading
        ``beside`` inference, or ``blocking``: then a worker loads or runs batches, never both.
    loads_at_a_time
        Most models that a worker loads at a time.
    scale_up_ms
        Time from the order to start a worker until it is active.
    active
        How many workers are active at the start; ``None``: all.
    """

    name: str
    count: int
    memory_mb: float | None = None
    max_models: int | None = None
    cores: int = 1
    lanes: int = 1
    load_mb_per_s: float | None = None
    loading: str = "beside"
    loads_at_a_time: int = 1
    scale_up_ms: float = 0.0
    active: int | None = None

    @classmethod
    def from_fields(cls, item: Fields) -> ScenarioWorkerType:
        """The worker type in an entry of ``worker_types``."""
        item.only(names(cls))
        count = item.whole("count", 1)
        active = item.whole_if("active", 0)
        if active is not None and active > count:
            raise item.refusal("active", "more workers than there are", value=active,
                               allowed=f"at most count, {count}")
        return cls(
            item.text("name"), count, item.number_if("memory_mb", POSITIVE),
            item.whole_if("max_models", 1), item.whole_if("cores", 1) or 1,
            item.whole_if("lanes", 1) or 1, item.number_if("load_mb_per_s", POSITIVE),
            item.text("loading", LOADINGS) if "loading" in item else "beside",
            item.whole_if("loads_at_a_time", 1) or 1,
            default(item.number_if("scale_up_ms", NON_NEGATIVE), 0.0), active,
        )

    def worker_names(self) -> tuple[str, ...]:
        """``NAME-1`` to ``NAME-count``."""
        return tuple(f"{self.name}-{i + 1}" for i in range(self.count))


@dataclass(frozen=True, slots=True)
class BatchTime:
    """What a batch of a model takes on a worker type.

    Attributes
    ----------
    worker_type
        Its name.
    batch
        Requests in the batch, from 1.
    latency_ms
        Time of the batch, > 0; of an autoregressive model that of a step, in which each request
        of the batch gets a token. ``None`` where there are quantiles.
    quantiles_ms
        Quantiles at the midpoints of as many equal parts, rising, of a time that is drawn.
    """

    worker_type: str
    batch: int
    latency_ms: float | None = None
    quantiles_ms: tuple[float, ...] = ()

    @classmethod
    def from_fields(cls, item: Fields) -> BatchTime:
        """The latency in an entry of ``models[i].latency``."""
        item.only(names(cls))
        if ("latency_ms" in item) == ("quantiles_ms" in item):
            raise item.refusal("latency_ms", "stated nowhere, or twice",
                               allowed="one of latency_ms, quantiles_ms")
        quantiles: tuple[float, ...] = ()
        if "quantiles_ms" in item:
            quantiles = tuple(item.numbers("quantiles_ms", POSITIVE))
            if sorted(quantiles) != list(quantiles):
                raise item.refusal("quantiles_ms", "quantiles fall", value=quantiles,
                                   allowed="rising numbers")
        return cls(item.text("worker_type"), item.whole("batch", 1),
                   None if quantiles else item.number("latency_ms", POSITIVE), quantiles)


@dataclass(frozen=True, slots=True)
class LoadTime:
    """How long it takes to load a model onto a worker type, where that differs by type."""

    worker_type: str
    load_ms: float
    first_load_ms: float | None = None

    @classmethod
    def from_fields(cls, item: Fields) -> LoadTime:
        """The time in an entry of ``models[i].load``."""
        item.only(names(cls))
        return cls(item.text("worker_type"), item.number("load_ms", NON_NEGATIVE),
                   item.number_if("first_load_ms", NON_NEGATIVE))


@dataclass(frozen=True, slots=True)
class Inference:
    """What a run of a model does.

    Attributes
    ----------
    batching
        ``static``: requests are put together before a batch starts, and end together; ``none``:
        one request at a time; ``continuous``: requests join and leave a batch that runs, and the
        speed of all depends on how many there are.
    output_tokens
        Quantiles, at the midpoints of as many equal parts, of the tokens that a request makes;
        empty for one-shot inference. A static batch ends with its longest request.
    """

    batching: str = "static"
    output_tokens: tuple[float, ...] = ()

    @classmethod
    def from_fields(cls, item: Fields) -> Inference:
        """The inference type in ``models[i].inference``."""
        item.only(names(cls))
        tokens: tuple[float, ...] = ()
        if "output_tokens" in item:
            one = not isinstance(item.value("output_tokens"), list)
            tokens = ((item.number("output_tokens", POSITIVE),) if one
                      else tuple(item.numbers("output_tokens", POSITIVE)))
            if sorted(tokens) != list(tokens):
                raise item.refusal("output_tokens", "quantiles fall", value=tokens,
                                   allowed="rising numbers")
        return cls(item.text("batching", BATCHINGS) if "batching" in item else "static", tokens)


@dataclass(frozen=True, slots=True)
class ScenarioModel:
    """A model, or several copies of it that are models of their own.

    Attributes
    ----------
    name
        Unique. Several copies are called ``NAME-1`` to ``NAME-copies``.
    latency
        By worker type and batch. A batch of a size that is not listed runs as the next larger
        one that is; a worker type without any cannot run the model.
    memory_mb
        Once loaded, >= 0.
    load_ms
        Time to load it; ``None``: memory over the bandwidth of the worker type.
    first_load_ms
        Time of the first load in the whole cluster; ``None``: as any other.
    load
        Times by worker type that differ from these.
    copies
        How many models there are of this kind.
    inference
        What a run does.
    family
        The task: requests for a model of a family can be answered by any other of it; ``None``:
        by the model alone.
    accuracy
        Of its answers, a fraction.
    """

    name: str
    latency: tuple[BatchTime, ...]
    memory_mb: float = 0.0
    load_ms: float | None = None
    first_load_ms: float | None = None
    load: tuple[LoadTime, ...] = ()
    copies: int = 1
    inference: Inference = field(default_factory=Inference)
    family: str | None = None
    accuracy: float = 1.0

    @classmethod
    def from_fields(cls, item: Fields) -> ScenarioModel:
        """The model in an entry of ``models``."""
        item.only(names(cls))
        return cls(
            item.text("name"),
            tuple(BatchTime.from_fields(one) for one in item.children("latency")),
            default(item.number_if("memory_mb", NON_NEGATIVE), 0.0),
            item.number_if("load_ms", NON_NEGATIVE),
            item.number_if("first_load_ms", NON_NEGATIVE),
            tuple(LoadTime.from_fields(one) for one in item.children("load"))
            if "load" in item else (),
            item.whole_if("copies", 1) or 1,
            Inference.from_fields(item.child("inference")) if "inference" in item
            else Inference(),
            item.text("family") if "family" in item else None,
            default(item.number_if("accuracy", FRACTION), 1.0),
        )

    def instance_names(self) -> tuple[str, ...]:
        """The name of each copy."""
        if self.copies == 1:
            return (self.name,)
        return tuple(f"{self.name}-{i + 1}" for i in range(self.copies))


@dataclass(frozen=True, slots=True)
class Stream:
    """Requests of one kind.

    Attributes
    ----------
    name
        Unique.
    model
        Name of the model, or of one copy. Each request of a model with several copies goes to
        one of them at random.
    workload
        When requests come; see :mod:`ramsis.scenario.workloads`.
    slo_ms
        Deadline after arrival, > 0.
    earliest_ms
        An answer earlier than this after arrival is not in time either.
    shares
        Weights of the copies, >= 0; empty: all alike.
    tenant
        Whose requests these are.
    pre_ms, post_ms
        Processing of a request before and after inference, on a machine.
    cores
        Of the machine, that a request holds from its start to its end.
    network_ms, network_back_ms
        Time to an inference that runs on another machine, and back.
    after
        Name of another stream: the time of this one begins when all requests of the other have
        been answered or dropped.
    """

    name: str
    model: str
    workload: WorkloadOf
    slo_ms: float
    earliest_ms: float = 0.0
    shares: tuple[float, ...] = ()
    tenant: str = ""
    pre_ms: float = 0.0
    post_ms: float = 0.0
    cores: int = 0
    network_ms: float = 0.0
    network_back_ms: float = 0.0
    after: str | None = None

    @property
    def processed(self) -> bool:
        """Whether requests need a machine besides inference."""
        return self.cores > 0

    @classmethod
    def from_fields(cls, item: Fields) -> Stream:
        """The stream in an entry of ``streams``."""
        item.only(names(cls))
        slo_ms = item.number("slo_ms", POSITIVE)
        times = {key: default(item.number_if(key, NON_NEGATIVE), 0.0)
                 for key in ("earliest_ms", "pre_ms", "post_ms", "network_ms", "network_back_ms")}
        if times["earliest_ms"] >= slo_ms:
            raise item.refusal("earliest_ms", "not before the deadline",
                               value=times["earliest_ms"], allowed=f"less than slo_ms, {slo_ms:g}")
        needs = any(times[key] for key in ("pre_ms", "post_ms", "network_ms", "network_back_ms"))
        cores = item.whole_if("cores", 0)
        return cls(
            item.text("name"), item.text("model"), workload_from_fields(item.child("workload")),
            slo_ms, shares=tuple(item.numbers("shares", NON_NEGATIVE)) if "shares" in item else (),
            tenant=item.text("tenant") if "tenant" in item else "",
            cores=int(needs) if cores is None else cores,
            after=item.text("after") if "after" in item else None, **times,
        )


@dataclass(frozen=True, slots=True)
class StartState:
    """Models that are loaded at the start.

    Attributes
    ----------
    models
        Names of models or of copies; of a model with several copies all of them.
    worker
        Name of a worker (``TYPE-1``), or of a type: all workers of it.
    """

    worker: str
    models: tuple[str, ...]

    @classmethod
    def from_fields(cls, item: Fields) -> StartState:
        """The state in an entry of ``start``."""
        item.only(names(cls))
        models = item.items("models")
        for i, name in enumerate(models):
            if not isinstance(name, str) or not name:
                raise item.refusal(f"models[{i}]", "not a text", value=name,
                                   allowed="the name of a model")
        return cls(item.text("worker"), tuple(models))
