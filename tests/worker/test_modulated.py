"""The structured form with the mode in its states, against the chain written out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ramsis.arrivals import MarkovModulated, Poisson
from ramsis.errors import InvalidValueError
from ramsis.mdp.stationary import stationary_distribution
from ramsis.worker.explicit.modulated import build_modulated_chain
from ramsis.worker.problem import Objective
from ramsis.worker.structure import build_structured
from ramsis.worker.structure.evaluation import evaluate_on_nodes, state_frequency
from ramsis.worker.structure.modulated import build_modulated, repeat_modes, table_frequency
from tests.worker.problems import random_policy, small_problem

PROCESSES = [
    MarkovModulated(150.0, 4.0, 50.0, 0.2), MarkovModulated(300.0, 10.0, 5.0, 0.1),
    MarkovModulated(80.0, 3.0, 1000.0, 0.5),
]


@pytest.mark.parametrize("late", ["serve", "drop"])
@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("process", PROCESSES)
def test_a_tables_gain_and_visits_are_those_of_the_chain_written_out(
    process: MarkovModulated, objective: Objective, late: str
) -> None:
    problem = small_problem(arrivals=process, objective=objective, late=late)
    table = random_policy(problem, seed=1)
    chain = build_modulated_chain(problem, table)
    np.testing.assert_allclose(chain.transition.sum(axis=1), 1.0, atol=1e-12)
    start = np.zeros(len(chain.reward))
    shape = (problem.max_queue + 1, problem.bins + 1, 2)
    start.reshape(shape)[0, -1] = 0.5
    law = stationary_distribution(chain.transition, start=start).distribution
    mdp = build_modulated(problem, process)
    found = evaluate_on_nodes(mdp, repeat_modes(table))
    visits, excess = table_frequency(mdp, found)
    assert found.gain == pytest.approx(law @ chain.reward / (law @ chain.cost), abs=1e-7)
    np.testing.assert_allclose(visits / visits.sum(), law.reshape(shape).sum(axis=2), atol=1e-6)
    assert excess / visits.sum() == pytest.approx(law @ chain.excess, abs=1e-6)
    assert mdp.truncated_mass < 1e-12


def test_equal_rates_give_the_poisson_chain() -> None:
    problem = small_problem(arrivals=MarkovModulated(150.0, 1.0, 20.0, 0.3))
    plain = dataclasses.replace(problem, arrivals=Poisson(150.0))
    table = random_policy(problem, seed=3)
    mdp, other = build_modulated(problem, problem.arrivals), build_structured(plain)
    mine, theirs = evaluate_on_nodes(mdp, repeat_modes(table)), evaluate_on_nodes(other, table)
    assert mine.gain == pytest.approx(theirs.gain, abs=1e-9)
    np.testing.assert_allclose(table_frequency(mdp, mine)[0], state_frequency(other, theirs)[0],
                               atol=1e-8)


@pytest.mark.parametrize("process", [
    MarkovModulated(150.0, 4.0, 1e-6, 0.2), MarkovModulated(150.0, 1e9, 10.0, 1e-9),
    MarkovModulated(150.0, 4.0, 10.0, 1.0 - 1e-9),
])
def test_modes_that_change_too_often_are_refused_in_one_line(process: MarkovModulated) -> None:
    with pytest.raises(InvalidValueError, match=r"too often for the model: .*longer bursts"):
        build_modulated(small_problem(arrivals=process), process)


def test_a_chain_needs_modulated_arrivals_and_an_admissible_table() -> None:
    problem = small_problem()
    with pytest.raises(TypeError, match="not Markov-modulated"):
        build_modulated_chain(problem, problem.fastest_policy())
    modulated = small_problem(arrivals=PROCESSES[0])
    with pytest.raises(InvalidValueError, match="not admissible"):
        build_modulated_chain(modulated, np.ones_like(modulated.fastest_policy()))
