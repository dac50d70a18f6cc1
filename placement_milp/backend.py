"""Interface to the solvers HiGHS and CBC through PuLP, with status and dual bound.

**Stopping rule.** A search stops at the relative gap |dual bound - objective| / |objective| of
:class:`Limits`, at its time limit, or at Ctrl-C.

**Scale.** The objective is scaled to about 1000, since CBC's absolute tolerances would end a
search early otherwise. Its constant is the coefficient of a variable fixed at 1, so that the
relative gap includes it. It is always minimised.

**Status and bound.** PuLP's ``LpStatus`` is "Optimal" at a time limit, too; ``sol_status`` and
HiGHS's status distinguish the two. PuLP does not return the dual bound: it is read from HiGHS, or
from CBC's log. HiGHS can report optimality although its bound leaves a gap: with an integral
objective it prunes solutions that do not improve by a whole step, and by a rounding error of the
bound prunes the optimum, too. Such a search is repeated with another tolerance; if the gap
remains, the solution is not reported as optimal.

Source: PuLP 3.3; HiGHS (https://highs.dev), CBC (https://github.com/coin-or/Cbc).
"""

from __future__ import annotations

import math
import re
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import highspy
import pulp

from ramsis.errors import InvalidValueError, NotConvergedError

SOLVERS = ("highs", "cbc")  # the first is the default
_SIZE = 1000.0  # magnitude to which objectives are scaled; see the module
_ABSOLUTE = 1e-5  # tolerance of differences of a scaled objective
_FEASIBILITY = (1e-9, 1e-6, 1e-7)  # tolerances of HiGHS, tried in turn while the gap is too wide


class SearchStatus(StrEnum):
    """How a solver's search ended: optimal, stopped by a limit, or infeasible."""

    OPTIMAL = "optimal"
    TIME_LIMIT = "time-limit"
    INTERRUPTED = "interrupted"
    INFEASIBLE = "infeasible"


@dataclass(frozen=True, slots=True)
class Limits:
    """Relative gap and time limit of a search, and its solver."""

    # relative gap, as a fraction of the objective, at which a solution counts as optimal
    gap: float = 1e-6
    seconds: float | None = None  # wall-clock time for all searches together
    solver: str = SOLVERS[0]  # one of :data:`SOLVERS`

    def __post_init__(self) -> None:
        if not 0.0 <= self.gap < 1.0:
            raise InvalidValueError("gap is out of range", value=self.gap,
                                    allowed="a fraction, 0 <= gap < 1")
        if self.seconds is not None and not (0.0 < self.seconds < math.inf):
            raise InvalidValueError("time limit is out of range", value=self.seconds,
                                    allowed="a finite number of seconds > 0")
        if self.solver not in SOLVERS:
            raise InvalidValueError("unknown solver", value=self.solver,
                                    allowed=", ".join(SOLVERS))

    def left(self, start: float) -> float | None:
        """Return the seconds left of a search that began at ``start`` by ``perf_counter``."""
        return None if self.seconds is None else self.seconds - time.perf_counter() + start

    def remaining(self, start: float) -> Limits:
        """Return the limits with the remaining time, which stays positive."""
        seconds = self.left(start)
        return self if seconds is None else replace(self, seconds=max(seconds, 0.001))


@dataclass(frozen=True, slots=True)
class Solved:
    """Result of a search; the solution is in the variables of the program."""

    status: SearchStatus
    dual_bound: float  # bound on the objective of all solutions; ``nan`` without a solution
    seconds: float  # wall-clock time


def relative_gap(objective: float, dual_bound: float) -> float:
    """Return |dual bound - objective| / |objective|."""
    difference = abs(dual_bound - objective)
    return 0.0 if difference == 0 else difference / max(abs(objective), 1e-12)


