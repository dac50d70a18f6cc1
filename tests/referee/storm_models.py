"""Models between Storm and ours: Storm builds those in JANI, and reads those that are drawn."""

import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from ramsis.mdp.sparse import SparseMDP

stormpy = pytest.importorskip("stormpy")


@dataclass(frozen=True, eq=False)
class StormModel:
    """A built model and one of its properties.

    Attributes
    ----------
    state : (L,)
        State of each pair.
    transition : (L, S)
        Of a Markov automaton: of the jump chain.
    sojourn : (L,)
        Mean time until the jump: 1 in a decision process, 0 in a probabilistic state.
    reward : (L,)
        Of the property's reward structure; of expected time the sojourn.
    target, allowed : (S,)
        Where the property is reached, and where a way to it may lead.
    initial : int
    largest : bool
        Whether the property asks for a maximum.
    """

    state: NDArray[np.int64]
    transition: sparse.csr_array
    sojourn: NDArray[np.float64]
    reward: NDArray[np.float64]
    target: NDArray[np.bool_]
    allowed: NDArray[np.bool_]
    initial: int
    largest: bool


    def reaching(self) -> SparseMDP:
        """Its gain from a state is the chance to reach the target; of a minimum the negative."""
        ends = np.flatnonzero(self.target | ~self.allowed)
        return self._problem(ends, ends, self._sign * self.target[ends], None)

    def total(self) -> SparseMDP:
        """Its gain is the total reward from the initial state until the target is reached.

        The target alone has a cost and leads back to the initial state.
        """
        ends = np.flatnonzero(self.target)
        return self._problem(ends, np.full(ends.size, self.initial), np.zeros(ends.size),
                             self._sign * self.reward)

    def cycle(self) -> SparseMDP:
        """Its gain ``g`` is 1 per cycle of one step more than until the target."""
        ends = np.flatnonzero(self.target)
        return self._problem(ends, np.full(ends.size, self.initial),
                             np.full(ends.size, -self._sign), None)

    @property
    def _sign(self) -> float:
        return 1.0 if self.largest else -1.0

    def _problem(
        self, ends: NDArray[np.int64], then: NDArray[np.int64], at_end: NDArray[np.float64],
        reward: NDArray[np.float64] | None,
    ) -> SparseMDP:
        """The model whose states ``ends`` lead to ``then`` and earn ``at_end``.

        With a ``reward`` of the other pairs only the ends have a cost.
        """
        own = np.flatnonzero(~np.isin(self.state, ends))
        size = self.transition.shape[1]
        back = sparse.csr_array((np.ones(ends.size), (np.arange(ends.size), then)),
                                shape=(ends.size, size))
        state = np.concatenate([self.state[own], ends])
        before = np.zeros(own.size) if reward is None else reward[own]
        cost = np.concatenate([np.zeros(own.size), np.ones(ends.size)])
        return SparseMDP(state, np.arange(state.size),
                         sparse.csr_array(sparse.vstack([self.transition[own], back])),
                         np.concatenate([before, at_end]), None if reward is None else cost)


def read_jani(path: Path, parameters: str, name: str) -> StormModel:
    """Storm's model of the file with the parameters, for the property of that name."""
    description, properties = stormpy.parse_jani_model(str(path))
    undefined = {each.name for each in description.constants if not each.defined}
    values = ",".join(f"{key}={json.dumps(each)}" for key, each in json.loads(parameters).items()
                      if key in undefined)
    (wanted,) = (each for each in properties if each.get_name() == name)
    built, (wanted,) = stormpy.instantiate_constants(description, values, [wanted])
    return _arrays(stormpy.build_model(built, [wanted]), wanted.get_raw_formula())


def _arrays(model: Any, formula: Any) -> StormModel:
    matrix = model.transition_matrix
    groups = np.array([matrix.get_row_group_start(s) for s in range(model.nr_states)]
                      + [matrix.nr_rows])
    entries = [(row, entry.column, entry.value) for row in range(matrix.nr_rows)
               for entry in matrix.get_row(row)]
    rows, columns, values = (np.array(each) for each in zip(*entries, strict=True))
    transition = sparse.csr_array((values, (rows, columns)), shape=(groups[-1], model.nr_states))
    state = np.repeat(np.arange(model.nr_states), np.diff(groups))
    sojourn = _sojourn(model)[state]
    allowed, target = _ends(model, formula.subformula)
    return StormModel(state, transition, sojourn, _reward(model, formula, sojourn, state), target,
                      allowed, int(model.initial_states[0]),
                      str(formula.optimality_type).endswith("MAXIMIZE"))


def _sojourn(model: Any) -> NDArray[np.float64]:
    if "MA" not in str(model.model_type):
        return np.ones(model.nr_states)
    rates = np.array(model.exit_rates)
    markovian = np.array([model.markovian_states.get(s) for s in range(model.nr_states)])
    return np.where(markovian, 1.0 / np.where(markovian, rates, 1.0), 0.0)


def _reward(
    model: Any, formula: Any, sojourn: NDArray[np.float64], state: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(L,) expected reward of each pair: time, steps, or what a reward structure says."""
    if not formula.is_reward_operator_formula:
        return sojourn
    structure = model.reward_models[formula.reward_name]
    reward = np.zeros(state.size)
    if structure.has_state_rewards:
        reward += np.array(structure.state_rewards)[state] * sojourn
    if structure.has_state_action_rewards:
        reward += np.array(structure.state_action_rewards)
    assert not structure.has_transition_rewards
    return reward


def _ends(model: Any, path: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Where a path may lead, and where it ends."""
    if path.is_until_formula:
        return _holds(model, path.left_subformula), _holds(model, path.right_subformula)
    return np.ones(model.nr_states, dtype=bool), _holds(model, path.subformula)


def _holds(model: Any, formula: Any) -> NDArray[np.bool_]:
    found = stormpy.model_checking(model, formula).get_truth_values_vector()
    return np.array([found.get(s) for s in range(model.nr_states)])


@dataclass(frozen=True)
class Pair:
    """A pair of a drawn problem: exact chances, whole reward."""

    state: int
    chances: dict[int, Fraction]
    reward: int


def ours(pairs: list[Pair]) -> SparseMDP:
    """The problem as ours; actions count from 0 over all pairs."""
    return SparseMDP.from_pairs([
        (pair.state, number, {to: float(p) for to, p in pair.chances.items()}, pair.reward)
        for number, pair in enumerate(pairs)])


def storm_values(pairs: list[Pair], goal: int, formula: str, folder: Path) -> list[float]:
    """What Storm says of each state; exactly, but of discounted reward."""
    size = 1 + max(pair.state for pair in pairs)
    lines = ["@type: MDP", "@parameters", "", "@reward_models", "r", "@nr_states", str(size),
             "@nr_choices", str(len(pairs)), "@model"]
    for state in range(size):
        lines.append(f"state {state}{' init' * (state == 0)}{' goal' * (state == goal)}")
        own = [pair for pair in pairs if pair.state == state]
        for number, pair in enumerate(own):
            lines.append(f"\taction {number} [{pair.reward}]")
            lines += [f"\t\t{to} : {p}" for to, p in sorted(pair.chances.items())]
    path = folder / "drawn.drn"
    path.write_text("\n".join(lines) + "\n")
    number_type = float if "discount" in formula else stormpy.Rational
    model = stormpy.build_model_from_drn[number_type](str(path))
    found = stormpy.model_checking(model, stormpy.parse_property(formula))
    return [float(found.get_value(state)) for state in range(size)]
