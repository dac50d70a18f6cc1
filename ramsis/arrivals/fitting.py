"""Maximum-likelihood fits of arrival processes to a trace, and a goodness-of-fit test.

The trace is cut into windows of about one mean gap. The likelihood of their counts N_1, N_2, … is

    Poisson, negative binomial   Π PF(N_i, w)
    Markov-modulated             π·P(N_1)·P(N_2)···1,

with w the length of a window, π the shares of the time in the two modes, and P(k)[z, z'] the
probability of k arrivals in a window and of mode z' at its end, given mode z at its start. The
rate is that of the trace; the other parameters maximise the likelihood: a line search for the
index of dispersion, and the Nelder-Mead method for the modulated process, from the best of several
starts. The index of dispersion of the modulated process in windows of length t is

    I(t) = 1 + 2V/(λs)·(1 − (1 − e^{−st})/(st)),

with s the sum of the switching rates and V the variance of the rate. Each start assumes an s and
has the V by which I(t) agrees with the trace. The best fit has the least
BIC = p·log n − 2·log L, with p parameters, n windows and the likelihood L.

Goodness of fit: if the process is right, the distribution function of each count, given the
earlier counts, is uniform at that count (after a random shift within the count's probability). It
is tested by the Kolmogorov-Smirnov distance and its p-value, on windows of ten mean gaps.

A moving mean and bursts both make counts of windows of about ten arrivals vary. Subtracting the
mean of the counts over stretches of about 400 arrivals leaves the index of dispersion of the
bursts, 1 for a Poisson process. The mean moves if the counts of neighbouring stretches are
correlated: bursts are shorter than a stretch, so they cause no such correlation. Rescaling time to
a constant mean gives the trace without its motion.

Load levels of policies are 8 % apart: on the Pareto fronts of the shipped profile sets accuracy
falls by at most 0.124 per factor e of the load, so the next level costs at most 1 % of accuracy.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals.modulated import MarkovModulated
from ramsis.arrivals.negative_binomial import NegativeBinomial
from ramsis.arrivals.registry import format_process
from ramsis.arrivals.renewal import Poisson
from ramsis.errors import InvalidValueError
from ramsis.reprs import dataclass

LEVEL_STEP = 0.08
"""Relative distance of load levels; the next level costs at most 1 % of accuracy."""
_PER_WINDOW, _WINDOWS = 10, 41  # arrivals in a window, windows in a stretch
_LEAST_STRETCHES = 12  # for an estimate of the moving mean
_ALIKE = 0.3  # correlation of neighbouring stretches above which the mean moves
_BURSTS = 1.2  # dispersion about the moving mean above which there are bursts
_LOWEST = 0.02  # lowest load level, as a share of the peak

LEAST_ARRIVALS = 100
"""Fewest timestamps that a process is fitted to."""
_MOST_WINDOWS = 200_000
_LONGEST_MS = 1e15
_MOST_PLACES = 20_000  # counts of the test, which takes them one by one
_WINDOWS_AT_LEAST = 20  # windows of the greatest length whose dispersion is computed
_SHARES = (0.05, 0.2, 0.5)  # of the time in bursts, of the starts of the modulated process
_LARGEST_RATIO = 1e3  # of the rate in bursts to the rate between them
_SHORTEST_BURST = 0.05  # in windows: counts cannot distinguish still shorter bursts from none
_DIGITS = 4  # significant digits of fitted parameters
Fitted: TypeAlias = Poisson | NegativeBinomial | MarkovModulated


@dataclass(frozen=True)
class ProcessFit:
    """Arrival process fitted to a trace, with its likelihood and goodness of fit.

    Attributes
    ----------
    word : str
        The process as a value of ``--arrivals``.
    parameters : int
        Number of fitted parameters p, the rate among them.
    log_likelihood, bic : float
        Of the counts of the trace's windows; the best fit has the least BIC.
    distance, p_value : float
        Kolmogorov-Smirnov test of the counts' probability integral transforms; a small
        p-value is evidence against the process.
    dispersion : ndarray, shape (W,)
        Index of dispersion by window.
    """

    process: Fitted
    word: str
    parameters: int
    log_likelihood: float
    bic: float
    distance: float
    p_value: float
    dispersion: FloatArray


@dataclass(frozen=True)
class TraceFit:
    """Statistics of a trace, and the processes fitted to it, best first.

    Attributes
    ----------
    duration_ms : float
        From the first to the last timestamp.
    gap_cv : float
        Coefficient of variation of the gaps; 1 for a Poisson process.
    gaps_ms : ndarray, shape (requests − 1,)
    window_ms : ndarray, shape (W,)
        Window lengths, increasing.
    dispersion : ndarray, shape (W,)
        Variance over mean of the counts, by window length.
    fits : tuple of ProcessFit
        Sorted by BIC, the best first.
    """

    requests: int
    duration_ms: float
    rate_qps: float
    gap_cv: float
    gaps_ms: FloatArray
    window_ms: FloatArray
    dispersion: FloatArray
    fits: tuple[ProcessFit, ...]

    @property
    def best(self) -> ProcessFit:
        """Fitted arrival process with the smallest Bayesian information criterion."""
        return self.fits[0]


def dispersion_by_window(times_ms: FloatArray, window_ms: FloatArray) -> FloatArray:
    """Return variance over mean of the counts in disjoint windows of each length."""
    counts = [_counts(times_ms, window) for window in window_ms.tolist()]
    return np.array([each.var(ddof=1) / each.mean() for each in counts])


def fit_trace(times_ms: FloatArray) -> TraceFit:
    """Fit every process to a trace.

    Parameters
    ----------
    times_ms : ndarray
        Arrival times, non-decreasing.

    Raises
    ------
    InvalidValueError
        Fewer than :data:`LEAST_ARRIVALS` timestamps, all at one instant, or over 30,000 years.
    """
    times = np.asarray(times_ms, dtype=float) - times_ms[0] if len(times_ms) else np.zeros(0)
    if len(times) < LEAST_ARRIVALS:
        raise InvalidValueError("too few timestamps to fit a process", where="trace",
                                value=len(times), allowed=f"at least {LEAST_ARRIVALS}")
    if times[-1] <= 0.0:
        raise InvalidValueError("all timestamps are equal", where="trace", value=len(times),
                                allowed="times that differ")
    gaps, duration = np.diff(times), float(times[-1])
    if duration > _LONGEST_MS:
        raise InvalidValueError("trace is too long to fit a process", where="trace",
                                value=f"{duration:g} ms",
                                allowed=f"at most {_LONGEST_MS:g} ms: check the unit")
    rate_qps = 1000.0 * len(gaps) / duration
    window = _window(gaps, duration)
    steps = max(1, int(math.log(duration / (_WINDOWS_AT_LEAST * window), 2)))
    windows = np.array([window * 2.0**i for i in range(steps + 1)])
    observed = dispersion_by_window(times, windows)
    trace = _Trace(rate_qps, window, _counts(times, window), windows, observed)
    wide = max(10.0 * window, duration / _MOST_PLACES)
    places = _counts(times, wide)
    fits = [_finished(fit, trace, places, wide) for fit in _fitted(trace)]
    fits.sort(key=lambda fit: fit.bic)
    return TraceFit(len(times), duration, rate_qps, float(gaps.std() / gaps.mean()), gaps,
                    windows, observed, tuple(fits))


@dataclass(frozen=True)
class _Trace:
    rate_qps: float
    window_ms: float
    counts: IntArray
    windows: FloatArray
    dispersion: FloatArray

    def log_likelihood(self, process: Fitted) -> float:
        """Return the log-likelihood of the counts by window under a process."""
        length = np.array([self.window_ms])
        distinct, times = np.unique(self.counts, return_counts=True)
        if isinstance(process, MarkovModulated):
            joint = process.joint_pf(np.arange(distinct[-1] + 1), length)[0]
            return _log_product(joint.transpose(2, 0, 1)[self.counts], process.stationary)
        return float(times @ process.log_pf(distinct, length))


def _window(gaps: FloatArray, duration: float) -> float:
    """Return the length of the windows for the likelihood: about one mean gap.

    It is longer where the clock is coarse (ten of its steps, taken to be the least gap), and
    where there would be too many windows.
    """
    step = float(gaps[gaps > 0].min())
    return max(float(gaps.mean()), 10.0 * step, duration / _MOST_WINDOWS)


def _counts(times: FloatArray, window: float) -> IntArray:
    """Count arrivals in whole windows from the first timestamp on."""
    windows = max(2, int(times[-1] / window))
    index = (times / window).astype(np.int64)
    return np.bincount(index[index < windows], minlength=windows)


def _fitted(trace: _Trace) -> list[Fitted]:
    """Return the process of maximum likelihood of each kind, at the rate of the trace."""
    rate = trace.rate_qps
    batches = minimize_scalar(
        lambda x: -trace.log_likelihood(NegativeBinomial(rate, 1.0 + math.exp(x))),
        bounds=(math.log(1e-4), math.log(1e4)), method="bounded",
    )
    dispersion = 1.0 + math.exp(float(batches.x))
    return [Poisson(rate), NegativeBinomial(rate, dispersion), _modulated(trace)]


def _modulated(trace: _Trace) -> MarkovModulated:
    """Fit a modulated process by maximum likelihood, from the best two starts by moments."""
    starts = sorted(_starts(trace), key=lambda start: -trace.log_likelihood(start))[:2]

    def loss(x: FloatArray) -> float:
        return -trace.log_likelihood(_of(trace, x))

    optima = [
        minimize(loss, _coordinates(start), method="Nelder-Mead",
                 options={"xatol": 1e-3, "fatol": 1e-3, "maxfev": 250})
        for start in starts
    ]
    return _of(trace, min(optima, key=lambda result: float(result.fun)).x)


def _starts(trace: _Trace) -> list[MarkovModulated]:
    """Return starts for the fit of a modulated process, by the method of moments.

    There is a start for each of several memories 1/s, in ms, and shares of the time in bursts.
    """
    rate = trace.rate_qps / 1000.0
    shortest, longest = 0.5 * trace.window_ms, float(trace.windows[-1])
    starts = []
    for memory in np.geomspace(shortest, longest, 7).tolist():
        x = trace.windows / memory
        rise = 1.0 + np.expm1(-x) / x
        # I(t) of the module's text, solved for V in each window; the median over windows.
        variance = float(np.median((trace.dispersion - 1.0) / rise)) * rate / (2.0 * memory)
        for share in _SHARES:
            # V = share·(1 − share)·(difference of the two rates)²; the mean rate is the trace's.
            apart = math.sqrt(max(variance, 1e-4 * rate**2) / (share * (1.0 - share)))
            quiet = max(rate - share * apart, 0.01 * rate)
            ratio = 1.0 + min(apart, (rate - quiet) / share) / quiet
            starts.append(MarkovModulated(trace.rate_qps, min(ratio, _LARGEST_RATIO),
                                          memory / (1.0 - share), share))
    return starts


def _coordinates(process: MarkovModulated) -> FloatArray:
    """Return the parameters as three numbers without limits, for the Nelder-Mead method."""
    return np.array([math.log(process.ratio - 1.0), math.log(process.burst_ms),
                     math.log(process.share / (1.0 - process.share))])


def _of(trace: _Trace, x: FloatArray) -> MarkovModulated:
    """Return the process at coordinates ``x`` of :func:`_coordinates`, kept within its limits."""
    log_ratio, log_burst, logit = (float(v) for v in np.clip(x, -20.0, 20.0))
    log_burst = max(log_burst, math.log(_SHORTEST_BURST * trace.window_ms))
    ratio = 1.0 + min(math.exp(log_ratio), _LARGEST_RATIO)
    share = 1.0 / (1.0 + math.exp(-max(-9.0, min(9.0, logit))))
    return MarkovModulated(trace.rate_qps, ratio, math.exp(log_burst), share)


def _log_product(matrices: FloatArray, start: FloatArray) -> float:
    """Return log(start · M_1 · M_2 ··· 1), multiplied pairwise with scaling."""
    log_scale = 0.0
    while len(matrices) > 1:
        odd = matrices[-1:] if len(matrices) % 2 else matrices[:0]
        matrices = matrices[: len(matrices) - len(odd)]
        matrices = np.concatenate([matrices[::2] @ matrices[1::2], odd])
        scale = np.maximum(matrices.max(axis=(1, 2)), 1e-300)
        matrices = matrices / scale[:, None, None]
        log_scale += float(np.log(scale).sum())
    return log_scale + math.log(max(float((start @ matrices[0]).sum()), 1e-300))


def _finished(
    process: Fitted, trace: _Trace, counts: IntArray, window: float
) -> ProcessFit:
    """Return the fit of a process, tested on ``counts`` in windows of length ``window``."""
    from scipy.stats import kstest  # which takes long to load

    parameters = 1 + len(process.parameters)
    likelihood = trace.log_likelihood(process)
    test = kstest(_places(process, counts, window), "uniform")
    return ProcessFit(
        process=process,
        word=format_process(process, _DIGITS),
        parameters=parameters,
        log_likelihood=likelihood,
        bic=parameters * math.log(len(trace.counts)) - 2.0 * likelihood,
        distance=float(test.statistic),
        p_value=float(test.pvalue),
        dispersion=(process.dispersion(trace.windows) if isinstance(process, MarkovModulated)
                    else np.full(len(trace.windows), getattr(process, "dispersion", 1.0))),
    )


def _places(process: Fitted, counts: IntArray, window: float) -> FloatArray:
    """Return a point between P(N < n) and P(N <= n), given the earlier counts, for each count n.

    The point is drawn uniformly between the two. So if the process is right, the points are
    independent and uniform on [0, 1].
    """
    share = np.random.default_rng(0).random(len(counts))
    length = np.array([window])
    every = np.arange(int(counts.max()) + 1)
    if not isinstance(process, MarkovModulated):
        pmf = np.exp(process.log_pf(every, length))
        below = np.cumsum(pmf) - pmf
        return np.asarray(below[counts] + share * pmf[counts])
    # ``mode`` is the distribution of the mode at the start of a window, given the counts before:
    # P(N <= n) = mode · Σ_{k<=n} P(k) · 1, and the next one is proportional to mode · P(n).
    joint = process.joint_pf(every, length)[0].transpose(2, 0, 1)
    upto = np.cumsum(joint.sum(axis=2), axis=0)
    mode = process.stationary
    places = np.empty(len(counts))
    for i, count in enumerate(counts.tolist()):
        next_mode = mode @ joint[count]
        chance = float(next_mode.sum())
        places[i] = float(mode @ upto[count]) - (1.0 - share[i]) * chance
        mode = next_mode / chance if chance > 1e-300 else process.stationary
    return np.clip(places, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class MovingMean:
    """Split of the variation of a trace into a moving mean and bursts."""

    window_ms: float  # length of the windows in which arrivals are counted
    stretch_ms: float  # length of the stretches of ``rate_qps``
    dispersion: float  # variance over mean of the counts
    dispersion_about_mean: float  # the same for deviations from the moving mean
    correlation: float  # of the counts of neighbouring stretches
    rate_qps: FloatArray  # mean load of each stretch
    moves: bool  # whether the mean load changes
    bursts: bool  # whether arrivals are burstier than Poisson about the moving mean
    # arrival times, rescaled to a constant mean load if the mean moves
    steady_ms: FloatArray

    @property
    def levels_qps(self) -> tuple[float, ...]:
        """Load levels for policies, up to the highest mean; the mean load if it is constant."""
        if not self.moves:
            return (1000.0 * (len(self.steady_ms) - 1) / float(self.steady_ms[-1]),)
        peak = float(self.rate_qps.max())
        low = max(float(self.rate_qps.min()), _LOWEST * peak)
        steps = math.ceil(math.log(peak / low) / math.log1p(LEVEL_STEP) - 1e-9)
        return tuple(peak / (1.0 + LEVEL_STEP) ** i for i in range(steps, -1, -1))


def moving_mean(times_ms: FloatArray) -> MovingMean | None:
    """Estimate the moving mean of a trace by its arrival times, non-decreasing.

    None below about 5,000 arrivals.
    """
    times = np.asarray(times_ms, dtype=float)
    times = times - times[0] if len(times) else times
    windows = len(times) // _PER_WINDOW
    if windows < _LEAST_STRETCHES * _WINDOWS or times[-1] <= 0.0:
        return None
    window = float(times[-1]) / windows
    counts = np.bincount(np.minimum((times / window).astype(np.int64), windows - 1),
                         minlength=windows).astype(float)
    mean = np.convolve(counts, np.full(_WINDOWS, 1.0 / _WINDOWS), mode="valid")
    half = _WINDOWS // 2
    about = counts[half:-half] - mean
    # The mean contains the count itself, which removes 1 / _WINDOWS of the variance.
    dispersion = float((about**2).mean() / counts.mean() / (1.0 - 1.0 / _WINDOWS))
    stretches = counts[:windows // _WINDOWS * _WINDOWS].reshape(-1, _WINDOWS).sum(axis=1)
    before, after = stretches[:-1], stretches[1:]
    spread = before.std() > 0 and after.std() > 0
    alike = float(np.corrcoef(before, after)[0, 1]) if spread else 0.0
    moves = alike > max(_ALIKE, 3.0 / math.sqrt(len(stretches)))
    steady = times
    if moves:
        rate = np.maximum(np.pad(mean, half, mode="edge"), 1e-3 * counts.mean())
        edges = np.append(0.0, np.cumsum(rate))
        steady = np.interp(times, np.arange(windows + 1) * window, edges * (times[-1] / edges[-1]))
    # Bursts raise the variance of a stretch's mean: as many stretches as the dispersion, joined,
    # have the variance of a Poisson process. The split covers all windows, the last ones too.
    joined = max(1, min(math.ceil(dispersion), len(stretches) // _LEAST_STRETCHES))
    together = np.array_split(counts, len(stretches) // joined)
    rate_qps = np.array([part.mean() for part in together]) / window * 1000.0
    return MovingMean(
        window, float(times[-1]) / len(together), float(counts.var() / counts.mean()), dispersion,
        alike, rate_qps, moves,
        dispersion > max(_BURSTS, 1.0 + 4.0 * math.sqrt(2.0 / windows)), steady)
