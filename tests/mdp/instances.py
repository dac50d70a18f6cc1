"""Decision problems that several tests solve."""

import numpy as np
from hypothesis import strategies as st

from ramsis.mdp.sparse import SparseMDP

FROZEN_LAKE = {
    4: ["SFFF", "FHFH", "FFFH", "HFFG"],
    8: ["SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF",
        "FFFHFFFG"],
}
LEFT, DOWN, RIGHT, UP = range(4)
STEPS = {LEFT: (0, -1), DOWN: (1, 0), RIGHT: (0, 1), UP: (-1, 0)}


def _move(row: int, column: int, direction: int, height: int, width: int) -> tuple[int, int]:
    down, right = STEPS[direction]
    return min(max(row + down, 0), height - 1), min(max(column + right, 0), width - 1)


def frozen_lake(size: int) -> SparseMDP:
    """The slippery lake: a third of the time each, the intended way or one at right angles.

    Reaching the goal earns 1; goal and holes absorb.
    """
    grid = FROZEN_LAKE[size]
    pairs = []
    for row, column in np.ndindex(size, size):
        for action in STEPS:
            here = size * row + column
            if grid[row][column] in "GH":
                pairs.append((here, action, {here: 1.0}, 0.0))
                continue
            chances: dict[int, float] = {}
            reward = 0.0
            for direction in (action - 1, action, action + 1):
                i, j = _move(row, column, direction % 4, size, size)
                chances[size * i + j] = chances.get(size * i + j, 0.0) + 1 / 3
                reward += (grid[i][j] == "G") / 3
            pairs.append((here, action, chances, reward))
    return SparseMDP.from_pairs(pairs)


CLIFF_START, CLIFF_GOAL = 36, 47


def cliff_walking(goal_reward: float) -> SparseMDP:
    """A 4 x 12 grid whose bottom row, between start and goal, is a cliff.

    Every move earns -1; a step into the cliff earns -100 and leads back to the start. A decision
    in the goal ends the episode and earns ``goal_reward``.
    """
    height, width, ended = 4, 12, 48
    pairs = [(ended, 0, {ended: 1.0}, 0.0)]
    for row, column in np.ndindex(height, width):
        here = width * row + column
        for action in STEPS:
            if here == CLIFF_GOAL:
                pairs.append((here, action, {ended: 1.0}, goal_reward))
                continue
            i, j = _move(row, column, action, height, width)
            if i == height - 1 and 0 < j < width - 1:
                pairs.append((here, action, {CLIFF_START: 1.0}, -100.0))
            else:
                pairs.append((here, action, {width * i + j: 1.0}, -1.0))
    return SparseMDP.from_pairs(pairs)


@st.composite
def small_mdps(
    draw: st.DrawFn, *, unichain: bool = True, costs: bool = False, free_state: bool = False
) -> SparseMDP:
    """Up to five states with one to three actions each.

    Unichain: every pair may lead to state 0. With a free state, the last state has one action
    that costs nothing.
    """
    size = draw(st.integers(2 if free_state else 1, 5))
    pairs = []
    for state in range(size):
        is_free = free_state and state == size - 1
        for action in range(1 if is_free else draw(st.integers(1, 3))):
            weights = draw(st.lists(st.integers(0, 4), min_size=size, max_size=size))
            if unichain or not any(weights):
                weights[0] += 1
            total = sum(weights)
            chances = {j: w / total for j, w in enumerate(weights) if w}
            pair = (state, 10 * action, chances, draw(st.integers(-10, 10)) / 2)
            cost = 0 if is_free else draw(st.integers(1, 4))
            pairs.append((*pair, cost) if costs or free_state else pair)
    return SparseMDP.from_pairs(pairs, n_states=size)


def dense_random(size: int, actions: int, seed: int) -> SparseMDP:
    """A problem with full random rows, which mixes at once."""
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.ones(size), size=(actions, size))
    return SparseMDP.from_dense(transition, rng.normal(size=(size, actions)))


def two_sided(size: int, leak: float, seed: int) -> SparseMDP:
    """A nearly periodic problem: each half leads to the other, but for a small leak."""
    rng = np.random.default_rng(seed)
    half = np.arange(2 * size) < size
    same = half[:, None] == half[None, :]
    weight = rng.random((3, 2 * size, 2 * size))
    inside, across = weight * same, weight * ~same
    inside /= inside.sum(axis=2, keepdims=True)
    across /= across.sum(axis=2, keepdims=True)
    transition = leak * inside + (1 - leak) * across
    return SparseMDP.from_dense(transition, rng.normal(size=(2 * size, 3)))


def machine(life: int, income: float, decay: float, price: float) -> SparseMDP:
    """A machine that earns less with every period of age, and may be replaced at a price."""
    pairs = [(age, 1, {0: 1.0}, -price) for age in range(1, life + 1)]
    pairs += [(age, 0, {age + 1: 1.0}, income - decay * age) for age in range(life)]
    return SparseMDP.from_pairs(pairs)
