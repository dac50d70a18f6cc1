"""A worker under shortest-queue dispatch: its laws by integration, its rates by what they mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad_vec
from scipy.linalg import expm

from ramsis.arrivals import NegativeBinomial
from ramsis.errors import InvalidValueError
from ramsis.worker.shortest_queue import arrival_rates, build_shortest_queue, check_shortest_queue
from tests.worker.problems import small_problem
from tests.worker.test_pure_birth import generator

RATES = np.array([0.4, 0.3, 0.17, 0.11, 0.05, 0.02, 0.013, 0.01, 0.01, 0.01, 0.01])


@pytest.mark.parametrize("grid", ["fixed:10", "model"])
def test_the_law_after_a_service_is_the_integral_over_the_first_arrival(grid: str) -> None:
    problem = small_problem(grid=grid)
    model = build_shortest_queue(problem, RATES)
    rates_matrix = generator(RATES)
    edges = np.append(problem.slack_ms, np.inf)
    for service, (n, m) in enumerate(zip(*model.services, strict=True)):
        queued, latency_ms = int(n) + 1, float(problem.latency.latency_ms[m, n])
        density = RATES[queued]

        def later(
            u: float, queued: int = queued, latency_ms: float = latency_ms, rate: float = density
        ) -> np.ndarray:
            """Density of the first arrival at u and the law of the level at the end."""
            after: np.ndarray = expm(rates_matrix * (latency_ms - u))[queued + 1]
            return rate * np.exp(-rate * u) * after

        for j in range(problem.bins + 1):
            low = 0.0 if j == 0 else max(0.0, edges[j] - problem.slo_ms + latency_ms)
            high = min(latency_ms, max(0.0, edges[j + 1] - problem.slo_ms + latency_ms))
            exact = quad_vec(later, low, high)[0] if high > low else np.zeros(len(RATES))
            counts = exact[queued + 1 : queued + 1 + problem.max_queue]
            assert model.waiting[service, : len(counts), j] == pytest.approx(counts, abs=1e-9)
        stay = quad_vec(lambda t, q=queued: expm(rates_matrix * t)[q], 0.0, latency_ms)[0]
        stay[0] += np.exp(-density * latency_ms) / RATES[0]
        assert model.sojourn_ms[service] == pytest.approx(stay, abs=1e-8)
        total = model.waiting[service].sum() + model.idle[service] + model.full[service]
        assert total == pytest.approx(1.0, abs=1e-12)


@given(st.lists(st.floats(1e-9, 1.0), min_size=11, max_size=11), st.integers(1, 500))
def test_all_rates_together_bring_in_every_query(weights: list[float], workers: int) -> None:
    problem = small_problem(workers=workers)
    stay = np.array(weights) / sum(weights)
    rates = arrival_rates(problem, stay)
    total = problem.arrivals.rate_per_ms
    assert stay @ rates == pytest.approx(total / workers, rel=1e-9)
    assert (np.diff(rates) <= 1e-15).all()
    assert rates[0] <= total


def test_one_worker_alone_gets_every_query_whatever_it_holds() -> None:
    problem = small_problem(workers=1)
    rates = arrival_rates(problem, np.arange(1.0, 12.0) / 66.0)
    assert rates == pytest.approx(np.full(11, problem.arrivals.rate_per_ms))


def test_classes_of_bins_change_nothing() -> None:
    problem = small_problem()
    by_class = build_shortest_queue(problem, RATES)
    every = np.arange(problem.bins + 1) % 2 * np.ones((problem.max_queue, 1), dtype=int)
    by_bin = build_shortest_queue(problem, RATES, every, full=True)
    assert len(by_bin.starts[0]) > len(by_class.starts[0])
    table = problem.fastest_policy()
    for model in (by_class, by_bin):
        assert model.table(model.labels(table)).tolist() == table.tolist()
    rows = [model.transitions(np.arange(len(model.full)))[1:] for model in (by_class, by_bin)]
    assert rows[0][:, 0].tolist() == rows[1][:, 0].tolist()
    assert rows[0].sum(axis=1) == pytest.approx(rows[1].sum(axis=1))


def test_what_is_not_modelled_is_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"Poisson arrivals only.*allowed: poisson"):
        check_shortest_queue(small_problem(arrivals=NegativeBinomial(150.0, 4.0)))
    latency = small_problem().latency
    long = np.linspace(1.0, 30.0, 66)
    table = type(latency).measured(["one"], [0.5], [long.tolist()])
    with pytest.raises(InvalidValueError, match=r"max_queue.*at most 64"):
        check_shortest_queue(small_problem(latency=table, max_queue=65))
