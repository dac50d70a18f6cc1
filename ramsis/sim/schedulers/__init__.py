"""Schedulers of like workers that hold all models, one file each; others are in ``loading``."""

from __future__ import annotations

from typing import Any

from ramsis.sim.schedulers.bentoml import BentoML
from ramsis.sim.schedulers.clipper import Clipper
from ramsis.sim.schedulers.delay import Delay
from ramsis.sim.schedulers.fixed import Fixed
from ramsis.sim.schedulers.greedy import Greedy
from ramsis.sim.schedulers.infaas import Infaas
from ramsis.sim.schedulers.jellyfish_plus import JellyfishPlus
from ramsis.sim.schedulers.model_switching import ModelSwitching
from ramsis.sim.schedulers.policies import Policies
from ramsis.sim.schedulers.symphony import Symphony

__all__ = ["FLEET_SCHEDULERS", "BentoML", "Clipper", "Delay", "Fixed", "Greedy", "Infaas",
           "JellyfishPlus", "ModelSwitching", "Policies", "Symphony"]

FLEET_SCHEDULERS: dict[str, type[Any]] = {
    kind.name: kind for kind in (JellyfishPlus, ModelSwitching, Greedy, Infaas, Clipper, BentoML,
                                   Symphony, Delay, Fixed)
}
"""By the names that ``--scheduler`` takes; parameters are the fields of the class."""
