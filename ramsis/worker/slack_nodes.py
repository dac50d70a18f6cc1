"""Policy iteration on the slack nodes of the structured worker MDP.

Under a policy the process moves from slack node to slack node, or to the empty state e, which
leads to (1, SLO). With F the rows of the policy from states to nodes and e, A the continuation
from nodes to states, r and c reward and cost of a state, the kernel between nodes is M = A·F and

    values   u = A·r − g·(A·c + excess) + M·u,    u(reference) = 0,
    visits   v = v·M,                              v·(A·c + excess) = 1,
    gain     g = v·A·r.

Put B for I − M with the column of the reference node replaced by the costs. Then B·x = A·r
holds the values, with g in the place of the reference, and v·B is the unit vector of the
reference: one factorisation, as large as there are nodes, gives gain, values and stationary
distribution without iterating. A much visited node is a good reference; a few steps of the
chain find one. States that A reaches with less than 1e-15 are left out. Where the reached
states are fewer than the nodes (exact nodes), the same is solved for the chain F·A of states.

Near capacity a table may hold two regimes that the chain leaves once in 1e15 decisions: short
queues, and a full one that is served too slowly to shrink. Its stationary law then is a matter
of rounding, while a worker that starts empty sees the first regime only. Where rounding would
move the gain by more than 1e-6, the chain is taken to restart empty with probability
ε = 1e-7 at every decision, F → (1 − ε)·F + ε·1·eᵀ, and the evaluation says so.

A round then improves every state by the structured backup; it ends when no choice gains more
than rounding. With T the Bellman operator at gain g, the optimal gain lies in
[g, g + max_s (T V − V)(s) / c(s)], widened by what u misses of A·V and by the rounding of u: a
chain that all but falls into parts has huge values, and its gain depends on where it starts.
Each round raises the gain, or keeps it and raises V; the argument for semi-Markov processes
(Puterman 1994, §11.4) applies because the empty state is reached from everywhere.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgWarning, lu_factor, lu_solve

from ramsis.errors import NotConvergedError, describe
from ramsis.mdp.result import Certificate, Criterion, Status
from ramsis.worker.actions import Outcome
from ramsis.worker.structured import Backup, StructuredMDP

__all__ = [
    "RESTART",
    "Chain",
    "NodeEvaluation",
    "NodeSolution",
    "Surplus",
    "average_certificate",
    "between_states",
    "certify",
    "evaluate_on_nodes",
    "rounded",
    "settled_evaluation",
    "solve_chain",
    "solve_on_nodes",
    "state_visits",
    "table_visits",
    "to_nodes",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
_Found = TypeVar("_Found")

_WALK_STEPS = 64
_ROUNDINGS = 4.0 * float(np.finfo(np.float64).eps)
_PRECISION = 1e-6  # error of the gain beyond which rounding has the last word
RESTART = 1e-7
_LARGEST_ERROR = 1e-5  # of a gain that is still certified


@dataclass(frozen=True, eq=False)
class NodeEvaluation:
    """A policy's gain, relative values and stationary visits.

    Attributes
    ----------
    policy : ndarray of int, shape (N, D+1)
        The policy itself.
    gain : float
    node_value : ndarray, shape (I+L,)
        u, up to a constant; the landings after an empty queue last.
    node_visits : ndarray, shape (I+L,)
        Stationary visits to each node per unit of cost; the landings last.
    reference : int
        The most visited node, or reached state where the chain of states was solved.
    residual : float
        Largest error of the visits' balance.
    restart : float
        Probability ε of a restart from the empty state at a decision; mostly 0.
    """

    policy: IntArray
    gain: float
    node_value: FloatArray
    node_visits: FloatArray
    reference: int
    residual: float
    restart: float = 0.0

    @property
    def onward_value(self) -> FloatArray:
        """(1 − ε)·u + ε·u(e): what moving to each node is worth, restarts counted in."""
        kept = 1.0 - self.restart
        value: FloatArray = kept * self.node_value + self.restart * self.node_value[-1]
        return value


@dataclass(frozen=True, eq=False)
class NodeSolution:
    """A policy for one worker and its certificate.

    Attributes
    ----------
    policy : ndarray of int, shape (N, D+1)
        Model for n queued (row n − 1) at slack bin j.
    evaluation : NodeEvaluation
    certificate : Certificate
        Bounds on the optimal gain of the model that was solved.
    """

    policy: IntArray
    evaluation: NodeEvaluation
    certificate: Certificate


class _Group(NamedTuple):
    """Reached states with one queue length and service: their rows are missing · passage."""

    states: IntArray
    missing: FloatArray
    service: int


def _groups(mdp: StructuredMDP, outcome: Outcome) -> Iterator[_Group]:
    """The reached states by queue length and chosen service; not those that drop."""
    queued, bins = mdp.reached
    service = outcome.service[queued, bins]
    key = queued * (service.max() + 2) + service
    order = np.argsort(key, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        chosen = int(service[group[0]])
        if chosen >= 0:
            missing = mdp.missing[queued[group[0]], bins[group]]
            yield _Group(group, missing, chosen)


def _policy_rows(mdp: StructuredMDP, outcome: Outcome) -> FloatArray:
    """F: rows of the reached states to the nodes and the landings; shape (S, I+L)."""
    rows = np.zeros((len(mdp.reached[0]), len(mdp.excess)))
    for states, missing, service in _groups(mdp, outcome):
        passage = mdp.passage(service)
        rows[states, : len(passage.reach)] = missing @ passage.reach.T
        rows[states, -len(passage.landing) :] = missing @ passage.landing.T
    if mdp.emptied is not None:
        drops = outcome.service[0] < 0
        rows[: len(drops)][drops, -len(mdp.emptied) :] = mdp.missing[0, drops] @ mdp.emptied.T
        _carry(mdp, outcome, rows.reshape(-1, len(drops), len(mdp.excess)))
    return rows


def _carry(mdp: StructuredMDP, outcome: Outcome, values: FloatArray) -> None:
    """Add to the entries of states that drop those of the states that this leads to.

    ``values`` is of shape (n, D+1, …), up to the largest n that is reached. A drop takes no time.
    """
    assert mdp.second is not None
    for n in range(1, len(values)):
        drops = outcome.service[n] < 0
        values[n, drops] += mdp.second[n, drops] @ values[n - 1]


def _pass_on(mdp: StructuredMDP, outcome: Outcome, visits: FloatArray) -> None:
    """Count visits, (n, D+1), also to the states that drops lead to."""
    assert mdp.second is not None
    for n in range(len(visits) - 1, 0, -1):
        visits[n - 1] += np.where(outcome.service[n] < 0, visits[n], 0.0) @ mdp.second[n]


def between_states(mdp: StructuredMDP, outcome: Outcome) -> tuple[FloatArray, FloatArray]:
    """F·A and F·excess, shapes (S, S) and (S,), without F: its rows have only K dimensions."""
    size = len(mdp.reached[0])
    kernel, beyond = np.zeros((size, size)), np.zeros(size)
    for states, missing, service in _groups(mdp, outcome):
        law, excess = np.zeros((size, missing.shape[1])), np.zeros(missing.shape[1])
        for latency, weight in mdp.mixed(service):
            one, more = mdp.state_laws[latency]
            law += weight * one
            excess += weight * more
        kernel[states] = missing @ law.T
        beyond[states] = missing @ excess
    if mdp.emptied is not None:
        drops, last = outcome.service[0] < 0, len(mdp.excess) - len(mdp.emptied)
        emptied = mdp.missing[0, drops] @ mdp.emptied.T
        kernel[np.flatnonzero(drops)] = emptied @ mdp.continuation[last:].toarray()
        beyond[np.flatnonzero(drops)] = emptied @ mdp.charged_excess[last:]
        _carry(mdp, outcome, kernel.reshape(-1, len(drops), size))
        _carry(mdp, outcome, beyond.reshape(-1, len(drops)))
    return kernel, beyond


def to_nodes(mdp: StructuredMDP, outcome: Outcome, visits: FloatArray) -> FloatArray:
    """v·F: visits to the nodes that visits to the states bring; shape (I+L,)."""
    found = np.zeros(len(mdp.excess))
    if mdp.emptied is not None:
        by_queue = visits.reshape(-1, outcome.service.shape[1]).copy()
        _pass_on(mdp, outcome, by_queue)
        visits, drops = by_queue.ravel(), outcome.service[0] < 0
        found[-len(mdp.emptied) :] = mdp.emptied @ (by_queue[0, drops] @ mdp.missing[0, drops])
    weights: dict[float, FloatArray] = {}
    for states, missing, service in _groups(mdp, outcome):
        own = visits[states] @ missing
        for latency, share in mdp.mixed(service):
            weights[latency] = weights.get(latency, 0.0) + share * own
    for latency, weight in weights.items():
        reach, landing = mdp.passages[latency]
        found[: len(reach)] += reach @ weight
        found[-len(landing) :] += landing @ weight
    return found


def _reward_and_cost(mdp: StructuredMDP, outcome: Outcome) -> tuple[FloatArray, FloatArray]:
    """Reward r and cost c of the reached states, up to the end of a drop; shape (S,) each."""
    reward, cost = mdp.problem.earned(outcome)
    if mdp.second is not None:
        _carry(mdp, outcome, reward)
        _carry(mdp, outcome, cost)
    return reward[mdp.reached], cost[mdp.reached]


def evaluate_on_nodes(
    mdp: StructuredMDP,
    policy: IntArray,
    reference: int | None = None,
    *,
    restart: float | None = None,
) -> NodeEvaluation:
    """Gain, values and visits of a policy, by one factorisation.

    Parameters
    ----------
    policy : ndarray of int, shape (N, D+1)
        Admissible where anything is, the fastest model elsewhere.
    reference : int, optional
        ``NodeEvaluation.reference`` of a policy much like this one, which saves a search.
    restart : float, optional
        Probability of a restart from the empty state at a decision; by default 0, or 1e-7 where
        rounding would have the last word.

    Raises
    ------
    InvalidValueError
        When the policy takes a model that is not admissible.
    NotConvergedError
        When the policy's chain has no single stationary distribution within rounding.
    """
    mdp.problem.check_policy(policy)
    if restart is not None:
        return _evaluate(mdp, policy, reference, restart)
    return settled_evaluation(
        lambda start, chance: _evaluate(mdp, policy, start, chance), reference,
        lambda found: rounded(found.node_value, mdp.costs),
    )


def settled_evaluation(
    evaluate: Callable[[int | None, float], _Found],
    reference: int | None,
    error: Callable[[_Found], float],
) -> _Found:
    """``evaluate(reference, 0)``, or with restarts where rounding has the last word."""
    try:
        found = evaluate(reference, 0.0)
    except NotConvergedError:
        return evaluate(None, RESTART)
    return evaluate(None, RESTART) if error(found) > _PRECISION else found


def rounded(value: FloatArray, costs: FloatArray) -> float:
    """What the rounding of values may move the gain by, at decisions of these costs."""
    return float(_ROUNDINGS * np.ptp(value) / costs.min())


def _evaluate(
    mdp: StructuredMDP, policy: IntArray, reference: int | None, restart: float
) -> NodeEvaluation:
    law = mdp.continuation
    outcome = mdp.problem.outcome(policy)
    reward, cost = _reward_and_cost(mdp, outcome)
    excess = mdp.charged_excess
    fined = mdp.problem.violation_price * excess
    empty = np.zeros(len(excess))
    empty[-1] = 1.0
    if len(reward) > len(excess):
        rows = _policy_rows(mdp, outcome)
        chain = Chain(np.asarray(law @ rows), np.asarray(law @ reward) - fined,
                       np.asarray(law @ cost) + excess, empty)
        del rows  # the largest array: its memory serves the factorisation
        found = solve_chain(chain, restart, reference)
        value, visits = found.value, found.visits
    else:
        kernel, beyond = between_states(mdp, outcome)
        beyond += restart * (excess[-1] - beyond)
        price = mdp.problem.violation_price
        chain = Chain(kernel, reward - price * beyond, cost + beyond,
                       np.asarray(law.T @ empty))
        found = solve_chain(chain, restart, reference)
        value = np.asarray(law @ found.value) - found.gain * excess - fined
        visits = to_nodes(mdp, outcome, found.visits)
        visits += restart * (found.visits.sum() * empty - visits)
    return NodeEvaluation(policy, found.gain, value, visits, found.reference, found.residual,
                          restart)


class Chain(NamedTuple):
    """A policy's chain between nodes, or between reached states."""

    kernel: FloatArray
    reward: FloatArray
    cost: FloatArray
    start: FloatArray  # the law after a restart


