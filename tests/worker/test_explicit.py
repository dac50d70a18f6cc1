"""The written-out worker MDP against the brute-force sum over four intervals."""

import numpy as np
import pytest
from hypothesis import given, settings

from ramsis.errors import InvalidValueError
from ramsis.worker.explicit import ExplicitWorkerMDP, build_explicit
from tests.reference.four_intervals import fold, transition_row
from tests.worker.problems import random_policy, small_problem, worker_problems


def place(explicit: ExplicitWorkerMDP, state: int) -> tuple[int, int]:
    """(n, j) of a state that is not the empty one; the full state is (N + 1, 0)."""
    queued, j = divmod(state - 1, explicit.problem.bins + 1)
    return queued + 1, j


def brute_row(explicit: ExplicitWorkerMDP, pair: int) -> tuple[np.ndarray, float]:
    problem, mdp = explicit.problem, explicit.mdp
    n, j = place(explicit, int(mdp.state[pair]))
    row = transition_row(
        n, j, float(problem.latency.latency_ms[mdp.action[pair], n - 1]),
        slack=problem.slack_ms.tolist(), rate=problem.arrivals.rate_per_ms,
        workers=problem.workers, most=45,
    )
    folded, excess = fold(row, problem.max_queue)
    law = np.zeros(mdp.n_states)
    for key, probability in folded.items():
        if key == "empty":
            law[0] += probability
        elif key == "full":
            law[-1] += probability
        else:
            assert isinstance(key, tuple)
            law[explicit.index(*key)] += probability
    return law, excess


@pytest.mark.parametrize(("load_qps", "slo_ms"), [(40.0, 40.0), (150.0, 40.0), (300.0, 14.0)])
def test_rows_are_the_brute_force_sum_over_four_intervals(load_qps, slo_ms):
    """Services shorter, as long as and longer than the SLO; the empty and the full state."""
    explicit = build_explicit(small_problem(load_qps, slo_ms=slo_ms))
    for pair in range(1, explicit.mdp.n_pairs):
        law, excess = brute_row(explicit, pair)
        got = explicit.mdp.transition[[pair]].toarray()[0]
        np.testing.assert_allclose(got, law, rtol=0, atol=1e-12)
        assert explicit.excess[pair] == pytest.approx(excess, rel=1e-9, abs=1e-12)


@settings(max_examples=15, deadline=None)
@given(problem=worker_problems())
def test_every_admissible_choice_is_a_pair_and_late_states_have_one(problem):
    explicit = build_explicit(problem)
    mdp, fastest = explicit.mdp, problem.latency.fastest
    assert mdp.n_states == 2 + problem.max_queue * (problem.bins + 1)
    assert mdp.action[mdp.state == 0].tolist() == [0]
    assert mdp.action[mdp.state == mdp.n_states - 1].tolist() == [fastest]
    for n in range(1, problem.max_queue + 1):
        latency = problem.latency.latency_ms[:, n - 1]
        for j in range(problem.bins + 1):
            models = np.flatnonzero(latency <= problem.slack_ms[j]).tolist()
            own = mdp.state == explicit.index(n, j)
            assert mdp.action[own].tolist() == (models or [fastest])
            earned = [problem.cost(n) * problem.latency.accuracy[m] for m in models] or [0.0]
            assert mdp.reward[own].tolist() == earned


@pytest.mark.parametrize("objective", ["per-query", "per-decision"])
def test_the_full_state_is_charged_all_that_it_holds_per_query_only(objective):
    problem = small_problem(400.0, objective=objective)
    explicit = build_explicit(problem)
    mdp = explicit.mdp
    assert mdp.costs[0] == mdp.reward[0] == 0.0
    assert mdp.reward[-1] == 0.0
    queued = np.array([place(explicit, s)[0] for s in mdp.state[1:]])
    assert queued[-1] == problem.max_queue + 1
    assert explicit.excess.max() > 0.1
    if objective == "per-query":
        np.testing.assert_allclose(mdp.costs[1:], queued + explicit.excess[1:], rtol=1e-14)
    else:
        assert (mdp.costs[1:] == 1.0).all()


def test_the_empty_state_waits_for_a_request_with_full_slack():
    explicit = build_explicit(small_problem())
    row = explicit.mdp.transition[[0]].toarray()[0]
    assert row[explicit.index(1, 10)] == 1.0


def test_tables_and_values_keep_their_places():
    explicit = build_explicit(small_problem())
    policy = random_policy(explicit.problem, seed=3)
    labels = explicit.labels(policy)
    explicit.mdp.pairs_of(labels)
    np.testing.assert_array_equal(explicit.table(labels), policy)
    placed = explicit.by_queue_and_bin(np.arange(explicit.mdp.n_states, dtype=float))
    for n, j in ((1, 0), (2, 7), (4, 10), (5, 0)):
        assert placed[n - 1, j] == explicit.index(n, j)


def test_a_request_waits_a_full_round_of_the_workers():
    """Slow service, two workers: the mean of new requests is half the central arrivals'."""
    problem = small_problem(20.0, workers=2)
    explicit = build_explicit(problem)
    row = explicit.mdp.transition[[explicit.mdp.pairs_of(
        explicit.labels(problem.fastest_policy()))[explicit.index(1, 10)]]].toarray()[0]
    mean = problem.arrivals.rate_per_ms * 10.0
    assert row[0] == pytest.approx(np.exp(-mean) * (1 + mean), rel=1e-12)


def test_a_problem_too_large_to_be_written_out_is_refused(monkeypatch):
    monkeypatch.setattr("ramsis.worker.explicit.rows.MAX_CELLS", 100)
    with pytest.raises(InvalidValueError, match="too large to be written out"):
        build_explicit(small_problem())
