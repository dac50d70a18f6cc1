"""Compiled rounds of policy iteration on the states that policies can reach."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.compiling import dot, index, njit
from ramsis.worker.solve.rounds.arrays import (
    Actions,
    Matrix,
    Mixtures,
    States,
    StructuredArrays,
)
from ramsis.worker.structure._kernels import service_values


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _times(matrix: Matrix, values: FloatArray, result: FloatArray) -> None:
    """Add the product of a CSR matrix and ``values`` (·, X) to ``result``."""
    indptr, indices, data = matrix
    for i in range(indptr.size - 1):
        row = result[i]
        for entry in range(indptr[i], indptr[i + 1]):
            onward, weight = values[indices[entry]], data[entry]
            for x in range(row.size):
                row[x] += weight * onward[x]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _add(vector: FloatArray, factor: float, to: FloatArray) -> None:
    """Add ``factor`` times a vector to the vector ``to``."""
    for i in range(to.size):
        to[i] += factor * vector[i]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _scale(vector: FloatArray, factor: float) -> None:
    for i in range(vector.size):
        vector[i] *= factor


@njit(cache=True, fastmath={"reassoc", "contract"})  # type: ignore[untyped-decorator,unused-ignore]
def _total(vector: FloatArray) -> float:
    total = 0.0
    for i in range(vector.size):
        total += vector[i]
    return total


@njit(cache=True, fastmath={"reassoc", "contract"})  # type: ignore[untyped-decorator,unused-ignore]
def _onto_nodes(
    model: StructuredArrays, states: States, value: FloatArray, result: FloatArray
) -> None:
    """Write node values into ``result``: the continuation times state values, (N+1, D+1)."""
    indptr, indices, data = model.onward
    queued, bins = states.reached_queued, states.reached_bins
    reached = np.empty(queued.size)
    for s in range(queued.size):
        reached[s] = value[queued[s], bins[s]]
    for i in range(result.size):
        total = 0.0
        for entry in range(index(indptr[i]), index(indptr[i + 1])):
            total += data[entry] * reached[index(indices[entry])]
        result[i] = total
    starts = model.late_idle.shape[1]
    for j in range(model.late.size):
        total = 0.0
        for i in range(model.late_reach.shape[1]):
            total += model.late_reach[j, i] * result[i]
        for i in range(starts):
            total += model.late_idle[j, i] * result[result.size - starts + i]
        result[model.late[j]] = total


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _after_emptied(emptied: FloatArray, node_value: FloatArray) -> FloatArray:
    """Return the value after a drop of the only request, by phase, (K,)."""
    values = np.zeros(emptied.shape[1])
    first = node_value.size - emptied.shape[0]
    for start in range(emptied.shape[0]):
        for r in range(values.size):
            values[r] += node_value[first + start] * emptied[start, r]
    return values


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _improve(
    model: StructuredArrays, actions: Actions, states: States, node_value: FloatArray, gain: float,
    rounding: float, place: IntArray,
) -> bool:
    """Improve the policy ``place`` in all listed states; return whether an action changed."""
    worth = np.zeros((actions.weights.indptr.size - 1, model.phase.shape[2]))
    _times(actions.weights,
           service_values(model.reach, model.idle, model.row, model.nodes, node_value), worth)
    emptied, changed = _after_emptied(model.emptied, node_value), False
    value, phase, next_slack = np.zeros(place.shape), model.phase, model.next_slack
    service, cost, reward, dropped, drop_cost, _ = actions
    queued, bins, first, stop, _, _ = states
    for s in range(queued.size):
        n, j = queued[s], bins[s]
        best, most, kept = -1, -np.inf, -np.inf
        if dropped[n, j] > -np.inf:
            most = dropped[n, j] - gain * drop_cost[n]
            if n == 0:
                most += dot(phase[0, j], emptied, 0, emptied.size)
            else:
                # Shorter queues come first, so what a drop leads to has its value already.
                most += dot(next_slack[n, j], value[n - 1], first[s], stop[s])
            kept = most if place[n, j] < 0 else kept
        for a in range(service.shape[1]):
            if reward[n, a, j] > -np.inf:
                candidate = reward[n, a, j] - gain * cost[n, a] + dot(
                    phase[n, j], worth[service[n, a]], 0, emptied.size)
                kept = candidate if place[n, j] == a else kept
                if candidate > most:
                    best, most = a, candidate
        value[n, j] = most
        if most > kept + rounding * (1.0 + abs(most)):
            place[n, j], changed = best, True
    return changed


class _Policy(NamedTuple):
    """Policy with the first passages of the services that it uses."""

    place: IntArray  # index of each state's action; -1 for a drop, shape (N+1, D+1)
    slot: IntArray  # index of each service in ``row``, shape (S,)
    # reach, idle, row, nodes: as in :class:`StructuredArrays`: these very arrays if service
    # times are fixed, else mixed over the latencies of each service
    reach: FloatArray
    idle: FloatArray
    row: IntArray
    nodes: IntArray


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _with_passages(
    model: StructuredArrays, actions: Actions, states: States, mixtures: Mixtures, place: IntArray
) -> _Policy:
    """Return a policy with the first passages of its services."""
    indptr, latency, _ = actions.weights
    # Services in use get slots; a service of one latency has the passages of this latency.
    slot, used = np.full(indptr.size - 1, -1), 0
    for s in range(states.queued.size):
        n, j = states.queued[s], states.bins[s]
        service = actions.service[n, max(place[n, j], 0)]
        if place[n, j] >= 0 and slot[service] < 0:
            slot[service] = used
            used += 1
    row, mixed = np.empty(used, dtype=np.int64), mixtures.known.size > 0
    for service in range(slot.size):
        if slot[service] >= 0:
            row[slot[service]] = service if mixed else model.row[latency[indptr[service]]]
            if mixed and not mixtures.known[service]:
                _mix(model, actions.weights, service, mixtures)
    if mixed:
        return _Policy(place, slot, mixtures.reach, mixtures.idle, row, mixtures.nodes)
    return _Policy(place, slot, model.reach, model.idle, row, model.nodes)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _mix(
    model: StructuredArrays, weights: Matrix, service: int, mixtures: Mixtures
) -> None:
    """Compute the first passages of a service: the mean of those of its latencies."""
    first, stop = model.reach.shape[1], 0
    for entry in range(weights.indptr[service], weights.indptr[service + 1]):
        g, weight = model.row[weights.indices[entry]], weights.data[entry]
        low, high = model.nodes[g, 0], model.nodes[g, 1]
        first, stop = min(first, low), max(stop, high)
        # Nodes and phases in one loop: there may be few phases.
        _add(model.reach[g, low:high].ravel(), weight, mixtures.reach[service, low:high].ravel())
        _add(model.idle[g].ravel(), weight, mixtures.idle[service].ravel())
    mixtures.nodes[service, 0], mixtures.nodes[service, 1] = min(first, stop), stop
    mixtures.known[service] = True


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _moved(
    model: StructuredArrays, actions: Actions, states: States, policy: _Policy,
    node_value: FloatArray, result: FloatArray,
) -> None:
    """Apply the transitions of a policy to node values: ``result`` = M·``node_value``."""
    worth = service_values(policy.reach, policy.idle, policy.row, policy.nodes, node_value)
    emptied = _after_emptied(model.emptied, node_value)
    place, slot, value = policy.place, policy.slot, np.zeros(policy.place.shape)
    phase, next_slack, service = model.phase, model.next_slack, actions.service
    queued, bins, first, stop, _, _ = states
    for s in range(queued.size):
        n, j = queued[s], bins[s]
        if place[n, j] >= 0:
            value[n, j] = dot(phase[n, j], worth[slot[service[n, place[n, j]]]],
                               0, emptied.size)
        elif n == 0:
            value[n, j] = dot(phase[0, j], emptied, 0, emptied.size)
        else:
            value[n, j] = dot(next_slack[n, j], value[n - 1], first[s], stop[s])
    _onto_nodes(model, states, value, result)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _rewards_and_costs(
    model: StructuredArrays, actions: Actions, states: States, place: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return reward and cost from each node up to the next, (I+L,) each."""
    reward, cost = np.zeros(place.shape), np.zeros(place.shape)
    next_slack, first, stop = model.next_slack, states.first, states.stop
    _, costs, rewards, dropped, drop_cost, _ = actions
    for s in range(states.queued.size):
        n, j = states.queued[s], states.bins[s]
        a = place[n, j]
        reward[n, j] = rewards[n, a, j] if a >= 0 else dropped[n, j]
        cost[n, j] = costs[n, a] if a >= 0 else drop_cost[n]
        if a < 0 < n:
            reward[n, j] += dot(next_slack[n, j], reward[n - 1], first[s], stop[s])
            cost[n, j] += dot(next_slack[n, j], cost[n - 1], first[s], stop[s])
    of_reward, of_cost = np.empty(model.excess.size), np.empty(model.excess.size)
    _onto_nodes(model, states, reward, of_reward)
    _onto_nodes(model, states, cost, of_cost)
    _add(model.excess, -model.price, of_reward)
    _add(model.excess, 1.0, of_cost)
    return of_reward, of_cost


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _rotated(column: FloatArray, turns: FloatArray, k: int) -> None:
    """Make column k of a Hessenberg matrix triangular by Givens rotations; store the new one."""
    for i in range(k):
        low, high = column[i], column[i + 1]
        column[i] = turns[i, 0] * low + turns[i, 1] * high
        column[i + 1] = turns[i, 0] * high - turns[i, 1] * low
    length = np.hypot(column[k], column[k + 1])
    turns[k, 0], turns[k, 1] = (column[k] / length, column[k + 1] / length) if length else (1., 0.)
    column[k], column[k + 1] = length, 0.0


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _moved_back(
    model: StructuredArrays, actions: Actions, states: States, policy: _Policy,
    weight: FloatArray, result: FloatArray,
) -> None:
    """Apply the transitions of a policy to weights of nodes: ``result`` = ``weight``·M."""
    nodes, (indptr, indices, data) = weight.copy(), model.onward
    starts, last = model.late_idle.shape[1], weight.size - model.late_idle.shape[1]
    for j in range(model.late.size):
        _add(model.late_reach[j], weight[model.late[j]], nodes[: model.late_reach.shape[1]])
        _add(model.late_idle[j], weight[model.late[j]], nodes[last:])
    place, slot, share = policy.place, policy.slot, np.zeros(policy.place.shape)
    for i in range(nodes.size):
        for entry in range(indptr[i], indptr[i + 1]):
            state = indices[entry]
            share[states.reached_queued[state], states.reached_bins[state]] += (
                nodes[i] * data[entry])
    # From the longest queue down, as a drop leads to one request less, and may be repeated.
    phases, emptied = np.zeros((policy.row.size, model.phase.shape[2])), np.zeros(
        model.phase.shape[2])
    for s in range(states.queued.size - 1, -1, -1):
        n, j = states.queued[s], states.bins[s]
        if place[n, j] >= 0:
            _add(model.phase[n, j], share[n, j], phases[slot[actions.service[n, place[n, j]]]])
        elif n == 0:
            _add(model.phase[0, j], share[0, j], emptied)
        else:
            for i in range(states.first[s], states.stop[s]):
                share[n - 1, i] += share[n, j] * model.next_slack[n, j, i]
    result[:] = 0.0
    for used in range(policy.row.size):
        g, phase = policy.row[used], phases[used]
        for i in range(policy.nodes[g, 0], policy.nodes[g, 1]):
            result[i] += dot(policy.reach[g, i], phase, 0, phase.size)
        for i in range(starts):
            result[last + i] += dot(policy.idle[g, i], phase, 0, phase.size)
    for i in range(model.emptied.shape[0]):
        result[last + i] += dot(model.emptied[i], emptied, 0, emptied.size)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _weight_and_moved(
    model: StructuredArrays, actions: Actions, states: States, policy: _Policy, cost: FloatArray,
    back: bool, vector: FloatArray, moved: FloatArray,
) -> float:
    """Write M·``vector`` to ``moved``; return w·``vector``. If ``back``: Mᵀ·``vector``, and c."""
    if back:
        _moved_back(model, actions, states, policy, vector, moved)
        return dot(cost, vector, 0, vector.size)
    _moved(model, actions, states, policy, vector, moved)
    return (1.0 / _total(cost)) * _total(vector)


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def _solved(
    model: StructuredArrays, actions: Actions, states: States, policy: _Policy,
    system: tuple[FloatArray, FloatArray, bool], value: FloatArray, tolerance: float, steps: int,
) -> bool:
    """Solve a policy's system by GMRES from initial values, in place; return whether it converged.

    ``system`` is (cost, right, back), and solves (I − M + c·wᵀ)·u = right with w = 1/Σc, or the
    transposed system where it is ``back``: one rank more than I − M, which is singular. ``basis``
    is orthonormal (Arnoldi), ``left`` the rotated right-hand side.
    """
    cost, right, back = system
    size = value.size
    column = np.full(size, 1.0 / _total(cost)) if back else cost
    basis, upper = np.empty((steps + 1, size)), np.zeros((steps, steps + 1))
    turns, left = np.empty((steps, 2)), np.zeros(steps + 1)
    moved = np.empty(size)
    weight = _weight_and_moved(model, actions, states, policy, cost, back, value, moved)
    for i in range(size):
        basis[0, i] = right[i] - value[i] + moved[i]
    _add(column, -weight, basis[0])
    left[0] = np.sqrt(dot(basis[0], basis[0], 0, size))
    enough = tolerance * np.sqrt(dot(right, right, 0, size))
    # Step k adds the image of the last basis vector, made orthogonal to all others, and rotates
    # the new column so that its entry below the diagonal is 0: |left[k]| is then the residual.
    k = 0
    while k < steps and not abs(left[k]) <= enough:
        if k == 0:
            _scale(basis[0], 1.0 / left[0])
        last, new = basis[k], basis[k + 1]
        weight = _weight_and_moved(model, actions, states, policy, cost, back, last, moved)
        for i in range(size):
            new[i] = last[i] - moved[i]
        _add(column, weight, new)
        for i in range(k + 1):
            upper[k, i] = dot(basis[i], new, 0, size)
            _add(basis[i], -upper[k, i], new)
        upper[k, k + 1] = np.sqrt(dot(new, new, 0, size))
        if upper[k, k + 1] > 0.0:
            _scale(new, 1.0 / upper[k, k + 1])
        _rotated(upper[k], turns, k)
        left[k + 1] = -turns[k, 1] * left[k]
        left[k] *= turns[k, 0]
        k += 1
    # Negated, so that NaN fails as well.
    if not abs(left[k]) <= enough:
        return False
    # Back substitution: the solution is the initial value plus a combination of the basis.
    for i in range(k - 1, -1, -1):
        for later in range(i + 1, k):
            left[i] -= upper[later, i] * left[later]
        left[i] /= upper[i, i]
        _add(basis[i], left[i], value)
    return True


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def evaluation(
    model: StructuredArrays, actions: Actions, states: States, mixtures: Mixtures,
    place: IntArray, value: FloatArray, frequency: FloatArray, tolerance: float, steps: int,
) -> float:
    """Compute node values and stationary frequencies of a policy; return its gain, or NaN.

    ``value`` and ``frequency``, (I+L,), have initial values, and are changed in place. The result
    is NaN where GMRES does not converge within its ``steps``.
    """
    policy = _with_passages(model, actions, states, mixtures, place)
    reward, cost = _rewards_and_costs(model, actions, states, place)
    share = 1.0 / _total(cost)
    converged = _solved(model, actions, states, policy, (cost, reward, False), value, tolerance,
                        steps) and _solved(
        model, actions, states, policy, (cost, np.full(cost.size, share), True), frequency,
        tolerance, steps)
    return share * _total(value) if converged else np.nan


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
def rounds(
    model: StructuredArrays, actions: Actions, states: States, mixtures: Mixtures,
    place: IntArray, value: FloatArray, limits: tuple[float, float, float], steps: int, most: int,
) -> tuple[int, float, bool]:
    """Evaluate and improve a policy until no action changes in the listed states.

    Parameters
    ----------
    mixtures : Mixtures
        Room for the first passages of services, filled here.
    place : ndarray of int, shape (N+1, D+1)
        Index of each state's action, -1 for drops; changed in place.
    value : ndarray, shape (I+L,)
        Initial values of the nodes; changed in place.
    limits : (float, float, float)
        Relative residual of rough values and of exact ones, and relative gain that is rounding.
    steps : int
        Largest dimension of a Krylov space.
    most : int
        Most rounds.

    Returns
    -------
    count : int
        Rounds that were done.
    gain : float
        Gain of the policy before the last change; NaN where its values could not be computed.
    stable : bool
        Whether values and gain are exact, and no action changed by them.
    """
    rough, exact, rounding = limits
    gain = np.nan
    for count in range(1, most + 1):
        policy = _with_passages(model, actions, states, mixtures, place)
        reward, cost = _rewards_and_costs(model, actions, states, place)
        # Rough values suffice to find a change; only exact ones show that there is none.
        for tolerance in (rough, exact):
            if not _solved(model, actions, states, policy, (cost, reward, False), value,
                           tolerance, steps):
                return count, np.nan, False
            gain = (1.0 / _total(cost)) * _total(value)
            changed = _improve(model, actions, states, value, gain, rounding, place)
            if changed:
                break
        if not changed:
            return count, gain, True
    return most, gain, False