class Solved(NamedTuple):
    gain: float
    value: FloatArray
    visits: FloatArray
    reference: int
    residual: float


def solve_chain(chain: Chain, restart: float, reference: int | None) -> Solved:
    """Solve B·x = reward and v·B = unit, with the costs in the reference's column of B."""
    size = len(chain.kernel)
    if restart:
        chain.kernel[:] += restart * (chain.start - chain.kernel)
    if reference is None:
        reference = _much_visited(chain.kernel, chain.start)
    unit = np.zeros(size)
    unit[reference] = 1.0
    system = -chain.kernel
    system.flat[:: size + 1] += 1.0
    system[:, reference] = chain.cost
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore", LinAlgWarning)  # a singular system shows in the residual
        # The transpose lies in memory as LAPACK wants it, so nothing is copied.
        factors = lu_factor(system.T, overwrite_a=True, check_finite=False)
        value = lu_solve(factors, chain.reward, trans=1, check_finite=False)
        visits = lu_solve(factors, unit, check_finite=False)
        residual = float(np.abs(visits @ chain.kernel - visits).max() / np.abs(visits).max())
    if not (np.isfinite(value).all() and residual < 1e-8):
        raise NotConvergedError(
            describe("a policy has no single stationary distribution", where="policy iteration",
                     value=f"balance residual {residual:.1e}")
        )
    gain = float(value[reference])
    value[reference] = 0.0
    visits = np.maximum(visits, 0.0)
    return Solved(gain, value, visits, int(visits.argmax()), residual)


