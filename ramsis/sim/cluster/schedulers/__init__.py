"""Schedulers, one file each; their names are in :mod:`ramsis.sim.registry`."""
