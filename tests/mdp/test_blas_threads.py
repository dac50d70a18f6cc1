"""Factorisations have one BLAS thread, and the threads of the user are put back."""

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from ramsis.mdp import dense_chain
from ramsis.mdp.dense_chain import DenseChain, solve_chain


def blas_threads() -> set[int]:
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def random_chain(states: int) -> DenseChain:
    coins = np.random.default_rng(3)
    kernel = coins.random((states, states))
    return DenseChain(kernel / kernel.sum(axis=1, keepdims=True), coins.random(states),
                      np.ones(states), np.full(states, 1.0 / states))


def test_a_chain_of_hundreds_of_states_is_factorised_by_one_thread(monkeypatch):
    seen: list[set[int]] = []
    factorise = dense_chain.lu_factor

    def watched(*given: object, **options: object) -> object:
        seen.append(blas_threads())
        return factorise(*given, **options)

    monkeypatch.setattr(dense_chain, "lu_factor", watched)
    with threadpool_limits(2, user_api="blas"):
        solve_chain(random_chain(301), 0.0, None)
        assert seen == [{1}]
        assert blas_threads() == {2}
