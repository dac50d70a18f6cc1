"""Figures and pages; matplotlib is needed here only (extra ``plot``).

May import: arrivals, placement_milp, policy, profiles, runtime, sim, sized, synthesis.
"""

from __future__ import annotations

from ramsis.lazy_names import names_from

__getattr__, __dir__ = names_from(globals(), {
    "ramsis.report.cluster": "plot_cluster",
    "ramsis.report.page": "write_report",
    "ramsis.report.placement": "plot_placement plot_simulated",
    "ramsis.report.profile": "plot_profile",
    "ramsis.report.simulations": "plot_audit plot_capacity plot_fit plot_frontier plot_loads "
                                 "plot_over_time plot_promises plot_scaling",
})
