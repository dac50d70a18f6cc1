"""Comparison of a policy's promise with a run of MLPerf's load generator (Server scenario).

The run states percentiles of the latency, so that the share of late requests is known up to the
two levels between which the deadline falls. A promise of a rate v counts as broken when so many
late requests as there were at least are improbable under it: P(Binomial(n, v) >= k) < 0.01. Late
requests come in clusters, which this does not count; what is broken by a hair may be chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ramsis.errors import InvalidValueError
from ramsis.policy import Policy
from ramsis.profiles.importers.mlperf import ServerRun

_LEVEL = 0.01  # probability under the promise below which it is taken as broken


@dataclass(frozen=True)
class Held:
    """Comparison of a run with the promise of a policy."""

    run: ServerRun
    policy_qps: float  # load of the policy
    promised: float  # its share of late and dropped requests
    probability: float  # of as many late requests as in the run or more, under the promise
    kept: bool


def hold_against(policies: Sequence[Policy], run: ServerRun) -> Held:
    """Compare a run with the policy of the lowest level that meets its load."""
    from scipy.stats import binom

    slos = sorted({policy.slo_ms for policy in policies})
    same_slo = [policy for policy in policies
                if math.isclose(policy.slo_ms, run.slo_ms, rel_tol=1e-6)]
    if not same_slo:
        raise InvalidValueError("no policy is for the run's target latency", where="--loadgen",
                                value=f"{run.slo_ms:g} ms",
                                allowed=", ".join(f"{slo:g} ms" for slo in slos))
    enough = [policy for policy in same_slo if policy.load_qps >= run.load_qps]
    if not enough:
        highest = max(policy.load_qps for policy in same_slo)
        raise InvalidValueError("no policy is for a load as high as the run's", where="--loadgen",
                                value=f"{run.load_qps:g} QPS", allowed=f"at most {highest:g} QPS")
    policy = min(enough, key=lambda policy: policy.load_qps)
    promised = policy.expectations.violation_rate
    late = math.ceil(run.late_low * run.queries - 1e-9)
    probability = float(binom.sf(late - 1, run.queries, min(1.0, promised)))
    return Held(run, policy.load_qps, promised, probability, probability >= _LEVEL)
