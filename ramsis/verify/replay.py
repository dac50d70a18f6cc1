"""Check the figures of a promise that were measured in simulation.

Every figure with an entry in ``replay.half_widths`` is derived twice.

- The simulator of the synthesis measures it again, with the seeds that follow from the table and
  its load. The file must state exactly this figure and half-width, so a changed number is found.
- The independent simulator of :mod:`ramsis.verify.simulator` reads the file's table itself and
  plays it on other arrivals. If late requests are dropped, every other run starts with as many
  waiting requests as arrive within the SLO. Both simulations have errors, so the figures may
  differ by twice the sum of the halves of their 95 % intervals, and quantiles of whole numbers by
  1.

With round robin one worker alone is simulated (all workers for older files). If a file states that
queues are unstable, its action for long queues must serve them more slowly than requests arrive;
the figures are then those in the limit of a long queue.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ramsis.arrivals import Arrivals
from ramsis.policy import Expectations, Policy
from ramsis.policy.records import Replay
from ramsis.sim.result import Estimate
from ramsis.synthesis.replayed import as_stated_by, first_seed, replayed
from ramsis.synthesis.simulated import SETTLES, measured, settles
from ramsis.verify.checks import Check, close, exactly
from ramsis.verify.simulator import Chance, figures, long_queue

_QUERIES, _RUNS, _SEED = 400_000, 8, 1 << 29
_DRAINS = 1.0  # time simulated after the window, in SLOs
_SAME = 1e-6  # relative error of a rate
_WIDER = 2.0  # allowed difference, as a multiple of the sum of the half-widths
_FEW = 3.0  # events expected in a run that may be missed by chance: exp(-3) = 5 %
_OF_ITSELF = 2e-3  # allowed relative difference, as quantiles of few values change in steps
_SOME_LATE = 0.05  # least violation rate in simulated runs of unstable queues


def replay_checks(policy: Policy) -> tuple[Check, ...]:
    """Check the claims of a policy whose figures were measured by replay."""
    stated = policy.replay
    assert stated is not None
    warm_up_slos = stated.warm_up_slos or SETTLES
    if not settles(policy.load_qps, policy.slo_ms, warm_up_slos):
        return (Check("warm-up of the replay (SLOs)", warm_up_slos, None, False),)
    replayed, replay = measured(policy, queries=stated.queries, runs=stated.runs,
                                seed=stated.seed, workers=stated.workers,
                                warm_up_slos=stated.warm_up_slos)
    same = as_stated_by(policy, replayed, replay)
    replay = same.replay or replay
    # As long as the replay, which may have to see bursts.
    other = played(policy, queries=max(_QUERIES, stated.queries),
                   warm_up_slos=warm_up_slos)
    checks = [Check("first seed of the replay", stated.seed, first_seed(policy),
                    stated.seed == first_seed(policy)),
              close("workers of the replay", stated.workers, replay.workers, 0.0),
              Check("whether the runs have settled", None, None,
                    stated.settled is replay.settled),
              *_again_checks(policy, stated),
              Check("overloaded", float(policy.expectations.overloaded),
                    float(same.expectations.overloaded),
                    policy.expectations.overloaded == same.expectations.overloaded),
              *(exactly(f"replay: {name.replace('_', ' ')}", getattr(stated, name),
                         getattr(replay, name))
                for name in ("violation_rate", "violation_half_width", "effective_accuracy",
                             "effective_half_width", "queries", "runs"))]
    if policy.expectations.unstable:
        reasons, other = _limit(policy, other["violation_rate"])
        checks += reasons
    for name in sorted({*stated.half_widths, *replay.half_widths}):
        figure, derived = (figure_of(source.expectations, name) for source in (policy, same))
        checks += [exactly(f"expected {_words(name)}", figure, derived),
                   exactly(f"replay: half-width of {_words(name)}",
                            stated.half_widths.get(name), replay.half_widths.get(name))]
        if figure is not None:
            checks.append(_by_player(name, figure, replay.half_widths.get(name, 0.0),
                                     other.get(name)))
    return tuple(checks)


def _again_checks(policy: Policy, stated: Replay) -> Iterator[Check]:
    """Check the warm-up after which starts make no difference, and figures with headroom."""
    budget = policy.budget
    again = replayed(policy) if budget is None else replayed(
        policy, queries=budget.queries, runs=budget.runs)
    slos = None if again.replay is None else again.replay.warm_up_slos
    yield Check("warm-up of the replay (SLOs)", stated.warm_up_slos, slos,
                stated.warm_up_slos == slos)
    if policy.headroom is None or again.headroom is None:
        return
    for name in ("slower_effective_accuracy", "slower_violation_rate"):
        yield exactly(f"headroom: {_words(name)}", getattr(policy.headroom, name),
                       getattr(again.headroom, name))


def _limit(policy: Policy, late: Estimate) -> tuple[list[Check], dict[str, Estimate]]:
    """Check that queues are unstable; return the limits of the figures as the queue grows."""
    served = long_queue(policy.to_document())
    served_qps = np.inf if served is None else served.served_qps
    checks = [Check("unstable: a long queue is served more slowly (QPS)", policy.load_qps,
                    served_qps, policy.load_qps >= served_qps * (1.0 - _SAME)),
              Check("unstable: violation rate by a simulator of its own", None, late.mean,
                    late.mean > _SOME_LATE)]
    if served is None:
        return checks, {}
    return checks, {name: Estimate(value, 0.0) for name, value in served.figures().items()}


def not_measured_checks(policy: Policy) -> tuple[Check, ...]:
    """Check that a promise of the decision problem could not have been measured instead."""
    if policy.replay is not None:
        return ()
    again = replayed(policy).replay
    return (Check("figures are measured where they can be", None, None, again is None),)


def figure_of(expected: Expectations, name: str) -> float | None:
    """Return a figure by its name in a replay; None where it is undefined."""
    value: Any = expected
    for part in name.split(".", 1):
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
    return None if value is None else float(value)


def _words(name: str) -> str:
    return name.replace("_", " ").replace(".", " ")


def _by_player(
    name: str, figure: float, half_width: float, other: Estimate | None
) -> Check:
    """Check a promised figure against the verifier's own simulator."""
    claim = f"{_words(name)} by a simulator of its own"
    if other is None:  # too rare to be seen there
        return Check(claim, figure, None, figure <= _FEW * _RUNS / _QUERIES)
    allowed = _WIDER * (half_width + (other.half_width or 0.0)) + _OF_ITSELF * abs(other.mean)
    if name.startswith(("batch_size.p", "queue_length.p")):
        allowed = max(allowed, 1.0)
    if name.endswith("_rate") or name.startswith("model_share"):
        allowed = max(allowed, _FEW * _RUNS / _QUERIES)
    return close(claim, figure, other.mean, allowed)


