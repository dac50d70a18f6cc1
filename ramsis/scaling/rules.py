"""Autoscaler rules of Kubernetes, KEDA, Knative, Ray Serve, llm-d and Dynamo, for simulation.

    static:workers=20
    hpa:target=0.7,scale_down_s=60
    keda:queue_per_worker=10
    knative:concurrency=8
    ray-serve:target_ongoing_requests=8
    wva
    dynamo:forecast=moving,window=8
    own.py:Mine:alpha=2                        a user-defined class

A rule is called at the end of every interval of the fleet, and has its own period: in between its
last decision holds. Each class cites its source. A measurement that a fleet's observation lacks is
replaced by the nearest one, as the class states.

``rate_per_worker_qps`` is the load of a worker within the target, with queueing;
``batch_rate_qps`` its throughput with full batches, which is what rules that size a fleet by a
profile use; ``slo_ms`` the deadline. :func:`made` passes them to rules that take them, unless the
user sets them.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ramsis.errors import (
    BELOW_ONE,
    NON_NEGATIVE,
    POSITIVE,
    InputFileError,
    RamsisError,
    at_least,
    out_of_range,
    whole,
)
from ramsis.plugins import blamed, own
from ramsis.scaling.rule import Observation, ScalingRule
from ramsis.settings import Checked, setting
from ramsis.sim.registry import read_parameters

_FILLED_IN = ("rate_per_worker_qps", "batch_rate_qps", "slo_ms")
_ROUNDING = 1e-9  # tolerance of quotients before they are rounded up, and of sums of times
_OF_BATCHES = "Throughput of a worker with full batches."
_ABOVE_ZERO = POSITIVE._replace(wrong="out of range")


@dataclass(eq=False)
class Static(Checked):
    """Rule of a constant number of workers, for comparison with autoscalers."""

    workers: int = setting(rule=whole(1))

    def wanted(self, seen: Observation) -> int:
        """Return the constant number."""
        return self.workers


@dataclass(eq=False, kw_only=True)
class _Stabilised(Checked, ABC):
    """Base of rules with the stabilisation window and scaling policies of Kubernetes' HPA."""

    tolerance: float = setting(0.1, "Change that is too small to be made.", rule=NON_NEGATIVE)
    sync_s: float = setting(15.0, "Period of decisions.", rule=NON_NEGATIVE)
    scale_up_s: float = setting(0.0, "Stabilisation window to scale up.", rule=NON_NEGATIVE)
    scale_down_s: float = setting(300.0, "Window to scale down.", rule=NON_NEGATIVE)
    up_workers: int = setting(4, "Workers added within policy_s.", rule=NON_NEGATIVE)
    up_percent: float = setting(100.0, "Share of the workers added.", rule=NON_NEGATIVE)
    down_percent: float = setting(100.0, "Share of the workers removed.", rule=NON_NEGATIVE)
    policy_s: float = setting(15.0, "Period of these policies.", rule=NON_NEGATIVE)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._every = _Every(self.sync_s)
        self._desired: deque[tuple[float, int]] = deque()
        self._changes: deque[tuple[float, int]] = deque()

    @abstractmethod
    def desired(self, seen: Observation) -> int:
        """Return the desired workers before stabilisation and scaling policies are applied."""

    def _decide(self, seen: Observation) -> int:
        time_s, current, desired = seen.time_s, seen.active + seen.starting, self.desired(seen)
        window_s = self.scale_up_s if desired >= current else self.scale_down_s
        recent = [number for at_s, number in self._desired
                  if at_s > time_s - window_s + _ROUNDING]
        stable = (min if desired >= current else max)([desired, *recent])
        self._desired.append((time_s, desired))
        _forget(self._desired, time_s - max(self.scale_up_s, self.scale_down_s))
        _forget(self._changes, time_s - self.policy_s)
        before = current - sum(by for _, by in self._changes)  # when the policies' period began
        if stable > current:
            most = max(before + self.up_workers,
                       math.ceil(before * (1.0 + self.up_percent / 100.0) - _ROUNDING))
            stable = min(stable, max(int(most), current))
        elif stable < current:
            least = int(before * (1.0 - min(self.down_percent, 100.0) / 100.0))
            stable = max(stable, min(least, current))
        if stable != current:
            self._changes.append((time_s, stable - current))
        return stable


