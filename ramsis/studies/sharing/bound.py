r"""Upper bound on requests in time under GPU sharing, by a linear program over configurations.

The bound holds for every scheduler, even one that knows all arrivals, moves models at no cost and
changes shares at any time. Only interference must saturate, with exponents of at least 1.

**Rates.** At each moment a GPU runs some batches together, a *configuration*. Batch i has size
n_i, latency l_i alone on the GPU, utilisation u_i and share s_i; e_i = min(u_i, s_i), and E is the
sum of all e_i. It answers at most

    y_i = n_i / l_i · min(1, s_i / u_i)^κ_i / ((1 + c (E - e_i)) · max(1, E))

requests per ms, where c is at most each a_ij / e_j. A batch of n requests counts where l(n) and
its network time fit the SLO.

**Batches.** Requests of one batch have all come when it is sent, and the first of them is still in
time. So they come within D(n) = SLO - l(n) - network(n). C_m(n) is the largest number of
requests of model m that disjoint groups can have, each of at least n requests within
max { D(k) : k >= n }. With f(i) for the first i arrivals, and b for the first of the last group,

    f(i) = max { f(i - 1),  max { f(b - 1) + i - b + 1 :  b <= i - n + 1,  b within D of i } }.

Groups that overlap can be sorted into groups that do not, of the same sizes and no longer; so it
is enough to look at groups of neighbours. Without arrivals, C_m(n) = rate_m · duration.

**Program.** Let τ_ct be the time that GPUs of type t spend in configuration c, and y_cmk the
requests of m per ms that c answers in batches of k. All work for requests in time is done between
the first arrival and the last deadline, in H ms. In time are at most

    max Σ w_m τ_ct y_cmk   with  Σ_c τ_ct <= GPUs_t H,   Σ_ct τ_ct Σ_{k>=n} y_cmk <= C_m(n),

with w_m = rate_m · duration / requests of m that came. By duality any θ_mn >= 0 give a bound,

    Σ θ_mn C_m(n) + Σ_t GPUs_t H μ_t,   μ_t = max_c Σ_i p_i y_i,   p_mk = w_m - Σ_{n<=k} θ_mn.

Without arrivals these are means, and the bound is one on mean goodput over runs of many requests,
as the optimum is concave in the right-hand sides. A model without requests counts as served.

**Largest configuration.** e is divided into cells of h = 1/250. In a cell of E, from E_0, the
value of a batch whose e is in [j h, (j + 1) h) is at most

    V_j / ((1 + c (E_0 - (j + 1) h)^+) max(1, E_0)).

V_j is the largest p n / l, with the share (j + 1) h where it is held to less than it uses. As
κ >= 1, batches with e below B = 0.1 are worth no more in bunches from B to 2B and one that is left
over: a bunch of e is worth at most e / u · min(1, (min(e, B) / u)^(κ - 1)) of a batch. So a
whole-number knapsack with weights j and capacity E_0 / h bounds the cell. From E = 1.5 on a
fractional one does, which falls in E.

Configurations are added until the bound is within 0.1 % of the program with those so far, or 100
times; the least of the bounds on the way is taken.

Interference that does not saturate lets any number of batches run at once. Then, and with an
exponent below 1, the bound is the load of the models that have a batch within their SLO.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InputFileError
from ramsis.studies.sharing._kernels import (
    TOLERANCE_MS,
    largest_configurations,
    most_in_groups,
)
from ramsis.studies.sharing.gpu.interference import Interference
from ramsis.studies.sharing.gpu.shared_gpu import Gpu, RouterSettings, SharedModel

_Floats = NDArray[np.float64]
_CELLS = 250  # cells of a whole GPU; more give a tighter bound and take longer
_MOST = 1.5  # utilisation of a configuration from which a fractional knapsack bounds it
_SMALL = 25  # cells, 0.1 of a GPU, below which batches are bunched
_ROUNDS = 100  # largest number of rounds that add configurations; each yields a valid bound
_CLOSE = 1e-3  # relative gap at which column generation stops
_MANY = 40.0  # mean requests of a run above which P(no request) = exp(-40) is neglected


class _Batches(NamedTuple):
    """Batches of all models on a GPU type; one entry per model and size."""

    # index of the model, and batch size, shape (batches,)
    model: NDArray[np.int64]
    size: NDArray[np.int64]
    rate: _Floats  # requests per ms alone on the GPU, shape (batches,)
    used: _Floats  # utilisation, shape (batches,)
    # largest rate with the share at the end of each cell, as a fraction of ``rate``; shape
    # (batches, cells)
    slowed: _Floats


def goodput_bound_rps(
    models: Sequence[SharedModel], gpus: Sequence[Gpu], interference: Interference, *,
    duration_s: float, router: RouterSettings | None = None,
    arrivals_ms: Sequence[_Floats] | None = None,
) -> float:
    """Compute an upper bound on the requests per second that any plan answers in time.

    Parameters
    ----------
    duration_s : float
        Duration of the arrivals.
    router : RouterSettings, optional
        Network times and copies; none by default.
    arrivals_ms : sequence of ndarrays, optional
        Sorted arrival times of each model: the bound is on a run with these. By default it is on
        the mean over Poisson arrivals.

    Returns
    -------
    float
        Upper bound on the total rate of all models.
    """
    if not models:
        raise InputFileError("no models", value=0, allowed="one or more")
    kinds = Counter(gpu.gpu_type for gpu in gpus)
    exponents = [interference.share_exponent, *interference.exponents.values()]
    # Otherwise the program's rates are no bound (module docstring): only the loads are.
    if not interference.saturates or min(exponents) < 1:
        return math.fsum(model.rate_rps for model in models
                         if any(_sizes(model, kind, router) for kind in kinds))
    if arrivals_ms is None:
        counts = [model.rate_rps * duration_s for model in models]
        horizon_ms = 1000 * duration_s + max(model.slo_ms for model in models)
        groups = [[(1, count)] for count in counts]
        without_requests = math.fsum(
            model.rate_rps * math.exp(-count)
            for model, count in zip(models, counts, strict=True) if count < _MANY)
    else:
        counts = [float(len(times)) for times in arrivals_ms]
        observed = [(times, model.slo_ms)
                    for times, model in zip(arrivals_ms, models, strict=True) if len(times)]
        horizon_ms = max((times[-1] + slo_ms for times, slo_ms in observed), default=0.0) - min(
            (times[0] for times, _ in observed), default=0.0)
        groups = [_groups(model, kinds, router, times)
                  for model, times in zip(models, arrivals_ms, strict=True)]
        without_requests = math.fsum(model.rate_rps for model, times in zip(
            models, arrivals_ms, strict=True) if not len(times))
    weights = [model.rate_rps / count if count else 0.0
               for model, count in zip(models, counts, strict=True)]
    batches = [_batches(models, kind, interference, router) for kind in kinds]
    time_ms = [count * horizon_ms for count in kinds.values()]
    # With measured pairs a_ij >= (ratio - 1) e_j, as e_j <= 1.
    least = min([interference.per_utilisation,
                 *(ratio - 1 for ratio in interference.pairs.values())])
    total_rps = math.fsum(model.rate_rps for model in models)
    return min(total_rps, without_requests + _bound(weights, groups, batches, time_ms, least))


def _bound(
    weights: Sequence[float], groups: Sequence[Sequence[tuple[int, float]]],
    batches: Sequence[_Batches], time_ms: Sequence[float], beside: float,
) -> float:
    """Solve the program by column generation, and return the least of the dual bounds."""
    from scipy.optimize import linprog  # slow to import

    limits = [(m, n, count) for m, of_model in enumerate(groups) for n, count in of_model]
    counts = np.array([count for _, _, count in limits])
    right = np.concatenate([counts, time_ms])
    largest = max([1, *(int(of_type.size.max()) for of_type in batches if len(of_type.size))])
    theta = np.zeros(len(limits))
    columns: list[_Floats] = []
    gains: list[float] = []
    best = math.inf
    for _ in range(_ROUNDS):
        # p_mk of the module's text, for models m and batch sizes k. ``counted`` is the number of
        # requests in time with which a batch is worth most, as not all of them need be in time.
        price = np.repeat(np.array(weights)[:, None], largest + 1, axis=1)
        for (m, n, _), dual in zip(limits, theta, strict=True):
            price[m, n:] -= dual
        worth = price * np.arange(largest + 1)
        counted = np.array([[int(np.argmax(row[:n + 1])) for n in range(largest + 1)]
                            for row in worth])
        # Dual bound: Σ θ C + Σ_t GPUs_t H μ_t, with μ_t (``top``) by the knapsacks.
        bound = float(theta @ counts)
        for t, of_type in enumerate(batches):
            if not len(of_type.size):
                continue
            k = counted[of_type.model, of_type.size]
            value = of_type.rate / of_type.size * worth[of_type.model, k]
            configurations, top = _largest(of_type, value, beside)
            bound += time_ms[t] * top
            for configuration in configurations:
                column, gain = _column(configuration, of_type, k, limits, weights)
                # The configuration uses time of this GPU type.
                columns.append(np.concatenate([column, np.arange(len(time_ms)) == t]))
                gains.append(gain)
        best = min(best, bound)
        if not columns:
            break
        solution = linprog(-np.array(gains), A_ub=np.array(columns).T, b_ub=right, method="highs")
        assert solution.fun is not None  # serving no request is feasible
        if best <= -solution.fun * (1 + _CLOSE) + 1e-12:
            break
        theta = np.maximum(0.0, -solution.ineqlin.marginals[:len(limits)])
    return max(0.0, best)


def _column(
    configuration: Sequence[tuple[int, float]], batches: _Batches, counted: NDArray[np.int64],
    limits: Sequence[tuple[int, int, float]], weights: Sequence[float],
) -> tuple[_Floats, float]:
    """Return a configuration's column of the program: rates by limit, and the objective."""
    column, gain = np.zeros(len(limits)), 0.0
    models = np.array([m for m, _, _ in limits])
    least = np.array([n for _, n, _ in limits])
    for b, part in configuration:
        m = int(batches.model[b])
        rate = part * batches.rate[b] * counted[b] / batches.size[b]
        gain += weights[m] * rate
        column += np.where((models == m) & (least <= counted[b]), rate, 0.0)
    return column, gain


