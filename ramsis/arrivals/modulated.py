"""Markov-modulated Poisson process (MMPP) with two modes, quiet and burst.

While the hidden mode is quiet, requests come as a Poisson process of rate λ₀; in a burst, of rate
λ₁ >= λ₀. Bursts begin at rate a and end at rate b. Requests come one at a time, but the counts of
disjoint intervals are dependent: the mode is the memory.

Given the time τ that an interval of T ms spends in bursts, the count is Poisson with the mean
λ₀(T − τ) + λ₁τ. So with f the joint density of τ and the last mode z', given the first mode z,

    P(k, z' | z, T) = ∫ Poisson(k; λ₀(T − τ) + λ₁τ) f(τ, z' | z, T) dτ.

With s = sqrt(ab·τ(T − τ)), f is exp(−a(T − τ) − bτ) times

    quiet → burst   a·I₀(2s)           quiet → quiet   ab(T − τ)·I₁(2s)/s, and an atom at τ = 0
    burst → quiet   b·I₀(2s)           burst → burst   abτ·I₁(2s)/s, and an atom at τ = T

(I₀ and I₁ are the modified Bessel functions: they sum over the number of bursts). Every
term is positive, so Gauss-Legendre quadrature over τ loses nothing even in far tails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, i0e, i1e

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals.process import Parameter, ShippedProcess, check_amount, check_sample
from ramsis.arrivals.renewal import Poisson
from ramsis.errors import INNER, POSITIVE, at_least

_BLOCK_NUMBERS = 2_000_000  # numbers computed at a time, which limits memory
_MOST_POINTS = 2_000  # of a quadrature
_MOST_SWITCHES = 2e5  # resolved by _MOST_POINTS; for more, nodes are restricted to the density
_NARROW = 1e3  # added to the spread of the mean count where nodes are so restricted
_FEW_POINTS = 256  # above it numbers of points are rounded up, as each needs its own nodes


@dataclass(frozen=True)
class MarkovModulated(ShippedProcess):
    """Two-mode Markov-modulated Poisson process with a given mean load.

    Parameters
    ----------
    load_qps : float
        Mean requests per second, over quiet times and bursts; finite and > 0.
    ratio : float
        λ₁/λ₀: rate in a burst over the rate in quiet times, finite and >= 1.
    burst_ms : float
        Mean duration of a burst in ms, > 0.
    share : float
        Share of the time spent in bursts, in (0, 1).

    Examples
    --------
    >>> process = MarkovModulated(1000.0, ratio=4.0, burst_ms=500.0, share=0.2)
    >>> process.rates.round(6).tolist()
    [0.625, 2.5]
    """

    name: ClassVar[str] = "mmpp"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("ratio", "R", "ratio", at_least(1)),
        Parameter("burst_ms", "B", "burst-ms", POSITIVE),
        Parameter("share", "S", "share", INNER),
    )
    why_no_counts: ClassVar[str] = "the counts of disjoint intervals depend on the hidden mode"

    load_qps: float
    ratio: float
    burst_ms: float
    share: float

    def simplest(self) -> ShippedProcess:
        """Return a Poisson process if both rates are equal."""
        return Poisson(self.load_qps) if self.ratio == 1.0 else self

    @cached_property
    def rates(self) -> FloatArray:
        """λ₀ and λ₁ per ms."""
        quiet = self.rate_per_ms / (1.0 - self.share + self.share * self.ratio)
        return np.array([quiet, self.ratio * quiet])

    @cached_property
    def switches(self) -> tuple[float, float]:
        """Rates a (quiet to burst) and b (burst to quiet), per ms."""
        end = 1.0 / self.burst_ms
        return end * self.share / (1.0 - self.share), end

    @property
    def stationary(self) -> FloatArray:
        """Share of the time in each mode."""
        return np.array([1.0 - self.share, self.share])

    @cached_property
    def generator(self) -> FloatArray:
        """Generator matrix of the modes' Markov chain, per ms, shape (2, 2)."""
        begin, end = self.switches
        return np.array([[-begin, begin], [end, -end]])

    def dispersion(self, interval_ms: NDArray[Any]) -> FloatArray:
        """Compute the index of dispersion of counts; it increases from 1 with the interval."""
        total = sum(self.switches)
        spread = self.share * (1.0 - self.share) * float(np.diff(self.rates)[0]) ** 2
        x = total * np.asarray(interval_ms, dtype=float)
        rise = np.where(x > 1e-4, 1.0 + np.expm1(-x) / np.maximum(x, 1e-4), x / 2.0 - x * x / 6.0)
        return np.asarray(1.0 + 2.0 * spread / (self.rate_per_ms * total) * rise)

    def joint_pf(self, count: NDArray[Any], interval_ms: NDArray[Any]) -> FloatArray:
        """Return P(k arrivals in T, mode z' at the end | mode z at the start).

        Parameters
        ----------
        count : array of whole numbers >= 0, shape (M,)
        interval_ms : array, shape (T,), >= 0

        Returns
        -------
        ndarray, shape (T, 2, 2, M), indexed by length, z, z' and count
        """
        k = np.asarray(count, dtype=float)
        constant = gammaln(k + 1.0)

        def poisson(mean: FloatArray) -> FloatArray:
            log_mean = np.log(np.where(mean > 0, mean, 1.0))[..., None]
            pmf = log_mean * k
            pmf -= mean[..., None]
            pmf -= constant
            np.exp(pmf, out=pmf)
            # A mean of 0 has no logarithm: the count is 0 for certain.
            pmf[mean == 0] = k == 0
            return np.asarray(pmf, dtype=np.float64)

        return self._mixed(poisson, len(k), interval_ms)

    def _mixed(
        self, given_mean: Callable[[FloatArray], FloatArray], size: int, interval_ms: NDArray[Any]
    ) -> FloatArray:
        """Integrate a function of the mean count over the time in bursts, shape (T, 2, 2, size).

        ``given_mean`` takes mean counts, (T, Q), and returns its values, (T, Q, size).
        """
        lengths = np.asarray(interval_ms, dtype=float)
        mixed = np.empty((len(lengths), 2, 2, size))
        for part, points in self._blocks(lengths, size):
            mean, weight = self._occupation(lengths[part], points)
            mixed[part] = (weight @ given_mean(mean)).reshape(-1, 2, 2, size)
        return mixed

    def _blocks(self, lengths: FloatArray, size: int) -> Iterator[tuple[IntArray, int]]:
        """Yield groups of lengths with equal numbers of quadrature points, of limited size."""
        # The points rise with the square root of the range of the mean count and of the switches:
        # the Poisson probability, as a function of the mean, is as wide as the mean's root.
        apart = float(np.diff(self.rates)[0])
        spread = (apart + sum(self.switches)) * lengths
        low, high = self._range(lengths)
        spread = np.where(high - low < lengths, apart * (high - low) + _NARROW, spread)
        points = 8 * np.ceil(3.0 + 0.5 * np.sqrt(spread)).astype(np.int64)
        steps = np.ceil(2.0 * np.log2(np.maximum(points, _FEW_POINTS) / _FEW_POINTS))
        many = 8 * np.ceil(_FEW_POINTS / 8 * 2.0 ** (steps / 2.0)).astype(np.int64)
        points = np.minimum(np.where(points > _FEW_POINTS, many, points), _MOST_POINTS)
        for value in np.unique(points).tolist():
            group = np.flatnonzero(points == value)
            block = max(1, _BLOCK_NUMBERS // (value * max(1, size)))
            for start in range(0, len(group), block):
                yield group[start : start + block], value

    def _range(self, lengths: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the integration range of the time in bursts; narrow if switches are frequent.

        With many switches this time is nearly normal, with variance 2abT/(a + b)³, and has
        exponential tails at the switching rate; the range holds 12 standard deviations and 60
        decay lengths.
        """
        begin, end = self.switches
        total = begin + end
        mean = self.share * lengths
        reach = 12.0 * np.sqrt(2.0 * begin / total * end / total / total * lengths) + 60.0 / total
        narrow = total * lengths > _MOST_SWITCHES
        return (np.where(narrow, np.maximum(mean - reach, 0.0), 0.0),
                np.where(narrow, np.minimum(mean + reach, lengths), lengths))

    def _occupation(self, lengths: FloatArray, points: int) -> tuple[FloatArray, FloatArray]:
        """Return quadrature nodes as mean counts, (T, Q), and their weights, (T, 4, Q).

        A node is a time τ in bursts. The four rows of weights are (z, z') = (0, 0), (0, 1),
        (1, 0), (1, 1); the last two nodes are the atoms at τ = 0 and τ = T.
        """
        begin, end = self.switches
        node, weight = _gauss(points)
        low, high = (edge[:, None] for edge in self._range(lengths))
        quiet = (lengths[:, None] - high) + (high - low) * (1.0 - node) / 2.0
        burst = low + (high - low) * (1.0 + node) / 2.0
        s = np.sqrt(begin * end * quiet * burst)
        factor = (high - low) * weight / 2.0
        # i0e and i1e are scaled by exp(-2s). This factor includes exp(2s), so it cannot overflow.
        factor = factor * np.exp(-((np.sqrt(begin * quiet) - np.sqrt(end * burst)) ** 2))
        zero = factor * i0e(2.0 * s)
        # I₁(2s)/s → 1 as s → 0.
        first_order = factor * np.where(s > 1e-8, i1e(2.0 * s) / np.maximum(s, 1e-8),
                                        1.0) * begin * end
        rows = np.zeros((len(lengths), 4, points + 2))
        rows[:, 0, :-2], rows[:, 0, -2] = first_order * quiet, np.exp(-begin * lengths)
        rows[:, 1, :-2] = begin * zero
        rows[:, 2, :-2] = end * zero
        rows[:, 3, :-2], rows[:, 3, -1] = first_order * burst, np.exp(-end * lengths)
        ends = lengths[:, None] * self.rates
        mean = np.hstack([self.rates[0] * quiet + self.rates[1] * burst, ends])
        return mean, rows

    def sample(self, duration_ms: float, rng: np.random.Generator) -> FloatArray:
        """Sample sorted arrival times in ms, from the stationary distribution of the modes."""
        check_sample(self.rate_per_ms, duration_ms)
        check_amount(duration_ms * min(self.switches), where="burst_ms")
        mode = int(rng.random() < self.share)
        ends: list[float] = []
        modes: list[int] = []
        time_ms = 0.0
        while time_ms < duration_ms:
            time_ms += rng.exponential(1.0 / self.switches[mode])
            ends.append(min(time_ms, duration_ms))
            modes.append(mode)
            mode = 1 - mode
        length = np.diff(ends, prepend=0.0)
        count = rng.poisson(self.rates[modes] * length)
        start = np.repeat(np.array(ends) - length, count)
        return np.sort(start + rng.random(len(start)) * np.repeat(length, count))


@cache
def _gauss(points: int) -> tuple[FloatArray, FloatArray]:
    node, weight = np.polynomial.legendre.leggauss(points)
    return node, weight