@dataclass(eq=False)
class Hpa(_Stabilised):
    """Kubernetes' HorizontalPodAutoscaler.

    The desired number is ceil(ready workers × value / target), unless value / target is within
    the tolerance of 1. To scale up, starting workers count as ready ones without load; to scale
    down they do not count. Stabilisation takes the highest desired number of the last
    ``scale_down_s`` to scale down, and the lowest of the last ``scale_up_s`` to scale up. Within
    ``policy_s`` at most the larger of ``up_workers`` and ``up_percent`` are added, and at most
    ``down_percent`` removed, relative to the number at the start of that period.

    Source: kubernetes/kubernetes, pkg/controller/podautoscaler/replica_calculator.go and
    horizontal.go; defaults in pkg/apis/autoscaling/v2/defaults.go (policies, 80 % of CPU) and
    pkg/controller/podautoscaler/config/v1alpha1/defaults.go (the rest), API autoscaling/v2.
    """

    target: float = setting(0.8, "Of the metric.", rule=_ABOVE_ZERO)
    rate_per_worker_qps: float | None = setting(
        None, "Load of a worker within the target.", rule=_ABOVE_ZERO)
    # ``utilisation`` of the workers, or ``load``: requests per second and worker as a share of
    # the rate (a Pods metric with an average value). The default is ``load`` if the rate is set:
    # policies choose larger models when there is time, so utilisation is high at every load.
    metric: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric not in (None, "load", "utilisation") or (
                self.metric == "load" and self.rate_per_worker_qps is None):
            raise out_of_range("metric", self.metric,
                               "utilisation, or load with rate_per_worker_qps")

    def wanted(self, seen: Observation) -> int:
        """Return the workers desired at the last synchronisation."""
        return self._every.last(seen, self._decide)

    def desired(self, seen: Observation) -> int:
        """Return the desired workers before stabilisation and scaling policies are applied."""
        ready, current = seen.active, seen.active + seen.starting
        if ready == 0:
            return current
        rate_qps = self.rate_per_worker_qps
        value = (seen.utilisation if rate_qps is None or self.metric == "utilisation"
                 else seen.load_qps / (ready * rate_qps))
        ratio = value / self.target
        if seen.starting == 0 or ratio <= 1.0:
            if abs(1.0 - ratio) <= self.tolerance + _ROUNDING:
                return current
            return _ceil(ratio * ready)
        diluted = ratio * ready / current
        if diluted < 1.0 or abs(1.0 - diluted) <= self.tolerance + _ROUNDING:
            return current
        return _ceil(diluted * current)


