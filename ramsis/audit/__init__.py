"""What logs of served requests tell: how good serving was, why not better, and what has changed.

Stands below the servers: they write request logs, and nothing here knows of servers. Audits
compare with policies that are made and simulated, so the room stands above synthesis.

May import: arrivals, bounds, cluster, logs, profiles, runtime, sim, synthesis.
"""