def _largest(
    batches: _Batches, value: _Floats, beside: float
) -> tuple[list[list[tuple[int, float]]], float]:
    """Return configurations, lists of (batch, fraction of its rate), and a bound on the best."""
    cells = value[:, None] * batches.slowed
    best_batch = cells.argmax(axis=0)
    picks, values, most = largest_configurations(
        cells.max(axis=0), beside, 1 / _CELLS, int(_MOST * _CELLS), _SMALL)
    configurations = []
    for k in np.argsort(-values)[:12]:
        if values[k] <= 0:
            break
        at = k / _CELLS
        configuration = []
        for j in picks[k][picks[k] >= 0]:
            slow = (1 + beside * max(0.0, at - (j + 1) / _CELLS)) * max(1.0, at)
            b = int(best_batch[j])
            configuration.append((b, float(batches.slowed[b, j]) / slow))
        configurations.append(configuration)
    # Above _MOST the fractional knapsack has a single kind of batch.
    rates = 1 / (batches.used * (1 + beside * (_MOST - batches.used)))
    b = int(np.argmax(value * rates))
    if value[b] > 0:
        configurations.append([(b, float(rates[b]))])
        most = max(most, float(value[b] * rates[b]))
    return configurations, most


def _sizes(model: SharedModel, kind: str, router: RouterSettings | None) -> list[int]:
    """Return the batch sizes whose requests are in time if sent at once and run alone."""
    rows = model.batches.get(kind, ())
    return [n for n in range(1, 1 + (rows[-1].batch if rows else 0))
            if _alone_ms(model, kind, n, router) <= model.slo_ms + TOLERANCE_MS]


