"""A fleet policy: the table of a central queue, what it was made of, and what it promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.cluster.slo_class import SloClass, merged_classes
from ramsis.errors import InvalidValueError
from ramsis.policy.records import (
    BudgetRecord,
    CertificateRecord,
    Expectations,
    Inputs,
    names,
    quantile_rows,
)
from ramsis.policy.worker import SERVICES, arrivals_in, budget_in, extras, frozen, plain
from ramsis.runtime.fields import FRACTION, NON_NEGATIVE, POSITIVE, Fields
from ramsis.runtime.fleet import fleet_table
from ramsis.runtime.mixture import Mixture
from ramsis.runtime.table import POLICY_FORMAT, arrivals_label

__all__ = ["FLEET_SERVICES", "FleetModel", "FleetPolicy"]

FLEET_SERVICES = SERVICES
"""What service times are: a statistic of the profile, or drawn from the distribution."""


@dataclass(frozen=True, slots=True)
class FleetModel:
    """A model as a fleet policy saw it.

    Attributes
    ----------
    name
        Unique in the policy.
    accuracy
        Fraction in [0, 1].
    service_ms
        For each batch of 1, 2, … that was considered: quantiles of its time at equal-probability
        midpoints, not falling; one where it is fixed.
    """

    name: str
    accuracy: float
    service_ms: tuple[tuple[float, ...], ...]

    @classmethod
    def from_fields(cls, model: Fields, size: int | None) -> FleetModel:
        """The model in an entry of ``models``, with ``size`` quantiles for each batch."""
        model.only(names(cls))
        return cls(model.text("name"), model.number("accuracy", FRACTION),
                   quantile_rows(model, "service_ms", size))


@dataclass(frozen=True, slots=True, eq=False)
class FleetPolicy:
    """One policy file in memory; :meth:`to_document` and :meth:`from_document` are inverses.

    Arrays are copied on construction and cannot be written to.

    Attributes
    ----------
    models
        Fastest first; ``options`` holds indices into it.
    slo_ms, workers, load_qps
        The service level, the number of workers K, and the load.
    service
        One of :data:`FLEET_SERVICES`.
    violation_price
        What a query that is late or dropped costs, in units of accuracy.
    arrivals
        ``process`` and the parameters of the arrival process, as plain JSON values.
    late
        ``drop``: what cannot be in time is taken out of the queue.
    spare_idle
        Least number of idle workers with which, the queue being empty, a late answer by the
        fastest model takes nothing from others (less than 1e-6 of an accuracy); null if none.
    idle_levels, queue_levels, slack_ms
        What the table tells apart, shapes (I,), (N,), (J,).
    options
        Model and batch of each answer that is a batch, shape (O, 2).
    table
        Index of the option, -1 to wait, -2 to drop, shape (I-1, N-1, J): no row for no idle
        worker, where the answer is to wait, nor for an empty queue.
    expectations, certificate, inputs
        The promises, the solution's quality, and where it all came from.
    created_by
        Program and version.
    slo_classes
        Two or more by rising SLO where queries have several, ``slo_ms`` being the longest; the
        queue then stands by deadline. Else none.
    mixture
        The place of the table that has a second answer, drawn by chance, if any.
    budget
        The budget of violations that the policy was made for, if any.
    uneven_ends
        Whether the model took batches to end at random instants.
    """

    models: tuple[FleetModel, ...]
    slo_ms: float
    workers: int
    load_qps: float
    service: str
    violation_price: float
    arrivals: Mapping[str, Any]
    late: str
    spare_idle: int | None
    idle_levels: NDArray[np.int64]
    queue_levels: NDArray[np.int64]
    slack_ms: NDArray[np.float64]
    options: NDArray[np.int64]
    table: NDArray[np.int64]
    expectations: Expectations
    certificate: CertificateRecord
    inputs: Inputs
    created_by: str
    slo_classes: tuple[SloClass, ...] = ()
    mixture: Mixture | None = None
    budget: BudgetRecord | None = None
    uneven_ends: bool = False

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "arrivals", plain(self.arrivals))
        put(self, "slack_ms", frozen(self.slack_ms, np.float64))
        for name in ("idle_levels", "queue_levels", "options", "table"):
            put(self, name, frozen(getattr(self, name), np.int64))

    @property
    def kind(self) -> str:
        """``fleet``."""
        return "fleet"

    @property
    def arrivals_label(self) -> str:
        """The arrival process and its parameters as one text; a set is keyed by it and load."""
        return arrivals_label(self.arrivals)

    @property
    def objective(self) -> str:
        """``per-query``."""
        return "per-query"

    def to_document(self) -> dict[str, Any]:
        """The policy as the JSON object that stands in its file."""
        rows, index = _rows(self.table)
        classes = {"slo_classes": [asdict(one) for one in self.slo_classes]}
        return {
            **(classes if self.slo_classes else {}),
            "format": POLICY_FORMAT,
            "kind": self.kind,
            "created_by": self.created_by,
            "models": [plain(asdict(model)) for model in self.models],
            "slo_ms": float(self.slo_ms),
            "workers": int(self.workers),
            "load_qps": float(self.load_qps),
            "service": self.service,
            "violation_price": float(self.violation_price),
            "arrivals": dict(self.arrivals),
            "late": self.late,
            "spare_idle": self.spare_idle,
            "idle_levels": self.idle_levels.tolist(),
            "queue_levels": self.queue_levels.tolist(),
            "slack_ms": self.slack_ms.tolist(),
            "options": self.options.tolist(),
            "table": {"rows": rows, "index": index},
            "expectations": plain(asdict(self.expectations)),
            "certificate": plain(asdict(self.certificate)),
            "inputs": asdict(self.inputs),
            **extras(self.mixture, self.budget),
            **({"uneven_ends": True} if self.uneven_ends else {}),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], where: str) -> FleetPolicy:
        """The policy in a parsed file; ``where`` names the file in messages.

        Raises
        ------
        InputFileError
            When the document breaks the format; the message gives the JSON path.
        """
        fields = Fields(document, where)
        table = fleet_table(fields)
        fields.only(_KEYS)
        service = fields.text("service", FLEET_SERVICES)
        size = None if service == "distribution" else 1
        models = []
        for model in fields.children("models"):
            models.append(FleetModel.from_fields(model, size))
            size = len(models[0].service_ms[0])
        for o, (m, batch) in enumerate(table.options):
            if batch > len(models[m].service_ms):
                raise fields.refusal(f"options[{o}]", "no service time for this batch",
                                     value=[m, batch],
                                     allowed=f"batches up to {len(models[m].service_ms)}")
        return cls(
            models=tuple(models),
            slo_ms=table.slo_ms,
            workers=table.workers,
            load_qps=table.load_qps,
            service=service,
            violation_price=fields.number("violation_price", NON_NEGATIVE),
            arrivals=arrivals_in(fields),
            late=fields.text("late"),
            spare_idle=fields.whole_or_none("spare_idle", 0),
            idle_levels=np.array(table.idle),
            queue_levels=np.array(table.queue),
            slack_ms=np.array(table.slack_ms),
            options=np.array(table.options),
            table=_filled(table.rows, table.places, len(table.slack_ms)),
            expectations=Expectations.from_fields(fields.child("expectations"), table.models),
            certificate=CertificateRecord.from_fields(fields.child("certificate")),
            inputs=Inputs.from_fields(fields.child("inputs")),
            created_by=fields.text("created_by"),
            slo_classes=_classes(fields, table.slo_ms) if "slo_classes" in fields else (),
            mixture=table.mixture,
            budget=budget_in(fields),
            uneven_ends="uneven_ends" in fields and fields.flag("uneven_ends"),
        )


def _classes(fields: Fields, slo_ms: float) -> tuple[SloClass, ...]:
    """The SLO classes of a document."""
    numbers = []
    for one in fields.children("slo_classes"):
        one.only(names(SloClass))
        numbers.append((one.number("slo_ms", POSITIVE), one.number("share", FRACTION)))
    try:
        found = [SloClass(*pair) for pair in numbers]
        classes = merged_classes(found)
    except InvalidValueError as error:
        raise fields.refusal("slo_classes", str(error)) from None
    if classes != tuple(found) or len(found) < 2 or found[-1].slo_ms != slo_ms:
        raise fields.refusal("slo_classes", "not two or more rising SLOs up to slo_ms",
                             value=[one.slo_ms for one in found], allowed=f"…, {slo_ms:g}")
    return classes


_KEYS = (*names(FleetPolicy), "format", "kind")


def _rows(table: NDArray[np.int64]) -> tuple[list[list[int]], list[list[int]]]:
    """Distinct rows as pairs of a bin and the answer from there on, and each place's row."""
    known: dict[bytes, int] = {}
    rows: list[list[int]] = []
    index: list[list[int]] = []
    for block in np.ascontiguousarray(table):
        line = []
        for answers in block:
            key = answers.tobytes()
            if key not in known:
                known[key] = len(rows)
                starts = np.flatnonzero(np.diff(answers, prepend=answers[0] - 1))
                rows.append(np.stack([starts, answers[starts]], axis=1).ravel().tolist())
            line.append(known[key])
        index.append(line)
    return rows, index


def _filled(rows: list[list[int]], index: list[list[int]], bins: int) -> NDArray[np.int64]:
    """The inverse of :func:`_rows`."""
    full = np.array([np.repeat(row[1::2], np.diff([*row[::2], bins])) for row in rows],
                    dtype=np.int64)
    return np.take(full, np.array(index), axis=0)
