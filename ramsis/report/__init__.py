"""Figures and pages; matplotlib is needed here only (extra ``plot``).

May import: arrivals, placement_milp, policy, profiles, runtime, sim, synthesis.
"""
