"""The sweeps under the figures and tables, as documents of :class:`ramsis.sweep.SweepSpec`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from evaluation.case import FLEET, STEP, Case
from evaluation.savings import kind
from ramsis.errors import InvalidValueError
from ramsis.policy import DISPATCHES

__all__ = ["GREEDY", "POLICIES", "WORKER", "baselines", "batchings", "constant_loads", "grids",
           "headline", "label", "many_models", "policies_of", "promises", "rank", "schedulers",
           "three_models", "trace"]

CENTRAL, WORKER = "central-queue", "round-robin"
POLICIES = (CENTRAL, WORKER)
"""Schedulers of ours, which the others are compared with."""
GREEDY = "greedy:late=drop"
"""Greedy by the deadline, which drops as policies do: the strongest of the simple schedulers."""
LEVELS = 8
"""Load levels of central-queue policies on a trace."""
LABELS = {CENTRAL: "central-queue policies", WORKER: "per-worker policies",
          "jellyfish-plus": "Jellyfish+", "model-switching": "ModelSwitching",
          GREEDY: "greedy"}
"""Names of schedulers in figures and tables."""

Document = dict[str, Any]


def baselines(case: Case) -> list[str]:
    """The paper's, and greedy; ModelSwitching profiles for 10 s at each load, or less."""
    seconds = min(10.0, case.duration_s)
    return ["jellyfish-plus", f"model-switching:profile_s={seconds:g}", GREEDY]


def schedulers(case: Case, *policies: str) -> list[str]:
    """What is compared: by default policies of ours with the baselines.

    Policies of workers have the slack grid that is given.
    """
    if len(case.given_grids) > 1:
        raise InvalidValueError("several slack grids", where="--grid",
                                value=",".join(case.given_grids), allowed="one")
    found = list(case.given_schedulers or (*policies, *baselines(case)))
    for grid in case.given_grids:
        found = [_with(one, f"grid={grid}") if _is_policy(one, own_queues=True)
                 and "grid=" not in one else one for one in found]
    return found


def varied(case: Case, name: str, values: Sequence[str]) -> list[str]:
    """Policies of workers, or those that are given, with each value of a setting."""
    return [_with(one, f"{name}={value}")
            for one in policies_of(case.given_schedulers or (WORKER,)) for value in values]


def policies_of(schedulers: Sequence[str]) -> list[str]:
    """Those that are policies of ours."""
    own = [one for one in schedulers if _is_policy(one)]
    if not own:
        raise InvalidValueError("none of them has policies", where="--schedulers",
                                value=" ".join(schedulers), allowed=", ".join(DISPATCHES))
    return own


def _is_policy(scheduler: str, own_queues: bool = False) -> bool:
    rule = DISPATCHES.get(scheduler.partition(":")[0])
    return rule is not None and (rule.own_queues or not own_queues)


def _with(scheduler: str, setting: str) -> str:
    return f"{scheduler}{',' if ':' in scheduler else ':'}{setting}"


def label(scheduler: str) -> str:
    """Name of a scheduler in figures and tables, with the settings that are not ours by default.

    >>> label("round-robin:paper")
    'per-worker policies (paper)'
    """
    known = kind({"scheduler": scheduler})
    name, _, settings = known.partition(":")
    return LABELS.get(known) or f"{LABELS.get(name, name)}{settings and f' ({settings})'}"


def rank(scheduler: str) -> int:
    """Position of a scheduler in figures and tables, by its text or its name; 0 for others."""
    return next((i for i, pair in enumerate(LABELS.items()) if scheduler.startswith(pair)), 0)


def base(case: Case, *, scheduler: Sequence[str] = (), **more: Any) -> Document:
    """Fields that all specifications have; service takes the p95, as in the paper."""
    return {"profiles": case.name, "models": "pareto", "service": "p95",
            "slo_ms": list(case.slos_ms),
            "scheduler": list(scheduler) or schedulers(case, *POLICIES),
            **more}


def constant(case: Case, **more: Any) -> Document:
    """The same at constant loads on 60 workers, or those given; five seeds."""
    return base(case, grid=constant_grids(case, case.fleets), **more)


def constant_grids(case: Case, fleets: Sequence[int]) -> list[Document]:
    """Constant loads, the same for each worker."""
    return [{"workers": workers, "load_qps": list(case.loads_for(workers)),
             "duration_s": case.duration_s, "seeds": 2 if case.quick else 5}
            for workers in fleets]


def trace_grids(case: Case) -> list[Document]:
    """Several numbers of workers on the trace; central-queue policies for the smallest SLO."""
    at = {"workers": case.workers, "trace": case.trace, "trace_scale": case.trace_scale,
          "duration_s": case.trace_s}
    chosen = schedulers(case, *POLICIES)
    central = [one for one in chosen if one.partition(":")[0] == CENTRAL]
    grids = [{**at, "slo_ms": case.slo_ms, "scheduler": [
        one if "levels=" in one else _with(one, f"levels={LEVELS}") for one in central]},
        {**at, "scheduler": [one for one in chosen if one not in central]}]
    return [one for one in grids if one["scheduler"]]


def trace(case: Case) -> Document:
    """Fig. 5: the trace, three SLOs."""
    return base(case, grid=trace_grids(case))


def constant_loads(case: Case) -> Document:
    """Fig. 6: constant loads, three SLOs."""
    return constant(case)


def headline(case: Case) -> Document:
    """The cells of Figs. 5 and 6; at constant loads with 60 workers."""
    return base(case, grid=[*trace_grids(case), *constant_grids(case, (FLEET,))])


def promises(case: Case) -> Document:
    """Fig. 7: promise and simulation, three numbers of workers at the same loads for each."""
    grids = constant_grids(case, case.given_workers or (40, 60, 80))
    return base(case, slo_ms=list(case.compared_slos_ms),
                scheduler=policies_of(schedulers(case, WORKER)),
                grid=[{**one, "seeds": 3 if case.quick else 10} for one in grids])


def many_models(case: Case) -> Document:
    """Fig. 8: the models of the front, and with models in between."""
    return constant(case, slo_ms=list(case.compared_slos_ms),
                    models=["pareto", f"interpolate:{STEP:g}"], scheduler=schedulers(case, WORKER))


def grids(case: Case) -> Document:
    """Fig. 10: slack grids."""
    divisions = (2, 100) if case.quick else (2, 5, 10, 25, 100, 400)
    chosen = case.given_grids or (*(f"fixed:{d}" for d in divisions), "model")
    return constant(case, slo_ms=list(case.compared_slos_ms),
                    scheduler=varied(case, "grid", chosen))


def batchings(case: Case) -> Document:
    """Fig. 11: maximal and variable batching."""
    return constant(case, scheduler=[
        one for both in varied(case, "batching", ("maximal", "variable"))
        for one in schedulers(replace(case, given_schedulers=(both,)))])


def three_models(case: Case) -> Document:
    """Fig. 12: three models."""
    return constant(case, models="three", model_sets={"three": list(case.three_models)},
                    scheduler=schedulers(case, WORKER))
