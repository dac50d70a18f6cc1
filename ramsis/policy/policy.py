"""A policy: its decision table, with inputs, promise and certificate."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ramsis.arrays import FloatArray, IntArray
from ramsis.cluster.cluster import SloClass
from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import NON_NEGATIVE, POSITIVE
from ramsis.fields import Fields
from ramsis.policy.cascade import Cascade
from ramsis.policy.parts import arrivals_in, cascade_in, classes_in, levels_in, models_in
from ramsis.policy.records import (
    BudgetRecord,
    CertificateRecord,
    Expectations,
    HeadroomRecord,
    Inputs,
    PolicyModel,
    Rates,
    Replay,
)
from ramsis.policy.table import compressed, expanded
from ramsis.profiles.sketch import midpoint_levels
from ramsis.profiles.tails import Tails
from ramsis.records import WrittenRecord, names, optional
from ramsis.reprs import dataclass, figure_of
from ramsis.runtime.routing import DISPATCHES, DispatchRule
from ramsis.runtime.table import POLICY_FORMAT, WAIT_CODE, DecisionTable, arrivals_label
from ramsis.runtime.table_reader import decision_table
from ramsis.tables import Column, html_table

if TYPE_CHECKING:
    import pandas as pd

SERVICES = ("p95", "p99", "p90", "p50", "mean", "distribution")
"""What service times are: a statistic of the profile, or drawn from the distribution."""
OBJECTIVES = ("per-query", "per-decision")
"""Objectives by name: accuracy averaged over requests, or over decisions (batches)."""


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """One policy file in memory; :meth:`to_document` and :meth:`from_document` are inverses.

    Arrays are copied on construction and cannot be written to. Ranges are checked when a policy
    is read or written, not here.

    Attributes
    ----------
    models
        Fastest first; ``actions`` holds indices into it.
    slo_ms, workers, load_qps
        The service level (with SLO classes the longest), the number of workers K, and the load
        that they share.
    arrivals
        ``process`` and the parameters of the arrival process, as plain JSON values.
    service, dispatch, batching, late, objective
        One of :data:`SERVICES`, :data:`~ramsis.runtime.routing.DISPATCHES`,
        :data:`~ramsis.runtime.table.BATCHINGS`, :data:`~ramsis.runtime.table.LATE_RULES`,
        :data:`OBJECTIVES`.
    idle_levels, queue_levels, slack_ms
        Axes of the table, shapes (I,), (N,), (J,): idle workers of one queue, requests
        in it, and low edges of the slack bins.
    actions
        Model and batch of each action, shape (A, 2).
    codes
        Index of the action, -1 to wait, -2 to drop, shape (I-1, N-1, J): no row for no idle
        worker, nor for an empty queue.
    longer_queue
        Code for a queue longer than the last level; -3 for that of the last level.
    expectations, certificate, inputs
        The promise, the quality of the solution, and the inputs of the synthesis.
    created_by
        Program and version.
    violation_price
        Price of a late or dropped request in the objective, in units of accuracy.
    slo_classes
        SLO classes by rising SLO, two or more; ``slo_ms`` is then the longest, and the queue is
        ordered by deadline. Empty if all requests have one SLO.
    budget
        The budget of violations that the policy was made for, if any.
    replay
        The simulation in which the promise was measured, if any.
    random_ends
        Whether the decision model assumes that batches end at random instants.
    patient
        Whether, of equally good actions, those that lead to the longer queue were taken.
    quantile_levels
        Where service times are drawn, the levels of the models' quantiles, rising, in (0, 1];
        null for the midpoints of as many equal parts.
    overhead_ms
        Overhead of every batch, >= 0. The times of ``models`` exclude it; :attr:`latency_ms` and
        the other times of this class include it.
    headroom
        The service times that the table was planned for, if these may differ from the profiled
        ones.
    slowness
        Times of ``models`` as a multiple of the profiled times, > 0.
    load_factor
        Multiple of the load at which the table was planned for Poisson arrivals, > 0; None if it
        was planned for the arrival process itself.
    tails
        Pooled tails of the profile, where times are drawn from samples.
    cascade
        Rule and promise of second opinions, if any; the table and ``expectations`` are those of
        serving without second opinions.
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
    idle_levels: IntArray
    queue_levels: IntArray
    slack_ms: FloatArray
    actions: IntArray
    codes: IntArray
    longer_queue: int
    expectations: Expectations
    certificate: CertificateRecord
    inputs: Inputs
    created_by: str
    violation_price: float
    slo_classes: tuple[SloClass, ...] = ()
    budget: BudgetRecord | None = None
    replay: Replay | None = None
    random_ends: bool = False
    patient: bool = False
    quantile_levels: FloatArray | None = None
    overhead_ms: float = 0.0
    headroom: HeadroomRecord | None = None
    tails: Tails | None = None
    slowness: float = 1.0
    load_factor: float | None = None
    cascade: Cascade | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in ("slo_ms", "load_qps", "violation_price", "overhead_ms", "slowness"):
            put(self, name, float(getattr(self, name)))  # as a file gives them back
        put(self, "arrivals", _plain(self.arrivals))
        put(self, "slack_ms", _frozen(self.slack_ms, np.float64))
        if self.quantile_levels is not None:
            put(self, "quantile_levels", _frozen(self.quantile_levels, np.float64))
        for name in ("idle_levels", "queue_levels", "actions", "codes"):
            put(self, name, _frozen(getattr(self, name), np.int64))

    @property
    def arrivals_label(self) -> str:
        """The arrival process and its parameters as one text; a set is keyed by it and load."""
        return arrivals_label(self.arrivals)

    @property
    def planned_qps(self) -> float:
        """Load in requests per second that the table was planned for."""
        return self.load_qps * (1.0 if self.load_factor is None else self.load_factor)

    @property
    def rates(self) -> Rates:
        """Promised rates, with second opinions if the policy gives any."""
        delivered = self.expectations if self.cascade is None else self.cascade.promise
        return Rates(delivered.effective_accuracy, delivered.violation_rate)

    @property
    def upper_bound(self) -> float | None:
        """Bound on effective accuracy, of schedulers with second opinions if the policy has."""
        return (self.expectations if self.cascade is None else self.cascade.promise).upper_bound

    @property
    def promised(self) -> dict[str, float | bool | None]:
        """The main figures of the promise, as manifests and results name them."""
        return {
            "expected_accuracy": (self.expectations.accuracy if self.cascade is None
                                  else self.rates.accuracy),
            "expected_violation_rate": self.rates.violation_rate,
            "expected_effective_accuracy": self.rates.effective_accuracy,
            "upper_bound": self.upper_bound,
            "overloaded": self.expectations.overloaded,
        }

    @property
    def opinions(self) -> dict[str, float | None]:
        """The main figures of second opinions, as results name them; empty without any."""
        if self.cascade is None:
            return {}
        promise = self.cascade.promise
        return {"second_opinions": promise.second_opinions, "gain": promise.gain,
                "gain_error": promise.gain_error,
                "upper_bound_one_model": self.expectations.upper_bound}

    @property
    def rule(self) -> DispatchRule:
        """Dispatch rule: how requests reach the workers' queues."""
        return DISPATCHES[self.dispatch]

    @property
    def planned_factor(self) -> float:
        """Ratio of the service times that the table was planned for to the profiled ones."""
        return 1.0 if self.headroom is None else self.headroom.factor

    @property
    def classes(self) -> tuple[SloClass, ...]:
        """The SLO classes, one where there is one SLO."""
        return self.slo_classes or (SloClass(self.slo_ms),)

    @property
    def max_queue(self) -> int:
        """Longest queue length that the table distinguishes."""
        return int(self.queue_levels[-1])

    @property
    def max_batch(self) -> int:
        """Largest batch of an action."""
        return int(self.actions[:, 1].max())

    @property
    def accuracy(self) -> FloatArray:
        """Accuracies of the models, shape (M,)."""
        return np.array([model.accuracy for model in self.models], dtype=np.float64)

    @property
    def latency_ms(self) -> FloatArray:
        """Service times, shape (M, B): column b-1 is for a batch of b; infinite where unknown."""
        return _padded([model.latency_ms for model in self.models]) + self.overhead_ms

    @property
    def service_ms(self) -> FloatArray:
        """Quantiles of service times, shape (M, B, Q), Q = 1 where they are fixed.

        Infinite for batches that are not to be run.
        """
        return _padded([model.service_ms for model in self.models]) + self.overhead_ms

    @property
    def quantiles_ms(self) -> FloatArray | None:
        """``service_ms`` where service times are drawn; None where they are fixed."""
        return None if self.models[0].quantiles_ms is None else self.service_ms

    @property
    def levels(self) -> FloatArray:
        """Levels of the quantiles of ``service_ms``, shape (Q,)."""
        if self.quantile_levels is not None:
            return self.quantile_levels
        return midpoint_levels(len(self.models[0].service_ms[0]))

    @property
    def samples(self) -> IntArray:
        """Number of samples behind the service time of each batch, 0 if unknown, shape (M, B)."""
        batches = max(len(model.service_ms) for model in self.models)
        result = np.zeros((len(self.models), batches), dtype=np.int64)
        for row, model in zip(result, self.models, strict=True):
            counts = model.samples or ()
            row[: len(counts)] = counts
        return result

    @property
    def service_times(self) -> ServiceTimes:
        """Service times on which the promise is based; infinite for batches that are not run."""
        return ServiceTimes(tuple(model.name for model in self.models), self.accuracy,
                            self.service_ms, self.service, self.levels, self.samples,
                            tails=self.tails)

    def accuracy_quantile(self, level: float) -> float | None:
        """Return a quantile of the accuracy of requests in the steady state.

        Parameters
        ----------
        level
            Level of the quantile, in (0, 1]. At 0.5 it is the median; at 0.01 the accuracy that
            99 % of the requests reach or exceed.

        Returns
        -------
        float or None
            Accuracy of the model at this level, over all requests that are served, late ones
            included; ``None`` where the shares of the models are not stated.
        """
        share = self.expectations.model_share
        served = sorted((model.accuracy, share[model.name])
                        for model in self.models if share.get(model.name))
        if not served:
            return None
        upto = np.cumsum([part for _, part in served])
        return served[min(int(np.searchsorted(upto, level * upto[-1])), len(served) - 1)][0]

    def model_and_batch(self) -> tuple[IntArray, IntArray]:
        """Return models and batches of the table, (I-1, N-1, J); batch 0 to drop, -1 to wait."""
        padded = np.vstack([self.actions, [[0, 0], [0, -1]]])[self.codes]
        return padded[..., 0], padded[..., 1]

    def decision_table(self) -> DecisionTable:
        """Return the table as the runtime looks it up."""
        rows, row_of = compressed(self.codes)
        return DecisionTable(
            models=tuple(model.name for model in self.models), slo_ms=self.slo_ms,
            load_qps=self.load_qps, workers=self.workers, dispatch=self.dispatch,
            arrivals=self.arrivals_label, idle=tuple(self.idle_levels.tolist()),
            queued=tuple(self.queue_levels.tolist()), slack_ms=tuple(self.slack_ms.tolist()),
            actions=self.actions.tolist(), rows=rows, row_of=row_of,
            longer_queue=self.longer_queue,
            run_as=tuple(model.run_as or () for model in self.models) if any(
                model.run_as for model in self.models) else (),
            slowness=self.slowness,
        )

    def table_rows(self) -> list[dict[str, Any]]:
        """Return the table as rows, one for each range of slack with the same answer.

        The keys of a row are ``idle``, ``queued``, ``slack_from_ms``, ``slack_below_ms`` (None
        without an end), ``answer`` (``run``, ``wait`` or ``drop``), ``model`` and ``batch`` (None
        unless a batch runs).
        """
        rows, index = compressed(self.codes)
        ends = [*self.slack_ms.tolist(), None]
        return [{"idle": idle, "queued": queued, "slack_from_ms": ends[start],
                 "slack_below_ms": ends[end], **self._answer(code)}
                for idle, line in zip(self.idle_levels[1:].tolist(), index, strict=True)
                for queued, row in zip(self.queue_levels[1:].tolist(), line, strict=True)
                for start, end, code in zip(rows[row][::2], [*rows[row][2::2], len(ends) - 1],
                                            rows[row][1::2], strict=True)]

    def _answer(self, code: int) -> dict[str, Any]:
        if code < 0:
            return {"answer": "wait" if code == WAIT_CODE else "drop", "model": None,
                    "batch": None}
        model, batch = self.actions[code].tolist()
        return {"answer": "run", "model": self.models[model].name, "batch": batch}

    def to_frame(self) -> pd.DataFrame:
        """Return the rows of :meth:`table_rows` as a data frame."""
        import pandas as pd

        return pd.DataFrame(self.table_rows())

    def plot(self, *, idle: int | None = None) -> Any:
        """Draw the table as a heat map (:class:`matplotlib.figure.Figure`)."""
        return figure_of("policy", self, idle=idle)

    def _summary(self) -> str:
        expected = self.expectations
        return (f"of {self.dispatch} for {self.load_qps:g} queries/s: {self.workers} workers, SLO "
                f"{self.slo_ms:g} ms, {len(self.models)} models, effective accuracy "
                f"{expected.effective_accuracy:.4f}, violations {expected.violation_rate:.4%}")

    def _repr_html_(self) -> str:
        """Return the promise as an HTML table, for notebooks."""
        expected = self.expectations
        pairs = [("dispatch", self.dispatch), ("load (queries/s)", f"{self.load_qps:g}"),
                 ("workers", str(self.workers)), ("SLO (ms)", f"{self.slo_ms:g}"),
                 ("arrivals", self.arrivals_label),
                 ("effective accuracy", f"{expected.effective_accuracy:.4f}"),
                 ("violations", f"{expected.violation_rate:.4%}"),
                 ("upper bound", "–" if expected.upper_bound is None
                  else f"{expected.upper_bound:.4f}"),
                 ("utilisation", f"{expected.utilisation:.1%}")]
        return html_table((Column("term", ""), Column("value", "")),
                          [{"term": term, "value": value} for term, value in pairs],
                          caption="Policy")

    def to_document(self) -> dict[str, Any]:
        """Return the policy as the JSON object of its file."""
        rows, row_of = compressed(self.codes)
        return {
            "format": POLICY_FORMAT, **_stated(self, but=_OF_TABLE),
            "table": {
                "axes": {"idle": self.idle_levels.tolist(), "queued": self.queue_levels.tolist(),
                         "slack_ms": self.slack_ms.tolist()},
                "actions": self.actions.tolist(), "rows": rows, "index": row_of,
                "longer_queue": int(self.longer_queue)},
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], where: str) -> Policy:
        """Read the policy in a parsed file; ``where`` names the file in messages.

        Raises
        ------
        InputFileError
            When the document breaks the format; the message gives the JSON path.
        """
        item = Fields(document, where)
        # First, as it says of a file of another format or version that it is one.
        table = decision_table(item)
        item.only(_KEYS)
        service = item.text("service", SERVICES)
        price = item.number_or_none("violation_price", NON_NEGATIVE)
        models = models_in(item, table, drawn=service == "distribution")
        overhead = item.number_or_none("overhead_ms", NON_NEGATIVE)
        expectations = item.child("expectations")
        expectations.child("model_share").only(table.models)
        return cls(
            models=models,
            slo_ms=table.slo_ms,
            workers=table.workers,
            load_qps=table.load_qps,
            arrivals=arrivals_in(item),
            service=service,
            dispatch=table.dispatch,
            batching=item.text("batching"),
            late=item.text("late"),
            objective=item.text("objective", OBJECTIVES),
            idle_levels=np.array(table.idle),
            queue_levels=np.array(table.queued),
            slack_ms=np.array(table.slack_ms),
            actions=np.array(table.actions),
            codes=expanded(table.rows, table.row_of, len(table.slack_ms)),
            longer_queue=table.longer_queue,
            expectations=Expectations.from_fields(expectations),
            certificate=CertificateRecord.from_fields(item.child("certificate")),
            inputs=Inputs.from_fields(item.child("inputs")),
            created_by=item.text("created_by"),
            violation_price=0.0 if price is None else price,
            slo_classes=classes_in(item, table),
            budget=optional(BudgetRecord, item, "budget"),
            replay=optional(Replay, item, "replay"),
            random_ends="random_ends" in item and item.flag("random_ends"),
            patient="patient" in item and item.flag("patient"),
            quantile_levels=levels_in(item, models),
            overhead_ms=0.0 if overhead is None else overhead,
            headroom=optional(HeadroomRecord, item, "headroom"),
            tails=optional(Tails, item, "tails"),
            slowness=table.slowness,
            load_factor=item.number_or_none("load_factor", POSITIVE),
            cascade=cascade_in(item, models),
        )


