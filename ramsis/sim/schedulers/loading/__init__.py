"""Schedulers that load models and give them up; :mod:`ramsis.sim.registry` has their names."""
