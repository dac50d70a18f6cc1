"""The program finds what trying everything finds, for every objective and rule."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement_milp import Limits, place, problem_from_document
from placement_milp.problem import Problem
from ramsis.errors import InfeasibleError
from tests.placement.samples import document, documents, variant
from tests.reference.placement import Outcome, outcomes

Best = Callable[[list[Outcome]], float]


def effective(cost_price: float = 0.0, moving_price: float = 0.0) -> Best:
    return lambda all_: max(o.effective - cost_price * o.cost - moving_price * o.moving
                            for o in all_)


OBJECTIVES: dict[str, tuple[dict[str, Any], Best]] = {
    "effective accuracy": (
        {"kind": "effective-accuracy", "unserved_penalty": 0.5}, effective()),
    "effective accuracy less cost": (
        {"kind": "effective-accuracy", "cost_price": 0.03}, effective(cost_price=0.03)),
    "effective accuracy less moves": (
        {"kind": "effective-accuracy", "moving_price": 0.05}, effective(moving_price=0.05)),
    "cheapest": ({"kind": "cheapest"}, lambda all_: min(o.cost for o in all_)),
    "cheapest with moves": (
        {"kind": "cheapest", "moving_price": 0.7},
        lambda all_: min(o.cost + 0.7 * o.moving for o in all_)),
    "max-min": ({"kind": "max-min"}, lambda all_: max(o.worst for o in all_)),
    "fewest workers": ({"kind": "lexicographic", "order": ["workers"]},
                       lambda all_: min(o.workers for o in all_)),
    "fewest moves": ({"kind": "lexicographic", "order": ["moving"]},
                     lambda all_: min(o.moving for o in all_)),
}


def compare(chosen: dict[str, Any], objective: dict[str, Any], best: Best) -> None:
    problem = problem_from_document({**chosen, "objective": objective})
    everything = list(outcomes(problem))
    try:
        placement = place(problem)
    except InfeasibleError:
        nothing_for_some = any(not _servable(problem, f.name) for f in problem.families)
        assert nothing_for_some or not everything
        return
    assert placement.status == "optimal"
    assert placement.objective == pytest.approx(best(everything), abs=2e-6)


def _servable(problem: Problem, family: str) -> bool:
    from tests.reference.placement import options

    return any(part.family == family for option in options(problem) for part in option.parts)


@pytest.mark.parametrize("name", OBJECTIVES)
@given(chosen=st.one_of(documents(), documents(sharing=True)))
@settings(max_examples=14, deadline=None)
def test_one_variant_or_two_on_each_worker(name, chosen):
    compare(chosen, *OBJECTIVES[name])


@given(chosen=documents())
@settings(max_examples=12, deadline=None)
def test_stages_in_order(chosen):
    """Served first, then accuracy, then cost: each the best among what is best so far."""
    objective = {"kind": "lexicographic", "order": ["served", "effective-accuracy", "cost"]}
    problem = problem_from_document({**chosen, "objective": objective})
    try:
        placement = place(problem)
    except InfeasibleError:
        return
    left = list(outcomes(problem, served_first=True))
    for stage, value in zip(placement.stages, ("served", "effective", "cost"), strict=True):
        most = value != "cost"
        best = (max if most else min)(getattr(o, value) for o in left)
        assert stage.objective == pytest.approx(best, abs=1e-5)
        left = [o for o in left if math.isclose(getattr(o, value), best, abs_tol=1e-6)]


@given(chosen=documents(rules=False))
@settings(max_examples=8, deadline=None)
def test_the_front_is_that_of_all_placements(chosen):
    """Every point of the front is efficient, and its ends are the cheapest and the best."""
    problem = problem_from_document({**chosen, "objective": {"kind": "pareto", "points": 4}})
    try:
        front = place(problem).front
    except InfeasibleError:
        return
    everything = list(outcomes(problem))
    assert front[0].cost_per_hour == pytest.approx(min(o.cost for o in everything))
    assert front[-1].effective_accuracy == pytest.approx(
        max(o.effective for o in everything), abs=2e-6)
    for point in front:
        affordable = (o for o in everything if o.cost <= point.cost_per_hour + 1e-9)
        assert point.effective_accuracy == pytest.approx(best_of(affordable), abs=2e-6)


def best_of(found: Iterable[Outcome]) -> float:
    return max(o.effective for o in found)


@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_value_tables(data):
    """A family whose worth comes from a table beside one that runs on batches."""
    fraction = st.sampled_from([0.0, 0.1, 0.3])
    rows = [
        {"worker_type": "gpu", "model_set": data.draw(st.sampled_from([["s"], ["s", "l"]])),
         "workers": data.draw(st.integers(1, 3)), "load_qps": 20 * data.draw(st.integers(1, 9)),
         "slo_ms": 100, "expected_effective_accuracy": data.draw(
             st.sampled_from([0.3, 0.5, 0.65])),
         "expected_violation_rate": data.draw(fraction)}
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    chosen = document(
        worker_types=[{"name": "gpu", "count": 3, "memory_mb": 700, "cost_per_hour": 1}],
        variants=[variant("s", "vision", 0.7, 200, {}), variant("l", "vision", 0.9, 600, {}),
                  variant("bert", "text", 0.8, 300, {("gpu", 4): 40})],
        values=[{"family": "vision", "rows": rows}])
    compare(chosen, {"kind": "effective-accuracy", "unserved_penalty": 0.2}, effective())


@given(chosen=documents())
@settings(max_examples=5, deadline=None)
def test_cbc_and_highs_agree(chosen):
    problem = problem_from_document(chosen)
    try:
        highs = place(problem)
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            place(problem, Limits(solver="cbc"))
        return
    cbc = place(problem, Limits(solver="cbc"))
    assert cbc.objective == pytest.approx(highs.objective, abs=2e-6)
    assert cbc.dual_bound == pytest.approx(highs.dual_bound, abs=2e-6)
