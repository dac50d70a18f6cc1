"""What exists to play a publication again: schedulers, agents and their training.

Schedulers are offered by entry points (:data:`ramsis.sim.registry.GROUP`), as those of
any other package. The room may import ``sim`` and all below; only the command line imports it.

May import: runtime, scenario, sim.
"""