def solve(
    lp: Any, objective: Any, *, maximise: bool, size: float, limits: Limits | None = None
) -> Solved:
    """Solve a program for an objective of about the magnitude ``size``."""
    limits = limits or Limits()
    scale = _set_objective(lp, objective, maximise, size)
    start = time.perf_counter()
    run = _with_highs if limits.solver == "highs" else _with_cbc
    status, bound = run(lp, limits)
    if status is SearchStatus.INFEASIBLE:
        return Solved(status, math.nan, time.perf_counter() - start)
    if not math.isfinite(bound):  # stopped before there was one
        bound = _relaxed_bound(lp)
    return Solved(status, bound / scale, time.perf_counter() - start)


def solve_later(search: Callable[..., Solved], limits: Limits, start: float) -> Solved:
    """Search in the remaining time; the dual bound is ``nan`` if no solution is found."""
    seconds = limits.left(start)
    status = SearchStatus.TIME_LIMIT
    if seconds is None or seconds > 0:
        try:
            return search(limits=replace(limits, seconds=seconds))
        except NotConvergedError:
            pass
        except KeyboardInterrupt:
            status = SearchStatus.INTERRUPTED
    return Solved(status, math.nan, 0.0)


def _relaxed_bound(lp: Any) -> float:
    """Return the optimum of the linear relaxation; the variables keep their values."""
    values = {variable: variable.varValue for variable in lp.variables()}
    lp.solve(_Highs(mip=False))
    bound = float(pulp.value(lp.objective))
    for variable, value in values.items():
        variable.varValue = value
    return bound


def _set_objective(lp: Any, objective: Any, maximise: bool, size: float) -> float:
    """Set the objective of a minimisation; return its factor, < 0 for a maximum."""
    scale = (-1.0 if maximise else 1.0) * _SIZE / (size if size > 0 else 1.0)
    constant = getattr(lp, "_one", None)
    if constant is None:
        constant = lp.add_variable("one", 1, 1)
        lp._one = constant
    terms = [(variable, scale * factor) for variable, factor in objective.items()]
    lp.setObjective(pulp.LpAffineExpression([*terms, (constant, scale * objective.constant)]))
    return scale


class _Silent(highspy.Highs):  # type: ignore[misc]
    """HiGHS without its banner.

    HiGHS 1.16 prints the banner when its constructor sets callbacks, before options can be set.
    """

    def enableCallbacks(self) -> None:  # noqa: N802 - highspy's name
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()


class _Highs(pulp.HiGHS):  # type: ignore[misc]
    """PuLP's HiGHS solver with native option names, no output, and user interrupts."""

    def createAndConfigureSolver(self, lp: Any) -> None:  # noqa: N802 - PuLP's name
        lp.solverModel = _Silent()
        lp.solverModel.HandleUserInterrupt = True
        for name, value in self.optionsDict.items():
            lp.solverModel.setOptionValue(name, value)


def _with_highs(lp: Any, limits: Limits) -> tuple[SearchStatus, float]:
    """Solve with HiGHS, at several tolerances if need be; return status and dual bound."""
    start = time.perf_counter()
    for tolerance in _FEASIBILITY:
        status, bound, gap = _once_with_highs(lp, limits.remaining(start), tolerance)
        if status is not SearchStatus.OPTIMAL or gap <= 2.0 * max(limits.gap, 1e-6):
            return status, bound
    # The gap is still too wide to call the solution optimal.
    return SearchStatus.TIME_LIMIT, bound


