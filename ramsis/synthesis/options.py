"""The options of policies: defaults by dispatch rule, and what does not go together.

The table of `docs/options.md` is this one. Everything that a model cannot do is a :class:`Limit`:
where some options have some values, another one is restricted, for a reason that lies in the
model. :func:`check_options` is the only place that refuses such settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from ramsis.checks import check_arguments
from ramsis.cluster.preference import PREFERENCES
from ramsis.cluster.service_times import FIXED
from ramsis.errors import (
    ABOVE_ZERO,
    BELOW_ONE,
    INNER,
    POSITIVE,
    InvalidValueError,
    Rule,
    whole,
)
from ramsis.policy import DISPATCHES, SERVICES
from ramsis.policy.records import MOST_BURST
from ramsis.profiles.values import DELAY_MS
from ramsis.worker.problem import MAX_QUEUE, Objective
from ramsis.worker.problem.actions import Batching, LateRule
from ramsis.worker.problem.grid import DEFAULT_GRID
from ramsis.worker.solve import SOLVERS

__all__ = ["BURST", "DEFAULTS", "DEFAULTS_PER_DECISION", "HIGHEST_PRICE", "LIMITS", "MOST_BURST",
           "PAPER", "VALUES", "Limit", "as_in_the_paper", "check_options", "defaults_of"]


class Limit(NamedTuple):
    """Constraint on one option, given the values of others."""

    given: Mapping[str, str]  # values of the other options, all of which must be met
    option: str  # the one that is restricted
    rule: Rule  # its values
    why: str  # the reason, in the model


def _words(*names: str, wrong: str = "not allowed") -> Rule:
    return Rule(", ".join(names), names.__contains__, wrong)


def _is_bins(text: Any) -> bool:
    """``model``, or ``fixed:D`` with D from 2 to 1000."""
    kind, _, count = str(text).partition(":")
    return kind == "fixed" and count.isdecimal() and 2 <= int(count) <= 1000


_PER_WORKER: Mapping[str, Any] = {
    "arrivals": "poisson",
    "service": None,
    "objective": Objective.PER_QUERY.value,
    "grid": DEFAULT_GRID,
    "max_queue": 32,
    "late": LateRule.DROP.value,
    "batching": Batching.MAXIMAL.value,
    "violation_price": 1.0,
    "max_violation": None,
    "solver": SOLVERS[0],
    "slo_classes": (),
    "overhead_ms": 0.0,
    "headroom": None,
    "prefer": "early",
}

_SERVED: Mapping[str, Any] = {"late": LateRule.SERVE.value, "violation_price": 0.0,
                              "headroom": 0.0, "prefer": None}

_OTHER_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "central-queue": {"grid": None, "batching": Batching.VARIABLE.value},
}

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    name: {**_PER_WORKER, **_OTHER_DEFAULTS.get(name, {})} for name in DISPATCHES
}
"""The value of each option that is not given, by dispatch rule; None where the profile decides."""

DEFAULTS_PER_DECISION: Mapping[str, Any] = _SERVED
"""Other defaults with the objective ``per-decision``, which are those of the paper."""

BURST = 1000
"""Requests of the burst that policies state their recovery from, unless told otherwise."""

HIGHEST_PRICE = 1e6
"""Largest violation price. The solvers' sums hold the price beside accuracies, and rounding takes
some thousand times 2e-16 of the price from these: at 1e8 the bounds on the gain stay 5e-5 apart
in double precision, and do not meet the solvers' rule; at 1e6 less than 1e-6 is lost."""

PAPER: Mapping[str, Any] = {
    "objective": Objective.PER_DECISION.value,
    **_SERVED,
    "grid": DEFAULT_GRID,
    "service": FIXED,
}
"""What the paper does: the meaning of ``--paper`` and of ``paper`` in a scheduler's settings."""

