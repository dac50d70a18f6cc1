"""Serving by policies: a server for HTTP, and adapters for Ray Serve, MLServer and Triton.

What stands beside the server is in rooms of its own: ``load`` is a client, ``replanning`` changes
a server while it serves, ``overhead`` measures what it takes, ``export`` writes what other servers
run.

May import: arrivals, audit, cluster, policy, profiles, runtime, sim.
"""

from __future__ import annotations

from ramsis.lazy_names import names_from

__getattr__, __dir__ = names_from(globals(), {
    "ramsis.serving.load.run": "LoadResult generate_load",
    "ramsis.serving.load.settings": "LoadSettings",
    "ramsis.serving.server": "Server ServerSettings",
    "ramsis.serving.variants": "ServedVariant read_variants",
})
