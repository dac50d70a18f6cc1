"""Settings of policies that do not go together, and why.

Everything that a model cannot do is a :class:`Limit`: where some settings have some values,
another one is restricted, for a reason that lies in the model. :func:`check_limits` is the only
place that refuses such settings. The settings themselves are declared in
:class:`ramsis.synthesis.SynthesisSettings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from ramsis.errors import InvalidValueError, Rule
from ramsis.policy import DISPATCHES
from ramsis.worker.solve import SOLVERS

__all__ = ["LIMITS", "Limit", "check_limits"]


class Limit(NamedTuple):
    """Constraint on one setting, given the values of others."""

    given: Mapping[str, str]  # values of the other settings, all of which must be met
    option: str  # the one that is restricted
    rule: Rule  # its values
    why: str  # the reason, in the model


def _words(*names: str, wrong: str = "not allowed") -> Rule:
    return Rule(", ".join(names), names.__contains__, wrong)


def _is_bins(text: Any) -> bool:
    """Return whether a slack grid is ``fixed:D`` with D from 2 to 1000."""
    kind, _, count = str(text).partition(":")
    return kind == "fixed" and count.isdecimal() and 2 <= int(count) <= 1000


_only = partial(Rule, wrong="not allowed")
_ONE_SLO = _only("one SLO", lambda classes: not classes)
_ALL_BUT_VALUE_ITERATION = _only(
    ", ".join(name for name in SOLVERS if name != "value-iteration"),
    lambda name: name != "value-iteration")
_BINS = "fixed:D with D from 2 to 1000"


def _of(dispatch: str, *limits: tuple[str, Rule, str]) -> list[Limit]:
    return [Limit({"dispatch": dispatch}, *limit) for limit in limits]


_NO = _only("false", lambda cascades: not cascades)


LIMITS: tuple[Limit, ...] = (
    *(Limit({"dispatch": dispatch}, "cascades", _NO,
            "second opinions wait in a queue that all workers share")
      for dispatch, rule in DISPATCHES.items() if rule.own_queues),
    Limit({"cascades": "True"}, "slo_classes", _ONE_SLO, "the rule knows one deadline"),
    *(Limit({"dispatch": dispatch}, "slo_classes", _ONE_SLO,
            "a worker's table knows one deadline; give each class workers of its own")
      for dispatch, rule in DISPATCHES.items() if rule.own_queues),
    *_of(
        "central-queue",
        ("objective", _words("per-query"), "batches of many workers overlap, so the model counts "
                                           "requests"),
        ("grid", Rule(f"{_BINS}, or model",
                      lambda text: text is None or text == "model" or _is_bins(text),
                      "not a slack grid of a central queue"),
         "slack bins are kept for each number of idle workers and each queue"),
        ("late", _words("drop"), "a worker does not serve requests that cannot be in time"),
        ("batching", _words("variable"), "a batch may be any part of the queue"),
        ("solver", _words(SOLVERS[0]), "its system of equations has a factorisation of its own"),
    ),
    Limit({"dispatch": "central-queue", "service": "distribution"}, "grid",
          Rule(_BINS, lambda text: text is None or _is_bins(text),
               "not a slack grid of a central queue"),
          "drawn times have no distinct latencies"),
    Limit({"batching": "variable"}, "solver", _ALL_BUT_VALUE_ITERATION,
          "sparse rows are solved by policy iteration"),
)


def check_limits(given: Mapping[str, Any]) -> None:
    """Refuse a value that a setting does not have together with the others.

    Parameters
    ----------
    given : mapping
        Value of each setting; None where the profile decides.

    Raises
    ------
    InvalidValueError
    """
    for limit in LIMITS:
        value, rule = given.get(limit.option), limit.rule
        met = all(_word(given.get(name)) == word for name, word in limit.given.items())
        if met and value is not None and not rule.holds(value):
            words = " and ".join(f"{name} {word}" for name, word in limit.given.items())
            raise InvalidValueError(f"{rule.wrong} with {words} ({limit.why})",
                                    where=limit.option, value=value, allowed=rule.allowed)


def _word(value: object) -> str:
    """Return the text of a value without its parameters."""
    return str(value).partition(":")[0]
