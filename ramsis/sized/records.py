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

    edges: Annotated[tuple[Count, ...], "Largest size of each class."]
    weights: Annotated[
        tuple[Positive, ...], "For each class, the value of a correct answer in time."]


@dataclass(frozen=True)
class ClassPromise(_Complete):
    """Promise for the requests of a size class."""

    sizes: Annotated[tuple[Count, ...], Entries(2, 2), "Smallest and largest size."]
    share: Annotated[Fraction, "Share of all requests."]
    in_time_rate: Annotated[Fraction | None, "Share of them answered in time."]
    in_time_rate_half_width: Annotated[NonNegative | None, "Half of its 95 % interval."]
    accuracy: Annotated[Fraction | None, "Mean accuracy of the answers in time."]


@dataclass(frozen=True)
class SizedExpectations(_Complete):
    """Promise of the policy, measured by simulation."""

    accuracy: Annotated[Fraction | None, "Mean accuracy of the answers in time."]
    violation_rate: Annotated[Fraction, "Share of the requests not answered in time."]
    violation_rate_half_width: Annotated[NonNegative | None, "Half of its 95 % interval."]
    effective_accuracy: Annotated[Fraction, "Accuracy x (1 - violation rate)."]
    effective_accuracy_half_width: Annotated[NonNegative | None, "Half of its 95 % interval."]
    by_class: Annotated[tuple[ClassPromise, ...], "Promise for each size class."]
    response_mean_ms: Annotated[Positive | None, "Mean response time."]
    response_p50_ms: Annotated[Positive | None, "Median of the response times."]
    response_p95_ms: Annotated[Positive | None, "95th percentile of the response times."]
    response_p99_ms: Annotated[Positive | None, "99th percentile of the response times."]
    batch_mean: Annotated[Positive | None, "Mean number of requests in a batch."]
    utilisation: Annotated[Fraction, "Share of the time that a worker is busy."]
    padding: Annotated[Fraction, "Share of the computed size that no request asked for."]
    model_share: Annotated[dict[str, Fraction], "Share of the answers by each model."]
    overloaded: Annotated[bool, "Whether the load exceeds what the workers can answer."]
    value: Annotated[
        NonNegative, "Mean of accuracy x weight over all requests, 0 where late."]
    upper_bound: Annotated[NonNegative, "Bound on the value of every scheduler."]
    upper_bound_half_width: Annotated[NonNegative, "Half of its 95 % interval."]
    replanned_dp: Annotated[
        NonNegative, "Value of the replanned dynamic program on the same requests."]
    rule_gain: Annotated[float, "Value of the rule less that of the replanned dynamic program."]
    rule_gain_half_width: Annotated[NonNegative, "Half of its 95 % interval."]
    runs: Annotated[int, Whole(2, 64), "Number of runs."]
    requests: Annotated[Count, "Number of requests in all runs together."]

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

    created_by: Annotated[str, "Program and version."]
    models: Annotated[tuple[SizedModel, ...], "Name and accuracy of each model."]
    unit: Annotated[str, "What sizes count, such as tokens."]
    slo_ms: Annotated[Positive, "Time allowed from a request's arrival to its answer."]
    workers: Annotated[Count, "Number of workers that share the load."]
    load_qps: Annotated[Positive, "Load on all workers together, requests per second."]
    arrivals: Annotated[Any, _OBJECT, "Arrival process, as in other policy files."]
    service: Annotated[str, STATISTICS, "Statistic of the profile that a service time is."]
    classes: Annotated[
        SizeClasses, "Size classes of the promise: largest size (edges) and weight of each."]
    rule: Annotated[Any, _OBJECT, "Tables that a lookup reads."]
    plan: Annotated[
        Any, Reader(Fields.child_or_none),
        "null: the rule decides. Else the replanned dynamic program decides on model, with "
        "batches that have at least a share keep in time.",
    ]
    numbers: Annotated[
        dict[str, float], "The seven numbers from which the tables of the rule were computed."]
    expectations: Annotated[SizedExpectations, "The promise."]
    inputs: Annotated[
        SizedInputs, "Profile, its fingerprint, and settings that the policy was made from."]

    def check(self, item: Fields) -> None:
        """Refuse arrivals without a process, and other numbers than those of a rule."""
        super().check(item)
        self.arrivals.text("process")
        numbers = item.child("numbers")
        numbers.only(RuleNumbers._fields)
        for name in RuleNumbers._fields:
            numbers.value(name)
