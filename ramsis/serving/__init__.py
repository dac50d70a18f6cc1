"""Serving by policies: a server for HTTP, and adapters for Ray Serve, MLServer and Triton.

Besides the server: ``load`` is a load generator, ``replanning`` exchanges policies while serving,
``overhead`` measures the dispatch overhead, ``export`` writes files for other servers.

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
