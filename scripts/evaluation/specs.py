"""The sweeps under the figures and tables, as documents of :class:`ramsis.sweep.SweepSpec`."""

from __future__ import annotations

from typing import Any

from evaluation.case import FLEET, STEP, TRACE, Case

__all__ = ["OWN", "WORKER", "constant_loads", "grids", "headline", "label", "many_models",
           "promises", "rank", "three_models", "trace"]

WORKER, CENTRAL = "worker", "fleet"
OWN = (WORKER, CENTRAL)
"""Schemes that are policies, each compared with those before it and with the baselines."""
LABELS = {WORKER: "worker policies", "fleet": "fleet policies", "jellyfish-plus": "Jellyfish+",
          "model-switching": "ModelSwitching"}
"""Names of schemes in figures and tables."""

Document = dict[str, Any]


def schemes(case: Case) -> list[str]:
    """The paper's three schemes; ModelSwitching profiles for 10 s at each load, or less."""
    seconds = min(10.0, case.duration_s)
    return [WORKER, "jellyfish-plus", f"model-switching:profile_s={seconds:g}"]


def label(scheme: str) -> str:
    """What a scheme is called, without its parameters."""
    return LABELS[scheme.partition(":")[0]]


def rank(scheme: str) -> int:
    """Where a scheme stands in figures and tables, by its text or its name; 0 for others."""
    names = {scheme.partition(":")[0], scheme}
    return next((i for i, pair in enumerate(LABELS.items()) if names & set(pair)), 0)


def base(case: Case, **more: Any) -> Document:
    """What all have."""
    return {"profiles": case.name, "models": "pareto", "slo_ms": list(case.slos_ms),
            "scheme": schemes(case), **more}


def constant(case: Case, **more: Any) -> Document:
    """The same at constant loads on 60 workers, five seeds."""
    return base(case, **{"workers": FLEET, "load_qps": list(case.loads_qps),
                         "duration_s": case.duration_s, "seeds": 2 if case.quick else 5, **more})


def with_fleet(case: Case) -> list[str]:
    """The paper's schemes and fleet policies."""
    worker, *others = schemes(case)
    return [worker, CENTRAL, *others]


def trace(case: Case) -> Document:
    """Fig. 5: fleets of several sizes on the trace, three SLOs."""
    return base(case, scheme=with_fleet(case), workers=case.workers, trace=TRACE,
                trace_scale=case.trace_scale, duration_s=case.trace_s)


def constant_loads(case: Case) -> Document:
    """Fig. 6: constant loads, three SLOs."""
    return constant(case, scheme=with_fleet(case))


def headline(case: Case) -> Document:
    """The cells of Figs. 5 and 6."""
    grids = [trace(case), constant_loads(case)]
    shared = {key: value for key, value in grids[0].items() if grids[1].get(key) == value}
    own = [{key: value for key, value in grid.items() if key not in shared} for grid in grids]
    return {**shared, "grid": own}


def promises(case: Case) -> Document:
    """Fig. 7: promise and simulation, three fleets at the same loads for each worker."""
    shared = constant(case, slo_ms=case.slo_ms, scheme=WORKER, seeds=3 if case.quick else 10)
    del shared["load_qps"], shared["workers"]
    return {**shared, "grid": [{"workers": k, "load_qps": list(case.loads_for(k))}
                               for k in (40, 60, 80)]}


def many_models(case: Case) -> Document:
    """Fig. 8: the models of the front, and with models in between."""
    return constant(case, slo_ms=case.slo_ms, models=["pareto", f"interpolate:{STEP:g}"])


def grids(case: Case) -> Document:
    """Fig. 10: slack grids."""
    divisions = (5, 100) if case.quick else (5, 10, 25, 100, 400)
    return constant(case, slo_ms=case.slo_ms,
                    scheme=[*(f"worker:grid=fixed:{d}" for d in divisions), "worker:grid=model"])


def three_models(case: Case) -> Document:
    """Fig. 12: the fastest, the middle and the most accurate model of the front."""
    names = [model.name for model in case.profile.models]
    chosen = [names[0], names[(len(names) - 1) // 2], names[-1]]
    return constant(case, models="three", model_sets={"three": list(dict.fromkeys(chosen))})
