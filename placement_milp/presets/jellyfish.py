"""Jellyfish: one model on each worker; maximum served share first, then maximum accuracy.

Source: Nigade, Bauszat, Bal, Wang, *Jellyfish: Timely Inference Serving for Dynamic Edge
Networks*, RTSS 2022. Its choice of a model for each GPU is one program over all workers here; the
network time between client and server, to which it adapts, has to be subtracted from the SLO.
"""

from __future__ import annotations

from dataclasses import replace

from placement_milp.backend import Limits
from placement_milp.problem import PlacementObjective, Problem
from placement_milp.recipe import place
from placement_milp.result import Placement


def jellyfish(problem: Problem, limits: Limits | None = None) -> Placement:
    """Place one variant on each worker: most served, then most accurate.

    Parameters
    ----------
    problem : Problem
        Its objective and ``variants_per_worker`` are replaced.
    """
    objective = PlacementObjective("lexicographic", order=("served", "effective-accuracy"))
    rules = replace(problem.rules, variants_per_worker=1)
    changed = replace(problem, objective=objective, rules=rules)
    return replace(place(changed, limits), problem=problem)
