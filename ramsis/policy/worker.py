"""A worker policy: the table of one worker, what it was made of, and what it promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ramsis.policy.records import CertificateRecord, Expectations, Inputs, PolicyModel, names
from ramsis.runtime.fields import Fields
from ramsis.runtime.table import POLICY_FORMAT, arrivals_label, lookup_table

__all__ = ["DISPATCHES", "OBJECTIVES", "SERVICES", "WorkerPolicy", "arrivals_in", "frozen",
           "plain"]

SERVICES = ("p95", "p99", "mean")
"""The statistic of the profile that stands for a batch's service time."""
DISPATCHES = ("round-robin", "shortest-queue")
"""How the workers share the arrivals; round robin gives a worker every K-th one."""
OBJECTIVES = ("per-query", "per-decision")
"""Whether a batch of 8 counts eight times in what is optimised, or once."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkerPolicy:
    """One policy file in memory; :meth:`to_document` and :meth:`from_document` are inverses.

    Arrays are copied on construction and cannot be written to. Ranges are checked when a policy
    is read or written, not here.

    Attributes
    ----------
    models
        Fastest first; the tables hold indices into it.
    slo_ms, workers, load_qps
        The service level, the number of workers K, and the central load that they share.
    service, dispatch, batching, late, objective
        One of :data:`SERVICES`, :data:`DISPATCHES`, :data:`~ramsis.runtime.table.BATCHINGS`,
        :data:`~ramsis.runtime.table.LATE_RULES`, :data:`OBJECTIVES`.
    arrivals
        ``process`` and the parameters of the arrival process, as plain JSON values.
    max_queue
        Largest queue N_w in the table.
    slack_ms
        Low edges of the slack bins, shape (D+1,), increasing from 0 to at most ``slo_ms``.
    model_table, batch_table
        Index of the model and size of the batch for n queued (row n-1) and slack bin j
        (column j), shape (max_queue, D+1).
    overflow_model, overflow_batch
        The answer with more than ``max_queue`` queued.
    expectations, certificate, inputs
        The promises, the solution's quality, and where it all came from.
    created_by
        Program and version.
    """

    models: tuple[PolicyModel, ...]
    slo_ms: float
    workers: int
    load_qps: float
    arrivals: Mapping[str, Any]
    service: str
    dispatch: str
    batching: str
    late: str
    objective: str
    max_queue: int
    slack_ms: NDArray[np.float64]
    model_table: NDArray[np.int64]
    batch_table: NDArray[np.int64]
    overflow_model: int
    overflow_batch: int
    expectations: Expectations
    certificate: CertificateRecord
    inputs: Inputs
    created_by: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrivals", plain(self.arrivals))
        object.__setattr__(self, "slack_ms", frozen(self.slack_ms, np.float64))
        object.__setattr__(self, "model_table", frozen(self.model_table, np.int64))
        object.__setattr__(self, "batch_table", frozen(self.batch_table, np.int64))

    @property
    def kind(self) -> str:
        """``worker``."""
        return "worker"

    @property
    def arrivals_label(self) -> str:
        """The arrival process and its parameters as one text; a set is keyed by it and load."""
        return arrivals_label(self.arrivals)

    @property
    def latency_ms(self) -> NDArray[np.float64]:
        """Service times, shape (models, max_queue+1): column b-1 is for a batch of b."""
        return np.array([model.latency_ms for model in self.models], dtype=np.float64)

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """Accuracies of the models, shape (models,)."""
        return np.array([model.accuracy for model in self.models], dtype=np.float64)

    def to_document(self) -> dict[str, Any]:
        """The policy as the JSON object that stands in its file."""
        return {
            "format": POLICY_FORMAT,
            "kind": self.kind,
            "created_by": self.created_by,
            "models": [plain(asdict(model)) for model in self.models],
            "slo_ms": float(self.slo_ms),
            "workers": int(self.workers),
            "load_qps": float(self.load_qps),
            "service": self.service,
            "arrivals": dict(self.arrivals),
            "dispatch": self.dispatch,
            "batching": self.batching,
            "late": self.late,
            "objective": self.objective,
            "max_queue": int(self.max_queue),
            "slack_ms": self.slack_ms.tolist(),
            "table": {"model": self.model_table.tolist(), "batch": self.batch_table.tolist()},
            "overflow": {"model": int(self.overflow_model), "batch": int(self.overflow_batch)},
            "expectations": plain(asdict(self.expectations)),
            "certificate": plain(asdict(self.certificate)),
            "inputs": asdict(self.inputs),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], where: str) -> WorkerPolicy:
        """The policy in a parsed file; ``where`` names the file in messages.

        Raises
        ------
        InputFileError
            When the document breaks the format; the message gives the JSON path.
        """
        fields = Fields(document, where)
        table = lookup_table(fields)
        fields.only(_KEYS)
        return cls(
            models=tuple(PolicyModel.from_fields(model, table.max_queue + 1)
                         for model in fields.children("models")),
            slo_ms=table.slo_ms,
            workers=table.workers,
            load_qps=table.load_qps,
            arrivals=arrivals_in(fields),
            service=fields.text("service", SERVICES),
            dispatch=fields.text("dispatch", DISPATCHES),
            batching=table.batching,
            late=fields.text("late"),
            objective=fields.text("objective", OBJECTIVES),
            max_queue=table.max_queue,
            slack_ms=np.array(table.slack_ms),
            model_table=np.array(table.model),
            batch_table=np.array(table.batch),
            overflow_model=table.overflow[0],
            overflow_batch=table.overflow[1],
            expectations=Expectations.from_fields(fields.child("expectations"), table.models),
            certificate=CertificateRecord.from_fields(fields.child("certificate")),
            inputs=Inputs.from_fields(fields.child("inputs")),
            created_by=fields.text("created_by"),
        )


_KEYS = (
    *(name for name in names(WorkerPolicy)
      if name not in ("model_table", "batch_table", "overflow_model", "overflow_batch")),
    "format", "kind", "table", "overflow",
)


def arrivals_in(fields: Fields) -> dict[str, Any]:
    """The arrival process with its parameters: numbers, texts, truth values, lists of these."""
    arrivals = fields.child("arrivals")
    values = {key: arrivals.value(key) for key in arrivals}
    for key, value in values.items():
        if value is None or isinstance(value, Mapping):
            raise arrivals.refusal(key, "not a parameter", value=value,
                                   allowed="a number, text, truth value, or list")
    return values


def frozen(values: ArrayLike, dtype: type[np.generic]) -> NDArray[Any]:
    """A private read-only copy."""
    array = np.array(values, dtype=dtype)
    array.setflags(write=False)
    return array


def plain(value: Any) -> Any:
    """The same record with NumPy scalars as Python numbers and tuples as lists."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
