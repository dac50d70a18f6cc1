"""Offline synthesis of model-selection policies for machine-learning inference serving.

Public names are resolved when first used, so that ``import ramsis.runtime`` stays cheap:

>>> import ramsis
>>> profile = ramsis.load_profile("digits-cpu")
"""

from __future__ import annotations

import importlib
from typing import Any

_PUBLIC = {
    "CapacityTargets": "ramsis.bounds:Targets",
    "Cluster": "ramsis.cluster",
    "Poisson": "ramsis.arrivals",
    "Policy": "ramsis.policy",
    "PolicySet": "ramsis.policy",
    "ProfileSet": "ramsis.profiles",
    "RandomTimes": "ramsis.worker.problem.service_distribution",
    "SloClass": "ramsis.cluster",
    "SweepSpec": "ramsis.sweep",
    "SynthesisSettings": "ramsis.synthesis",
    "WorkerType": "ramsis.cluster",
    "WorkerProblem": "ramsis.worker.problem",
    "analyse_policy": "ramsis.synthesis",
    "choose_loads": "ramsis.synthesis",
    "fewest_workers": "ramsis.synthesis.capacity",
    "fluid_bound": "ramsis.bounds",
    "generate_policy": "ramsis.synthesis",
    "generate_set": "ramsis.synthesis",
    "load_profile": "ramsis.profiles:load",
    "measure_profile": "ramsis.profiles.measure",
    "parse_loads": "ramsis.arrivals",
    "read_policy": "ramsis.policy:read",
    "run_sweep": "ramsis.sweep",
    "simulate": "ramsis.sim",
    "solve_worker": "ramsis.worker.solve",
    "trace_frontier": "ramsis.synthesis.frontier",
    "trust": "ramsis.plugins",
    "verify_policy": "ramsis.verify",
}

__version__ = "0.1.0"

__all__ = [*_PUBLIC]  # noqa: PLE0604 - the keys are strings


def __getattr__(name: str) -> Any:
    """Load a public name from the module that defines it."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'ramsis' has no attribute {name!r}")
    module, _, attribute = _PUBLIC[name].partition(":")
    value = getattr(importlib.import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
