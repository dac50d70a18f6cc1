"""Placement presets of GPU sharing, which :data:`placement_milp.presets.PRESETS` offers."""

from __future__ import annotations

from ramsis.studies.sharing.presets.gpu_sharing import gpu_sharing
from ramsis.studies.sharing.presets.policies import igniter, queue_aware, usher, wao_usher

__all__ = ["gpu_sharing", "igniter", "queue_aware", "usher", "wao_usher"]
