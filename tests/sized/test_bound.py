"""Bounds on requests with a size, beside all schedules of tiny instances and linear programs."""

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import linprog

from ramsis.arrivals import Poisson, SizeDistribution
from ramsis.errors import InvalidValueError
from ramsis.sized import BatchTimes, SizedProblem, path_bound, upper_bound
from ramsis.sized.bound import _pieces, _Stretch

TOLERANCE_MS = 1e-6


def problem_of(rng, *, padded=True, models=1, workers=1, largest=6, most=4, weights=None):
    """Return a problem with random times that fall neither with count nor with size."""
    columns = largest + 2 if padded else most * largest + 2
    base = np.cumsum(rng.exponential(1.0, (models, most, columns)), axis=2)
    times = np.maximum.accumulate(base / np.arange(most, 0, -1)[:, None], axis=1) + 1.0
    edges = (2, largest)
    return SizedProblem(
        models=tuple(f"m{i}" for i in range(models)),
        accuracy=np.sort(rng.uniform(0.5, 1.0, models)), times=BatchTimes(padded, 1, times),
        slo_ms=float(rng.uniform(1.2, 3.0) * times[:, 0, 1].min() + 2.0), workers=workers,
        sizes=SizeDistribution(np.arange(1, largest + 1), np.ones(largest)), edges=edges,
        weights=weights or (1.0, 1.0), unit="tokens", max_size=largest)


def best_schedule(problem, arrival_ms, size):
    """Return the largest value of all schedules, by trying them all."""
    n, times = len(size), problem.times
    weight = np.array(problem.weights)[problem.class_of(size)]

    def batch_ms(model, members):
        x = max(size[i] for i in members) if times.padded else sum(size[i] for i in members)
        return times.time_ms[model, len(members) - 1, x]

    @cache
    def best(rest, free):
        top = 0.0
        for count in range(1, min(problem.max_batch, len(rest)) + 1):
            for members in combinations(rest, count):
                start = max(free[0], max(arrival_ms[i] for i in members))
                due = min(arrival_ms[i] for i in members) + problem.slo_ms
                left = tuple(i for i in rest if i not in members)
                for model, accuracy in enumerate(problem.accuracy):
                    end = start + batch_ms(model, members)
                    if end <= due + TOLERANCE_MS:
                        worth = accuracy * sum(weight[i] for i in members)
                        top = max(top, worth + best(left, tuple(sorted((*free[1:], end)))))
        return top

    return best(tuple(range(n)), (0.0,) * problem.workers)


@pytest.mark.parametrize("seed", range(24))
def test_no_schedule_is_above_the_bound(seed):
    rng = np.random.default_rng(seed)
    workers, models = 1 + seed % 2, 1 + seed // 2 % 2
    problem = problem_of(rng, padded=seed % 3 > 0, models=models, workers=workers,
                         weights=(1.0, float(rng.uniform(0.5, 3.0))) if seed % 4 == 3 else None)
    n = 6
    arrival_ms = np.sort(rng.uniform(0.0, problem.slo_ms * rng.uniform(0.5, 2.0), n))
    size = problem.sizes.sample(n, rng)
    best = best_schedule(problem, arrival_ms, size)
    bound = path_bound(problem, arrival_ms, size, rounds=40)
    assert bound.upper_bound * n >= best - 1e-9
    assert bound.without_padding >= bound.upper_bound - 1e-12
    assert bound.in_time <= 1.0
    # The same for given numbers of answers in time, whatever they are worth.
    equal = SizedProblem(**{**{name: getattr(problem, name) for name in (
        "models", "times", "slo_ms", "workers", "sizes", "edges", "unit", "max_size")},
        "accuracy": np.ones(models), "weights": (1.0, 1.0)})
    assert bound.in_time * n >= best_schedule(equal, arrival_ms, size) - 1e-9


