"""Audits of served requests: how good serving was, why not better, and what has changed.

The room stands below the servers, which write request logs, and above synthesis: audits compare
with policies that are generated and simulated.

May import: arrivals, bounds, cluster, logs, profiles, runtime, sim, synthesis.
"""
