"""Value iteration on the structured form, with the span stopping rule.

One sweep takes state values V to node values u and backs every state up (``greedy``). With g an
estimate of the gain and c the cost of a state,

    B(s) = (max_m Q_g(s, m) − V(s)) / c(s)

bounds the optimal gain g*: g + min(0, min B) <= g* <= g + max(0, max B), because a decision
costs at least c(s) (and more where the full state's excess is charged). The sweeps end when the
span max B − min B is at most the tolerance; otherwise V ← V + τ·B, τ = (1 − damping)·min c, and g
moves towards the middle of its bounds. Raising g by 1 lowers B by 1 + excess / c: where that is
much more than 1, as in overload, g moves by so much less, or it would swing ever wider. Damping
is adaptive, as in :mod:`ramsis.mdp.value_iteration`. The policy found is then evaluated
exactly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import InvalidValueError, describe
from ramsis.mdp.result import Status
from ramsis.mdp.value_iteration import AdaptiveDamping
from ramsis.worker.evaluation import evaluate_on_nodes
from ramsis.worker.policy_iteration import NodeSolution, certify
from ramsis.worker.structured import StructuredMDP

__all__ = ["iterate_on_nodes"]


def iterate_on_nodes(
    mdp: StructuredMDP, *, tolerance: float = 1e-9, max_iterations: int = 100_000
) -> NodeSolution:
    """The policy of greatest gain, by successive approximation.

    Parameters
    ----------
    tolerance : float > 0
        Largest span of B, in units of the gain.
    max_iterations : int
        Sweeps after which the best policy so far is returned, marked as not converged.

    Raises
    ------
    InvalidValueError
        When the actions of a state differ in cost, as a drop and a batch do.
    """
    if any(len({mdp.problem.cost(action.batch) for action in actions}) > 1
           for actions in mdp.problem.actions.by_queue):
        raise InvalidValueError(
            describe("actions that differ in cost need another solver", where="solver",
                     value="value-iteration", allowed="policy-iteration or linear-program")
        )
    policy = mdp.problem.fastest_policy()
    value = np.zeros((mdp.problem.max_queue + 1, mdp.problem.bins + 1))
    costs = mdp.costs[:, None]
    step = float(costs.min())
    caution = 1.0 + _excess_per_cost(mdp)
    damping, gain, status = AdaptiveDamping(), 0.0, Status.MAX_ITERATIONS
    for sweep in range(1, max_iterations + 1):  # noqa: B007 - counted for the certificate
        backup = mdp.greedy(mdp.node_values(value, gain), gain, policy)
        policy = backup.policy
        advantage = (backup.value - value) / costs
        low, high = _range(advantage)
        if high - low <= tolerance:
            status = Status.OPTIMAL
            break
        damping.observe(high - low)
        value += (1.0 - damping.level) * step * advantage
        value -= value[0, -1]
        gain += (low + high) / 2.0 / caution
    evaluation = evaluate_on_nodes(mdp, policy)
    last = mdp.greedy(evaluation.onward_value, evaluation.gain, policy)
    return NodeSolution(policy, evaluation, certify(mdp, evaluation, last, sweep, status))


def _excess_per_cost(mdp: StructuredMDP) -> float:
    """Most requests beyond the table that a decision leaves behind, per unit of its cost."""
    each = mdp.service_values(mdp.charged_excess).max(axis=1)
    beyond = [max(each[action.service] for action in actions)
              for actions in mdp.problem.actions.by_queue]
    return float((beyond / mdp.costs).max())


def _range(advantage: NDArray[np.float64]) -> tuple[float, float]:
    """Lowest and highest entry; of the full state only bin 0 exists."""
    listed, full = advantage[:-1], float(advantage[-1, 0])
    return min(float(listed.min()), full), max(float(listed.max()), full)