@dataclass(eq=False)
class Keda(_Stabilised):
    """KEDA with two triggers: requests that wait, and requests per second.

    Between 1 and N workers KEDA feeds a HorizontalPodAutoscaler with external metrics of average
    values: each trigger desires ceil(value / threshold), unless value / (threshold × workers) is
    within the tolerance of 1, and the highest counts. Stabilisation and policies are Kubernetes'.
    KEDA itself only starts the first worker, and stops the last one ``cooldown_s`` after a trigger
    was active; it polls triggers every ``polling_s``. Values are read at each synchronisation,
    unless they are ``cached`` from the last poll (``useCachedMetrics``).

    Source: kedacore/keda, pkg/scaling/executor/scale_scaledobjects.go; defaults of the
    ScaledObject in keda.sh/docs/2.22/reference/scaledobject-spec (pollingInterval 30,
    cooldownPeriod 300, minReplicaCount 0, useCachedMetrics false); kubernetes/kubernetes,
    pkg/controller/podautoscaler/replica_calculator.go for values per worker. Thresholds are the
    user's in KEDA: here a queue of 5, the default of its scalers of queues, and 80 % of the rate.
    """

    rate_per_worker_qps: float = setting(rule=_ABOVE_ZERO)
    target: float = setting(
        0.8, "Threshold of the load, as a share of that rate.", rule=_ABOVE_ZERO)
    queue_per_worker: float = setting(5.0, "Threshold of the queue.", rule=_ABOVE_ZERO)
    polling_s: float = setting(30.0, rule=NON_NEGATIVE)
    cooldown_s: float = setting(300.0, rule=NON_NEGATIVE)
    cached: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._polled: Observation | None = None
        self._active_s = 0.0

    def wanted(self, seen: Observation) -> int:
        """Return the workers desired at the last synchronisation, or zero after the cooldown."""
        polled = self._polled
        if polled is None or seen.time_s - polled.time_s >= self.polling_s - _ROUNDING:
            self._polled = seen
            if seen.queued > 0 or seen.load_qps > 0:
                self._active_s = seen.time_s
        if seen.time_s - self._active_s > self.cooldown_s:
            return 0
        return max(self._every.last(seen, self._decide), 1)

    def desired(self, seen: Observation) -> int:
        """Return the desired workers before stabilisation and scaling policies are applied."""
        polled = (self._polled if self.cached else None) or seen
        current = seen.active + seen.starting
        return max(self._by(value, threshold, current) for value, threshold in (
            (polled.load_qps, self.target * self.rate_per_worker_qps),
            (float(polled.queued), self.queue_per_worker)))

    def _by(self, value: float, threshold: float, current: int) -> int:
        ratio = value / (threshold * max(current, 1))
        if current and abs(1.0 - ratio) <= self.tolerance + _ROUNDING:
            return current
        return _ceil(value / threshold)


@dataclass(eq=False)
class Knative(Checked):
    """Knative's autoscaler: a stable window, and a short panic window.

    The metric is averaged over ``stable_s`` and over a tenth of it. Each average divided by
    ``utilisation`` × a worker's target, rounded up, is a desired number, limited to ``up_rate``
    times and 1 / ``down_rate`` of the ready workers. If the short window desires ``panic`` times
    the ready workers or more, panic mode begins; it ends ``stable_s`` after the last such
    decision. In panic mode the larger of both numbers is taken, and the rule never scales down.
    The highest number of the last ``down_delay_s`` counts.

    Source: knative/serving, pkg/autoscaler/scaling/autoscaler.go; defaults in
    config/core/configmaps/autoscaler.yaml (70 % of the target, stable window 60 s, panic window
    10 % and threshold 200 %, rates 1000 and 2, no delay of scaling down). A value is what was seen
    at the decisions in the window; Knative samples each second. Its target is the user's: by
    default here a worker's rate, else requests that wait or run (``concurrency``).
    """

    rate_per_worker_qps: float = setting(help="Load of a worker within the target.",
                                         rule=_ABOVE_ZERO)
    concurrency: float | None = setting(
        None, "Target of requests that wait or run on a worker; replaces the rate.",
        rule=_ABOVE_ZERO)
    utilisation: float = setting(0.7, rule=_ABOVE_ZERO)
    stable_s: float = setting(60.0, rule=NON_NEGATIVE)
    panic: float = setting(2.0, rule=at_least(1))
    up_rate: float = setting(1000.0, rule=at_least(1))
    down_rate: float = setting(2.0, rule=at_least(1))
    down_delay_s: float = setting(0.0, rule=NON_NEGATIVE)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.target = self.utilisation * (
            self.rate_per_worker_qps if self.concurrency is None else self.concurrency)
        self._values: deque[tuple[float, float]] = deque()
        self._desired: deque[tuple[float, int]] = deque()
        self._panicked_s = -math.inf  # last time that the panic threshold was reached
        self._most = 0  # most workers wanted since the panic began

    def wanted(self, seen: Observation) -> int:
        """Return the desired workers after panic mode and the delay of scaling down."""
        now_s, ready = seen.time_s, max(seen.active, 1)
        _forget(self._values, now_s - self.stable_s)
        self._values.append((now_s, seen.load_qps if self.concurrency is None
                             else float(seen.queued + seen.in_service)))
        stable, short = (self._by(window_s, now_s, ready)
                         for window_s in (self.stable_s, _PANIC_WINDOW * self.stable_s))
        if short[0] >= self.panic * ready:
            self._panicked_s = now_s
        if now_s - self._panicked_s <= self.stable_s:
            self._most = desired = max(self._most, stable[1], short[1])
        else:
            self._most, desired = 0, stable[1]
        self._desired.append((now_s, desired))
        _forget(self._desired, now_s - self.down_delay_s)
        return max((number for _, number in self._desired), default=desired)

    def _by(self, window_s: float, now_s: float, ready: int) -> tuple[int, int]:
        """Return a window's desired number of workers, without and with the rate limits."""
        recent = [value for at_s, value in self._values if at_s > now_s - window_s + _ROUNDING]
        desired = _ceil(float(np.mean(recent or [self._values[-1][1]])) / self.target)
        least, most = int(ready / self.down_rate + _ROUNDING), _ceil(self.up_rate * ready)
        return desired, min(max(desired, least), most)


