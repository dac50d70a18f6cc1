"""A worker policy: the table of one worker, what it was made of, and what it promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ramsis.policy.records import (
    BudgetRecord,
    CertificateRecord,
    Expectations,
    Inputs,
    PolicyModel,
    names,
)
from ramsis.runtime.fields import NON_NEGATIVE, Fields
from ramsis.runtime.mixture import Mixture
from ramsis.runtime.table import POLICY_FORMAT, arrivals_label, lookup_table

__all__ = ["DISPATCHES", "OBJECTIVES", "SERVICES", "WorkerPolicy", "arrivals_in", "budget_in",
           "extras", "frozen", "plain"]

SERVICES = ("p95", "p99", "mean", "distribution")
"""What service times are: a statistic of the profile, or drawn from the distribution."""
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
        (column j), shape (max_queue, D+1). A batch of 0 drops the earliest request.
    overflow_model, overflow_batch
        The answer with more than ``max_queue`` queued.
    expectations, certificate, inputs
        The promises, the solution's quality, and where it all came from.
    created_by
        Program and version.
    violation_price
        What a query that is late or dropped was taken to cost, in units of accuracy.
    mixture
        The place of the table that has a second answer, drawn by chance, if any.
    budget
        The budget of violations that the policy was made for, if any.
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
    violation_price: float = 0.0
    mixture: Mixture | None = None
    budget: BudgetRecord | None = None

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
    def quantiles_ms(self) -> NDArray[np.float64] | None:
        """Drawn service times, shape (models, max_queue+1, Q), infinite beyond what is known."""
        rows = [model.quantiles_ms for model in self.models]
        if rows[0] is None:
            return None
        result = np.full((len(rows), self.max_queue + 1, len(rows[0][0])), np.inf)
        for one, known in zip(result, rows, strict=True):
            one[: len(known or ())] = known
        return result

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
            "models": [plain(model.to_document()) for model in self.models],
            "slo_ms": float(self.slo_ms),
            "workers": int(self.workers),
            "load_qps": float(self.load_qps),
            "service": self.service,
            "arrivals": dict(self.arrivals),
            "dispatch": self.dispatch,
            "batching": self.batching,
            "late": self.late,
            "objective": self.objective,
            "violation_price": float(self.violation_price),
            "max_queue": int(self.max_queue),
            "slack_ms": self.slack_ms.tolist(),
            "table": {"model": self.model_table.tolist(), "batch": self.batch_table.tolist()},
            "overflow": {"model": int(self.overflow_model), "batch": int(self.overflow_batch)},
            "expectations": plain(asdict(self.expectations)),
            "certificate": plain(asdict(self.certificate)),
            "inputs": asdict(self.inputs),
            **extras(self.mixture, self.budget),
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
        service = fields.text("service", SERVICES)
        price = fields.number_or_none("violation_price", NON_NEGATIVE)
        return cls(
            models=_models_in(fields, table.max_queue + 1, drawn=service == "distribution"),
            slo_ms=table.slo_ms,
            workers=table.workers,
            load_qps=table.load_qps,
            arrivals=arrivals_in(fields),
            service=service,
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
            violation_price=0.0 if price is None else price,
            mixture=table.mixture,
            budget=budget_in(fields),
        )


_KEYS = (
    *(name for name in names(WorkerPolicy)
      if name not in ("model_table", "batch_table", "overflow_model", "overflow_batch")),
    "format", "kind", "table", "overflow",
)


def _models_in(fields: Fields, batches: int, *, drawn: bool) -> tuple[PolicyModel, ...]:
    """The models; where times are drawn, the first has quantiles for every batch."""
    models: list[PolicyModel] = []
    size = None
    for i, child in enumerate(fields.children("models")):
        model = PolicyModel.from_fields(child, batches, drawn=drawn, size=size)
        if model.quantiles_ms is not None:
            rows, least = len(model.quantiles_ms), 1 if i else batches
            size = len(model.quantiles_ms[0])
            if not least <= rows <= batches or size < 2:
                raise child.refusal("quantiles_ms", "not two or more quantiles for each batch",
                                    value=f"{rows} batches, {size} quantiles",
                                    allowed=f"{least} to {batches} batches")
        models.append(model)
    return tuple(models)


def arrivals_in(fields: Fields) -> dict[str, Any]:
    """The arrival process with its parameters: numbers, texts, truth values, lists of these."""
    arrivals = fields.child("arrivals")
    values = {key: arrivals.value(key) for key in arrivals}
    for key, value in values.items():
        if value is None or isinstance(value, Mapping):
            raise arrivals.refusal(key, "not a parameter", value=value,
                                   allowed="a number, text, truth value, or list")
    return values


def budget_in(fields: Fields) -> BudgetRecord | None:
    """The record of a budget, where the file has one."""
    if "budget" not in fields or fields.value("budget") is None:
        return None
    return BudgetRecord.from_fields(fields.child("budget"))


def extras(mixture: Mixture | None, budget: BudgetRecord | None) -> dict[str, Any]:
    """The fields of a document that stand only in the files that need them."""
    found: dict[str, Any] = {}
    if mixture is not None:
        found["mixture"] = {key: plain(value) for key, value in mixture._asdict().items()}
    if budget is not None:
        found["budget"] = asdict(budget)
    return found


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
