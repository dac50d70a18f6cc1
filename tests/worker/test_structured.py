"""The structured form is the explicit MDP, without its matrix."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.errors import InvalidValueError
from ramsis.profiles import LatencyTable
from ramsis.worker.explicit import ExplicitWorkerMDP, build_explicit
from ramsis.worker.structure import StructuredMDP, build_structured
from tests.arrivals.processes import Pairs
from tests.worker.problems import random_policy, small_problem, worker_problems


def structured_row(mdp: StructuredMDP, n: int, j: int, latency: float) -> tuple[np.ndarray, float]:
    """Law of the next state in the explicit MDP's order, and the excess."""
    problem = mdp.problem
    passage, missing = mdp.passages[latency], mdp.phase[n - 1, j]
    nodes = np.zeros(len(mdp.excess))
    nodes[passage.nodes] = passage.reach @ missing
    empty = 0.0
    if len(passage.idle) == 1:  # the explicit rows keep the empty state
        empty = float(passage.idle[0] @ missing)
    else:
        nodes[-len(passage.idle) :] = passage.idle @ missing
    law = np.zeros((problem.max_queue + 1, problem.bins + 1))
    law[mdp.reached] = nodes @ mdp.continuation
    listed = law[:-1].ravel()
    return np.concatenate([[empty], listed, law[-1, :1]]), nodes @ mdp.excess


def explicit_backup(
    explicit: ExplicitWorkerMDP, value: np.ndarray, gain: float
) -> tuple[np.ndarray, np.ndarray]:
    """max and argmax of r − gain·c + P·V, the empty state standing for (1, SLO)."""
    mdp = explicit.mdp
    flat = np.concatenate([[value[0, -1]], value[:-1].ravel(), value[-1, :1]])
    best, rows = mdp.best(mdp.reward - gain * mdp.costs + mdp.transition @ flat)
    return explicit.by_queue_and_bin(best), explicit.table(mdp.action[rows])


@settings(max_examples=25, deadline=None)
@given(problem=worker_problems())
def test_exact_rows_are_the_explicit_rows(problem):
    structured, explicit = build_structured(problem, "exact"), build_explicit(problem)
    mdp = explicit.mdp
    for pair in range(1, mdp.n_pairs, 1 + mdp.n_pairs // 40):
        n, j = divmod(int(mdp.state[pair]) - 1, problem.bins + 1)
        latency = float(problem.latency.latency_ms[mdp.action[pair], n])
        law, excess = structured_row(structured, n + 1, j, latency)
        np.testing.assert_allclose(law, mdp.transition[[pair]].toarray()[0], rtol=0, atol=1e-12)
        assert excess == pytest.approx(explicit.excess[pair], rel=1e-9, abs=1e-12)


def test_exact_nodes_count_requests_that_come_at_one_instant():
    """Arrivals in pairs overshoot the worker's next request; the explicit rows say how often."""
    problem = small_problem(arrivals=Pairs(150.0))
    structured, explicit = build_structured(problem, "exact"), build_explicit(problem)
    for pair in range(1, explicit.mdp.n_pairs, 3):
        n, j = divmod(int(explicit.mdp.state[pair]) - 1, problem.bins + 1)
        latency = float(problem.latency.latency_ms[explicit.mdp.action[pair], n])
        law, _ = structured_row(structured, n + 1, j, latency)
        np.testing.assert_allclose(
            law, explicit.mdp.transition[[pair]].toarray()[0], rtol=0, atol=1e-12
        )


@settings(max_examples=25, deadline=None)
@given(problem=worker_problems(), seed=st.integers(0, 2**16), gain=st.sampled_from([0.0, 0.7]))
def test_a_backup_of_any_values_is_the_explicit_bellman_operator(problem, seed, gain):
    structured, explicit = build_structured(problem, "exact"), build_explicit(problem)
    value = np.random.default_rng(seed).normal(size=(problem.max_queue + 1, problem.bins + 1))
    backup = structured.greedy(structured.node_values(value, gain), gain, problem.fastest_policy())
    best, _ = explicit_backup(explicit, value, gain)
    np.testing.assert_allclose(backup.value[:-1], best[:-1], rtol=0, atol=1e-10)
    assert backup.value[-1, 0] == pytest.approx(best[-1, 0], abs=1e-10)
    problem.check_policy(backup.policy)
    again = structured.greedy(structured.node_values(value, gain), gain, backup.policy)
    np.testing.assert_array_equal(again.policy, backup.policy)
    np.testing.assert_allclose(again.kept, backup.value, rtol=0, atol=1e-10)
    assert (backup.value >= backup.kept).all()


def test_the_incumbent_stays_where_it_is_as_good():
    """Two models alike but for their names: no change from either."""
    table = small_problem().latency
    twins = replace(
        table, accuracy=np.array([0.8, 0.8]), latency_ms=table.latency_ms[[0, 0]],
        origin=table.origin[[0, 0]],
    )
    problem = small_problem(latency=twins)
    structured = build_structured(problem)
    value = np.random.default_rng(4).normal(size=(5, 11))
    for seed in range(3):
        policy = random_policy(problem, seed)
        backup = structured.greedy(structured.node_values(value), 0.1, policy)
        np.testing.assert_array_equal(backup.policy, policy)


def test_of_equally_good_models_the_fastest_is_taken():
    """Where nothing that follows has a value, equal accuracies tie whatever the latency."""
    table = LatencyTable.measured(
        ["poor", "slow", "quick"], [0.5, 0.8, 0.8], [[9.0, 9.0], [20.0, 20.0], [10.0, 10.0]]
    )
    problem = small_problem(latency=table, max_queue=1)
    structured = build_structured(problem)
    incumbent = problem.fastest_policy()
    assert (incumbent == 0).all()
    backup = structured.greedy(np.zeros(len(structured.nodes) + 1), 0.1, incumbent)
    assert backup.policy[0].tolist() == [0] * 3 + [2] * 8


@settings(max_examples=15, deadline=None)
@given(problem=worker_problems())
def test_probability_is_conserved_from_state_to_state(problem):
    for kind in ("exact", "quadrature"):
        mdp = build_structured(problem, kind)  # type: ignore[arg-type]
        assert mdp.passages.truncated_mass < 1e-12
        assert mdp.continuation.data.min() > 0
        np.testing.assert_allclose(mdp.continuation.sum(axis=1), 1.0, rtol=0, atol=1e-12)
        queued, bins = mdp.reached
        assert (bins[queued == problem.max_queue] == 0).all()
        assert len(mdp.excess) == len(mdp.nodes) + 1
        assert mdp.excess[-1] == 0.0


def test_the_excess_is_charged_per_query_only():
    for objective, charged in (("per-query", True), ("per-decision", False)):
        mdp = build_structured(small_problem(400.0, objective=objective))
        assert mdp.excess.max() > 0.1
        assert (mdp.charged_excess.max() > 0) == charged


def test_other_nodes_are_refused():
    with pytest.raises(InvalidValueError, match=r"^nodes: .*quadrature or exact"):
        build_structured(small_problem(), "gauss")  # type: ignore[arg-type]