@dataclass(eq=False)
class RayServe(Checked):
    """Ray Serve's default autoscaling policy.

    The desired number is the mean number of requests that wait or run, over ``look_back_s``,
    divided by the target; the difference to the running workers is multiplied by a factor and the
    result rounded up. The rule scales up once every decision for more than ``upscale_delay_s``
    would, and scales down likewise by ``downscale_delay_s``. The mean is over the observations at
    decisions; Ray samples it at every worker.

    Source: ray-project/ray, python/ray/serve/autoscaling_policy.py; defaults in
    python/ray/serve/config.py (AutoscalingConfig) of Ray 2.32 and later.
    """

    target_ongoing_requests: float = setting(
        2.0, "Target of requests that wait or run, per worker.", rule=_ABOVE_ZERO)
    upscale_delay_s: float = setting(30.0, rule=NON_NEGATIVE)
    downscale_delay_s: float = setting(600.0, rule=NON_NEGATIVE)
    upscaling_factor: float = setting(1.0, rule=_ABOVE_ZERO)
    downscaling_factor: float = setting(1.0, rule=_ABOVE_ZERO)
    look_back_s: float = setting(30.0, rule=NON_NEGATIVE)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._ongoing: deque[tuple[float, int]] = deque()
        self._since: tuple[int, float] = 0, 0.0

    def wanted(self, seen: Observation) -> int:
        """Return the desired workers after upscale and downscale delays."""
        target = seen.active + seen.starting
        desired = self.desired(seen)
        way = (desired > target) - (desired < target)
        if way != self._since[0]:
            self._since = way, seen.time_s
        delay_s = self.upscale_delay_s if way > 0 else self.downscale_delay_s
        if way and seen.time_s - self._since[1] >= delay_s - _ROUNDING:
            self._since = 0, seen.time_s
            return max(desired, 1)
        return target

    def desired(self, seen: Observation) -> int:
        """Return the desired workers before upscale and downscale delays."""
        _forget(self._ongoing, seen.time_s - self.look_back_s)
        self._ongoing.append((seen.time_s, seen.queued + seen.in_service))
        if seen.active == 0:
            return seen.starting
        mean = float(np.mean([number for _, number in self._ongoing]))
        desired = mean / self.target_ongoing_requests
        factor = self.upscaling_factor if desired > seen.active else self.downscaling_factor
        scaled = _ceil(seen.active + factor * (desired - seen.active))
        if _ceil(desired) < seen.active and scaled == seen.active:
            scaled -= 1
        return scaled


