"""Placement of models on workers by mixed-integer programming.

A placement decides which variants the workers of each type hold, and at which batch sizes. Inputs
are problem files, profiles and tables of expected accuracy (``ramsis.value-table/1``); the package
imports nothing that computes policies.

>>> from placement_milp import problem_from_document, place
>>> placement = place(problem_from_document({
...     "format": "ramsis.placement-problem/1", "name": "two GPUs",
...     "objective": {"kind": "effective-accuracy"},
...     "families": [{"name": "vision", "demand_qps": 250, "slo_ms": 100}],
...     "worker_types": [{"name": "gpu", "count": 2, "memory_mb": 8000}],
...     "variants": [
...         {"name": "small", "family": "vision", "accuracy": 0.7, "memory_mb": 100,
...          "latency": [{"worker_type": "gpu", "batch": 4, "latency_ms": 20}]},
...         {"name": "large", "family": "vision", "accuracy": 0.9, "memory_mb": 900,
...          "latency": [{"worker_type": "gpu", "batch": 4, "latency_ms": 40}]}]}))
>>> [(row["variants"], row["workers"], row["load_qps"]) for row in placement.rows()]
[(['small'], 1, 150.0), (['large'], 1, 100.0)]
>>> round(placement.objective, 4), placement.status
(0.78, 'optimal')

May import: profiles, runtime.
"""

from __future__ import annotations

from placement_milp.backend import SOLVERS, Limits, SearchStatus
from placement_milp.check import check_placement
from placement_milp.io import (
    VALUES_FORMAT,
    problem_from_document,
    read_placement,
    read_problem,
    read_values,
    schema,
    shipped_problems,
    variants_from_profile,
    write_placement,
)
from placement_milp.problem import (
    PROBLEM_FORMAT,
    Colocation,
    Family,
    Holding,
    Latency,
    PlacementObjective,
    Problem,
    Rules,
    ValueRow,
    Values,
    Variant,
    WorkerType,
)
from placement_milp.recipe import place
from placement_milp.result import PLACEMENT_FORMAT, Placement
from ramsis.checks import check_arguments
from ramsis.lazy_names import names_from

__all__ = [
    "PLACEMENT_FORMAT", "PROBLEM_FORMAT", "SOLVERS", "VALUES_FORMAT", "Colocation", "Family",
    "Holding", "Latency", "Limits", "Placement", "PlacementObjective", "Problem", "Rules",
    "SearchStatus", "ValueRow", "Values", "Variant", "WorkerType", "check_placement", "place",
    "problem_from_document", "read_placement", "read_problem", "read_values", "schema",
    "shipped_problems", "variants_from_profile", "write_placement",
]

__getattr__, __dir__ = names_from(globals())

check_arguments(globals(), ["place", "read_problem"])
