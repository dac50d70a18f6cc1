"""The command line; only this package imports click and rich.

Each command is a module, in a folder by topic. ``options`` has shared options and parameter types,
``output`` shared output; neither imports a command.

May import: arrivals, audit, bounds, cluster, logs, placement_milp, planning, policy, profiles,
report, runtime, scaling, scenario, serving, sim, sized, studies, sweep, synthesis, verify, worker.
"""
