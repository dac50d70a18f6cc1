"""Value tables: effective accuracy of policies by workers and load (``ramsis.value-table/1``)."""

from __future__ import annotations

from dataclasses import dataclass

from ramsis.runtime.fields import FRACTION, POSITIVE, Fields
from ramsis.runtime.records import names, texts

__all__ = ["ValueRow", "Values"]


@dataclass(frozen=True, slots=True)
class ValueRow:
    """A row of a value table: what a policy promises for some workers at a load.

    Attributes
    ----------
    worker_type
        Name of the type of all the workers.
    model_set
        Names of the models that each of them holds.
    workers
        How many, from 1.
    load_qps
        Load that they share, > 0.
    slo_ms
        The deadline that the policy was made for.
    expected_effective_accuracy
        Accuracy x (1 - violation rate), per query.
    expected_violation_rate
        Share of the queries not answered in time.
    """

    worker_type: str
    model_set: tuple[str, ...]
    workers: int
    load_qps: float
    slo_ms: float
    expected_effective_accuracy: float
    expected_violation_rate: float

    @property
    def case(self) -> tuple[object, ...]:
        """The key of the row, unique in a table."""
        return (self.worker_type, tuple(sorted(self.model_set)), self.workers, self.load_qps,
                self.slo_ms)

    @classmethod
    def from_fields(cls, item: Fields) -> ValueRow:
        """The row in an entry of ``rows``."""
        item.only(names(cls))
        row = cls(item.text("worker_type"), texts(item, "model_set"), item.whole("workers", 1),
                  item.number("load_qps", POSITIVE), item.number("slo_ms", POSITIVE),
                  item.number("expected_effective_accuracy", FRACTION),
                  item.number("expected_violation_rate", FRACTION))
        in_time = 1.0 - row.expected_violation_rate
        if row.expected_effective_accuracy > in_time + 1e-9:
            raise item.refusal("expected_effective_accuracy", "above the share answered in time",
                               value=row.expected_effective_accuracy,
                               allowed=f"at most {in_time:g} (1 - expected_violation_rate)")
        return row


@dataclass(frozen=True, slots=True)
class Values:
    """The value table of a family."""

    family: str
    rows: tuple[ValueRow, ...]
