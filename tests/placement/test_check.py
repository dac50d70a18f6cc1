"""The check finds every kind of wrong placement; it has to, as it is the last word."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from placement_milp import Placement, check_placement, place
from placement_milp.result import Group, Stage, Use
from ramsis.errors import VerificationError
from tests.placement.samples import problem

SHARED = {"rules": {"variants_per_worker": 2}, "worker_types": [
    {"name": "gpu", "count": 1, "memory_mb": 1000, "cost_per_hour": 3},
    {"name": "cpu", "count": 0, "memory_mb": 1000}]}


def use(placement: Placement, **changes: Any) -> Placement:
    """The placement with its first use changed."""
    return group(placement, uses=(replace(placement.groups[0].uses[0], **changes),
                                  *placement.groups[0].uses[1:]))


def group(placement: Placement, **changes: Any) -> Placement:
    first: Group = replace(placement.groups[0], **changes)
    return replace(placement, groups=(first, *placement.groups[1:]))


def family(placement: Placement, **changes: Any) -> Placement:
    return replace(placement, families=(replace(placement.families[0], **changes),
                                        *placement.families[1:]))


def first(placement: Placement) -> Use:
    return placement.groups[0].uses[0]


WRONG: dict[str, tuple[Callable[[Placement], Placement], str]] = {
    "a worker used twice": (
        lambda p: group(p, workers=p.groups[0].workers * 2), "a worker is used twice"),
    "a worker of another type": (
        lambda p: group(p, workers=("cpu-9",)), "not of its type"),
    "too much load": (
        lambda p: use(p, load_qps=first(p).rate_qps * 1.01), "sent more than it can take"),
    "a rate out of thin air": (
        lambda p: use(p, rate_qps=first(p).rate_qps * 2), "a rate is not batch / cycle"),
    "a latency of one's own": (
        lambda p: use(p, latency_ms=1.0), "a latency is not the listed one"),
    "a shorter cycle": (lambda p: group(p, cycle_ms=1.0), "a cycle is shorter"),
    "a better variant": (lambda p: use(p, accuracy=0.99), "a variant is not what"),
    "a batch that is not listed": (lambda p: use(p, batch=64), "a batch that is not listed"),
    "less memory": (lambda p: group(p, memory_mb=1.0), "memory is not what"),
    "a lost group": (lambda p: replace(p, groups=p.groups[1:]), "does not get what is claimed"),
    "a better share": (lambda p: family(p, served_share=1.5), "does not get what is claimed"),
    "a better objective": (
        lambda p: replace(p, stages=(Stage("effective-accuracy", 0.99, 0.99, 0.0),)),
        "effective-accuracy is not what is claimed"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("changes", [{}, SHARED], ids=["alone", "shared"])
def test_a_wrong_placement_is_refused(name, changes):
    asked = problem(**changes)
    placement = place(asked)
    check_placement(asked, placement)
    change, says = WRONG[name]
    with pytest.raises(VerificationError, match=says):
        check_placement(asked, change(placement))


@pytest.mark.parametrize(("changes", "says"), [
    ({"rules": {"max_workers": 1}}, "too many workers"),
    ({"rules": {"max_cost_per_hour": 0.5}}, "too expensive"),
    ({"rules": {"latency_share_of_slo": 0.1}}, "a batch misses its SLO"),
    ({"worker_types": [{"name": n, "count": 2, "memory_mb": 50} for n in ("gpu", "cpu")]},
     "memory is too small"),
    ({"families": [{"name": "vision", "demand_qps": 100, "slo_ms": 100, "min_accuracy": 0.95},
                   {"name": "text", "demand_qps": 40, "slo_ms": 200}]}, "too inaccurate"),
    ({"families": [{"name": "vision", "demand_qps": 100, "slo_ms": 100, "max_workers": 0},
                   {"name": "text", "demand_qps": 40, "slo_ms": 200}]},
     "too many workers for vision"),
    ({"families": [{"name": "vision", "demand_qps": 50, "slo_ms": 100},
                   {"name": "text", "demand_qps": 40, "slo_ms": 200}]}, "sent too much"),
    ({"colocation": [{"kind": "only-on", "members": ["vision"], "worker_types": ["cpu"]}]},
     "a variant is elsewhere"),
])
def test_a_placement_for_looser_rules_is_refused(changes, says):
    placement = place(problem())
    with pytest.raises(VerificationError, match=says):
        check_placement(problem(**changes), placement)


@pytest.mark.parametrize(("rule", "says"), [
    ({"kind": "alone", "members": ["bert"]}, "not alone"),
    ({"kind": "apart", "members": ["vision", "text"]}, "not apart"),
    ({"kind": "slow-down", "members": ["vision", "text"], "factor": 1.1}, "not the listed"),
])
def test_sharing_against_a_rule_is_refused(rule, says):
    placement = place(problem(**SHARED))
    assert len(placement.groups[0].uses) == 2
    with pytest.raises(VerificationError, match=says):
        check_placement(problem(**SHARED, colocation=[rule]), placement)
    if rule["kind"] != "slow-down":
        place(problem(**SHARED, colocation=[rule]))  # and the program keeps it


def test_one_variant_where_one_is_allowed():
    placement = place(problem(**SHARED))
    with pytest.raises(VerificationError, match="too many variants"):
        check_placement(problem(worker_types=SHARED["worker_types"]), placement)
