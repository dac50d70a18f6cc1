"""Interface of recipes, one for each dispatch rule, and the service times that they start from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

import numpy as np

from ramsis.analysis.sampled import Evidence, at_confidence
from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals import Arrivals, describe_process
from ramsis.cluster.service_times import DISTRIBUTION, ServiceTimes
from ramsis.policy import Expectations, Policy
from ramsis.profiles import LatencyTable, ProfileSet, Statistic, prune
from ramsis.synthesis.headroom import Replays
from ramsis.synthesis.settings import SynthesisSettings
from ramsis.worker.problem import WorkerProblem

_DIGITS = 4  # decimals of quantiles in ms
_NANO = 6  # decimals of times in ms, down to 1 ns

Problem = TypeVar("Problem")

DELAY_PRICE = 2e-4
"""Cost of a response time of an SLO or more, in units of accuracy; less in proportion.

At low loads, waiting for a larger batch hardly changes accuracy. With this price, the table that
answers earliest is chosen among tables that are nearly equally good. With E the gain of a policy
without this price p and C in [0, 1] the mean of min(response time / SLO, 1), the best policy π for
E − p·C has E(π) >= E* − p·(C* − C(π)) >= E* − p, where E* and C* are those of the best policy
without the price. So at most 0.0002 of the gain is given up."""
WAIT_REWARD = 2e-5
"""Reward for a response time of an SLO or more, instead of that cost, where early answers cost too
much.

