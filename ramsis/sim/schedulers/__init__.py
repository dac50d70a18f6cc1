"""Schedulers of identical workers that hold all models, one file each.

Schedulers that load models are in ``loading``.
"""

from __future__ import annotations

from typing import Any

from ramsis.sim.schedulers.bentoml import BentoML
from ramsis.sim.schedulers.cascade_serve import CascadeServe
from ramsis.sim.schedulers.clipper import Clipper
from ramsis.sim.schedulers.delay import Delay
from ramsis.sim.schedulers.fixed import Fixed
from ramsis.sim.schedulers.fixed_threshold import FixedThreshold
from ramsis.sim.schedulers.greedy import Greedy
from ramsis.sim.schedulers.infaas import Infaas
from ramsis.sim.schedulers.jellyfish_plus import JellyfishPlus
from ramsis.sim.schedulers.model_switching import ModelSwitching
from ramsis.sim.schedulers.policies import Policies
from ramsis.sim.schedulers.slack_fit import SlackFit
from ramsis.sim.schedulers.symphony import Symphony

__all__ = ["FLEET_SCHEDULERS", "BentoML", "CascadeServe", "Clipper", "Delay", "Fixed",
           "FixedThreshold", "Greedy", "Infaas", "JellyfishPlus", "ModelSwitching", "Policies",
           "SlackFit", "Symphony"]

FLEET_SCHEDULERS: dict[str, type[Any]] = {
    kind.name: kind for kind in (JellyfishPlus, ModelSwitching, Greedy, Infaas, Clipper, BentoML,
                                   Symphony, Delay, Fixed, SlackFit,
                                   FixedThreshold, CascadeServe)
}
"""By the names that ``--scheduler`` takes; parameters are the fields of the class."""
