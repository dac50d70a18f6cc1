"""Small placement problems."""

from typing import Any

from hypothesis import strategies as st

from placement_milp import Problem, problem_from_document


def document(**changes: Any) -> dict[str, Any]:
    """Two families, two worker types, three variants."""
    return {
        "format": "ramsis.placement-problem/1",
        "name": "sample",
        "objective": {"kind": "effective-accuracy", "unserved_penalty": 1.0},
        "families": [{"name": "vision", "demand_qps": 100, "slo_ms": 100},
                     {"name": "text", "demand_qps": 40, "slo_ms": 200}],
        "worker_types": [
            {"name": "gpu", "count": 2, "memory_mb": 1000, "cost_per_hour": 3},
            {"name": "cpu", "count": 2, "memory_mb": 500, "cost_per_hour": 1}],
        "variants": [
            variant("small", "vision", 0.7, 100, {("gpu", 4): 20, ("cpu", 1): 25}),
            variant("large", "vision", 0.9, 400, {("gpu", 2): 40, ("gpu", 4): 50}),
            variant("bert", "text", 0.8, 300, {("gpu", 4): 40, ("cpu", 2): 80})],
        **changes,
    }


def variant(
    name: str, family: str, accuracy: float, memory_mb: float,
    latency: dict[tuple[str, int], float], load_ms: float = 1000,
) -> dict[str, Any]:
    """An entry of ``variants``."""
    return {"name": name, "family": family, "accuracy": accuracy, "memory_mb": memory_mb,
            "load_ms": load_ms,
            "latency": [{"worker_type": t, "batch": b, "latency_ms": ms}
                        for (t, b), ms in latency.items()]}


def problem(**changes: Any) -> Problem:
    """The problem of :func:`document`."""
    return problem_from_document(document(**changes))


def shared_problem() -> Problem:
    """Two families whose models can share a GPU."""
    return problem(
        families=[{"name": m, "demand_qps": 100, "slo_ms": 100} for m in ("vision", "text")],
        variants=[{
            "name": m, "family": m, "accuracy": 1, "memory_mb": 10, "latency": [
                {"worker_type": "gpu", "batch": 4, "latency_ms": 10, "compute_share": 0.4}]}
            for m in ("vision", "text")])


def value_row(**changes: Any) -> dict[str, Any]:
    """A row of a value table for the family ``text``."""
    return {"worker_type": "gpu", "model_set": ["bert"], "workers": 1, "load_qps": 10,
            "slo_ms": 200, "expected_effective_accuracy": 0.7, "expected_violation_rate": 0,
            **changes}


@st.composite
def documents(draw: st.DrawFn, *, sharing: bool = False, rules: bool = True) -> dict[str, Any]:
    """Tiny problems of every shape; some have no placement."""
    families = ["a", "b"][: draw(st.integers(1, 2))]
    types = ["fast", "slow"][: draw(st.integers(1, 2))]
    workers = draw(st.integers(1, 2 if sharing else 3))
    number = st.integers(1, 9)
    fraction = st.sampled_from([0.25, 0.5, 0.75, 0.8, 0.9])
    names = [f"{family}{i}" for family in families
             for i in range(draw(st.integers(1, 1 if sharing and len(families) > 1 else 2)))]
    variants = []
    for name in names:
        latency = {(t, b): 10 * draw(number) for t in types
                   for b in draw(st.sampled_from([(1,), (1, 4), (4,)]))}
        variants.append(variant(name, name[0], draw(fraction), 100 * draw(number), latency,
                                draw(st.sampled_from([0, 500, 2000]))))
    chosen: dict[str, Any] = {
        "families": [{"name": f, "demand_qps": 20 * draw(number),
                      "weight": draw(st.sampled_from([1, 3])),
                      "slo_ms": draw(st.sampled_from([120, 150, 200, 300]))} for f in families],
        "worker_types": [{"name": t, "count": workers, "memory_mb": 1200,
                          "cost_per_hour": draw(st.integers(1, 4))} for t in types],
        "variants": variants,
        "rules": {"variants_per_worker": 2 if sharing else 1,
                  "interference": draw(st.sampled_from([1, 1.2]))},
    }
    if rules:
        _draw_rules(draw, chosen, types)
    return document(**chosen)


def _draw_rules(draw: st.DrawFn, chosen: dict[str, Any], types: list[str]) -> None:
    def maybe(target: dict[str, Any], key: str, values: list[Any]) -> None:
        value = draw(st.sampled_from([None, None, *values]))
        if value is not None:
            target[key] = value

    for family in chosen["families"]:
        maybe(family, "min_accuracy", [0.5, 0.8])
        maybe(family, "min_served", [0.5, 1.0])
        maybe(family, "max_workers", [1, 2])
    maybe(chosen["rules"], "max_workers", [1, 3])
    maybe(chosen["rules"], "max_cost_per_hour", [4, 6])
    names = [family["name"] for family in chosen["families"]]
    rules: list[dict[str, Any]] = [{"kind": "alone", "members": names[:1]},
                                   {"kind": "only-on", "members": names[-1:],
                                    "worker_types": types[:1]}]
    if len(names) > 1:
        rules += [{"kind": "apart", "members": names},
                  {"kind": "slow-down", "members": names, "factor": 1.5}]
    maybe(chosen, "colocation", [[rule] for rule in rules])
    first = chosen["worker_types"][0]["name"]
    variants = [item["name"] for item in chosen["variants"]]
    maybe(chosen, "current", [[{"worker": f"{first}-1", "variants": variants[:1]}],
                              [{"worker": f"{first}-1", "variants": variants[-1:]}]])


def cut_document(**changes: Any) -> dict[str, Any]:
    """A problem of GPUs that are cut into instances."""
    return {
        "format": "ramsis.placement-problem/1", "name": "cut",
        "objective": {"kind": "fewest-workers"},
        "families": [{"name": "a", "demand_qps": 900, "slo_ms": 100},
                     {"name": "b", "demand_qps": 10, "slo_ms": 100}],
        "worker_types": [{"name": "a100", "count": 4, "partitions": "A100-80GB"}],
        "variants": [
            {"name": "m", "family": "a", "accuracy": 1, "memory_mb": 100, "latency": [
                {"worker_type": "a100/3g.40gb", "batch": 8, "latency_ms": 20}]},
            {"name": "n", "family": "b", "accuracy": 1, "memory_mb": 100, "latency": [
                {"worker_type": "a100/1g.10gb", "batch": 1, "processes": 2,
                 "latency_ms": 50}]}],
        **changes}