def _alone_ms(model: SharedModel, kind: str, n: int, router: RouterSettings | None) -> float:
    row = model.batch(kind, n)
    assert row is not None
    return row.latency_ms + (router.network_of(model.name).ms(n) if router else 0.0)


def _batches(
    models: Sequence[SharedModel], kind: str, interference: Interference,
    router: RouterSettings | None,
) -> _Batches:
    """Return all batches of a GPU type that can be in time, with their rates by share."""
    numbers = [(m, n) for m, model in enumerate(models) for n in _sizes(model, kind, router)]
    rate, used, slowed = [], [], []
    ends = (np.arange(_CELLS + 1) + 1) / _CELLS
    for m, n in numbers:
        row = models[m].batch(kind, n)
        assert row is not None
        rate.append(n / max(1e-9, row.latency_ms - (router.copies_ms(n) if router else 0.0)))
        uses = max(row.utilisation, 1e-9)
        exponent = interference.exponents.get(models[m].name, interference.share_exponent)
        used.append(min(1.0, uses))
        # With a share s below the utilisation u the rate falls to (s / u)^κ. A batch never uses
        # more than u, so it has no entry in later cells.
        cell = int(used[-1] * _CELLS)
        fraction = np.minimum(1.0, (ends / uses) ** exponent)
        fraction[cell] = 1.0
        fraction[cell + 1:] = 0.0
        # Below 2B an entry also stands for a bunch of small batches, which may do more in all.
        bunch = ends[:2 * _SMALL]
        fraction[:2 * _SMALL] = np.maximum(fraction[:2 * _SMALL], bunch / uses * np.minimum(
            1.0, np.minimum(bunch, _SMALL / _CELLS) / uses) ** (exponent - 1))
        slowed.append(fraction)
    return _Batches(np.array([m for m, _ in numbers], dtype=np.int64),
                    np.array([n for _, n in numbers], dtype=np.int64), np.array(rate),
                    np.array(used), np.array(slowed).reshape(-1, _CELLS + 1))


def _groups(
    model: SharedModel, kinds: Sequence[str] | Counter[str], router: RouterSettings | None,
    times: _Floats,
) -> list[tuple[int, float]]:
    """Return the limits (n, C(n)) of a model: most requests in batches of at least n."""
    within: dict[int, float] = {}
    for kind in kinds:
        for n in _sizes(model, kind, router):
            spare = model.slo_ms - _alone_ms(model, kind, n, router)
            within[n] = max(0.0, spare, within.get(n, 0.0))
    groups = [(1, float(len(times) if within else 0))]
    # From the largest batch down, so that ``longest`` is the largest window of batches >= n.
    longest = 0.0
    counts = {}
    for n in sorted(within, reverse=True):
        longest = max(longest, within[n])
        counts[n] = float(most_in_groups(times, n, longest))
        if counts[n] == len(times):
            break
    for n in sorted(counts):
        if n > 1 and counts[n] < groups[-1][1]:
            groups.append((n, counts[n]))
    return groups
