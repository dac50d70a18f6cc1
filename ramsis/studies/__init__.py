"""Reproductions of publications: schedulers, agents, placement presets, GPU sharing.

Schedulers and presets are registered by entry points (:data:`ramsis.sim.registry.GROUP`,
:data:`placement_milp.presets.GROUP`), like those of any other package. Only the command line
imports this package directly.

May import: placement_milp, profiles, report, runtime, scenario, sim.
"""
