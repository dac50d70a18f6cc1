"""Simulation of GPU sharing on the cluster engine: router, interference, figures."""

from __future__ import annotations

from ramsis.studies.sharing.play.metrics import (
    ModelFigures,
    ReplicaFigures,
    SharingFigures,
    measure_sharing,
)
from ramsis.studies.sharing.play.play import (
    InterferenceSlowdown,
    Played,
    SharedCluster,
    play,
    replanned,
)
from ramsis.studies.sharing.play.router import Router, SentBatch

__all__ = ["InterferenceSlowdown", "ModelFigures", "Played", "ReplicaFigures", "Router",
           "SentBatch", "SharedCluster", "SharingFigures", "measure_sharing", "play",
           "replanned"]
