"""Most requests in time where memory is scarce: an integer program over whole steps of time.

Like workers, each with one memory, run batches and load models, which blocks them. A worker goes
from state to state, the set of models that it holds; what it does is a path through states and
steps. With times that are whole numbers of steps some best schedule starts everything at a step,
so that the program is exact.
"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from ramsis.arrays import IntArray

State = frozenset[int]


@dataclass(frozen=True)
class SmallCluster:
    """Requests and like workers; times in whole steps.

    Attributes
    ----------
    release, deadline, model : ndarrays of int, shape (n,)
    batch : ndarray of int, shape (M, B)
        Time of a batch of b = column + 1, not falling.
    load : ndarray of int, shape (M,)
        At least 1.
    memory : ndarray of int, shape (M,)
    room : int
        Memory of a worker.
    start : tuple of frozensets of int
        The models that each worker holds at 0.
    """

    release: IntArray
    deadline: IntArray
    model: IntArray
    batch: IntArray
    load: IntArray
    memory: IntArray
    room: int
    start: tuple[State, ...]


class _Paths:
    """What workers can do, as arcs between states and steps."""

    def __init__(self, cluster: SmallCluster) -> None:
        self.horizon = int(cluster.deadline.max())
        models = range(len(cluster.load))
        fitting = [frozenset(one) for size in range(len(models) + 1)
                   for one in combinations(models, size)
                   if cluster.memory[list(one)].sum() <= cluster.room]
        # Nothing is given up but for room, so that some states are never reached.
        self.states, following = list(dict.fromkeys(cluster.start)), {}
        for state in self.states:
            for m in set(models) - state:
                able = [one for one in fitting if m in one and one - {m} <= state]
                following[state, m] = [
                    one for one in able if not any(one < other for other in able)]
                self.states += [one for one in following[state, m] if one not in self.states]
        self.count = 0
        self.flow: defaultdict[tuple[int, State], list[tuple[int, float]]] = defaultdict(list)
        self.runs: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        self.loaded: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        """Arcs by the step when a model has been loaded, and the model."""
        self.holding: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        """Arcs by a step and a model that the worker has and keeps over the step."""
        for k in range(self.horizon):
            for state in self.states:
                self.arc(k, k + 1, state, state)
                for m in state:
                    for b, took in enumerate(cluster.batch[m].tolist()):
                        number = self.arc(k, k + took, state, state)
                        if number is not None:
                            self.runs[k, m, b + 1].append(number)
                for m in set(models) - state:
                    for after in following[state, m]:
                        number = self.arc(k, k + int(cluster.load[m]), state, after)
                        if number is not None:
                            self.loaded[k + int(cluster.load[m]), m].append(number)

    def arc(self, k: int, end: int, state: State, after: State) -> int | None:
        """A column for what takes a worker from a state to another one."""
        if end > self.horizon:
            return None
        self.flow[k, state].append((self.count, -1.0))
        self.flow[end, after].append((self.count, 1.0))
        for m in state & after:
            for step in range(k, end):
                self.holding[step, m].append(self.count)
        self.count += 1
        return self.count - 1


def most_with_memory(
    cluster: SmallCluster, *, cuts: bool = True, limit_s: float = 30.0
) -> tuple[int, int]:
    """The most requests in time: found, and not refuted (the same where time was enough).

    ``cuts`` adds rows that no schedule breaks and that make the search short: a request is
    answered by a worker that has its model when it is released, or has loaded it since.
    """
    paths = _Paths(cluster)
    count, n = paths.count, len(cluster.release)
    rows: list[list[tuple[int, float]]] = []
    low: list[float] = []
    high: list[float] = []

    def row(terms: list[tuple[int, float]], least: float, most: float) -> None:
        rows.append(terms)
        low.append(least)
        high.append(most)

    for (k, state), terms in paths.flow.items():
        if k < paths.horizon:
            begin = -float(sum(one == state for one in cluster.start)) if k == 0 else 0.0
            row(terms, begin, begin)
    answers: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
    for i in range(n):
        m, release, due = int(cluster.model[i]), int(cluster.release[i]), int(cluster.deadline[i])
        own: list[tuple[int, float]] = []
        for b, took in enumerate(cluster.batch[m].tolist()):
            for k in range(release, due - took + 1):
                own.append((count, 1.0))
                answers[k, m, b + 1].append(count)
                row([(count, 1.0), *((run, -1.0) for run in paths.runs[k, m, b + 1])],
                    -np.inf, 0.0)
                count += 1
        row(own, -np.inf, 1.0)
        if cuts:
            there = paths.holding[release, m] + [
                arc for step in range(release + 1, due - int(cluster.batch[m, 0]) + 1)
                for arc in paths.loaded[step, m]]
            row([*own, *((arc, -1.0) for arc in there)], -np.inf, 0.0)
    for (k, m, size), columns in answers.items():
        row([*((one, 1.0) for one in columns),
             *((run, -float(size)) for run in paths.runs[k, m, size])], -np.inf, 0.0)
    where = [r for r, terms in enumerate(rows) for _ in terms]
    columns = [column for terms in rows for column, _ in terms]
    matrix = csr_matrix(([factor for terms in rows for _, factor in terms], (where, columns)),
                        shape=(len(rows), count))
    whole = np.arange(count) < paths.count
    found = milp(-(~whole).astype(float), constraints=LinearConstraint(matrix, low, high),
                 bounds=Bounds(0.0, np.where(whole, float(len(cluster.start)), 1.0)),
                 integrality=whole.astype(int),
                 options={"time_limit": limit_s, "mip_rel_gap": 0.0})
    if found.x is None:
        return 0, n
    return round(-found.fun), int(np.floor(-found.mip_dual_bound + 1e-6))
