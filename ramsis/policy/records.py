"""Records of a policy file besides its table: models, promise, certificate, inputs.

A record is read by the annotations of its fields (:mod:`ramsis.records`). Files lack a
field of a record that has a default, where it is at that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any

from ramsis.errors import FRACTION, INNER, POSITIVE
from ramsis.fields import Fields
from ramsis.records import (
    Count,
    Fraction,
    NonNegative,
    Positive,
    Reader,
    Whole,
    WrittenRecord,
    names,
)
from ramsis.reprs import dataclass
from ramsis.runtime.table_reader import sizes_to_run

RESPONSES = ("response_mean_ms", "response_p50_ms", "response_p95_ms", "response_p99_ms")
"""Response times of :class:`Expectations`."""

ORIGINS = "mpies"
"""A letter for each origin of a latency of :class:`PolicyModel`."""
# More than any policy is made with. `verify` simulates as much as a file states: this limits it.
_MOST_QUERIES, _MOST_RUNS = 20_000_000, 64


def _ends(interval: Fields, key: str) -> tuple[float, float]:
    low, high = interval.numbers(key, FRACTION, 2)
    if low > high:
        raise interval.refusal(key, "lower end above the upper one", value=[low, high])
    return low, high


def _values(inputs: Fields, key: str) -> dict[str, Any]:
    """Return all fields of an object without checks; none where it is null."""
    options = inputs.child_or_none(key)
    return {} if options is None else {name: options.value(name) for name in options}


@dataclass(frozen=True, slots=True)
class PolicyModel:
    """Model of a policy, with the service times that the policy was made for.

    Attributes
    ----------
    name
        Unique in the policy.
    accuracy
        Fraction in [0, 1].
    latency_ms
        Service time of a batch of 1, 2, …, > 0.
    latency_origin
        A letter for each of these times: ``m`` measured, ``p`` padded (a larger batch measured
        faster), ``i`` interpolated, ``e`` extrapolated, ``s`` smoothed; or ``None`` if unknown.
    quantiles_ms
        If service times are drawn, the non-decreasing quantiles of each batch of 1, 2, … that the
        policy may run. Then ``latency_ms`` are means, raised so that they do not decrease.
    samples
        For each of these batches the number of samples behind its quantiles, 0 if unknown; or
        ``None``.
    run_as
        The batch size to run for a batch of 1, 2, …, whose time ``latency_ms`` states; or
        ``None`` if batches are not padded.
    """

    name: str
    accuracy: float
    latency_ms: tuple[float, ...]
    latency_origin: str | None = None
    quantiles_ms: tuple[tuple[float, ...], ...] | None = None
    samples: tuple[int, ...] | None = None
    run_as: tuple[int, ...] | None = None

    @classmethod
    def from_fields(
        cls, model: Fields, batches: int | None, *, drawn: bool = False, size: int | None = None
    ) -> PolicyModel:
        """Read the model in an entry of ``models``.

        Parameters
        ----------
        batches
            Number of latencies, and of their origins; ``None``: one or more.
        drawn
            Whether it has quantiles.
        size
            Number of quantiles of each batch; ``None``: as many as the first batch has.
        """
        model.only(names(cls) if drawn else [name for name in names(cls)
                                             if name not in ("quantiles_ms", "samples")])
        latency_ms = tuple(model.numbers("latency_ms", POSITIVE, length=batches))
        rows = _quantile_rows(model, size) if drawn else ()
        counted = drawn and "samples" in model
        return cls(
            name=model.text("name"),
            accuracy=model.number("accuracy", FRACTION),
            latency_ms=latency_ms,
            latency_origin=_origin(model, len(latency_ms), needed=batches is not None),
            quantiles_ms=rows or None,
            samples=tuple(model.wholes("samples", 0, length=len(rows))) if counted else None,
            run_as=sizes_to_run(model, len(latency_ms)) or None,
        )

    @property
    def service_ms(self) -> tuple[tuple[float, ...], ...]:
        """Quantiles of the service time of each batch; a single one where times are fixed."""
        if self.quantiles_ms is not None:
            return self.quantiles_ms
        return tuple((value,) for value in self.latency_ms)


def _origin(model: Fields, batches: int, *, needed: bool) -> str | None:
    if not needed and "latency_origin" not in model:
        return None
    origin = model.text("latency_origin")
    if len(origin) != batches or not set(origin) <= set(ORIGINS):
        raise model.refusal("latency_origin", "not one letter for each latency", value=origin,
                            allowed=f"{batches} letters out of {ORIGINS}")
    return origin


def _quantile_rows(model: Fields, size: int | None) -> tuple[tuple[float, ...], ...]:
    """Read rows of non-falling positive numbers, ``size`` in each or as many as in the first."""
    quantiles, rows = [], model.entries("quantiles_ms")
    for key in rows:
        times = rows.numbers(key, POSITIVE, length=size)
        size = len(times)
        rows.check_rising(key, times, strictly=False)
        quantiles.append(tuple(times))
    return tuple(quantiles)


@dataclass(frozen=True, slots=True)
class Spread(WrittenRecord):
    """Mean, median and 99th percentile of a quantity in the steady state."""

    mean: float
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class PerDecision(WrittenRecord):
    """Figures per decision, as in the paper (§5.1): a batch of 1 counts as much as one of 8."""

    accuracy: Fraction | None
    violation_rate: Fraction


@dataclass(frozen=True, slots=True)
class Interval(WrittenRecord):
    """Confidence interval of a promise, by the number of service-time samples behind it."""

    confidence: Annotated[float, INNER, "Level of the interval, such as 0.95."]
    violation_rate: Annotated[
        tuple[float, float], Reader(_ends), "Lower and upper end of the violation rate."]
    effective_accuracy: Annotated[
        tuple[float, float], Reader(_ends), "Lower and upper end of the effective accuracy."]
    samples: Annotated[
        Positive,
        "Effective number of samples from which the interval follows: the violation rate divided "
        "by its variance.",
    ]
    unseen: Annotated[
        Positive,
        "Mean share of all requests that may be late through service times longer than all "
        "samples.",
    ]
    unseen_deviation: Annotated[Positive, "Standard deviation of that share."]
    violation_error: Annotated[
        NonNegative, "Half-width of the violation rate by the simulation that measured it; or 0."]
    effective_error: Annotated[
        NonNegative, "Half-width of the effective accuracy by that simulation; or 0."]
    accuracy_error: Annotated[
        NonNegative,
        "Error of effective accuracy because mean service times are estimated: the rise of the "
        "fluid bound if all times are one standard error shorter.",
    ]


@dataclass(frozen=True, slots=True)
class Expectations(WrittenRecord):
    """Promise of a policy in the steady state, per request unless stated otherwise.

    Attributes
    ----------
    accuracy
        Mean accuracy of the requests answered in time; ``None`` when none is.
    violation_rate
        Share of the requests not answered in time, in [0, 1].
    effective_accuracy
        ``accuracy * (1 - violation_rate)``.
    per_decision
        Accuracy and violation rate per decision.
    batch_size
        Distribution, over the requests, of the size of the batch in which a request is served.
    queue_length, slack_ms
        Distributions, over the decisions, of the queue length and of the slack of the earliest
        deadline; ``None`` if queues are unstable.
    model_share
        Model name → share of the requests that it serves; models not named serve none.
    utilisation
        Share of the time that a worker is busy.
    full_queue_rate
        Share of the decisions that are taken with a queue longer than the table.
    overloaded
        Whether the load exceeds ``capacity_qps``, or more than a tenth of the requests are late.
    capacity_qps
        Largest rate that any scheduler with these batches can answer within the SLO, if known.
    upper_bound
        Bound on the effective accuracy of every scheduler that answers each request once, by one
        model, if known.
    interval
        Confidence interval of the promise by the number of samples behind the service times, if
        these are drawn and the profile states that number.
    response_mean_ms, response_p50_ms, response_p95_ms, response_p99_ms
        Time from arrival to answer of the requests answered, late ones included; if measured.
    """

    accuracy: Fraction | None
    violation_rate: Fraction
    effective_accuracy: Fraction
    per_decision: PerDecision
    batch_size: Spread
    queue_length: Spread | None
    slack_ms: Spread | None
    model_share: dict[str, Fraction]
    utilisation: Fraction
    full_queue_rate: Fraction
    overloaded: bool
    capacity_qps: NonNegative | None
    upper_bound: Fraction | None
    interval: Interval | None = None
    response_mean_ms: Positive | None = None
    response_p50_ms: Positive | None = None
    response_p95_ms: Positive | None = None
    response_p99_ms: Positive | None = None

    @property
    def unstable(self) -> bool:
        """Whether queues grow without end, so that sooner or later every request is late."""
        return self.queue_length is None


NOTHING = Expectations(
    accuracy=None, violation_rate=1.0, effective_accuracy=0.0,
    per_decision=PerDecision(None, 1.0), batch_size=Spread(0.0, 0.0, 0.0),
    queue_length=Spread(0.0, 0.0, 0.0), slack_ms=Spread(0.0, 0.0, 0.0), model_share={},
    utilisation=0.0, full_queue_rate=0.0, overloaded=True, capacity_qps=None, upper_bound=None)
"""The promise of a policy that promises nothing yet."""


@dataclass(frozen=True, slots=True)
class CertificateRecord(WrittenRecord):
    """How the policy was solved and how far it can be from optimal.

    Attributes
    ----------
    solver
        Name of the algorithm.
    converged, iterations
        Whether its stopping rule was met, and after how many rounds.
    bellman_residual
        Largest violation of the optimality equation, if the solver states it.
    gain, gain_lower, gain_upper
        The policy's gain and bounds on the optimal one, in units of the objective.
    truncated_mass
        Largest probability left out of a state's transitions.
    nodes_per_bin
        Quadrature nodes in each slack bin; ``None`` for exact transitions.
    tolerance
        The stopping rule's tolerance, if it has one.
    """

    solver: str
    converged: bool
    iterations: int
    bellman_residual: NonNegative | None
    gain: float
    gain_lower: float | None
    gain_upper: float | None
    truncated_mass: NonNegative
    nodes_per_bin: Count | None
    tolerance: NonNegative | None


@dataclass(frozen=True, slots=True)
class Rates:
    """Joint rates of several stations over all requests, promised or simulated."""

    # effective_accuracy, violation_rate: fractions in [0, 1]
    effective_accuracy: float
    violation_rate: float

    @property
    def accuracy(self) -> float | None:
        """Mean accuracy of the requests in time; None if there are none."""
        in_time = 1.0 - self.violation_rate
        return min(self.effective_accuracy / in_time, 1.0) if in_time > 0 else None


@dataclass(frozen=True, slots=True)
class Simulated(WrittenRecord):
    """Rates of a policy in simulation, with halves of their 95 % intervals."""

    violation_rate: Annotated[Fraction, "Violation rate, mean over the runs."]
    violation_half_width: Annotated[NonNegative, "Half of its 95 % interval."]
    effective_accuracy: Annotated[Fraction, "Effective accuracy, mean over the runs."]
    effective_half_width: Annotated[NonNegative, "Half of its 95 % interval."]
    queries: Annotated[
        int, Whole(1, _MOST_QUERIES), "Mean number of requests in all runs together."]
    runs: Annotated[int, Whole(2, _MOST_RUNS), "Number of runs."]
    seed: Annotated[int, "Seed of the first run, raised by one for each run."]

    @property
    def upper(self) -> float:
        """Upper end of the violation rate's interval."""
        return self.violation_rate + self.violation_half_width


