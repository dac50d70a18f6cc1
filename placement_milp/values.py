"""Value tables: effective accuracy of policies by workers and load (``ramsis.value-table/1``)."""

from __future__ import annotations

from dataclasses import dataclass

from ramsis.runtime.fields import Fields
from ramsis.runtime.records import Count, Fraction, Positive, Record


@dataclass(frozen=True, slots=True)
class ValueRow(Record):
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
    workers: Count
    load_qps: Positive
    slo_ms: Positive
    expected_effective_accuracy: Fraction
    expected_violation_rate: Fraction

    @property
    def case(self) -> tuple[object, ...]:
        """The key of the row, unique in a table."""
        return (self.worker_type, tuple(sorted(self.model_set)), self.workers, self.load_qps,
                self.slo_ms)

    def check(self, item: Fields) -> None:
        """Refuse more accuracy than is answered in time."""
        in_time = 1.0 - self.expected_violation_rate
        if self.expected_effective_accuracy > in_time + 1e-9:
            raise item.refusal("expected_effective_accuracy", "above the share answered in time",
                               value=self.expected_effective_accuracy,
                               allowed=f"at most {in_time:g} (1 - expected_violation_rate)")


@dataclass(frozen=True, slots=True)
class Values:
    """The value table of a family."""

    family: str
    rows: tuple[ValueRow, ...]
