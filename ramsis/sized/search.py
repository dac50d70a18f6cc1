"""The search for the numbers of a rule, by simulation.

*Objective.* With J(θ, f) the mean reward of all requests in a simulation at f times the load, and
θ the seven numbers of :mod:`ramsis.sized.rule`,

    maximise  0.75 · J(θ, 1) + 0.25 · J(θ, 1.15).

The heavier load is included because a light load does not determine the numbers that decide
whether the queue recovers from overload. All θ are tried on the same requests (common random
numbers), so differences are known far better than values.

*Method.* The search stays near its start, and the default start may be far off where batches are
long beside the deadline. So eighteen starts with other prices and reference times are tried first.
From the best one, covariance matrix adaptation [1] draws ten θ each generation from a normal
distribution, whose mean, covariance and step follow the better half. It stops after a fixed number
of generations, or when the step is below a fifteenth of its start. The start, the last mean and
the best two θ are then compared on further requests, and the best of them is kept.

*Second start.* The replanned dynamic program serves the same further requests. If the rule is
below it by more than two standard errors of the difference, the search runs once more from a
wider start. :mod:`ramsis.sized.policy` has the gate that decides which of the two serves.

*Weights.* To answer at least a given share of each size class in time, the weights of classes are
changed by w ← w · exp(η · (given share − share in time)) for a fixed number of rounds, with η
falling from 6, and then divided by the least weight. Of the weights with which every class reaches
its share, those with the most requests in time are kept; if there are none, those that miss shares
by least. The numbers
are then searched for again.

[1] N. Hansen, "The CMA Evolution Strategy: A Tutorial", arXiv:1604.00772, 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ramsis.arrays import BoolArray, FloatArray
from ramsis.errors import FRACTION, InvalidValueError
from ramsis.reprs import dataclass
from ramsis.runtime.sized import SizedTables
from ramsis.sim.workload import ConstantLoad, Workload
from ramsis.sized.problem import SizedProblem
from ramsis.sized.rule import RuleNumbers, RuleSpace, arrays_of
from ramsis.sized.schedulers import ReplannedDP, Serving
from ramsis.sized.simulate import drawn

if TYPE_CHECKING:
    from ramsis.sized import _kernels as kernels

LOADS = ((0.75, 1.0), (0.25, 1.15))  # weight in the objective, and factor of the load
REQUESTS = 16_000  # of each simulation of the search
_MOST_REQUESTS = 48_000  # where a trace is repeated: all of it if it has no more
_GENERATIONS, _CHILDREN = 14, 10
_FAR = 0.01  # share by which a start has to be better to replace the default one
_STARTS = tuple(RuleNumbers(price=price, worker_price=worker_price - price, reference=reference)
                for price, worker_price, reference in product(
                    (-2.2, -0.7, 0.8), (-2.7, -1.5, -0.7), (-1.6, -0.7)))
_STEP, _WIDE_STEP, _LEAST_STEP = 0.35, 0.7, 1 / 15
_CHECKS = 3  # streams of further requests on which candidates are compared
_BLOCKS = 20  # of each, for the standard error of a difference
_ROUNDS, _PUSH, _LARGEST_WEIGHT = 16, 6.0, 50.0  # of the search for weights; _PUSH is the first η
_MARGIN = 0.005  # about two standard errors of a class's share in the search
_SEARCH_SEED, _CHECK_SEED = 1_000_003, 2_000_003  # far from the seeds of simulations


class FittedRule(NamedTuple):
    """Best rule found, with its reward and that of the replanned dynamic program."""

    problem: SizedProblem  # with the weights that the rule has
    numbers: RuleNumbers
    space: RuleSpace
    tables: SizedTables
    reward: float  # mean reward on the further requests
    model: int  # model on which the replanned dynamic program is best
    beaten: bool  # whether that program is better than the rule by more than two standard errors


def fit_rule(
    problem: SizedProblem, workload: Workload, *, seed: int = 0,
    min_in_time_by_class: float | Sequence[float] | None = None,
    on_progress: Callable[[], object] | None = None,
) -> FittedRule:
    """Search for the parameters of the index rule with the largest mean reward in simulation.

    A constant load is drawn for as long as the search needs it; other arrivals keep their length.
    The same seed gives the same rule. ``min_in_time_by_class`` is the share of each size class to
    answer in time, if that can be, or a share for each; weights of the classes are chosen for it.
    ``on_progress`` is called after each of about :func:`steps` simulations.
    """
    shares = class_shares(problem, min_in_time_by_class)
    search = _Search(problem, workload, seed, on_progress or (lambda: None))
    fitted = search.fitted(search.start, _STEP)
    if fitted.beaten:
        second = search.fitted(fitted.numbers, _WIDE_STEP)
        fitted = max(fitted, second, key=lambda rule: rule.reward)
    return fitted if shares is None else _weighted(search, fitted, shares)


def class_shares(
    problem: SizedProblem, shares: float | Sequence[float] | None
) -> FloatArray | None:
    """Return the share in time that is asked for in each size class, shape (k,)."""
    if shares is None:
        return None
    each = np.atleast_1d(np.asarray(shares, dtype=float))
    if len(each) not in (1, len(problem.edges)):
        raise InvalidValueError("not a share for each size class", where="min_in_time_by_class",
                                value=len(each), allowed=f"1 or {len(problem.edges)} shares, for "
                                "the classes " + ", ".join(f"{low}–{high}"
                                                           for low, high in problem.ranges))
    FRACTION.check("not a share", inside="min_in_time_by_class of class ",
                   **{str(i + 1): share for i, share in enumerate(each.tolist())})
    return np.broadcast_to(each, len(problem.edges))


def steps(*, weighted: bool = False) -> int:
    """Return about how many simulations a search for the rule's numbers takes."""
    each = _GENERATIONS * _CHILDREN
    return len(_STARTS) + (2 * each if weighted else each)