Many workers on a central queue may start together, end together, and start together again. The
decision problem does not include this oscillation. If early and late starts are equally good in
the problem, the oscillation costs several 0.001 of effective accuracy. With a reward for waiting,
the queue is longer, and larger batches start as workers come free. The loss is limited as with
:data:`DELAY_PRICE`."""


class Analysis(Protocol):
    """Interface of a policy's stationary behaviour, from which its promise follows."""

    def distributions(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Return values and probabilities of batch size, queue length and slack, by name."""

    def expectations(
        self, *, capacity_qps: float | None = None, upper_bound: float | None = None
    ) -> Expectations:
        """Return the promise computed by the decision problem, as a policy file records it."""


class Planned(NamedTuple):
    """Best policy of a decision problem; its analysis is computed when it is asked for.

    Most promises are measured, so the figures that the problem computes are not needed.
    """

    policy: Policy  # with its certificate; of its promise only capacity and upper bound
    modelled: Callable[[], Expectations]  # its promise as the decision problem computes it
    # evidence behind the promise: how well the samples of service times are known
    evidence: Callable[[], Evidence | None]

    def as_modelled(self) -> Policy:
        """Return the policy with the promise that the decision problem computes."""
        return replace(self.policy, expectations=self.modelled())

    def to_be_measured(self) -> Policy:
        """Return the policy with the evidence behind its promise, not measured yet."""
        return replace(self.policy, expectations=at_confidence(
            self.policy.expectations, self.evidence()))


class Recipe(ABC, Generic[Problem]):
    """Synthesis, reading and analysis of the policies of one dispatch rule."""

    @abstractmethod
    def knows(self, settings: SynthesisSettings) -> bool:
        """Return whether the decision problem models the arrival process itself.

        For another process tables are planned for Poisson arrivals
        (:mod:`ramsis.synthesis.generate`).
        """

    @abstractmethod
    def problem(
        self, profile: ProfileSet, load_qps: float, settings: SynthesisSettings,
        load_factor: float | None = None,
    ) -> Problem:
        """Return the decision problem that the policy for a load solves.

        With ``load_factor`` it is that of Poisson arrivals at this multiple of the load, instead
        of the arrival process.
        """

    @abstractmethod
    def planned(
        self, profile: ProfileSet, load_qps: float, settings: SynthesisSettings, problem: Problem,
        replays: Replays, load_factor: float | None = None,
    ) -> Planned:
        """Return the best policy of a :meth:`problem`, chosen by ``replays``, with certificate."""

    @abstractmethod
    def problem_of(self, policy: Policy, where: str = "policy") -> Problem:
        """Return the problem that a policy file describes; ``where`` names it in messages.

        The user must have named an arrival process of one's own (:func:`ramsis.trust`).
        """

    @abstractmethod
    def analysis(self, policy: Policy) -> Analysis:
        """Return the stationary behaviour of a policy file's table, distributions included."""


def stated_arrivals(settings: SynthesisSettings, load_qps: float) -> dict[str, Any]:
    """Return the arrival process as policy files describe it; one of your own by its name."""
    process = Arrivals.parse(settings.arrivals)(load_qps)
    return (describe_process(process) if hasattr(process, "describe")
            else {"process": settings.arrivals})


def latency_table(profile: ProfileSet, settings: SynthesisSettings) -> LatencyTable:
    """Return the latencies of batches 1 … N+1 of undominated models; means if times are drawn."""
    return service_times(profile, settings)[0]


def service_times(
    profile: ProfileSet, settings: SynthesisSettings
) -> tuple[LatencyTable, ServiceTimes | None]:
    """Return latencies, and their distributions where times are drawn.

    Of drawn times, only models are kept that have a batch that may be in time. Longer batches than
    the last of these have infinite times, except those of the fastest model, which is the first.
    Quantiles are rounded to 0.1 µs, as policy files hold them. All times include the overhead of
    the settings.
    """
    batches, service = settings.max_queue + 1, settings.chosen_service(profile)
    overhead_ms = settings.overhead_ms
    profile = settings.profile_for(profile)
    if service != DISTRIBUTION:
        table = prune(profile.latency_table(cast(Statistic, service), batches))
        return replace(table, latency_ms=as_stated(table.latency_ms, overhead_ms)), None
    times = ServiceTimes.of(profile, DISTRIBUTION, batches)
    quantiles = as_stated(np.round(times.quantiles_ms, _DIGITS), overhead_ms)
    times = replace(times, quantiles_ms=quantiles)
    # A batch may be in time if its lowest quantile is; ``last`` is the longest such batch, or 0.
    usable = quantiles[:, :, 0] <= settings.slo_ms
    last = np.where(usable.any(axis=1), batches - np.argmax(usable[:, ::-1], axis=1), 0)
    last[0] = batches
    beyond = np.arange(batches) >= last[:, None]
    origin = profile.latency_table("p95", batches).select(times.models).origin
    means = np.maximum.accumulate(times.mean_ms, axis=1)
    keep = np.flatnonzero(last > 0)
    kept = replace(times, quantiles_ms=np.where(
        beyond[:, :, None], np.inf, quantiles)).select(keep)
    table = LatencyTable(kept.models, kept.accuracy, means[keep], origin[keep], DISTRIBUTION,
                         kept.run_as)
    return table, kept


def as_stated(times_ms: FloatArray, overhead_ms: float) -> FloatArray:
    """Return times with an overhead included, rounded as they are when read from a file."""
    return without_overhead(times_ms, overhead_ms) + overhead_ms if overhead_ms else times_ms


def without_overhead(times_ms: FloatArray, overhead_ms: float) -> FloatArray:
    """Subtract an overhead from service times, to 1 ns."""
    return np.asarray(np.round(times_ms - overhead_ms, _NANO)) if overhead_ms else times_ms


def sizes_stated(run_as: IntArray) -> tuple[int, ...] | None:
    """Return the sizes that batches are run at, for a policy file; None if none is padded."""
    padded = (run_as > 1 + np.arange(len(run_as))).any()
    return tuple(run_as.tolist()) if padded else None


def bounded_by(problem: WorkerProblem) -> ServiceTimes:
    """Return the service times of a worker's problem in the form that the fluid bound takes."""
    table, batches = problem.latency, problem.max_queue
    if problem.quantiles_ms is None:
        return ServiceTimes.of_table(table)
    return ServiceTimes(table.models, table.accuracy, problem.quantiles_ms[:, :batches],
                        DISTRIBUTION, problem.quantile_levels)
