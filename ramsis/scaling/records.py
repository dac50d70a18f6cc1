"""The records of the file of a scaling policy (``ramsis.scaling/1``).

The runtime reads its part of the file by :class:`ramsis.runtime.scaling_table.ScalingTable`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from ramsis.errors import ABOVE_ZERO
from ramsis.runtime.fields import Fields
from ramsis.runtime.records import (
    Count,
    Fraction,
    NonNegative,
    Positive,
    Reader,
    Schema,
    Whole,
    WrittenRecord,
    schema_of,
)
from ramsis.runtime.scaling_table import SCALING_FORMAT, Steering
from ramsis.runtime.table import MAX_WORKERS

_DISPATCHES = ("round-robin", "central-queue")
_STATED = ("target", "prices", "certificate")  # written even if null
_Workers = Annotated[int, Whole(0, MAX_WORKERS)]
_FOLDER: Schema = {"type": "string", "pattern": "^[^\\\\]+$"}


def _folder(item: Fields, key: str) -> str:
    """Read a folder's name; refuse backslashes, which are not separators everywhere."""
    name = item.text(key)
    if "\\" in name:
        raise item.refusal(key, "not the name of a folder", value=name, allowed="names with /")
    return name


@dataclass(frozen=True)
class TablesFolder(WrittenRecord):
    """Folder of the decision tables for a number of workers."""

    workers: Count
    made_for: Annotated[Count, "Workers that they were made for."]
    folder: Annotated[str, Reader(_folder, _FOLDER), "Beside this file."]


@dataclass(frozen=True)
class Target(WrittenRecord):
    """Target of a scaling policy."""

    max_violation: Fraction
    min_effective_accuracy: Fraction | None


@dataclass(frozen=True)
class StatedPrices(WrittenRecord):
    """Prices in worker-seconds, of a violation and of a unit of missed accuracy."""

    violation_worker_s: NonNegative
    accuracy_worker_s: NonNegative


@dataclass(frozen=True)
class StatedDynamics(WrittenRecord):
    """Parameters of the fitted load dynamics."""

    carried: Fraction
    reverting: Fraction
    mean_log_qps: float
    errors: tuple[float, ...]
    met_at: tuple[float, ...]


@dataclass(frozen=True)
class StatedEstimate(WrittenRecord):
    """Mean over runs with its confidence interval."""

    mean: NonNegative
    half_width: NonNegative
    low: NonNegative
    high: NonNegative


@dataclass(frozen=True)
class StatedPromise(WrittenRecord):
    """Figures of a scaling policy on loads drawn from its dynamics."""

    workers: StatedEstimate
    violation_rate: StatedEstimate
    effective_accuracy: StatedEstimate
    confidence: Fraction
    runs: Annotated[int, Whole(2)]
    run_s: Positive
    cost: Annotated[
        StatedEstimate | None,
        "Workers, violations and missed accuracy at the prices, in worker-seconds per second.",
    ] = None


@dataclass(frozen=True)
class StatedCertificate(WrittenRecord):
    """Error bound of the decision process's solution."""

    average_reward: float
    span: NonNegative
    sweeps: Count


@dataclass(frozen=True)
class ScalingFile(WrittenRecord):
    """Scaling policy file: number of workers by load, with the decision tables' folders."""

    FORMAT: ClassVar[str] = SCALING_FORMAT

    created_by: str
    slo_ms: Positive
    rate_per_worker_qps: Positive
    batch_rate_qps: Positive
    dispatch: Annotated[str, _DISPATCHES]
    interval_s: Positive
    startup_s: NonNegative
    least: Count
    most: Count
    levels_qps: tuple[Positive, ...]
    trends: tuple[float, ...]
    smoothing: Annotated[float, ABOVE_ZERO]
    forecast_error: NonNegative
    thresholds: Annotated[
        tuple[tuple[tuple[_Workers, ...], ...], ...],
        "By level and trend: up to which worker one is started; is kept when it began to start "
        "1, 2, ... decisions ago; is kept when it is active.",
    ]
    tables: tuple[TablesFolder, ...]
    target: Annotated[Target | None, "Null where the policy was made for prices."]
    prices: Annotated[
        StatedPrices | None,
        "Of the decision process; what was asked for where there is no target.",
    ]
    dynamics: StatedDynamics
    promise: StatedPromise
    certificate: StatedCertificate | None
    forecast_thresholds: Annotated[
        tuple[tuple[_Workers, ...], ...] | None,
        "By level, while a forecast is believed; those of no trend if it is missing.",
    ] = None
    window: Annotated[Count, "Intervals over whose loads the monitor's mean is taken."] = 1
    steering: Annotated[
        Steering | None,
        "How the load is corrected by what was delivered; it is not if this is null or missing.",
    ] = None

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema; without a target, prices and an expected cost are required."""
        schema = schema_of(cls)
        return {**schema, "required": [*schema["required"], *_STATED],
                "if": {"properties": {"target": {"type": "null"}}},
                "then": {"properties": {"prices": {"type": "object"},
                                        "promise": {"required": ["cost"]}}}}

    def check(self, item: Fields) -> None:
        """Refuse a policy without target that states no prices or no cost."""
        for name in _STATED:
            item.value(name)
        if self.target is None and self.prices is None:
            raise item.refusal("prices", "neither target nor prices", value=None,
                               allowed="prices where the target is null")
        if self.target is None and self.promise.cost is None:
            raise item.refusal("promise.cost", "no cost is promised", value=None,
                               allowed="an estimate where the target is null")