@dataclass(eq=False)
class Wva(Checked):
    """llm-d's Workload Variant Autoscaler: one queue per worker, sized by the mean latency.

    A worker is an M/M/1 queue with a service rate of n / (base + each × n) for n requests in it,
    up to the largest batch, and room for ten times as many that wait. The highest arrival rate at
    which the mean time in the system meets the target gives the throughput of a worker; wanted is
    ceil(load / throughput). With a largest batch of 1 it is a plain M/M/1/11 queue. The load is
    the mean of the last ``load_s``. A HorizontalPodAutoscaler follows the wanted number, unless
    that is within its tolerance of the current one.

    Source: llm-d-incubation/workload-variant-autoscaler, pkg/core/allocation.go and
    pkg/analyzer (state-dependent M/M/1; targets on means), MaxQueueToBatchRatio 10; the period of
    its optimiser is 60 s; internal/collector/collector.go (the load is a rate over a minute);
    charts/workload-variant-autoscaler/templates/hpa.yaml of the same commit (no stabilisation,
    average value 1). Its targets are for first and further tokens; here there is one, the SLO, on
    the mean latency of a request. Its load counts completed requests, here arrivals.
    """

    batch_rate_qps: float = setting(help=_OF_BATCHES, rule=_ABOVE_ZERO)
    slo_ms: float = setting(rule=_ABOVE_ZERO)
    target: float = setting(
        1.0, "Target of the mean latency, as a share of the SLO.", rule=_ABOVE_ZERO)
    max_batch: int = setting(1, rule=whole(1))
    base_share: float = setting(
        0.0, "Fixed part of a batch's service time, as a share of a full batch's.",
        rule=BELOW_ONE)
    period_s: float = setting(60.0, rule=NON_NEGATIVE)
    load_s: float = setting(60.0, rule=NON_NEGATIVE)
    tolerance: float = setting(0.1, rule=NON_NEGATIVE)

    def __post_init__(self) -> None:
        super().__post_init__()
        base, most = self.base_share, self.max_batch
        batch = np.arange(1, most + 1)
        rates = batch / (most / self.batch_rate_qps * (base + (1.0 - base) * batch / most))
        self.rates_qps = np.append(rates, np.full(_ROOM * most, rates[-1]))
        self.throughput_qps = self._largest(self.slo_ms / 1000.0 * self.target)
        self.every = _Every(self.period_s)
        self._loads: deque[tuple[float, float]] = deque()

    def wanted(self, seen: Observation) -> int:
        """Return the last decision; the current workers if the change is within the tolerance."""
        _forget(self._loads, seen.time_s - self.load_s)
        self._loads.append((seen.time_s, seen.load_qps))
        desired, current = self.every.last(seen, self._decide), seen.active + seen.starting
        near = abs(desired - current) <= (self.tolerance + _ROUNDING) * current
        return current if near else desired

    def _decide(self, seen: Observation) -> int:
        load_qps = float(np.mean([load for _, load in self._loads]))
        return max(_ceil(load_qps / self.throughput_qps), 1)

    def mean_s(self, load_qps: float) -> tuple[float, float]:
        """Return mean time in system of accepted requests and throughput at a load > 0."""
        weight = np.cumsum(np.log(load_qps / self.rates_qps))
        states = np.exp(np.append(0.0, weight) - max(weight.max(), 0.0))
        states /= states.sum()
        throughput = load_qps * float(1.0 - states[-1])
        return float(states @ np.arange(len(states))) / throughput, throughput

    def _largest(self, target_s: float) -> float:
        """Return the throughput at the highest load whose mean latency meets the target.

        If no load meets it, return the throughput of single requests.
        """
        low, high = 0.0, float(self.rates_qps.max())
        if self.mean_s(high)[0] <= target_s:
            return self.mean_s(high)[1]
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.mean_s(middle)[0] <= target_s else (low, middle)
        if low == 0.0:  # Even single requests miss the target.
            return float(self.rates_qps[0])
        return self.mean_s(low)[1]