def _weighted(search: _Search, fitted: FittedRule, share: FloatArray) -> FittedRule:
    """Find class weights at which each class reaches its share in time; search with these."""
    fitted = search.with_problem(_balanced(search, fitted, share)).fitted(
        fitted.numbers, _STEP / 2.0)
    return search.with_problem(_balanced(search, fitted, share)).compared(fitted.numbers)


def _balanced(search: _Search, fitted: FittedRule, share: FloatArray) -> SizedProblem:
    """Return the problem with the weights at which the rule misses the shares least.

    Among weights at which it misses none, those with the most requests in time are taken. The
    share asked for in each class is ``share`` (k,).
    """
    problem, best, best_key = fitted.problem, fitted.problem, (-np.inf, 0.0)
    aim = np.minimum(share + _MARGIN, (1.0 + share) / 2.0)
    for i in range(_ROUNDS):
        rates = search.with_problem(problem).in_time_by_class(fitted.numbers)
        rates = np.where(np.isnan(rates), share, rates)
        key = min(0.0, float((rates - share).min())), float(problem.shares @ rates)
        if key > best_key:
            best, best_key = problem, key
        moves = np.exp(_PUSH / (1.0 + i / 4.0) * (aim - rates))
        weights = np.asarray(problem.weights) * moves
        weights = np.minimum(weights / weights.min(), _LARGEST_WEIGHT)
        problem = replace(problem, weights=tuple(np.round(weights, 4).tolist()))
    return best


