"""Value iteration with the span stopping rule and adaptive damping.

One operator serves all criteria. With discount ``b`` (1 for average reward), costs ``c`` (1 when
discounted) and a value function ``v``, a sweep computes the advantage

    B(s) = max_l (r + b P v - v)(s) / c

and steps ``v <- v + tau B`` with ``tau = (1 - damping) min c``. For unit costs and no damping
this is plain value iteration; with costs it is value iteration on Schweitzer's transformed
problem; with damping it is value iteration on the chain that stays put with that probability.
``B`` bounds the optimum whatever ``tau`` was used to arrive at ``v``:

- average reward: ``min B <= gain <= max B``. Stop when ``max B - min B <= tolerance``.
- discounted: ``min B <= (1 - b) (V* - v) <= max B`` (MacQueen, Porteus). Stop when
  ``(max B - min B) / (2 (1 - b)) <= tolerance`` and return ``v`` plus the middle of the bounds,
  so that the values themselves, not only the policy, are within ``tolerance``.

As the bounds see constants, ``v`` is kept at 0 in the first state, where rounding is least.

**Damping.** A nearly periodic chain mixes slowly undamped (its span hardly shrinks) and fast
damped; a fast-mixing one takes about twice the sweeps when damped. ``damping="adaptive"``
measures: sweeps run in blocks of five, the first undamped. After a block the factor by which
the span of ``B`` shrank is compared with the other level's last factor (before the first trial,
with one halving per sweep, about the best that damping can do) and the better level runs the
next block. So a fast-mixing chain is never damped, a slowly mixing one loses a few blocks, and a
periodic one wastes one block. The span never grows, whichever level is used.

**Slow progress.** Where the gain depends on the starting state, the bounds of average reward never
meet; on a long ring they take millions of sweeps. With adaptive damping, after 256, 512, … sweeps
the span is compared with that after half of them. If at this pace more than ten times as many
sweeps were still needed, policy iteration goes on from the greedy policy.

Sources: Puterman (1994), sections 6.6, 8.5 and 11.5; Schweitzer (1971); Porteus (1971).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.errors import InvalidValueError
from ramsis.mdp._kernels import advantage_sweep
from ramsis.mdp._policy_iteration import policy_iteration
from ramsis.mdp.certificates import average_solution, discounted_certificate, judged
from ramsis.mdp.evaluation import Evaluation
from ramsis.mdp.result import Solution, Status, check_discount, check_iterations, check_tolerance
from ramsis.mdp.semi_markov import eliminate_free_states
from ramsis.mdp.sparse import SparseMDP, kernel_arrays

_BLOCK = 5
_DAMPED = 0.5
_PATIENCE = 100  # sweeps without a smaller span, once it is within rounding of the values
_ROUNDING = 1e-10
_LOOK_AT = 128  # sweeps from which the pace is measured
_TOO_LONG = 10.0  # times as many sweeps again as were made


@dataclass
class AdaptiveDamping:
    """Damping of the next sweep, chosen by how fast the spans of the last sweeps shrank.

    Examples
    --------
    >>> damping = AdaptiveDamping()
    >>> for span in [1.0] * 6:  # a periodic chain: the span does not shrink
    ...     damping.observe(span)
    >>> damping.level
    0.5
    """

    level: float = 0.0
    _start: float | None = None
    _sweeps: int = 0
    _factors: dict[float, float] = field(default_factory=lambda: {_DAMPED: 0.5**_BLOCK})

    def observe(self, span: float) -> None:
        """Record the span of a sweep's advantage, and set the damping of the next step."""
        if self._start is None:
            self._start = span
            return
        self._sweeps += 1
        if self._sweeps < _BLOCK:
            return
        factor = span / self._start if self._start > 0.0 else 0.0
        self._factors[self.level] = factor
        other = _DAMPED - self.level
        if factor > self._factors.get(other, 0.0):
            self.level = other
        self._start, self._sweeps = span, 0