@dataclass(eq=False)
class Dynamo(Checked):
    """NVIDIA Dynamo's planner, scaling by throughput: ceil(forecast / rate).

    Every ``adjustment_s`` the load since the last adjustment is recorded, and the next one
    forecast: ``constant`` takes the last load, ``moving`` the mean of the last ``window``. Its
    ARIMA, Prophet and Kalman forecasts are not implemented, nor its correction by measured
    latencies (``no_correction``). The rate is the profiled one: its sizing ignores queueing.

    Source: ai-dynamo/dynamo, components/planner/src/dynamo/planner/utils/planner_core.py,
    perf_interpolation.py and load_predictor.py; defaults in defaults.py (adjustment_interval 180,
    min_endpoint 1, load_prediction_window_size 50).
    """

    batch_rate_qps: float = setting(help=_OF_BATCHES, rule=_ABOVE_ZERO)
    headroom: float = setting(
        1.0, "Share of the rate that is planned with; 1 in the source.", rule=_ABOVE_ZERO)
    forecast: str = setting("constant", choices=("constant", "moving"))
    window: int = setting(50, "Intervals of the moving mean.", rule=whole(1))
    adjustment_s: float = setting(180.0, rule=NON_NEGATIVE)
    min_endpoint: int = setting(1, rule=whole(0))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rate_qps = self.batch_rate_qps * self.headroom
        self.every = _Every(self.adjustment_s, at_once=False)
        self._loads: deque[float] = deque(maxlen=self.window if self.forecast == "moving" else 1)
        self._since: list[float] = []

    def wanted(self, seen: Observation) -> int:
        """Return the workers of the last adjustment."""
        self._since.append(seen.load_qps)
        return self.every.last(seen, self._decide)

    def _decide(self, seen: Observation) -> int:
        self._loads.append(float(np.mean(self._since)))
        self._since.clear()
        return max(_ceil(float(np.mean(self._loads)) / self.rate_qps), self.min_endpoint)


class _Every:
    """Period of a rule: its last decision holds until the period has passed."""

    def __init__(self, period_s: float, *, at_once: bool = True) -> None:
        self.period_s = period_s
        self._time_s = -math.inf if at_once else 0.0
        self._wanted: int | None = None

    def last(self, seen: Observation, decide: Callable[[Observation], int]) -> int:
        """Return the last decision; before the first one, the current number of workers."""
        if seen.time_s - self._time_s >= self.period_s - _ROUNDING:
            self._time_s, self._wanted = seen.time_s, decide(seen)
        return seen.active + seen.starting if self._wanted is None else self._wanted


_PANIC_WINDOW = 0.1  # Knative's panic window, as a share of the stable window
_ROOM = 10  # waiting room of Wva's queue, in largest batches (MaxQueueToBatchRatio)
_HALVINGS = 60  # bisection steps for a load: 2^-60 is below the precision of a float

RULES: Mapping[str, type[Any]] = {
    "static": Static, "hpa": Hpa, "keda": Keda, "knative": Knative, "ray-serve": RayServe,
    "wva": Wva, "dynamo": Dynamo,
}
"""Rules by name."""

