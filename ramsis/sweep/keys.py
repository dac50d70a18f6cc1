"""The keys of a sweep's specification, with checks of their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ramsis.arrivals import Arrivals
from ramsis.arrivals.loads import parse_loads
from ramsis.cluster import SloClass, merged_classes
from ramsis.cluster.parsing import ByType, read_profiles, read_slos, read_workers
from ramsis.errors import NON_NEGATIVE, POSITIVE, InputFileError, InvalidValueError, Rule, whole
from ramsis.policy import SERVICES
from ramsis.settings import Setting, settings_of
from ramsis.sim import SimulationSettings
from ramsis.synthesis import SynthesisSettings
from ramsis.synthesis.schedulers import fleet_scheduler

MODEL_SETS = ("all", "pareto", "interpolate:STEP")  # values of ``models`` besides [model_sets]

_Check = Callable[[Any], Any]


class SloWords(NamedTuple):
    """SLO classes by rising SLO, and their text; "" for a single SLO."""

    classes: tuple[SloClass, ...]
    text: str


def _number(rule: Rule, value: Any) -> float:
    number = rule.number(value)
    if number is None:
        raise _RefusedError(value, rule.allowed)
    return number


def _whole(low: int, high: int | None, value: Any) -> int:
    _number(whole(low, high), value)
    return int(value)


_positive, _not_negative = partial(_number, POSITIVE), partial(_number, NON_NEGATIVE)
_positive_whole = partial(_whole, 1, None)

_SIMULATION = settings_of(SimulationSettings)
_SETTINGS: Mapping[str, Setting] = {
    "network_ms": _SIMULATION["network_ms"],
    "overhead_ms": settings_of(SynthesisSettings)["overhead_ms"],
    "monitor_ms": _SIMULATION["monitor_ms"],
    "told": _SIMULATION["stated_load"],
}
"""Keys whose values and defaults are declared where they are used."""


def _declared(key: str) -> _Check:
    """Return the check of a key by the rule that its setting declares."""
    rule = _SETTINGS[key].rule
    assert rule is not None
    return partial(_number, rule)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _RefusedError(value, "a text")
    return value


def _one_of(*words: str) -> _Check:
    def check(value: Any) -> str:
        if value not in words:
            raise _RefusedError(value, ", ".join(words))
        return str(value)

    return check


def _workers(value: Any) -> ByType[int]:
    """Read a number, or a text with a number for each type."""
    if not isinstance(value, str):
        return ByType({ByType.ONE: _positive_whole(value)}, False, str(value))
    try:
        counts = read_workers(value, "workers")
    except InvalidValueError:
        raise _RefusedError(value, "a whole number >= 1, or \"gpu=4,cpu=40\"") from None
    for count in counts.values.values():
        _positive_whole(count)
    return counts


def _slos(value: Any) -> SloWords:
    """Read a number of ms, or classes with shares."""
    if not isinstance(value, str):
        return SloWords((SloClass(_positive(value)),), "")
    try:
        classes = merged_classes(read_slos(value, "slo_ms"))
    except InvalidValueError as error:
        raise _RefusedError(value, f"a finite number > 0, or \"100:0.3,150:0.7\" ({error})"
                            ) from None
    return SloWords(classes, value if len(classes) > 1 else "")


def _profiles(value: Any) -> ByType[str]:
    """Read a file or a name, or one for each type."""
    try:
        return read_profiles(_text(value), "profiles")
    except InvalidValueError:
        raise _RefusedError(value, "a text, or \"gpu=a.json,cpu=b.json\"") from None


def _scheduler(value: Any) -> str:
    text = _text(value)
    try:
        fleet_scheduler(text)
    except InvalidValueError as error:
        raise _RefusedError(value, str(error)) from None
    return text


def _arrivals(value: Any) -> str:
    """Read the name of an arrival process that can be sampled."""
    try:
        arrivals = Arrivals.parse(_text(value))
        arrivals.drawn(1000.0)
    except InvalidValueError as error:
        raise _RefusedError(value, str(error)) from None
    return arrivals.text


def _loads(value: Any) -> tuple[float, ...]:
    """Read a number, or the levels of a text such as ``400:4000:400``."""
    if not isinstance(value, str):
        return (_positive(value),)
    try:
        return parse_loads(value)
    except InvalidValueError:
        raise _RefusedError(value, "a number, 400,800 or from:to:step, in queries/s > 0") from None


# Keys that take one value or a list; the cells are all combinations, the last varying first.
AXES: Mapping[str, _Check] = {
    "profiles": _profiles,
    "models": _text,
    "workers": _workers,
    "slo_ms": _slos,
    "service": _one_of(*SERVICES),
    "network_ms": _declared("network_ms"),
    "overhead_ms": _declared("overhead_ms"),
    "arrivals": _arrivals,
    "cv": _positive,
    "load_qps": _loads,
    "trace": _text,
    "trace_scale": _positive,
    "scheduler": _scheduler,
}

# Keys that take one value.
SETTINGS: Mapping[str, _Check] = {
    "duration_s": _not_negative,
    "seed": partial(_whole, 0, None),
    "seeds": partial(_whole, 1, 100_000),
    "monitor": _one_of("on", "off"),
    "monitor_ms": _declared("monitor_ms"),
    "told": _declared("told"),
}

# Axes and settings of a grid of scenarios.
SCENARIO_AXES: Mapping[str, _Check] = {"scenario": _text, "scheduler": _text}
SCENARIO_SETTINGS: Mapping[str, _Check] = {
    **{key: SETTINGS[key] for key in ("seed", "seeds")}, "bound": _one_of("on", "off"),
}

DEFAULTS: Mapping[str, Any] = {
    **{key: declared.default for key, declared in _SETTINGS.items()},
    "models": "all", "trace_scale": 1.0, "seed": 0, "seeds": 1,
}


class _RefusedError(Exception):
    """Error of a value that a key of the specification does not take."""

    def __init__(self, value: Any, allowed: str) -> None:
        super().__init__(allowed)
        self.value, self.allowed = value, allowed


def read_axis(
    key: str, value: Any, where: str, checks: Mapping[str, _Check] = AXES
) -> tuple[Any, ...]:
    """Read the values of an axis, in their order."""
    values: list[Any] = []
    for item in value if isinstance(value, list) else [value]:
        checked = read_setting(key, item, where, checks)
        values += checked if key == "load_qps" else [checked]
    if not values or any(value in values[:i] for i, value in enumerate(values)):
        raise InputFileError("empty list, or a value twice", where=f"{where}: {key}", value=value,
                             allowed="one or more different values")
    return tuple(values)


def read_setting(
    key: str, value: Any, where: str, checks: Mapping[str, _Check] = SETTINGS
) -> Any:
    """Read the value of a key in a sweep's specification."""
    try:
        return checks[key](value)
    except _RefusedError as error:
        raise InputFileError("not a value of this key", where=f"{where}: {key}", value=error.value,
                             allowed=error.allowed) from None
