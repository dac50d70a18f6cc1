"""Figures and pages; matplotlib is needed here only (extra ``plot``).

May import: arrivals, placement_milp, policy, profiles, runtime, sim, sized, synthesis.
"""

from __future__ import annotations

from ramsis.lazy_names import names_from

__getattr__, __dir__ = names_from(globals(), {
    "ramsis.report.chart": "Axis Curves Dots Series",
    "ramsis.report.cluster": "plot_cluster",
    "ramsis.report.figure": "plot_charts",
    "ramsis.report.page": "write_report",
    "ramsis.report.placement": "plot_placement",
    "ramsis.report.profile": "plot_profile",
    "ramsis.report.simulations": "bound_charts capacity_charts over_time_charts placed_charts "
                                 "plan_charts plot_audit plot_fit plot_frontier plot_promises "
                                 "promise_charts scaling_charts simulation_charts",
})