def value_iteration(
    mdp: SparseMDP,
    *,
    discount: float | None = None,
    tolerance: float = 1e-9,
    max_iterations: int = 100_000,
    damping: float | str = "adaptive",
) -> Solution:
    """Solve by successive approximation.

    Parameters
    ----------
    discount : float in [0, 1), optional
        Per decision; costs then play no part. ``None`` asks for average reward per unit of
        cost; states with a single action of cost 0 are eliminated first.
    tolerance : float > 0
        Discounted: largest error of the values. Average: largest distance of the bounds on
        the gain. Reward units.
    max_iterations : int
        Sweeps at most.
    damping : "adaptive" or float in [0, 1)

    Returns
    -------
    Solution
        Average reward: the gain is the middle of its bounds, ``value`` is 0 in state 0
        (in the first state that costs something).

    Raises
    ------
    InvalidValueError
        A setting out of range; a pair of cost 0 that cannot be eliminated.

    Notes
    -----
    Where bounds cannot meet in reasonable time, as where the optimal gain depends on the starting
    state, :func:`~ramsis.mdp.policy_iteration` goes on from the greedy policy with adaptive
    damping; a note says so.

    Examples
    --------
    >>> mdp = SparseMDP.from_pairs([(0, 0, {0: 0.5, 1: 0.5}, 1.0), (1, 0, {0: 1.0}, 4.0)])
    >>> round(value_iteration(mdp).gain, 6)
    2.0
    """
    discount = check_discount(discount)
    tolerance, max_iterations = check_tolerance(tolerance), check_iterations(max_iterations)
    fixed = None if damping == "adaptive" else damping
    if fixed is not None and (isinstance(fixed, str) or not 0.0 <= fixed < 1.0):
        raise InvalidValueError("damping is out of range", value=damping,
                                allowed="'adaptive' or a number with 0 <= damping < 1")
    settings = {"solver": "value-iteration", "discount": discount, "tolerance": tolerance,
                "max_iterations": max_iterations, "damping": damping}
    if discount is not None:
        target = 2.0 * (1.0 - discount) * tolerance
        iterated = _iterate(mdp, np.ones(mdp.n_pairs), discount, target, max_iterations, fixed)
        assert iterated.status is not None  # discounting bounds the sweeps
        middle = (iterated.lower + iterated.upper) / (2.0 * (1.0 - discount))
        certificate = discounted_certificate(
            mdp, iterated.value, discount, status=iterated.status, iterations=iterated.iterations,
            constant=middle,
        )
        certificate = judged(certificate, 2.0 * tolerance)
        return Solution(mdp.action[iterated.rows], iterated.value + middle, None, certificate,
                        settings)
    reduced = eliminate_free_states(mdp)
    iterated = _iterate(reduced.mdp, reduced.mdp.costs, 1.0, tolerance, max_iterations, fixed)
    rows, value = reduced.expand_pairs(iterated.rows, mdp), reduced.expand_value(iterated.value)
    if iterated.status is None:
        solution = policy_iteration(
            mdp, initial=mdp.action[rows], tolerance=tolerance, max_iterations=max_iterations)
        exact = solution.certificate
        return replace(solution, settings=settings, certificate=replace(
            exact, iterations=iterated.iterations + exact.iterations,
            notes=(*exact.notes, "sweeps made little progress: ended by policy iteration")))
    gain = 0.5 * (iterated.lower + iterated.upper)
    return average_solution(
        mdp, rows, Evaluation(value, gain, np.full(mdp.n_states, gain)),
        otherwise=(Status.PRECISION if iterated.status is Status.OPTIMAL else iterated.status),
        tolerance=2.0 * tolerance, iterations=iterated.iterations, settings=settings)


@dataclass(frozen=True, eq=False)
class _Found:
    """Last value function, its greedy policy, and bounds on the gain by its advantage."""

    value: FloatArray
    rows: IntArray
    lower: float
    upper: float
    status: Status | None
    iterations: int


def _iterate(
    mdp: SparseMDP,
    costs: FloatArray,
    factor: float,
    target: float,
    max_iterations: int,
    fixed: float | None,
) -> _Found:
    """Sweep until the span of the advantage is at most ``target``.

    The status is ``None`` where adaptive sweeps on average reward would take too long.
    """
    step = float(costs.min())
    first, transition = kernel_arrays(mdp)
    value, advantage = np.zeros(mdp.n_states), np.empty(mdp.n_states)
    rows = np.empty(mdp.n_states, dtype=np.uint64)
    adaptive = AdaptiveDamping()
    status: Status | None = Status.MAX_ITERATIONS
    smallest, smallest_at = np.inf, 0
    look_at, last = _LOOK_AT, np.inf
    for iteration in range(1, max_iterations + 1):
        advantage_sweep(first, transition, mdp.reward, costs, factor, value, advantage, rows)
        lower, upper = float(advantage.min()), float(advantage.max())
        span = upper - lower
        if span <= target:
            status = Status.OPTIMAL
            break
        # A span that no longer falls, and is of the size of rounding, cannot fall further.
        if span < smallest:
            smallest, smallest_at = span, iteration
        elif iteration - smallest_at >= _PATIENCE and span <= _ROUNDING * np.abs(value).max():
            status = Status.PRECISION
            break
        if iteration == max_iterations:
            break
        if factor == 1.0 and fixed is None and iteration == look_at:
            # Extrapolate the sweeps left from the geometric decrease of the last half of them.
            pace = np.log(last / span) / (0.5 * iteration)
            if np.log(span / target) > _TOO_LONG * iteration * pace:
                status = None
                break
            look_at, last = 2 * look_at, span
        adaptive.observe(span)
        value += (1.0 - (adaptive.level if fixed is None else fixed)) * step * advantage
        value -= value[0]
    return _Found(value, rows.astype(np.int64), lower, upper, status, iteration)
