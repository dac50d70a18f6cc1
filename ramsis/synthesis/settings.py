"""Settings of the synthesis of policies, besides the profile and the load.

A :class:`Limit` states what a model cannot do: if some settings have given values, another setting
is restricted, for a stated reason. :func:`check_limits` is the only place that refuses such
combinations. The settings themselves are declared in
:class:`ramsis.synthesis.SynthesisSettings`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ramsis.analysis.sampled import CONFIDENCE
from ramsis.arrivals import Arrivals, Sampler, patterns
from ramsis.arrivals.registry import OWN
from ramsis.cluster.cluster import SloClass, merged_classes
from ramsis.cluster.service_times import (
    DEFAULT_SERVICE,
    FIXED,
    ServiceTimes,
    default_service,
)
from ramsis.errors import ABOVE_ZERO, BELOW_ONE, INNER, POSITIVE, InvalidValueError, Rule, whole
from ramsis.files import fingerprint
from ramsis.policy import DISPATCHES, SERVICES, Inputs
from ramsis.profiles import ProfileSet
from ramsis.profiles.values import DELAY_MS
from ramsis.reprs import dataclass
from ramsis.runtime.routing import DISPATCH_NAMES, DispatchRule
from ramsis.settings import documented, setting, settings_of
from ramsis.worker.problem import MAX_QUEUE, Objective
from ramsis.worker.problem.actions import Batching, LateRule
from ramsis.worker.problem.queue import DEFAULT_GRID
from ramsis.worker.solve import SOLVERS, SolverName

_HIGHEST_PRICE = 1e6
"""Largest violation price. Solvers add multiples of the price to accuracies, with rounding errors
of some thousand times 2e-16 of the price. At 1e8 the bounds on the gain therefore stay 5e-5 apart,
which the stopping rule of the solvers does not accept; at 1e6 the error is below 1e-6."""
_SHORT = 12
"""Longest batch up to which parts of queues are considered by default.

