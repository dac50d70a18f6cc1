"""Serving by policies: a server for HTTP, one for Ray Serve and one for MLServer.

What stands beside the server is in rooms of its own: ``load`` is a client, ``replanning`` changes
a server while it serves, ``export`` writes what other servers run.

May import: arrivals, audit, cluster, policy, profiles, runtime, sim.
"""
