"""Second opinions for a policy: an index rule, its search and its gate."""

from __future__ import annotations

from dataclasses import replace

from ramsis.bounds import cascade_bound
from ramsis.cluster import ServiceTimes
from ramsis.policy import Policy
from ramsis.profiles.confidences import Confidences
from ramsis.synthesis.cascades.gate import promised
from ramsis.synthesis.cascades.rule import problems_of
from ramsis.synthesis.cascades.search import best_rules
from ramsis.synthesis.simulated import prepared_policy

__all__ = ["with_cascade"]

_BUDGET_PRICES = (1.0, 8.0, 64.0)  # of violations, tried in turn where a budget limits these
_TRIED = 2  # rules that may pass the gate, in turn


def with_cascade(
    policy: Policy, confidences: Confidences, times: ServiceTimes
) -> Policy:
    """Return the policy with second opinions, if these pay.

    The policy is for one SLO, and for requests that join queues in turn. Where it keeps a budget
    of violations, it keeps it with second opinions, too. ``times`` are those of all models that a
    cascade may use, for the bound.
    """
    fleet, plan = prepared_policy(policy)
    assert plan.compiled is not None
    problems = problems_of(policy, fleet, confidences)
    if not problems:
        return policy
    for price in ((policy.violation_price,) if policy.budget is None else
                  (max(policy.violation_price, _BUDGET_PRICES[0]), *_BUDGET_PRICES[1:])):
        for problem, tables in best_rules(policy, problems, price)[:_TRIED]:
            cascade = promised(policy, fleet, plan.compiled, problem, tables)
            if cascade is None:
                continue
            bound = cascade_bound(
                times, confidences, slo_ms=policy.slo_ms, workers=policy.workers,
                load_qps=policy.load_qps,
                gathering=policy.arrivals_label == "poisson" and not times.distributed)
            return replace(policy, cascade=replace(cascade, promise=replace(
                cascade.promise, upper_bound=bound.upper_bound)))
    return policy
