"""What exists to play a publication again: schedulers, agents, placement presets, GPU sharing.

Schedulers and presets are offered by entry points (:data:`ramsis.sim.registry.GROUP`,
:data:`placement_milp.presets.GROUP`), as those of any other package. Only the command line
imports the room.

May import: placement_milp, profiles, report, runtime, scenario, sim.
"""