For a single model whose batches save 35 % of the time, a policy for 85 % of the capacity then
earns 0.007 more, and its synthesis takes 1.2 s instead of 0.3 s. For 26 models with drawn times it
takes 7 s instead of 0.6 s; with longer batches it would take much longer."""
_PAPER = "paper"
_PER_DECISION = Objective.PER_DECISION.value


@documented
@dataclass(frozen=True)
class SynthesisSettings:
    """Settings shared by all load levels of a policy set.

    Each is declared here; the options of the command line, the texts of schedulers and the tables
    of `docs/options.md` are derived from these declarations. None stands for the default of
    the dispatch rule and the objective. Values that no model can combine are refused; see
    :data:`ramsis.synthesis.settings.LIMITS`.

    Raises
    ------
    InvalidValueError
        An unknown word, values that do not go together, or classes that do not fit. Other numbers
        are checked where they are used.
    """

    slo_ms: float = setting(
        help="Deadline of a request after its arrival; of several, the longest.")
    workers: int = setting(help="Workers that share the load.")
    arrivals: str = setting(
        "poisson", "Arrival process of the promises: `ramsis help processes`.\n"
        f"{', '.join(patterns())}, or {OWN}.", metavar="PROCESS")
    service: str | None = setting(
        None, "Service times: a latency statistic, or drawn from the distribution.",
        choices=SERVICES, defaults={_PAPER: FIXED}, default_text=DEFAULT_SERVICE)
    dispatch: str = setting(
        "round-robin", f"How requests reach workers: {DISPATCH_NAMES}.\nThat is in turn, in turn "
        "without workers that have many more than another one, or by one queue for all workers.",
        choices=[*DISPATCHES], metavar="NAME")
    objective: str = setting(
        Objective.PER_QUERY.value, "Accuracy averaged over requests, or over decisions as in the "
        "paper.", choices=[*Objective], defaults={_PAPER: _PER_DECISION})
    grid: str | None = setting(
        DEFAULT_GRID, "Slack grid: D equal steps, or the profiled latencies.",
        defaults={"central-queue": None, _PAPER: DEFAULT_GRID}, metavar="fixed:D|model",
        default_text=f"{DEFAULT_GRID}; for a central queue the latencies, or fixed:60 where times "
        "are drawn")
    max_queue: int = setting(
        32, "Longest queue that a worker's table distinguishes; a central queue's largest batch.",
        rule=whole(1, MAX_QUEUE)._replace(wrong="not a number in range"))
    late: str = setting(
        LateRule.DROP.value, "Requests that no model can answer in time: the fastest model "
        "serves the whole queue, or they are dropped.",
        choices=[*LateRule], defaults={_PER_DECISION: LateRule.SERVE.value})
    batching: str = setting(
        Batching.MAXIMAL.value, "Batches of a worker: its whole queue, or any part of it.",
        choices=[*Batching], defaults={"central-queue": Batching.VARIABLE.value})
    violation_price: float = setting(
        1.0, "Price of a late or dropped request, in units of accuracy; at 0 only effective "
        "accuracy counts.", defaults={_PER_DECISION: 0.0},
        rule=Rule(f"a number from 0 to {_HIGHEST_PRICE:.0f}",
                  lambda price: 0 <= price <= _HIGHEST_PRICE, "not a price"))
    solver: SolverName = setting(
        SOLVERS[0], "Solver of a worker's decision problem; all but policy iteration are slow, "
        "for comparisons.", choices=SOLVERS)
    max_violation: float | None = setting(
        None, "Largest share of violations of a policy, such as 0.001.\nThe most accurate policy "
        "keeps this budget in simulation, at the price of violations that this requires; takes "
        "about ten seconds a load.",
        rule=ABOVE_ZERO._replace(wrong="not a violation rate"), metavar="X")
    slo_classes: tuple[SloClass, ...] = setting(
        (), "SLO classes of requests: two or more by increasing SLO, up to slo_ms, with shares "
        "that sum to 1.", default_text="one SLO")
    overhead_ms: float = setting(
        0.0, "Overhead of every batch besides the model, such as dispatch; added to all service "
        "times.", rule=DELAY_MS._replace(wrong="not an overhead"), metavar="MS")
    headroom: float | None = setting(
        None, "Plan for service times longer by this share.\n0: as profiled.",
        defaults={_PER_DECISION: 0.0},
        default_text="0.1, 0.05 or 0, the largest within the capacity that costs up to 0.003 of "
        "effective accuracy; 0 per decision",
        rule=BELOW_ONE._replace(wrong="not a share of the service time"), metavar="X")
    confidence: float = setting(
        CONFIDENCE, "Confidence of the intervals for finite samples; a budget of violations is "
        "met at their upper end.",
        rule=INNER._replace(wrong="not a confidence"), metavar="X")
    cascades: bool = setting(
        False, "Ask a second model where the first is unsure, if it pays.\nThe profile needs "
        "confidences.")
    slowness: float = setting(
        1.0, "Service time as a multiple of the profiled one.",
        rule=POSITIVE._replace(wrong="not a slowness"))

    def __post_init__(self) -> None:
        for name in ("workers", "max_queue"):  # NumPy's whole numbers are as good
            if isinstance(getattr(self, name), np.integer):
                object.__setattr__(self, name, int(getattr(self, name)))
        declared = settings_of(SynthesisSettings)
        for name, value in defaults_of(self.dispatch, self.objective).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
            if getattr(self, name) is not None:
                declared[name].check(getattr(self, name))
        check_limits({name: getattr(self, name) for name in declared})
        object.__setattr__(self, "slowness", float(self.slowness))
        classes = self.slo_classes
        if classes and (len(classes) < 2 or classes[-1].slo_ms != self.slo_ms
                        or merged_classes(classes) != classes):
            raise InvalidValueError("not two or more rising SLOs up to slo_ms",
                                    where="slo_classes", value=classes)

    def when_slow(self, *slowness: float) -> tuple[SynthesisSettings, ...]:
        """Return these settings for each slowness.

        They have no headroom, as there are separate policies for longer service times.

        Raises
        ------
        InvalidValueError
            A slowness is not a finite number above 0.
        """
        return tuple(replace(self, slowness=factor, headroom=0.0) for factor in slowness)

    @property
    def rule(self) -> DispatchRule:
        """Dispatch rule: how requests reach the workers."""
        return DISPATCHES[self.dispatch]

    @property
    def largest_batch(self) -> int:
        """Largest batch that a policy may run."""
        return self.max_queue + 1 if self.rule.own_queues else self.max_queue

    def with_one_queue(self) -> SynthesisSettings:
        """Return these settings; replace a single worker's own queue by a central queue.

        The two are the same queue, but with a central queue, tables may choose batches of any size
        and may wait, and they distinguish more slacks. Settings stay as they are if the objective,
        grid, late rule, batching or solver is not the default of the dispatch rule, or if arrivals
        cannot be drawn.
        """
        if self.workers > 1 or not self._is_usual("grid"):
            return self
        return replace(self, dispatch="central-queue", grid=None,
                       batching=Batching.VARIABLE.value)

    def with_short_batches(self, profile: ProfileSet) -> SynthesisSettings:
        """Return these settings; if no long batch is in time, with parts of queues as batches.

        A worker that has to take its whole queue loses the first requests of a queue longer than
        every batch in time. If the longest batch in time has at most :data:`_SHORT` requests,
        batches may therefore be any part of the queue, and the table distinguishes queues up to
        that length, which keeps its synthesis short. Settings stay as they are if the objective,
        late rule, batching, solver or longest queue is not the default of the dispatch rule, or if
        arrivals cannot be drawn. The slowness is ignored, so that the tables for several values of
        it are of one kind.
        """
        if not self._is_usual("max_queue"):
            return self
        times = ServiceTimes.of(replace(self, slowness=1.0).profile_for(profile),
                                self.chosen_service(profile), self.max_queue)
        longest = times.without_late(self.slo_ms).max_batch
        if longest > _SHORT:
            return self
        return replace(self, batching=Batching.VARIABLE.value, max_queue=longest)

    def _is_usual(self, *names: str) -> bool:
        """Return whether each worker has its own queue, and settings have their defaults.

        These are the settings in ``names``, the objective, late rule, batching and solver. Returns
        False, too, if arrivals cannot be drawn.
        """
        usual = {**defaults_of(self.dispatch, None), "objective": Objective.PER_QUERY.value}
        return (self.rule.own_queues
                and isinstance(Arrivals.parse(self.arrivals)(1.0), Sampler)
                and all(getattr(self, name) == usual[name]
                        for name in (*names, "objective", "late", "batching", "solver")))

    def profile_for(self, profile: ProfileSet) -> ProfileSet:
        """Return a profile with slowness and overhead in its times."""
        return profile.slower(self.slowness).with_overhead(self.overhead_ms)

    def chosen_service(self, *profiles: ProfileSet) -> str:
        """Return the kind of service times: as set, else the default of the workers' profiles."""
        return default_service(*profiles) if self.service is None else self.service

    def as_dict(self) -> Mapping[str, Any]:
        """Return the settings that all policies of a set share, as plain JSON values.

        Whole numbers and equal floats, such as 100 and 100.0 ms, give equal values. The arrivals
        are left out, since a set may have policies for several processes.
        """
        shared = asdict(self)
        del shared["arrivals"]
        for name in ("max_violation", "slo_classes", "cascades"):
            if not shared[name]:
                del shared[name]
        for name, usual in (("confidence", CONFIDENCE), ("slowness", 1.0)):
            if shared[name] == usual:
                del shared[name]
        return {
            **shared,
            "slo_ms": float(self.slo_ms),
            "workers": int(self.workers),
            "max_queue": int(self.max_queue),
            "violation_price": float(self.violation_price),
            "overhead_ms": float(self.overhead_ms),
            "headroom": None if self.headroom is None else float(self.headroom),
        }


