"""Published placement schemes on the same problems, for comparison.

Each is a function of a problem and limits that returns a checked placement; :data:`PRESETS` finds
them by name.
"""

from __future__ import annotations

from collections.abc import Callable

from placement_milp.backend import Limits
from placement_milp.presets.alpaserve import alpaserve
from placement_milp.presets.gpu_sharing import gpu_sharing
from placement_milp.presets.infaas import infaas
from placement_milp.presets.infadapter import infadapter
from placement_milp.presets.jellyfish import jellyfish
from placement_milp.presets.nexus import nexus
from placement_milp.presets.proteus import proteus
from placement_milp.presets.sharing import igniter, queue_aware, usher, wao_usher
from placement_milp.problem import Problem
from placement_milp.result import Placement

__all__ = ["PRESETS", "alpaserve", "gpu_sharing", "igniter", "infaas", "infadapter", "jellyfish",
           "nexus", "proteus", "queue_aware", "usher", "wao_usher"]

PRESETS: dict[str, Callable[[Problem, Limits], Placement]] = {
    "proteus": proteus, "gpu-sharing": gpu_sharing, "nexus": nexus, "infaas": infaas,
    "infadapter": infadapter, "jellyfish": jellyfish, "alpaserve": alpaserve, "usher": usher,
    "wao-usher": wao_usher, "igniter": igniter,
    "queue-aware": queue_aware,
}
"""Presets by the names that the command line gives them."""