_Grid = Mapping[str, tuple[Any, ...]]
# Targets to try, as shares of a rule's rate: of a worker's load within the target, where more than
# 1 may be best, and of the throughput of full batches, which leaves no time to wait.
_SHARES = (0.5, 0.65, 0.8, 0.9, 1.0, 1.2)
_BATCH_SHARES = (0.5, 0.65, 0.75, 0.8, 0.85, 0.9)
_GRIDS: Mapping[str, tuple[_Grid, ...]] = {
    "static": ({"workers": tuple(range(1, 25))},),
    "hpa": ({"target": (*_SHARES, 1.5), "scale_down_s": (0.0, 60.0, 300.0)},
            {"metric": ("utilisation",), "target": (0.5, 0.7, 0.9), "scale_down_s": (60.0,)}),
    "keda": ({"target": _SHARES, "queue_per_worker": (50.0,), "scale_down_s": (0.0, 60.0, 300.0)},
             {"target": _SHARES, "scale_down_s": (60.0,)}),
    "knative": ({"utilisation": _SHARES, "stable_s": (60.0, 300.0)},
                {"concurrency": (2.0, 4.0, 8.0, 16.0)}),
    "ray-serve": ({"target_ongoing_requests": (1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
                   "upscale_delay_s": (0.0, 30.0), "downscale_delay_s": (60.0, 600.0)},),
    "wva": ({"target": (0.1, 0.2, 0.35, 0.5, 0.75, 1.0), "max_batch": (1, 8),
             "period_s": (15.0, 60.0)},),
    "dynamo": ({"headroom": _BATCH_SHARES, "adjustment_s": (15.0, 60.0, 180.0)},
               {"headroom": _BATCH_SHARES, "forecast": ("moving",), "window": (3,),
                "adjustment_s": (60.0,)}),
}


def tunable(name: str) -> list[dict[str, Any]]:
    """Return up to 24 parameter settings of a rule for tuning; others keep their default."""
    if name not in _GRIDS:
        raise _unknown(name, InputFileError)
    return [dict(zip(grid, values, strict=True))
            for grid in _GRIDS[name] for values in product(*grid.values())]


def made(name: str, parameters: Mapping[str, Any], **defaults: float) -> ScalingRule:
    """Create a scaling rule for one run.

    ``name`` is one of :data:`RULES`, or a user-defined ``FILE.py:CLASS`` or ``MODULE:CLASS``. The
    ``defaults`` (``rate_per_worker_qps``, ``batch_rate_qps``, ``slo_ms``) are passed to a rule
    that takes them, unless they are among the parameters.
    """
    kind = _kind(name, InputFileError)
    takes = inspect.signature(kind).parameters
    every = {**{key: value for key, value in defaults.items() if key in takes}, **parameters}
    for key, parameter in takes.items():
        if parameter.default is parameter.empty and key not in every:
            raise InputFileError("parameter is missing", where=f"rule {name}", value=key,
                                 allowed=f"{name}:{key}=…")
    with blamed(f"rule {name} failed"):
        rule: ScalingRule = kind(**every)
    return rule


def rule_of(
    text: str, *, error: type[RamsisError] = InputFileError
) -> tuple[str, dict[str, Any]]:
    """Parse a rule's name and parameters, ``NAME:key=value,…``, for :func:`made`.

    A user-defined class is named as ``FILE.py:CLASS:key=value,…``.

    >>> rule_of("hpa:target=0.7,scale-down-s=60")
    ('hpa', {'target': 0.7, 'scale_down_s': 60.0})
    """
    name, _, parameters = text.partition(":")
    if name not in RULES and parameters:
        attribute, _, parameters = parameters.partition(":")
        name = f"{name}:{attribute}"
    takes = {key: parameter.replace(default=None) if key in _FILLED_IN else parameter
             for key, parameter in inspect.signature(_kind(name, error)).parameters.items()}
    return name, read_parameters(name, parameters, takes, error)


def _kind(name: str, error: type[RamsisError]) -> type[Any]:
    """Return the class of a scaling rule by its name."""
    if name in RULES:
        return RULES[name]
    if ":" not in name:
        raise _unknown(name, error)
    kind: type[Any] = own(name, "rule", error=error)
    if not isinstance(kind, type) or not hasattr(kind, "wanted"):
        raise error("not a rule of scaling", where="rule", value=name,
                    allowed="a class with a method wanted")
    return kind


def _unknown(name: str, error: type[RamsisError]) -> RamsisError:
    return error("unknown rule of scaling", where="rule", value=name,
                 allowed=", ".join(RULES) + ", FILE.py:CLASS, MODULE:CLASS, or the folder of "
                         "`ramsis scale`")


def _ceil(value: float) -> int:
    """Round up, ignoring rounding errors."""
    return math.ceil(value - _ROUNDING * max(abs(value), 1.0))


def _forget(seen: deque[Any], until_s: float) -> None:
    """Remove observations that are older than the window."""
    while seen and seen[0][0] <= until_s + _ROUNDING:
        seen.popleft()