def test_bound_is_near_the_best_schedule_of_padded_batches():
    gaps = []
    for seed in range(12):
        rng = np.random.default_rng(100 + seed)
        problem = problem_of(rng)
        arrival_ms = np.sort(rng.uniform(0.0, 2.0 * problem.slo_ms, 7))
        size = problem.sizes.sample(7, rng)
        best = best_schedule(problem, arrival_ms, size)
        bound = path_bound(problem, arrival_ms, size, rounds=80)
        gaps.append((bound.without_padding * 7 - best, bound.upper_bound * 7 - best))
    without, tight = np.mean(gaps, axis=0)
    assert tight < 0.5 * without


@pytest.mark.parametrize("seed", range(6))
def test_greedy_work_is_optimal(seed):
    rng = np.random.default_rng(seed)
    problem = problem_of(rng, models=2, workers=1 + seed % 2, weights=(1.0, 2.0))
    n = 9
    arrival_ms = np.sort(rng.uniform(0.0, 1.5 * problem.slo_ms, n))
    stretch = _Stretch(problem, arrival_ms, problem.sizes.sample(n, rng))
    (work,) = stretch.works
    request, step_ms, slope = _pieces(stretch.worth, work)
    release, deadline = stretch.windows.release, stretch.windows.deadline
    rows, most = [], []
    for i in range(n):
        for j in range(i, n):
            rows.append(((request >= i) & (request <= j)).astype(float))
            most.append(problem.workers * (deadline[j] - release[i]))
    solution = linprog(-slope, A_ub=np.array(rows), b_ub=most,
                       bounds=list(zip(np.zeros(len(slope)), step_ms, strict=True)))
    value, price = stretch._greedy(stretch.worth, work)
    assert value == pytest.approx(-solution.fun, rel=1e-7)
    assert (price >= 0.0).all()


@pytest.mark.parametrize("padded", [True, False])
def test_work_of_members_adds_up_to_no_more_than_the_batch(padded):
    rng = np.random.default_rng(5)
    problem = problem_of(rng, padded=padded)
    size = np.sort(problem.sizes.sample(60, rng))
    stretch = _Stretch(problem, np.zeros(60), size)  # all can be in one batch
    for work in stretch.works:
        for _ in range(300):
            members = rng.choice(60, size=rng.integers(1, 5), replace=False)
            x = size[members].max() if padded else size[members].sum()
            batch_ms = problem.times.time_ms[0, len(members) - 1, x]
            if batch_ms <= problem.slo_ms:
                assert work[0, members].sum() <= batch_ms + 1e-9


def test_long_run_bound_is_near_that_of_its_paths_and_falls_with_load():
    rng = np.random.default_rng(3)
    problem = problem_of(rng)
    terms = {"stretches": 6, "refined": 2, "requests": 150, "rounds": 10}
    per_ms = 1.0 / problem.times.time_ms[0, 0, 3]
    light, heavy = (upper_bound(problem, Poisson(1000.0 * per_ms * factor), **terms)
                    for factor in (0.5, 3.0))
    assert heavy.upper_bound < light.upper_bound <= 1.0
    assert heavy.upper_bound <= heavy.without_padding
    assert heavy.half_width > 0.0
    again = upper_bound(problem, Poisson(1000.0 * per_ms * 3.0), **terms)
    assert again == heavy


def test_no_requests_and_refusals():
    problem = problem_of(np.random.default_rng(0))
    assert path_bound(problem, np.zeros(0), np.zeros(0, int)).upper_bound == 0.0
    with pytest.raises(InvalidValueError, match="do not fit"):
        path_bound(problem, np.zeros(2), np.ones(3, int))
    with pytest.raises(InvalidValueError, match="beyond those of the profile"):
        path_bound(problem, np.zeros(1), np.array([7]))
    with pytest.raises(InvalidValueError, match="arrivals fall"):
        path_bound(problem, np.array([1.0, 0.0]), np.array([1, 1]))
    with pytest.raises(InvalidValueError, match="refined"):
        upper_bound(problem, Poisson(1.0), refined=1)