_OF_TABLE = ("idle_levels", "queue_levels", "slack_ms", "actions", "codes", "longer_queue")
_KEYS = ("format", "table", *(name for name in names(Policy) if name not in _OF_TABLE))


def _padded(rows: Sequence[Sequence[Any]]) -> FloatArray:
    """Return rows of different lengths as one array, infinite beyond their ends."""
    result = np.full((len(rows), max(map(len, rows)), *np.shape(rows[0][0])), np.inf)
    for padded, row in zip(result, rows, strict=True):
        padded[: len(row)] = row
    return result


def _frozen(values: ArrayLike, dtype: type[np.generic]) -> NDArray[Any]:
    """Return a copy of an array that cannot be written to."""
    array = np.array(values, dtype=dtype)
    array.setflags(write=False)
    return array


def _stated(record: Any, but: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields of a record, except ``but``, as JSON values; none at its default."""
    values = {}
    for item in fields(record):
        if item.name not in but:
            value = _plain(getattr(record, item.name))
            default = item.default if item.default_factory is MISSING else item.default_factory()
            if value != _plain(default):
                values[item.name] = value
    return values


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: NumPy scalars as numbers, tuples and arrays as lists."""
    if isinstance(value, PolicyModel | WrittenRecord):
        return _stated(value)
    if isinstance(value, Cascade):
        value = value.to_document()
    elif isinstance(value, SloClass | Tails):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def price_and_headroom(policies: Iterable[Policy]) -> list[tuple[str, str]]:
    """Return the price of a violation and the headroom of policies, as words with their ranges."""
    ranges: list[tuple[str, set[str]]] = [("price of a violation", set()), ("headroom", set())]
    for policy in policies:
        for (_, values), value in zip(
            ranges, (policy.violation_price, policy.planned_factor - 1.0), strict=True
        ):
            values.add(f"{value:.3g}")
    return [(name, " to ".join(dict.fromkeys((min(values, key=float), max(values, key=float)))))
            for name, values in ranges if values]
