"""The sweeps under the figures and tables, as documents of :class:`ramsis.sweep.SweepSpec`."""

from __future__ import annotations

from typing import Any

from evaluation.case import FLEET, STEP, TRACE, Case

__all__ = ["GREEDY", "POLICIES", "WORKER", "baselines", "batchings", "constant_loads", "grids",
           "headline", "label", "many_models", "promises", "rank", "three_models", "trace"]

CENTRAL, WORKER = "central-queue", "round-robin"
POLICIES = (CENTRAL, WORKER)
"""Schemes of ours, which the others are compared with."""
GREEDY = "greedy:late=drop"
"""Greedy by the deadline, which drops as policies do: the strongest of the simple schemes."""
LEVELS = 8
"""Load levels of central-queue policies on a trace."""
LABELS = {CENTRAL: "central-queue policies", WORKER: "per-worker policies",
          "jellyfish-plus": "Jellyfish+", "model-switching": "ModelSwitching",
          "greedy": "greedy"}
"""Names of schemes in figures and tables."""

Document = dict[str, Any]


def baselines(case: Case) -> list[str]:
    """The paper's, and greedy; ModelSwitching profiles for 10 s at each load, or less."""
    seconds = min(10.0, case.duration_s)
    return ["jellyfish-plus", f"model-switching:profile_s={seconds:g}", GREEDY]


def label(scheme: str) -> str:
    """Name of a scheme in figures and tables, without its parameters."""
    return LABELS[scheme.partition(":")[0]]


def rank(scheme: str) -> int:
    """Position of a scheme in figures and tables, by its text or its name; 0 for others."""
    names = {scheme.partition(":")[0], scheme}
    return next((i for i, pair in enumerate(LABELS.items()) if names & set(pair)), 0)


def base(case: Case, **more: Any) -> Document:
    """Fields that all specifications have; service takes the p95, as in the paper."""
    return {"profiles": case.name, "models": "pareto", "service": "p95",
            "slo_ms": list(case.slos_ms),
            "scheme": [*POLICIES, *baselines(case)], **more}


def constant(case: Case, **more: Any) -> Document:
    """The same at constant loads on 60 workers, five seeds."""
    return base(case, **constant_grid(case), **more)


def constant_grid(case: Case) -> Document:
    """Constant loads."""
    return {"workers": FLEET, "load_qps": list(case.loads_qps), "duration_s": case.duration_s,
            "seeds": 2 if case.quick else 5}


def trace_grids(case: Case) -> list[Document]:
    """Several numbers of workers on the trace; central-queue policies for the smallest SLO."""
    at = {"workers": case.workers, "trace": TRACE, "trace_scale": case.trace_scale,
          "duration_s": case.trace_s}
    return [{**at, "slo_ms": case.slo_ms, "scheme": f"{CENTRAL}:levels={LEVELS}"},
            {**at, "scheme": [WORKER, *baselines(case)]}]


def trace(case: Case) -> Document:
    """Fig. 5: the trace, three SLOs."""
    return base(case, grid=trace_grids(case))


def constant_loads(case: Case) -> Document:
    """Fig. 6: constant loads, three SLOs."""
    return constant(case)


def headline(case: Case) -> Document:
    """The cells of Figs. 5 and 6."""
    return base(case, grid=[*trace_grids(case), constant_grid(case)])


def promises(case: Case) -> Document:
    """Fig. 7: promise and simulation, three numbers of workers at the same loads for each."""
    at = {**constant_grid(case), "seeds": 3 if case.quick else 10}
    return base(case, slo_ms=case.slo_ms, scheme=WORKER, grid=[
        {**at, "workers": k, "load_qps": list(case.loads_for(k))} for k in (40, 60, 80)])


def many_models(case: Case) -> Document:
    """Fig. 8: the models of the front, and with models in between."""
    return constant(case, slo_ms=case.slo_ms, models=["pareto", f"interpolate:{STEP:g}"],
                    scheme=[WORKER, *baselines(case)])


def grids(case: Case) -> Document:
    """Fig. 10: slack grids."""
    divisions = (5, 100) if case.quick else (5, 10, 25, 100, 400)
    return constant(case, slo_ms=case.slo_ms,
                    scheme=[*(f"{WORKER}:grid=fixed:{d}" for d in divisions),
                            f"{WORKER}:grid=model"])


def batchings(case: Case) -> Document:
    """Fig. 11: maximal and variable batching."""
    return constant(case, scheme=[f"{WORKER}:batching={name}" for name in ("maximal", "variable")])


def three_models(case: Case) -> Document:
    """Fig. 12: the fastest, the middle and the most accurate model of the front."""
    names = [model.name for model in case.profile.models]
    chosen = [names[0], names[(len(names) - 1) // 2], names[-1]]
    return constant(case, models="three", model_sets={"three": list(dict.fromkeys(chosen))},
                    scheme=[WORKER, *baselines(case)])
