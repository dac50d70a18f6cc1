"""Offline synthesis of model-selection policies for machine-learning inference serving.

Public names and packages are loaded when they are first used, so that ``import ramsis.runtime``
stays cheap:

>>> import ramsis
>>> profile = ramsis.load_profile("digits-cpu")
>>> ramsis.sim.ConstantLoad(load_qps=100.0, duration_ms=5000.0).load_qps
100.0
"""

from __future__ import annotations

from ramsis.lazy_names import names_from

__version__ = "0.1.0"

__getattr__, __dir__ = names_from(globals(), {
    "ramsis.arrivals": "Poisson parse_loads",
    "ramsis.bounds": "CapacityTargets=Targets fluid_bound",
    "ramsis.cluster": "Cluster SloClass WorkerType",
    "ramsis.plugins": "trust",
    "ramsis.policy": "Policy PolicySet read_policy=read",
    "ramsis.profiles": "ProfileSet load_profile=load measure_profile",
    "ramsis.sim": "simulate",
    "ramsis.sweep": "SweepSpec run_sweep",
    "ramsis.synthesis": "SynthesisSettings analyse_policy choose_loads fewest_workers "
                        "generate_policy generate_set trace_frontier",
    "ramsis.verify": "verify_policy",
    "ramsis.worker": "RandomTimes WorkerProblem solve_worker",
}, submodules="analysis arrivals audit bounds central cluster errors mdp planning plugins policy "
              "profiles report runtime scaling scenario serving sim sized sweep synthesis "
              "testing verify worker")