def _once_with_highs(
    lp: Any, limits: Limits, tolerance: float
) -> tuple[SearchStatus, float, float]:
    """Solve once; return status, dual bound, and HiGHS's own gap, 0 for a linear program."""
    seconds = math.inf if limits.seconds is None else float(limits.seconds)
    solver = _Highs(mip_rel_gap=limits.gap, time_limit=seconds,
                    mip_feasibility_tolerance=tolerance,
                    primal_feasibility_tolerance=tolerance, mip_allow_restart=False)
    # Ctrl-C before there is a new model must not cancel the model of the last search.
    lp.solverModel = None
    interrupted = _interruptible(lambda: lp.solve(solver),
                                 lambda: lp.solverModel and lp.solverModel.cancelSolve())
    model = lp.solverModel
    ended = model.getModelStatus().name
    info = model.getInfo()
    if ended in ("kInfeasible", "kUnboundedOrInfeasible"):
        return SearchStatus.INFEASIBLE, math.nan, 0.0
    if info.primal_solution_status != 2:  # kSolutionStatusFeasible
        if interrupted:
            raise KeyboardInterrupt
        raise _nothing_found(f"HiGHS: {ended}")
    integer = any(variable.cat == pulp.LpInteger for variable in lp.variables())
    bound = info.mip_dual_bound if integer else info.objective_function_value
    status = {"kOptimal": SearchStatus.OPTIMAL, "kInterrupt": SearchStatus.INTERRUPTED}
    gap = relative_gap(info.objective_function_value, bound) if abs(
        info.objective_function_value - bound) > _ABSOLUTE else 0.0
    return status.get(ended, SearchStatus.TIME_LIMIT), float(bound), gap


def _with_cbc(lp: Any, limits: Limits) -> tuple[SearchStatus, float]:
    """Solve with CBC; return status and dual bound, which is read from its log."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "cbc.log"
        bundled = pulp.PULP_CBC_CMD.pulp_cbc_path
        solver = pulp.COIN_CMD(path=bundled, msg=False, gapRel=limits.gap, logPath=str(log),
                               timeLimit=limits.seconds, timeMode="elapsed")
        interrupted = _interruptible(lambda: lp.solve(solver), lambda: None)
        text = log.read_text(encoding="utf-8", errors="replace")
    if lp.status == pulp.LpStatusInfeasible:
        return SearchStatus.INFEASIBLE, math.nan
    if lp.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        if interrupted:
            raise KeyboardInterrupt
        raise _nothing_found("CBC: " + pulp.LpSolution[lp.sol_status])
    stated = re.findall(r"^Lower bound:\s+(\S+)", text, re.M)
    bound = float(stated[-1]) if stated else math.nan
    if lp.sol_status == pulp.LpSolutionOptimal:
        return SearchStatus.OPTIMAL, bound if stated else float(pulp.value(lp.objective))
    return (SearchStatus.INTERRUPTED if interrupted else SearchStatus.TIME_LIMIT), bound


def _nothing_found(ended: str) -> NotConvergedError:
    return NotConvergedError("no solution was found", value=ended,
                             allowed="more time, or a wider gap")


def _interruptible(work: Callable[[], object], cancel: Callable[[], object]) -> bool:
    """Run ``work`` in a thread; the first Ctrl-C cancels it. Return whether it was interrupted."""
    failure: list[BaseException] = []
    done = threading.Event()  # as Thread.join may mistake an interrupted wait for its end

    def run() -> None:
        try:
            work()
        except BaseException as error:  # raised again in the caller's thread
            failure.append(error)
        finally:
            done.set()

    threading.Thread(target=run, daemon=True).start()
    interrupted = False
    while not done.is_set():
        try:
            done.wait(0.1)
        except KeyboardInterrupt:
            interrupted = True
            cancel()
    if failure:
        raise failure[0]
    return interrupted


def relaxed_prices(
    lp: Any, objective: Any, rows: Mapping[str, int], *, maximise: bool, size: float
) -> dict[str, float]:
    """Return the shadow prices of constraints in the relaxation, per unit of right-hand side.

    ``rows`` maps keys of the result to positions of ``<=`` constraints in the program.
    """
    scale = _set_objective(lp, objective, maximise, size)
    lp.solve(_Highs(mip=False))
    dual = lp.solverModel.getSolution().row_dual
    return {name: max(0.0, -float(dual[i]) / abs(scale)) + 0.0 for name, i in rows.items()}