def _much_visited(kernel: FloatArray, law: FloatArray) -> int:
    """A place that the chain visits often, found by walking it from where it starts empty."""
    seen = np.zeros(len(kernel))
    for _ in range(_WALK_STEPS):
        law = law @ kernel
        seen = 0.9 * seen + law
    return int(seen.argmax())


def state_visits(mdp: StructuredMDP, evaluation: NodeEvaluation) -> tuple[FloatArray, float]:
    """Stationary visits to the states, (N+1, D+1), and requests beyond N + 1, per unit of cost.

    States that drop a request count, and so do those that this leads to.
    """
    visits = np.zeros((mdp.problem.max_queue + 1, mdp.problem.bins + 1))
    visits[mdp.reached] = np.asarray(evaluation.node_visits @ mdp.continuation)
    if mdp.second is not None:
        _pass_on(mdp, mdp.problem.outcome(evaluation.policy), visits)
    return visits, float(evaluation.node_visits @ mdp.excess)


def table_visits(mdp: StructuredMDP, evaluation: NodeEvaluation) -> tuple[FloatArray, float]:
    """As :func:`state_visits`, summed over the modes where slack stands more than once."""
    visits, excess = state_visits(mdp, evaluation)
    _, first = np.unique(mdp.problem.slack_ms, return_index=True)
    return np.add.reduceat(visits, first, axis=1), excess