@dataclass(frozen=True, eq=False)
class _Search:
    """Search for a rule on drawn requests, the same for all candidates."""

    problem: SizedProblem
    workload: Workload
    seed: int
    on_progress: Callable[[], object]

    @cached_property
    def _requests(self) -> list[tuple[float, kernels.Stream]]:
        """Requests of each load in the objective, with their weight there."""
        return [(weight, self._stream(_SEARCH_SEED + self.seed, factor))
                for weight, factor in LOADS]

    @cached_property
    def _checks(self) -> list[kernels.Stream]:
        """Further requests, on which a few candidates are compared."""
        return [self._stream(_CHECK_SEED + _CHECKS * self.seed + i, 1.0) for i in range(_CHECKS)]

    def _stream(self, seed: int, factor: float) -> kernels.Stream:
        """Draw the requests of a seed, at ``factor`` times the load of the workload."""
        from ramsis.sized import _kernels as kernels

        workload = self.workload
        if isinstance(workload, ConstantLoad):
            # A recorded trace states its number of requests and is played whole, up to a limit.
            requests = max(REQUESTS, min(getattr(workload.process, "requests", 0), _MOST_REQUESTS))
            workload = replace(workload, duration_ms=1000.0 * requests / workload.load_qps)
        arrival_ms, size = drawn(self.problem, workload, seed)
        return kernels.Stream(np.require(arrival_ms / factor, float, ("C", "W")),
                              np.require(size, np.int64, ("C", "W")))

    def with_problem(self, problem: SizedProblem) -> _Search:
        """Return the search for a problem with other weights of sizes, on the same requests."""
        other = _Search(problem, self.workload, self.seed, self.on_progress)
        other.__dict__["_requests"], other.__dict__["_checks"] = self._requests, self._checks
        return other

    @cached_property
    def _space(self) -> RuleSpace:
        return RuleSpace(self.problem)

    def served(self, numbers: RuleNumbers, stream: kernels.Stream) -> Serving:
        """Simulate a rule on some requests, and return the run."""
        from ramsis.sized import _rule_kernels as rule_kernels

        run = self._run(stream)
        rule_kernels.indexed(*run.arguments, arrays_of(self._space.tables(numbers),
                                                       self._space.slope_ms))
        return run

    def _run(self, stream: kernels.Stream) -> Serving:
        from ramsis.sized import _kernels as kernels

        problem = self.problem
        return Serving(problem, stream, kernels.Terms(problem.slo_ms, problem.workers),
                       kernels.room_for(len(stream.size), problem.workers))

    def rewards(self, run: Serving) -> FloatArray:
        """Return the reward of each request of a run, shape (n,)."""
        answered, problem = run.room.batch_of >= 0, self.problem
        batch = np.where(answered, run.room.batch_of, 0)
        weight = np.asarray(problem.weights)[problem.class_of(run.stream.size)]
        result: FloatArray = (self.in_time(run) * weight
                              * problem.accuracy[run.room.model[batch] * answered])
        return result

    def in_time(self, run: Serving) -> BoolArray:
        """Return which requests of a run were answered in time, shape (n,)."""
        from ramsis.runtime.table import SLACK_TOLERANCE_MS

        answered = run.room.batch_of >= 0
        finish_ms = np.where(answered, run.room.finish_ms[
            np.where(answered, run.room.batch_of, 0)], np.inf)
        due_ms = run.stream.arrival_ms + run.terms.slo_ms + 2.0 * SLACK_TOLERANCE_MS
        result: BoolArray = finish_ms <= due_ms
        return result

    def in_time_by_class(self, numbers: RuleNumbers) -> FloatArray:
        """Return the share in time of each class, NaN where there are no requests."""
        counts = np.zeros(len(self.problem.edges))
        in_time = np.zeros(len(self.problem.edges))
        for stream in self._checks:
            size_class = self.problem.class_of(stream.size)
            counts += np.bincount(size_class, minlength=len(counts))
            in_time += np.bincount(size_class, self.in_time(self.served(numbers, stream)),
                                   len(counts))
        with np.errstate(invalid="ignore"):
            result: FloatArray = in_time / np.where(counts > 0, counts, np.nan)
        return result

    @cached_property
    def start(self) -> RuleNumbers:
        """Default parameters to start from, or the best of a grid if these are far better."""
        values = [self.objective(np.array(numbers)) for numbers in _STARTS]
        best = int(np.argmax(values))
        return _STARTS[best] if values[best] > (1.0 + _FAR) * values[0] else RuleNumbers()

    def objective(self, point: FloatArray) -> float:
        """Return the mean reward at the loads of the objective."""
        numbers = RuleNumbers(*point.tolist())
        value = sum(weight * float(self.rewards(self.served(numbers, stream)).mean())
                    for weight, stream in self._requests if stream.size.size)
        self.on_progress()
        return value

    def fitted(self, start: RuleNumbers, step: float) -> FittedRule:
        """Search from a start; compare the last mean and the best on other requests."""
        generator = np.random.default_rng([_SEARCH_SEED, self.seed])
        tried: list[tuple[float, FloatArray]] = []
        mean = np.asarray(start)
        for middle, points, values in _adapted(self.objective, np.asarray(start), step, generator):
            tried += zip(values, points, strict=True)
            mean = middle
        tried.sort(key=lambda pair: -pair[0])
        candidates = [start, RuleNumbers(*mean.tolist()),
                      *(RuleNumbers(*point.tolist()) for _, point in tried[:2])]
        return max(map(self.compared, candidates), key=lambda rule: rule.reward)

    def compared(self, numbers: RuleNumbers) -> FittedRule:
        """Return a rule with its reward and that of the replanned dynamic program."""
        rounded = RuleNumbers(*(round(value, 6) for value in numbers))
        rewards = [self.rewards(self.served(rounded, stream)) for stream in self._checks]
        model, planned = self._planned
        blocks = np.concatenate([
            [block.mean() for block in np.array_split(ours - theirs, _BLOCKS) if len(block)]
            for ours, theirs in zip(rewards, planned, strict=True)])
        error = float(blocks.std(ddof=1) / np.sqrt(len(blocks))) if len(blocks) > 1 else 0.0
        return FittedRule(
            self.problem, rounded, self._space, self._space.tables(rounded),
            float(np.concatenate(rewards).mean()), model,
            bool(len(blocks)) and float(blocks.mean()) < -2.0 * error)

    @cached_property
    def _planned(self) -> tuple[int, list[FloatArray]]:
        """Model with which the replanned dynamic program earns most, and its rewards."""
        served = []
        for model in self.problem.models:
            rewards = []
            for stream in self._checks:
                run = self._run(stream)
                ReplannedDP(model=model, max_batch=self.problem.max_batch).serve(run)
                rewards.append(self.rewards(run))
            served.append(rewards)
        best = int(np.argmax([np.concatenate(rewards).sum() for rewards in served]))
        return best, served[best]