@dataclass(frozen=True, slots=True)
class Replay(Simulated):
    """Simulation of a policy's table in which its promise was measured."""

    half_widths: Annotated[
        dict[str, NonNegative],
        "Half of the 95 % interval of each measured figure of expectations, by name: utilisation, "
        "batch_size.mean, model_share.NAME. Figures without an entry are computed by the decision "
        "model.",
    ]
    workers: Annotated[
        Count | None, "Workers that were simulated; all of the policy's if absent."] = None
    warm_up_slos: Annotated[
        Positive | None,
        "Warm-up of the runs in SLOs, every other one of which starts from a full queue. If "
        "absent, all start from idle workers, with a warm-up of 40 SLOs.",
    ] = None
    settled: Annotated[
        bool | None,
        "False if runs from idle workers and from a full queue still differ; else absent.",
    ] = None


@dataclass(frozen=True, slots=True)
class BudgetRecord(Simulated):
    """The budget of violations of a policy, and the simulation in which it was met."""

    max_violation_rate: Annotated[Fraction, "The budget, above 0."]


@dataclass(frozen=True, slots=True)
class HeadroomRecord(WrittenRecord):
    """The service times that a policy was planned for, and its figures at longer ones."""

    factor: Annotated[
        Positive,
        "Service times that the table was planned for, as a multiple of those in the file, at "
        "least 1.",
    ]
    slower_effective_accuracy: Annotated[
        Fraction | None,
        "Effective accuracy measured with service times 10 % longer than in the file; null where "
        "this would take too long.",
    ]
    slower_violation_rate: Annotated[Fraction | None, "Violation rate of the same simulation."]


@dataclass(frozen=True, slots=True)
class Inputs(WrittenRecord):
    """Fingerprints of the profile and settings that a policy was made from.

    Attributes
    ----------
    profile, profile_name
        Fingerprint and name of the profile set.
    settings
        Fingerprint of the settings of the synthesis.
    options
        These settings, as plain JSON values; empty where they are not known.
    """

    profile: str
    profile_name: str
    settings: str
    options: Annotated[Mapping[str, Any], Reader(_values)] = field(default_factory=dict)
