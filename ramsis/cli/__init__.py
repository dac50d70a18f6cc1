"""The command line; click and rich live here only.

A command is a module in the folder of what it is about. ``options`` has what commands take,
``output`` what they print; both know no command.

May import: analysis, arrivals, audit, bounds, cluster, logs, placement_milp, planning, policy,
profiles, report, runtime, scaling, scenario, serving, sim, sized, studies, sweep, synthesis,
verify, worker.
"""
