"""Warm latencies of one model at several batch sizes, each until its percentile is stable.

1. *Probe*: each batch size, in ascending order, is run three times. The first batch size whose
   median is above ``max_latency_ms`` is the last. If a run fails, its batch size and all larger
   ones are left out.
2. *Rounds*: each unfinished batch size has one turn: an input is made, the model is run once
   without counting, and ``min_samples / 10`` runs are timed. Turns alternate between the batch
   sizes, so that a slow spell of the machine does not affect only one of them. The garbage
   collector is off during a turn. Several models may be *interleaved* instead: in random order,
   each unfinished batch size of each model is run once, without an uncounted run before it. Then a
   model finds the caches as another model left them, as in serving by policies that change models.
3. A batch size is finished when it has ``min_samples`` and either the relative error of its
   percentile is at most ``relative_error``, or its runs took ``seconds_per_batch`` in all. With
   ``max_samples`` it is finished in any case.

A run that fails in a round ends its batch size and all larger ones; the samples of smaller ones
are kept.

For independent samples x₁ … xₙ the number that lie at or below the true quantile of level p is
binomial(n, p), whatever the distribution. The order statistics x₍ₗ₎ and x₍ᵤ₎ with

    P(B < l) ≤ α/2  and  P(B ≥ u) ≤ α/2,   B ~ binomial(n, p),

with l as large and u as small as possible, therefore enclose that quantile with probability of at
least 1 − α [1]_. Latencies of a real machine are not independent: a slow spell covers several
consecutive samples. Samples are taken in turns of equal size. If the variance of the turns' shares
below the percentile is f > 1 times that of independent samples, the interval is widened by √f.

The stated error is the distance of the estimate from the farther end, relative to the estimate.

References
----------
.. [1] H. A. David, H. N. Nagaraja, Order Statistics, 3rd ed., section 7.1.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter_ns
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ramsis.errors import ABOVE_ZERO, InvalidValueError
from ramsis.memory import without_collection
from ramsis.profiles.batch import BatchProfile

CONFIDENCE = 0.95
"""Probability that the interval encloses the percentile."""

_FEWEST_TURNS = 5
"""Fewer turns say nothing of how much they differ."""

PERCENTILES = {"p95": 0.95, "p99": 0.99, "p90": 0.90, "p50": 0.50}
"""Percentiles that can be waited for, and their levels; the first is the default."""

_PROBES = 3
_TURNS = 10
_LATE_EACH = 4.0  # requests that a very long batch makes late, for each of its own


class Runnable(Protocol):
    """Interface of a loaded model whose latency can be measured."""

    def prepare(self, batch: int) -> Any:
        """Make an input of ``batch`` requests; not timed."""

    def run(self, prepared: Any) -> Any:
        """Run the model on an input; return when the answer is there."""


@dataclass(frozen=True)
class StopRule:
    """Stopping rule for the samples of a batch size, and for the batch sizes of a model."""

    percentile: str = "p95"  # A key of :data:`PERCENTILES`
    relative_error: float = 0.05  # the percentile counts as stable at this relative error, > 0
    # min_samples, max_samples: fewest and most samples, from 1
    min_samples: int = 100
    max_samples: int = 2000
    # time after which a batch size with ``min_samples`` ends though it is not stable, >= 0
    seconds_per_batch: float = 10.0
    # A model's batch sizes end with the first that takes longer, > 0
    max_latency_ms: float = math.inf

    def __post_init__(self) -> None:
        good = {
            "percentile": (self.percentile in PERCENTILES, ", ".join(PERCENTILES)),
            "relative_error": (self.relative_error > 0, "a number > 0"),
            "min_samples": (self.min_samples >= 1, "a whole number >= 1"),
            "max_samples": (self.max_samples >= self.min_samples, "at least min_samples"),
            "seconds_per_batch": (self.seconds_per_batch >= 0, "a number >= 0"),
            "max_latency_ms": (self.max_latency_ms > 0, "a number > 0"),
        }
        for name, (holds, allowed) in good.items():
            if not holds:
                raise InvalidValueError("out of range", where=name, value=getattr(self, name),
                                        allowed=allowed)

    @property
    def turn(self) -> int:
        """Number of samples that are taken in a row before another batch size has its turn."""
        return math.ceil(self.min_samples / _TURNS)

    def supporting(self, max_violation: float) -> StopRule:
        """Return the rule with enough samples to support a budget of violations, in (0, 1].

        If no sample of n is late, the upper end of the violation rate's 95 % interval is Jeffreys'
        limit for n runs without an event, times a factor: the number of requests that a slow batch
        makes late, including those in the queue, per request in the batch. It is assumed to be 4.
        """
        from scipy.special import gammaincinv  # here, so that servers start without scipy

        ABOVE_ZERO.check(max_violation=max_violation)
        least = max(math.ceil(_LATE_EACH * float(gammaincinv(0.5, 0.975)) / max_violation),
                    self.min_samples)
        return replace(self, min_samples=least, max_samples=max(self.max_samples, least))

    def error(self, latencies_ms: Sequence[float]) -> float | None:
        """Return the relative error of the percentile of these samples; None for too few."""
        return relative_error(latencies_ms, PERCENTILES[self.percentile], self.turn)

    def finished(self, latencies_ms: Sequence[float]) -> bool:
        """Return whether these samples of a batch size are enough."""
        if len(latencies_ms) < self.min_samples:
            return False
        if len(latencies_ms) >= self.max_samples:
            return True
        if math.fsum(latencies_ms) >= self.seconds_per_batch * 1000:
            return True
        error = self.error(latencies_ms)
        return error is not None and error <= self.relative_error


@dataclass(frozen=True)
class Sampled:
    """Measured latencies of one model, by batch size."""

    # in ascending order of batch size, with ``relative_error``; empty when the smallest batch
    # size failed
    batches: tuple[BatchProfile, ...]
    note: str | None = None  # why larger batch sizes are missing


def sample_batches(
    model: Runnable,
    batches: Sequence[int],
    rule: StopRule,
    quantiles: int = 128,
    finished: Callable[[int], object] = lambda batch: None,
) -> Sampled:
    """Measure a loaded model at batch sizes, ascending, until a rule finishes each.

    ``quantiles`` is the size of the quantile sketches; ``finished`` is called with each batch size
    when it is finished.
    """
    chosen, note = _probe(model, batches, rule)
    samples: dict[int, list[float]] = {batch: [] for batch in chosen}
    waiting = list(samples)
    while waiting:
        for batch in list(waiting):
            try:
                samples[batch] += _turn(model, batch, rule)
            except Exception as error:
                note = _failure(batch, error)
                samples = {size: kept for size, kept in samples.items() if size < batch}
                waiting = [size for size in waiting if size < batch]
                # The batch sizes that are left to be measured have changed.
                break
            if rule.finished(samples[batch]):
                waiting.remove(batch)
                finished(batch)
    return Sampled(tuple(_profile(batch, samples[batch], rule, quantiles) for batch in samples),
                   note)


@dataclass
class RunsInTime:
    """Record of timed runs in the order of time."""

    keys: list[tuple[str, int]] = field(default_factory=list)  # model and batch size
    latency_ms: list[float] = field(default_factory=list)


def sample_interleaved(
    models: Mapping[str, Runnable],
    batches: Sequence[int],
    rule: StopRule,
    quantiles: int = 128,
    finished: Callable[[str, int], object] = lambda model, batch: None,
    rng: np.random.Generator | None = None,
    runs: RunsInTime | None = None,
    *, after_round: Callable[[], object] = lambda: None,
) -> Iterator[tuple[str, Sampled, RunsInTime]]:
    """Measure loaded models interleaved in random order; yield each when it is finished.

    For ``batches``, ``rule`` and ``quantiles`` see :func:`sample_batches`. ``finished`` is called
    with model and batch size when these are finished, and ``after_round`` after each round, in
    which every unfinished batch size is run once. ``rng`` draws the order of the runs. ``runs``
    are those of an interrupted measurement, which is resumed; new ones are appended.

    Yields the name of the finished model, its latencies, and the runs of all models so far.
    """
    rng, trace = rng or np.random.default_rng(), RunsInTime() if runs is None else runs
    notes: dict[str, str | None] = {}
    samples: dict[str, dict[int, list[float]]] = {}
    waiting: dict[str, list[int]] = {}
    for name, model in models.items():
        chosen, notes[name] = _probe(model, batches, rule)
        samples[name] = {batch: [] for batch in chosen}
        waiting[name] = list(chosen)
    for (name, batch), latency_ms in zip(trace.keys, trace.latency_ms, strict=True):
        if batch in samples.get(name, ()):
            samples[name][batch].append(latency_ms)
    for name, unfinished in waiting.items():
        for batch in [size for size in unfinished if rule.finished(samples[name][size])]:
            unfinished.remove(batch)
            finished(name, batch)
    while waiting:
        for name in [name for name, unfinished in waiting.items() if not unfinished]:
            del waiting[name]
            yield name, Sampled(tuple(_profile(batch, measured_ms, rule, quantiles)
                                      for batch, measured_ms in samples[name].items()),
                                notes[name]), trace
        pairs = [(name, batch) for name, unfinished in waiting.items() for batch in unfinished]
        for place in rng.permutation(len(pairs)).tolist():
            name, batch = pairs[place]
            # A smaller batch of the model may have failed in this round, which ends this one, too.
            if batch not in waiting[name]:
                continue
            latencies_ms = samples[name][batch]
            try:
                latencies_ms.append(_once(models[name], batch))
            except Exception as error:
                notes[name] = _failure(batch, error)
                samples[name] = {b: kept for b, kept in samples[name].items() if b < batch}
                waiting[name] = [b for b in waiting[name] if b < batch]
                continue
            trace.keys.append((name, batch))
            trace.latency_ms.append(latencies_ms[-1])
            if len(latencies_ms) % rule.turn == 0 and rule.finished(latencies_ms):
                waiting[name].remove(batch)
                finished(name, batch)
        after_round()


def _once(model: Runnable, batch: int) -> float:
    """Run a model once on an input, and return the latency in ms."""
    prepared = model.prepare(batch)
    with without_collection():
        return timed(model, prepared)


def _probe(
    model: Runnable, batches: Sequence[int], rule: StopRule
) -> tuple[list[int], str | None]:
    """Probe the batch sizes; return those to measure, and why larger ones are left out."""
    chosen: list[int] = []
    for batch in batches:
        try:
            prepared = model.prepare(batch)
            latency_ms = statistics.median(timed(model, prepared) for _ in range(_PROBES))
        except Exception as error:
            return chosen, _failure(batch, error)
        chosen.append(batch)
        if latency_ms > rule.max_latency_ms and batch != batches[-1]:
            return chosen, (f"no batch sizes above {batch}, which takes longer than "
                            f"{rule.max_latency_ms:g} ms")
    return chosen, None


def _failure(batch: int, error: Exception) -> str:
    reason = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
    return f"no batch sizes from {batch} on, which failed ({reason[:200]})"


def _turn(model: Runnable, batch: int, rule: StopRule) -> list[float]:
    """Measure the latencies of one turn, in ms, after a run that warms the caches."""
    prepared = model.prepare(batch)
    with without_collection():
        model.run(prepared)
        return [timed(model, prepared) for _ in range(rule.turn)]


def timed(model: Runnable, prepared: Any) -> float:
    """Return the time of one run of a model, in ms."""
    start = perf_counter_ns()
    model.run(prepared)
    return max(perf_counter_ns() - start, 1) / 1e6


def _profile(
    batch: int, latencies_ms: list[float], rule: StopRule, quantiles: int
) -> BatchProfile:
    error = rule.error(latencies_ms)
    profile = BatchProfile.from_samples(batch, latencies_ms, quantiles)
    return replace(profile, relative_error=None if error is None else round(error, 6))


def ranks(n: int, level: float) -> tuple[int, int] | None:
    """Return ranks l < u, from 1, of the order statistics that enclose the quantile of ``level``.

    Return None if ``n`` samples are too few for such an interval.

    >>> ranks(100, 0.95)
    (90, 100)
    >>> ranks(50, 0.95) is None
    True
    """
    from scipy.special import bdtr  # here, so that servers start without scipy

    tail = (1 - CONFIDENCE) / 2
    cumulative = bdtr(np.arange(n), n, level)  # P(B ≤ 0) … P(B ≤ n − 1)
    lower = int(np.searchsorted(cumulative, tail, side="right"))
    upper = int(np.searchsorted(cumulative, 1 - tail)) + 1
    return (lower, upper) if lower >= 1 and upper <= n else None


def relative_error(samples: ArrayLike, level: float, turn: int = 1) -> float | None:
    """Return the relative error of a quantile of samples, with confidence :data:`CONFIDENCE`.

    It is the distance from the estimate to the farther end of its confidence interval, as a
    fraction of the estimate; None when the samples are too few. ``samples``, shape (n,), are
    values > 0 in the order in which they were taken, ``turn`` consecutive ones being of a turn;
    ``level`` is that of the quantile, in (0, 1).
    """
    values = np.asarray(samples, dtype=float)
    rank = ranks(len(values), level)
    if rank is None:
        return None
    lower, upper = np.partition(values, [rank[0] - 1, rank[1] - 1])[[rank[0] - 1, rank[1] - 1]]
    estimate = float(np.quantile(values, level))
    width = max(estimate - lower, upper - estimate) / estimate
    return float(width * math.sqrt(_inflation(values, estimate, level, turn)))


def _inflation(values: NDArray[np.float64], estimate: float, level: float, turn: int) -> float:
    """Return the variance of turns' shares below the estimate, relative to independent samples."""
    turns = len(values) // turn
    if turns < _FEWEST_TURNS or turn < 2:
        return 1.0
    shares = (values[: turns * turn].reshape(turns, turn) <= estimate).mean(axis=1)
    return max(1.0, float(shares.var(ddof=1)) * turn / (level * (1 - level)))
