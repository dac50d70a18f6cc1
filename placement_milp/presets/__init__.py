"""Placement presets: published placement schemes for the same problems, for comparison.

Each is a function of a problem and limits that returns a checked placement; :data:`PRESETS` maps
names to them. Other packages register presets by entry points of the group :data:`GROUP`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib.metadata import EntryPoint, entry_points

from placement_milp.backend import Limits
from placement_milp.presets.greedy import infaas, nexus
from placement_milp.presets.programs import alpaserve, infadapter, jellyfish, proteus
from placement_milp.problem import Problem
from placement_milp.result import Placement
from ramsis.errors import InvalidValueError

__all__ = ["GROUP", "PRESETS", "alpaserve", "infaas", "infadapter", "jellyfish", "nexus",
           "proteus"]

_Preset = Callable[[Problem, Limits], Placement]


def _refusing(name: str, preset: _Preset, *unkept: str, whole: bool = True) -> _Preset:
    """Return a preset that refuses problems with a rule that it ignores, named in ``unkept``.

    If ``whole``, it also refuses partitioned GPUs and several processes on a worker.
    """

    def refusal(what: str, where: str, value: object, allowed: str) -> InvalidValueError:
        return InvalidValueError(f"preset {name} does not know {what}", where=where, value=value,
                                 allowed=f"{allowed}, or another preset: " + ", ".join(_PROGRAMS))

    @wraps(preset)
    def run(problem: Problem, limits: Limits | None = None) -> Placement:
        cut = [item.name for item in problem.worker_types if item.partitions is not None]
        several = [variant.name for variant in problem.variants
                   if any(entry.processes > 1 for entry in variant.latency)]
        if whole and (cut or several):
            raise refusal("partitions and processes side by side", problem.name,
                          ", ".join((cut or several)[:4]), "whole workers with one process each")
        for rule in unkept:
            if (value := getattr(problem.rules, rule)) is not None:
                raise refusal("this rule", f"{problem.name}: rules.{rule}", value, "no such rule")
        return preset(problem, limits or Limits())

    return run


# Names of the rules that several presets ignore.
_QUEUEING, _SIZE = "in_time_quantile", ("max_workers", "max_cost_per_hour")
# Presets that only change the objective or rules of the program.
_PROGRAMS: dict[str, _Preset] = {
    "proteus": _refusing("proteus", proteus, _QUEUEING, whole=False),
    "infadapter": infadapter, "jellyfish": jellyfish,
}

GROUP = "placement_milp.presets"


def _offered(entry: EntryPoint) -> _Preset:
    """Return the preset of an entry point, which is imported only when it runs."""

    def preset(problem: Problem, limits: Limits) -> Placement:
        placed: Placement = entry.load()(problem, limits)
        return placed

    return _refusing(entry.name, preset)


# Presets by the names of the command line.
PRESETS: dict[str, _Preset] = _PROGRAMS | {
    name: _refusing(name, preset, *unkept) for name, preset, unkept in (
        ("nexus", nexus, (*_SIZE, _QUEUEING)), ("infaas", infaas, (*_SIZE, _QUEUEING)),
        ("alpaserve", alpaserve, ()))
} | {entry.name: _offered(entry) for entry in entry_points(group=GROUP)}
