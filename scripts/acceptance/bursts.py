"""Recovery from a burst, as policies state it, against other seeds, and the plain engine.

Twenty policies by default from 60 to 98 % of the capacity, half of them per worker, and six with
the rule ``serve``, some of which do not recover. The time that a policy states is held against
what runs with other arrivals say together, some in the plain engine: within 25 % of it. With
d_i what request i earns less than without bursts, and t_i how long after a burst it arrives, that
time is

    T = the t at which  Σ_{t_i <= t} (d_i − 0.01)  is greatest,

the last time after which less than 0.01 is lost, over all bursts of all runs: of few bursts it
would be too late on average, as the greatest of a sum of chances is. It is known to a tenth of an
SLO at best: where little is lost for long chance decides. A policy is metastable
where requests that arrive from 128 to 256 SLOs after a burst still lose more than 0.01. A policy
that collapses without any burst says that it is overloaded; there is nothing to recover.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acceptance.line import Line, Row, Verdict, judged, named
from acceptance.setting import SEED, Effort, Setting, of_share, profile_of
from ramsis.policy import Policy
from ramsis.sim import ConstantLoad, Fleet, Policies, run_plan
from ramsis.sim.experiment import EngineName, largest_batch
from ramsis.synthesis.options import BURST
from ramsis.synthesis.recovery import recovery

__all__ = ["LINE"]

FLEETS = (("digits-cpu", 25.0, 4), ("text-cpu", 95.0, 20), ("image-cpu", 350.0, 60))
SHARES = (0.6, 0.7, 0.8, 0.9, 0.98)
DISPATCHES = ("round-robin", "central-queue")
SERVED = {"late": "serve", "violation_price": 0.0, "headroom": 0.0}
SERVED_SHARES = (0.6, 0.93)
_LOSS, _WITHIN = 0.01, 0.25
_SETTLES = 10.0  # SLOs before the first burst
_METASTABLE = (128.0, 256.0)  # SLOs after a burst
_SEEDS, _FEW = 6, 2
_PLAIN = 2  # of these in the plain engine
_QUERIES, _PLAIN_QUERIES, _BURSTS = 600_000, 60_000, 100  # of a run
_RESOLUTION = 0.1  # of an SLO: what halves of the bursts may differ by where times are stated


def _settings(seed: int) -> list[Setting]:
    default = [
        of_share(*FLEETS[(i + j + k) % 3], share, dispatch)
        for i, share in enumerate(SHARES) for j, dispatch in enumerate(DISPATCHES)
        for k in (0, 1)]
    return default + [of_share(*fleet, share, "round-robin", **SERVED)
                      for fleet in FLEETS for share in SERVED_SHARES]


@dataclass(frozen=True)
class _Bursts:
    """A load with bursts of requests at once, the first once workers have settled."""

    load_qps: float
    slo_ms: float
    apart_ms: float
    bursts: int
    varies = False

    @property
    def first_ms(self) -> float:
        """When the first burst comes."""
        return _SETTLES * self.slo_ms

    @property
    def duration_ms(self) -> float:
        """When arrivals stop."""
        return self.first_ms + self.bursts * self.apart_ms

    @property
    def at_ms(self) -> NDArray[np.float64]:
        """When bursts come."""
        return self.first_ms + self.apart_ms * np.arange(self.bursts)

    def arrivals_ms(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """All requests, in order."""
        own = ConstantLoad(self.load_qps, self.duration_ms).arrivals_ms(rng)
        return np.sort(np.append(own, np.repeat(self.at_ms, BURST)))


def _row(setting: Setting, effort: Effort) -> Row:
    """What the policy states, and what other seeds and engines say."""
    policy = setting.policy()
    if policy.late == "serve" and policy.expectations.overloaded:
        return {"overloaded": True}
    stated = recovery(policy, BURST)
    slo_ms = setting.slo_ms
    if stated.within_ms is None:
        lost = _lost_later(policy, setting)
        return {"stated_ms": None, "lost_later": lost}
    apart_ms = max(8.0 * slo_ms, 4.0 * stated.within_ms)
    seeds = _FEW if effort.quick else _SEEDS
    runs = [_losses(policy, setting, apart_ms, SEED + 100 + i,
                    "plain" if i < _PLAIN else effort.engine) for i in range(seeds)]
    again = [recovery(policy, BURST, seed=SEED + i).within_ms for i in range(seeds)]
    without = [_recovered_ms([*runs[:i], *runs[i + 1:]]) for i in range(seeds)]
    return {"stated_ms": stated.within_ms, "simulated_ms": _recovered_ms(runs),
            "error_ms": float(np.std(without) * np.sqrt(seeds - 1.0)),  # jackknife
            "again_ms": [np.inf if one is None else one for one in again]}


def _run(
    policy: Policy, setting: Setting, load: _Bursts, seed: int, engine: EngineName
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """When requests of the load itself arrive after the last burst, and what they lose.

    That is the difference to what the same requests have without bursts.
    """
    scheduler = Policies((policy,))
    fleet = Fleet.of(profile_of(setting.profile), workers=setting.workers, slo_ms=setting.slo_ms,
                     service=policy.service, max_batch=largest_batch([scheduler]))
    plan = scheduler.prepare(fleet)
    calm = run_plan(fleet, plan, ConstantLoad(load.load_qps, load.duration_ms), seed=seed)
    rough = run_plan(fleet, plan, load, seed=seed, engine=engine)
    own = ~np.isin(rough.arrival_ms, load.at_ms)
    after = calm.arrival_ms >= load.first_ms
    assert np.array_equal(rough.arrival_ms[own], calm.arrival_ms)
    since_ms = (calm.arrival_ms[after] - load.first_ms) % load.apart_ms
    return since_ms, (calm.reward - rough.reward[own])[after]


def _losses(
    policy: Policy, setting: Setting, apart_ms: float, seed: int, engine: EngineName
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """When requests of a run arrive after the last burst, and what they lose."""
    each = setting.load_qps * apart_ms / 1000.0 + BURST
    queries = _PLAIN_QUERIES if engine == "plain" else _QUERIES
    bursts = int(np.clip(queries / each, 4, _BURSTS))
    load = _Bursts(setting.load_qps, setting.slo_ms, apart_ms, bursts)
    since_ms, lost = _run(policy, setting, load, seed, engine)
    seen = since_ms < 0.75 * apart_ms  # who waits when the next burst comes loses by that one
    return since_ms[seen], lost[seen]


def _recovered_ms(runs: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> float:
    """T, of the bursts of all runs together."""
    since_ms, lost = (np.concatenate(column) for column in zip(*runs, strict=True))
    order = np.argsort(since_ms)
    total = np.cumsum(lost[order] - _LOSS)
    last = int(total.argmax())
    return float(since_ms[order][last]) if total[last] > 0.0 else 0.0


def _lost_later(policy: Policy, setting: Setting) -> float:
    """What requests lose that arrive long after a burst."""
    first, last = (slos * setting.slo_ms for slos in _METASTABLE)
    load = _Bursts(setting.load_qps, setting.slo_ms, last, 1)
    since_ms, lost = _run(policy, setting, load, SEED, "auto")
    return float(lost[since_ms >= first].mean())


def _verdict(rows: Sequence[Row]) -> Verdict:
    made = [row for row in rows if "error" not in row]
    overloaded = [row for row in made if "overloaded" in row]
    made = [row for row in made if row not in overloaded]
    recover = [row for row in made if row["stated_ms"] is not None]
    not_so = [row for row in made if row["stated_ms"] is None]
    wrong = [row for row in recover if not _right(row)]
    fine = [row for row in not_so if row["lost_later"] <= _LOSS]
    holds, summary = judged(
        ("settings without policies", sum("error" in row for row in rows), 0, "d"),
        ("policies that collapse without bursts", len(overloaded), None, "d"),
        ("policies that recover", len(recover), None, "d"),
        ("of these off by more than a quarter", len(wrong), 0, "d"),
        ("largest error (SLOs)", max((abs(_off(row)) / row["slo_ms"] for row in recover),
                                     default=0.0), None, ".3f"),
        ("mean error (SLOs)", float(np.mean([abs(_off(row)) / row["slo_ms"] for row in recover]
                                            or [0.0])), None, ".3f"),
        ("policies called metastable", len(not_so), None, "d"),
        ("of these by default", sum(not row["options"] for row in not_so), None, "d"),
        ("of these that do recover", len(fine), 0, "d"))
    misses = [_shown(row) for row in (*wrong, *fine)]
    misses += [named(row, why=row["error"]) for row in rows if "error" in row]
    return Verdict(holds, misses, summary, "Recovery from a burst of 1,000 requests",
                   [_shown(row) for row in made])


def _off(row: Row) -> float:
    """Error of what is stated, in ms."""
    return float(row["stated_ms"] - row["simulated_ms"])


def _right(row: Row) -> bool:
    """Whether the time stated is within a quarter, or what can be told at all."""
    allowed_ms = max(_WITHIN * row["simulated_ms"], _RESOLUTION * row["slo_ms"])
    return abs(_off(row)) <= allowed_ms


def _shown(row: Row) -> Row:
    if row["stated_ms"] is None:
        return named(row, stated="metastable", simulated=f"{row['lost_later']:.3f} lost")
    again = np.array(row["again_ms"], dtype=float)
    return named(row, stated=f"{row['stated_ms']:.1f} ms",
                 **{"other seeds": f"{again.mean():.1f} ± {again.std():.1f}"},
                 simulated=f"{row['simulated_ms']:.1f} ± {row['error_ms']:.1f}",
                 off=f"{_off(row):+.1f}")


LINE = Line("Bursts", _settings, _row, _verdict)