def played(
    policy: Policy, *, queries: int = _QUERIES, runs: int = _RUNS, seed: int = _SEED,
    warm_up_slos: float = SETTLES,
) -> dict[str, Estimate]:
    """Measure all figures of a policy's table with verify's simulator, over independent runs.

    Parameters are those of :func:`ramsis.synthesis.simulated.measured`.
    """
    document = policy.to_document()
    process = Arrivals.of(policy.arrivals).drawn(policy.load_qps)
    since_ms = warm_up_slos * policy.slo_ms
    waiting = math.ceil(policy.load_qps / 1000.0 * policy.slo_ms) * (policy.late == "drop")
    until_ms = since_ms + 1000.0 * queries / runs / policy.load_qps
    share = np.array([slo_class.share for slo_class in policy.classes])
    slo_ms = np.array([slo_class.slo_ms for slo_class in policy.classes])
    seen: dict[str, list[float]] = {}
    for run in range(runs):
        rng = np.random.default_rng(seed + run)
        arrival_ms = process.sample(until_ms + _DRAINS * policy.slo_ms, rng)
        if run % 2:
            arrival_ms = np.concatenate([np.zeros(waiting), arrival_ms])
        n = len(arrival_ms)
        kind = rng.choice(len(share), n, p=share / share.sum())
        chance = Chance(arrival_ms, slo_ms[kind], kind, rng.random(n))
        for name, value in figures(document, chance, since_ms, until_ms).items():
            seen.setdefault(name, []).append(value)
    return {name: Estimate.of(values) for name, values in seen.items()}