def solve_on_nodes(
    mdp: StructuredMDP, *, initial: IntArray | None = None, max_rounds: int = 100
) -> NodeSolution:
    """The policy of greatest gain.

    Parameters
    ----------
    initial : ndarray of int, shape (N, D+1), optional
        Admissible policy to start from; by default the fastest admissible model everywhere.
    max_rounds : int
        Rounds after which the best policy so far is returned, marked as not converged.
    """
    policy = mdp.problem.fastest_policy() if initial is None else initial
    reference = restart = None
    for rounds in range(1, max_rounds + 1):
        evaluation = evaluate_on_nodes(mdp, policy, reference, restart=restart)
        backup = mdp.greedy(evaluation.onward_value, evaluation.gain, policy)
        settled = np.array_equal(backup.policy, policy)
        if settled or rounds == max_rounds:
            break
        policy = backup.policy
        reference, restart = evaluation.reference, evaluation.restart or None
    status = Status.OPTIMAL if settled else Status.MAX_ITERATIONS
    return NodeSolution(policy, evaluation, certify(mdp, evaluation, backup, rounds, status))


def certify(
    mdp: StructuredMDP, evaluation: NodeEvaluation, backup: Backup, iterations: int, status: Status
) -> Certificate:
    """What an evaluated policy and one backup of its values prove about the optimal gain."""
    residual = backup.value - backup.kept
    surplus = float((residual / mdp.costs[:, None]).max())
    values = evaluation.node_value
    missed = np.abs(mdp.node_values(backup.kept, evaluation.gain) - values).max()
    error = float(missed / mdp.costs.min()) + rounded(values, mdp.costs)
    return average_certificate(mdp, evaluation.gain, evaluation.restart, iterations, status,
                               Surplus(float(residual.max()), surplus, error))


class Surplus(NamedTuple):
    """What one backup of a policy's values says.

    Attributes
    ----------
    residual : float
        Most that a choice is better than the policy's.
    per_cost : float
        Most that it is better per unit of its cost.
    error : float
        What the gain may be off by.
    """

    residual: float
    per_cost: float
    error: float


def average_certificate(
    mdp: StructuredMDP, gain: float, restart: float, iterations: int, status: Status,
    surplus: Surplus,
) -> Certificate:
    """Bounds on the optimal gain from a policy's gain and one backup."""
    notes = ((f"restarts empty with probability {restart:g} at a decision",)
             if restart else ())
    if status is Status.OPTIMAL and surplus.error > _LARGEST_ERROR:
        status = Status.PRECISION
    return Certificate(
        criterion=Criterion.AVERAGE,
        status=status,
        iterations=iterations,
        bellman_residual=surplus.residual,
        lower_bound=gain - surplus.error,
        upper_bound=gain + max(0.0, surplus.per_cost) + surplus.error,
        truncated_mass=mdp.truncated_mass,
        notes=notes,
    )
