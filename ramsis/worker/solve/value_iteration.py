"""Value iteration on the structured form, with the span stopping rule.

One sweep takes state values V to node values u and looks one decision ahead. Let g be an estimate
of the gain, and c the cost of an action, including that of requests beyond N + 1 to which it
leads. Then

    B(s) = max_a (Q_g(s, a) − V(s)) / c(s, a)

bounds the optimal gain g*: g + min B <= g* <= g + max B. The sweeps end when the span
max B − min B is at most the tolerance; otherwise V ← V + τ·B, τ = (1 − damping)·min c, and g moves
to the middle of its bounds. A drop takes no time, but it uses the values of the last sweep: if it
used those of the same sweep, a chain of drops would count g once for each drop, and g would
oscillate ever more widely.
Damping is adaptive, as in :func:`ramsis.mdp.value_iteration`. The policy found is then evaluated
exactly.
"""

from __future__ import annotations

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.mdp._value_iteration import AdaptiveDamping
from ramsis.mdp.result import Status, check_iterations
from ramsis.worker.solve.policy_iteration import NodeSolution, certified
from ramsis.worker.structure import StructuredMDP
from ramsis.worker.structure.evaluation import evaluate_on_nodes


def iterate_on_nodes(
    mdp: StructuredMDP, *, tolerance: float = 1e-9, max_iterations: int = 100_000
) -> NodeSolution:
    """Find the policy of largest gain for maximal batching, by value iteration.

    Parameters
    ----------
    tolerance : float > 0
        Largest span of B, in units of the gain.
    max_iterations : int
        Sweeps, >= 1, after which the best policy so far is returned, marked as not converged.
    """
    value = np.zeros((mdp.problem.max_queue + 1, mdp.problem.bins + 1))
    costs = _costs(mdp)
    step = min(float(cost.min()) for cost in costs)
    damping, gain, status = AdaptiveDamping(), 0.0, Status.MAX_ITERATIONS
    for sweep in range(1, check_iterations(max_iterations) + 1):  # noqa: B007 - counted for the certificate
        policy, advantage = _ahead(mdp, costs, value, gain)
        low, high = _range(advantage)
        if high - low <= tolerance:
            status = Status.OPTIMAL
            break
        damping.observe(high - low)
        value += (1.0 - damping.level) * step * advantage
        value -= value[0, -1]
        gain += (low + high) / 2.0
    evaluation = evaluate_on_nodes(mdp, policy)
    last = mdp.greedy(evaluation.onward_value, evaluation.gain, policy)
    return certified(mdp, policy, evaluation, last, sweep, status)


def _costs(mdp: StructuredMDP) -> list[FloatArray]:
    """Return the cost of each listed action by bin, including requests beyond the full state."""
    problem, beyond = mdp.problem, mdp.service_values(mdp.charged_excess)
    nothing = np.zeros((problem.max_queue + 1, problem.bins + 1))
    return [
        problem.cost(action.batch) + (mdp.drop_value(n, nothing, mdp.charged_excess)
                                      if action.drops
                                      else mdp.phase[n, action.bins] @ beyond[action.service])
        for n, action in zip(problem.actions.row.tolist(), problem.actions.listed, strict=True)
    ]


def _ahead(
    mdp: StructuredMDP, costs: list[FloatArray], value: FloatArray, gain: float
) -> tuple[IntArray, FloatArray]:
    """Return maximising actions, (N, D+1), and the backup B, (N+1, D+1)."""
    problem, node_value = mdp.problem, mdp.node_values(value, gain)
    rewards, _ = problem.rewards_and_costs(problem.actions.arrays)
    service_values = mdp.service_values(node_value)
    best = np.full(value.shape, -np.inf)
    policy = np.zeros(value.shape, dtype=np.int64)
    for n, action, row, cost in zip(problem.actions.row.tolist(), problem.actions.listed, rewards,
                                    costs, strict=True):
        span = action.bins
        onward = (mdp.drop_value(n, value, node_value) if action.drops
                  else mdp.phase[n, span] @ service_values[action.service])
        reward = row[span] - gain * problem.cost(action.batch)
        ratio = (reward + onward - value[n, span]) / cost
        better = ratio > best[n, span]
        policy[n, span][better] = action.code
        best[n, span][better] = ratio[better]
    return policy[:-1], best


def _range(advantage: FloatArray) -> tuple[float, float]:
    """Return the lowest and highest entry; the full state has bin 0 only."""
    listed, full = advantage[:-1], float(advantage[-1, 0])
    return min(float(listed.min()), full), max(float(listed.max()), full)