VALUES: Mapping[str, Rule] = {
    "dispatch": _words(*DISPATCHES, wrong="unknown dispatch"),
    "service": _words(*SERVICES, wrong="unknown service"),
    "objective": _words(*Objective, wrong="unknown objective"),
    "max_queue": whole(1, MAX_QUEUE)._replace(wrong="not a number in range"),
    "late": _words(*LateRule, wrong="unknown late"),
    "batching": _words(*Batching, wrong="unknown batching"),
    "violation_price": Rule(f"a number from 0 to {HIGHEST_PRICE:.0f}",
                            lambda price: 0 <= price <= HIGHEST_PRICE, "not a price"),
    "max_violation": ABOVE_ZERO._replace(wrong="not a violation rate"),
    "solver": _words(*SOLVERS, wrong="unknown solver"),
    "confidence": INNER._replace(wrong="not a confidence"),
    "overhead_ms": DELAY_MS._replace(wrong="not an overhead"),
    "slowness": POSITIVE._replace(wrong="not a slowness"),
    "headroom": BELOW_ONE._replace(wrong="not a share of the service time"),
    "prefer": _words(*PREFERENCES, wrong="unknown preference"),
}
"""What an option may be where nothing limits it; arrivals, grids and SLOs are parsed elsewhere."""

_only = partial(Rule, wrong="not allowed")
_ONE_SLO = _only("one SLO", lambda classes: not classes)
_ALL_BUT_VALUE_ITERATION = _only(
    ", ".join(name for name in SOLVERS if name != "value-iteration"),
    lambda name: name != "value-iteration")
_BINS = "fixed:D with D from 2 to 1000"


def _of(dispatch: str, *limits: tuple[str, Rule, str]) -> list[Limit]:
    return [Limit({"dispatch": dispatch}, *limit) for limit in limits]


LIMITS: tuple[Limit, ...] = (
    *(Limit({"dispatch": dispatch}, "slo_classes", _ONE_SLO,
            "a worker's table knows one deadline; give each class workers of its own")
      for dispatch, rule in DISPATCHES.items() if rule.own_queues),
    *_of(
        "central-queue",
        ("objective", _words("per-query"), "batches of many workers overlap, so the model counts "
                                           "queries"),
        ("grid", Rule(f"{_BINS}, or model",
                      lambda text: text is None or text == "model" or _is_bins(text),
                      "not a slack grid of a central queue"),
         "slack bins are kept for each number of idle workers and each queue"),
        ("late", _words("drop"), "a worker is not held by what cannot be in time"),
        ("batching", _words("variable"), "a batch is any part of the queue"),
        ("solver", _words(SOLVERS[0]), "its system of equations has a factorisation of its own"),
    ),
    Limit({"dispatch": "central-queue", "service": "distribution"}, "grid",
          Rule(_BINS, lambda text: text is None or _is_bins(text),
               "not a slack grid of a central queue"),
          "drawn times have no distinct latencies"),
    Limit({"batching": "variable"}, "solver", _ALL_BUT_VALUE_ITERATION,
          "sparse rows are solved by policy iteration"),
    Limit({"objective": "per-decision"}, "prefer", _only("none", lambda _: False),
          "a preference is a cost of each request"),
)


def defaults_of(dispatch: str, objective: str | None) -> Mapping[str, Any]:
    """The values of options that are not given, with a dispatch rule and an objective."""
    found = DEFAULTS.get(dispatch, {})
    per_decision = objective == Objective.PER_DECISION.value
    return {**found, **DEFAULTS_PER_DECISION} if per_decision else found


def as_in_the_paper(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings completed with those of the paper; None stands for an unset one.

    The grid may be any: the paper has several.
    """
    grid = given.get("grid")
    paper = PAPER if grid is None else {**PAPER, "grid": grid}
    for name, value in paper.items():
        if given.get(name) not in (None, value):
            raise InvalidValueError("not what the paper does", where=name, value=given[name],
                                    allowed=f"{value}")
    return {**given, **paper}


def check_options(given: Mapping[str, Any]) -> None:
    """Refuse a value that an option does not have, or not together with the others.

    Parameters
    ----------
    given : mapping
        Value of each option; None where the profile decides.

    Raises
    ------
    InvalidValueError
    """
    for name, rule in VALUES.items():
        value = given.get(name)
        if value is not None and not rule.holds(value):
            raise InvalidValueError(rule.wrong, where=name, value=value, allowed=rule.allowed)
    for limit in LIMITS:
        value, rule = given.get(limit.option), limit.rule
        met = all(_word(given.get(name)) == word for name, word in limit.given.items())
        if met and value is not None and not rule.holds(value):
            words = " and ".join(f"{name} {word}" for name, word in limit.given.items())
            raise InvalidValueError(f"{rule.wrong} with {words} ({limit.why})",
                                    where=limit.option, value=value, allowed=rule.allowed)


def _word(value: object) -> str:
    """A value without its parameters."""
    return str(value).partition(":")[0]

check_arguments(globals(), __all__)
