"""Time discounted solvers on large sparse problems, each in a process of its own.

    python scripts/solvers.py SOLVER STATES KIND DISCOUNT     prints one row as JSON

Ten actions a state, ten successors an action: 100 times as many non-zeros as states. Successors of
``random`` problems are anywhere, those of ``banded`` ones within 50 states. Times are processor
time of the first solution in the process, after a small problem has compiled what is compiled.
MDPSolver takes nested Python lists; their making is not counted in the time, but in the memory.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ramsis.mdp.solvers import solve_discounted
from ramsis.mdp.sparse import SparseMDP
from ramsis.mdp.toolbox import to_quantecon

ACTIONS, SUCCESSORS, BAND = 10, 10, 50
TOLERANCE = 1e-6
LIMIT_S = 120.0  # of a process, the making of its problem included
SOLVERS = ("ramsis", "QuantEcon", "MDPSolver")
Solve = Callable[[], NDArray[np.float64]]


def problem(states: int, kind: str) -> SparseMDP:
    """Draw a problem with distinct successors and rewards in [0, 1)."""
    rng = np.random.default_rng(states)
    pairs = states * ACTIONS
    state = np.repeat(np.arange(states), ACTIONS)
    if kind == "random":
        columns = rng.integers(0, states, (pairs, SUCCESSORS))
    else:
        columns = (state[:, None] + rng.integers(-BAND, BAND + 1, (pairs, SUCCESSORS))) % states
    weights = rng.exponential(size=(pairs, SUCCESSORS))
    weights /= weights.sum(axis=1, keepdims=True)
    first = np.arange(pairs + 1) * SUCCESSORS
    transition = sparse.csr_array((weights.ravel(), columns.ravel(), first), (pairs, states))
    transition.sum_duplicates()
    return SparseMDP(state, np.tile(np.arange(ACTIONS), states), transition, rng.random(pairs))


def prepare(solver: str, mdp: SparseMDP, discount: float) -> Solve:
    """Convert a problem to a solver's own form; return what solves it."""
    if solver == "ramsis":
        return lambda: solve_discounted(
            mdp, discount=discount, solver="modified-policy-iteration",
            tolerance=TOLERANCE).value
    if solver == "QuantEcon":
        from quantecon.markov import DiscreteDP

        reward, law, state, action = to_quantecon(mdp)
        quantecon = DiscreteDP(reward, law, discount, state, action)
        return lambda: quantecon.solve("modified_policy_iteration", epsilon=TOLERANCE).v
    from mdpsolver import model

    mdpsolver, matrix = model(), mdp.transition
    bounds = matrix.indptr.tolist()
    rows = [(matrix.data[low:high].tolist(), matrix.indices[low:high].tolist())
            for low, high in pairwise(bounds)]
    by_state = [rows[at:at + ACTIONS] for at in range(0, len(rows), ACTIONS)]
    mdpsolver.mdp(discount=discount, rewards=mdp.reward.reshape(-1, ACTIONS).tolist(),
                  tranMatProbs=[[row[0] for row in actions] for actions in by_state],
                  tranMatColumns=[[row[1] for row in actions] for actions in by_state])

    def solve() -> NDArray[np.float64]:
        mdpsolver.solve(tolerance=TOLERANCE, parallel=False)
        return np.array(mdpsolver.getValueVector())
    return solve


def row(solver: str, states: int, kind: str, discount: float) -> dict[str, Any]:
    """Solve one problem; the error is that of the optimality equation, in units of reward."""
    prepare(solver, problem(100, kind), discount)()
    mdp = problem(states, kind)
    solve = prepare(solver, mdp, discount)
    began = time.process_time()
    value = solve()
    seconds = time.process_time() - began
    pairs = mdp.reward + discount * (mdp.transition @ value)
    error = np.abs(pairs.reshape(-1, ACTIONS).max(axis=1) - value).max() / (1.0 - discount)
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 ** 2
    return {"solver": solver, "non_zeros": states * ACTIONS * SUCCESSORS, "kind": kind,
            "discount": discount, "seconds": seconds, "peak_gb": peak_gb,
            "error_bound": float(error)}


def measure(sizes: Sequence[int] = (100_000, 1_000_000)) -> list[Mapping[str, Any]]:
    """Return a row for each size, kind, discount and solver that ends within the limit."""
    rows: list[Mapping[str, Any]] = []
    for states, kind, discount, solver in product(
            sizes, ("random", "banded"), (0.99, 0.999), SOLVERS):
        command = [sys.executable, str(Path(__file__)), solver, str(states), kind, str(discount)]
        try:
            run = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE,
                                 timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            print(f"more than {LIMIT_S:g} s: {' '.join(command[2:])}", file=sys.stderr)
            continue
        rows.append(json.loads(run.stdout))
    return rows


if __name__ == "__main__":
    name, size, kind, discount = sys.argv[1:]
    print(json.dumps(row(name, int(size), kind, float(discount))))