def defaults_of(dispatch: str, objective: str | None) -> Mapping[str, Any]:
    """Return the defaults of all settings with a dispatch rule and an objective.

    None stands where the profile decides.
    """
    words = (dispatch,) if objective is None else (objective, dispatch)
    return {name: declared.default_with(*words)
            for name, declared in settings_of(SynthesisSettings).items()}


PAPER: Mapping[str, Any] = {
    name: declared.default_with(_PAPER, _PER_DECISION)
    for name, declared in settings_of(SynthesisSettings).items()
    if {_PAPER, _PER_DECISION} & set(declared.defaults)
}
"""Settings of the paper: the meaning of ``--paper``, and of ``paper`` in a scheduler's text."""


def as_in_the_paper(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings completed by those of the paper; None is an unset value.

    Any grid is allowed, as the paper has several; other settings that differ are refused.
    """
    grid = given.get("grid")
    paper = PAPER if grid is None else {**PAPER, "grid": grid}
    for name, value in paper.items():
        if given.get(name) not in (None, value):
            raise InvalidValueError("not what the paper does", where=name, value=given[name],
                                    allowed=f"{value}")
    return {**given, **paper}


def inputs_of(profile: ProfileSet, settings: SynthesisSettings) -> Inputs:
    """Return the fingerprints of a profile and settings, as a policy file records them."""
    digest = profile.fingerprint_with_confidences if settings.cascades else profile.fingerprint
    return with_settings(Inputs(digest, profile.name, ""), settings)


def with_settings(inputs: Inputs, settings: SynthesisSettings) -> Inputs:
    """Return the fingerprints of the same profile with other settings."""
    options = json.loads(json.dumps(settings.as_dict()))  # plain values, as files have them
    return Inputs(inputs.profile, inputs.profile_name, fingerprint(options), options)


class Limit(NamedTuple):
    """Constraint on one setting, given the values of others."""

    given: Mapping[str, str]  # values of other settings; the limit applies if they have all these
    option: str  # the setting that is restricted
    rule: Rule  # values that it may have then
    why: str  # the reason, in the model


def _words(*names: str, wrong: str = "not allowed") -> Rule:
    return Rule(", ".join(names), names.__contains__, wrong)


def _is_bins(text: Any) -> bool:
    """Return whether a slack grid is ``fixed:D`` with D from 2 to 1000."""
    kind, _, count = str(text).partition(":")
    return kind == "fixed" and count.isdecimal() and 2 <= int(count) <= 1000


_only = partial(Rule, wrong="not allowed")
_ONE_SLO = _only("one SLO", lambda classes: not classes)
_BINS = "fixed:D with D from 2 to 1000"


def _of(dispatch: str, *limits: tuple[str, Rule, str]) -> list[Limit]:
    return [Limit({"dispatch": dispatch}, *limit) for limit in limits]


_NO = _only("false", lambda cascades: not cascades)


LIMITS: tuple[Limit, ...] = (
    *(Limit({"dispatch": dispatch}, "cascades", _NO,
            "the arrivals at a worker then depend on the queues of all others")
      for dispatch, rule in DISPATCHES.items() if not rule.in_turn),
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
)


def check_limits(given: Mapping[str, Any]) -> None:
    """Refuse a setting whose value is not allowed together with the others.

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
