"""The records of a policy file for requests with a size: promise, inputs and numbers of the rule.

The annotations of the fields define how a record is read. The tables of the rule are those of the
lookup, and read with it (:class:`ramsis.runtime.sized.SizedTables`).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from ramsis.fields import Fields
from ramsis.profiles.batch import STATISTICS
from ramsis.profiles.sized import SizedTimes
from ramsis.records import (
    Count,
    Entries,
    Fraction,
    NonNegative,
    Positive,
    Reader,
    Whole,
    WrittenRecord,
    names,
)
from ramsis.reprs import dataclass
from ramsis.runtime.sized import SIZED_FORMAT
from ramsis.sized.rule import RuleNumbers

_TOLERANCE = 1e-6
_OBJECT = Reader(Fields.child)  # read elsewhere, or of any form


@dataclass(frozen=True)
class _Complete(WrittenRecord):
    """Record with all its fields, also those that may be null."""

    def check(self, item: Fields) -> None:
        """Refuse an object without one of the fields."""
        for name in names(type(self)):
            item.value(name)


@dataclass(frozen=True)
class SizedModel(WrittenRecord):
    """Model of the policy."""

    name: str
    accuracy: Fraction


@dataclass(frozen=True)
class SizeClasses(WrittenRecord):
    """Classes of request sizes."""

    edges: tuple[Count, ...]  # the largest size of each class
    weights: tuple[Positive, ...]  # value of an answer in time at accuracy 1, of each class


@dataclass(frozen=True)
class ClassPromise(_Complete):
    """Promise for the requests of a size class."""

    sizes: Annotated[tuple[Count, ...], Entries(2, 2)]  # the smallest and the largest
    share: Fraction  # of all requests
    in_time_rate: Fraction | None
    in_time_rate_half_width: NonNegative | None
    accuracy: Fraction | None  # mean of the answers in time


@dataclass(frozen=True)
class SizedExpectations(_Complete):
    """Promise of the policy, measured by simulation."""

    accuracy: Fraction | None  # mean of the answers in time
    violation_rate: Fraction
    violation_rate_half_width: NonNegative | None
    effective_accuracy: Fraction
    effective_accuracy_half_width: NonNegative | None
    by_class: tuple[ClassPromise, ...]
    response_mean_ms: Positive | None
    response_p50_ms: Positive | None
    response_p95_ms: Positive | None
    response_p99_ms: Positive | None
    batch_mean: Positive | None
    utilisation: Fraction
    padding: Fraction  # share of the computed size
    model_share: dict[str, Fraction]
    overloaded: bool
    value: NonNegative  # effective accuracy with the weights of the classes
    upper_bound: NonNegative  # of the value
    upper_bound_half_width: NonNegative
    replanned_dp: NonNegative  # value of the replanned dynamic program on the same requests
    rule_gain: float  # value of the rule less that value
    rule_gain_half_width: NonNegative
    runs: Annotated[int, Whole(2, 64)]
    requests: Count

    def check_figures(self, item: Fields) -> None:
        """Refuse figures that contradict each other, or the upper bound."""
        effective = (self.accuracy or 0.0) * (1.0 - self.violation_rate)
        if abs(effective - self.effective_accuracy) > _TOLERANCE:
            raise item.refusal("effective_accuracy", "not accuracy * (1 - violation_rate)",
                               value=self.effective_accuracy, allowed=f"{effective}")
        if self.value > (self.upper_bound + self.upper_bound_half_width
                         + (self.effective_accuracy_half_width or 0.0)):
            raise item.refusal("value", "above the upper bound", value=self.value,
                               allowed=f"at most {self.upper_bound:.6f}")
        share = sum(entry.share for entry in self.by_class)
        if abs(share - 1.0) > _TOLERANCE:
            raise item.refusal("by_class", "shares do not sum to 1", value=share)


@dataclass(frozen=True)
class StatedSizes(WrittenRecord):
    """Distribution of the sizes of requests."""

    values: tuple[Count, ...]
    probability: tuple[Positive, ...]


@dataclass(frozen=True)
class SizedInputs(_Complete):
    """What the policy was made from."""

    profile: str
    profile_fingerprint: str
    times: tuple[SizedTimes, ...]  # of each model, with the statistic that the policy counts on
    sizes: StatedSizes
    weights: tuple[Positive, ...]  # of the size classes before the search
    max_batch: Count
    seed: int
    min_in_time_by_class: tuple[Fraction, ...] | None

    def check(self, item: Fields) -> None:
        """Refuse times with several statistics."""
        super().check(item)
        for i, times in enumerate(self.times):
            if len(times.statistics) > 1:
                raise item.refusal(f"times[{i}]", "more than one statistic",
                                   value=", ".join(times.statistics), allowed="one")


@dataclass(frozen=True)
class SizedFile(_Complete):
    """Policy file for requests with a size."""

    FORMAT: ClassVar[str] = SIZED_FORMAT

    created_by: str
    models: tuple[SizedModel, ...]
    unit: str
    slo_ms: Positive
    workers: Count
    load_qps: Positive
    arrivals: Annotated[Any, _OBJECT]
    service: Annotated[str, STATISTICS]
    classes: SizeClasses
    rule: Annotated[Any, _OBJECT]
    plan: Annotated[Any, Reader(Fields.child_or_none)]
    numbers: dict[str, float]
    expectations: SizedExpectations
    inputs: SizedInputs

    def check(self, item: Fields) -> None:
        """Refuse arrivals without a process, and other numbers than those of a rule."""
        super().check(item)
        self.arrivals.text("process")
        numbers = item.child("numbers")
        numbers.only(RuleNumbers._fields)
        for name in RuleNumbers._fields:
            numbers.value(name)
