"""Schedulers of like workers that hold all models, one file each, and their names."""

from __future__ import annotations

from typing import Any

from ramsis.sim.schemes.bentoml import BentoML
from ramsis.sim.schemes.clipper import Clipper
from ramsis.sim.schemes.fixed import Fixed
from ramsis.sim.schemes.greedy import Greedy
from ramsis.sim.schemes.infaas import Infaas
from ramsis.sim.schemes.jellyfish_plus import JellyfishPlus
from ramsis.sim.schemes.model_switching import ModelSwitching
from ramsis.sim.schemes.policies import Policies
from ramsis.sim.schemes.symphony import Symphony

__all__ = ["SCHEMES", "BentoML", "Clipper", "Fixed", "Greedy", "Infaas", "JellyfishPlus",
           "ModelSwitching", "Policies", "Symphony"]

SCHEMES: dict[str, type[Any]] = {
    kind.name: kind for kind in (JellyfishPlus, ModelSwitching, Greedy, Infaas, Clipper, BentoML,
                                   Symphony, Fixed)
}
"""By the names that ``--scheduler`` takes; parameters are the fields of the class."""