def _adapted(
    objective: Callable[[FloatArray], float], mean: FloatArray, step: float,
    generator: np.random.Generator,
) -> Iterator[tuple[FloatArray, FloatArray, Sequence[float]]]:
    """Yield the mean of each generation of CMA-ES, its sampled points and their values."""
    n, parents = len(mean), _CHILDREN // 2
    # Weights of the parents, and the usual learning rates of paths, step and covariance.
    weights = np.log(parents + 0.5) - np.log(np.arange(1, parents + 1))
    weights /= weights.sum()
    mass = 1.0 / float(weights @ weights)  # mu_eff
    c_step = (mass + 2.0) / (n + mass + 5.0)
    damping = 1.0 + c_step
    c_path = 4.0 / (n + 4.0)
    c_one = 2.0 / ((n + 1.3) ** 2 + mass)
    c_parents = min(1.0 - c_one, 2.0 * (mass - 2.0 + 1.0 / mass) / ((n + 2.0) ** 2 + mass))
    expected = np.sqrt(n) * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n * n))
    covariance, step_path, path = np.eye(n), np.zeros(n), np.zeros(n)
    start = step
    for generation in range(1, _GENERATIONS + 1):
        squares, axes = np.linalg.eigh(covariance)
        lengths = np.sqrt(np.maximum(squares, 1e-12))
        moves = (generator.normal(size=(_CHILDREN, n)) * lengths) @ axes.T
        points = mean + step * moves
        values = [objective(point) for point in points]
        best = moves[np.argsort(-np.asarray(values), kind="stable")[:parents]]
        move = weights @ best
        mean = mean + step * move
        # The step grows if successive moves point in one direction: a path of length above that of
        # independent moves.
        whitened = axes @ ((axes.T @ move) / lengths)
        step_path = (1.0 - c_step) * step_path + np.sqrt(
            c_step * (2.0 - c_step) * mass) * whitened
        length = float(np.linalg.norm(step_path))
        steady = length / np.sqrt(1.0 - (1.0 - c_step) ** (2 * generation)) < (
            1.4 + 2.0 / (n + 1.0)) * expected
        # The covariance learns from its own path (not while the step grows fast) and the parents.
        path = (1.0 - c_path) * path + steady * np.sqrt(c_path * (2.0 - c_path) * mass) * move
        covariance = ((1.0 - c_one - c_parents) * covariance + c_one * np.outer(path, path)
                      + c_parents * (best.T * weights) @ best)
        step *= float(np.exp((length / expected - 1.0) * c_step / damping))
        yield mean, points, values
        if step < _LEAST_STEP * start:
            return
