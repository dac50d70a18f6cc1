"""Reinforcement learning of scheduling: environment, rewards, training. Needs the extra ``rl``.

Running a trained agent needs no extra (:mod:`ramsis.studies.clockwork_rl.scheduler`).
"""

from __future__ import annotations

import importlib
from typing import Any

from ramsis.errors import InvalidValueError, install
from ramsis.studies.clockwork_rl.rewards import REWARDS, Reward, reward_named

__all__ = ["REWARDS", "Reward", "needing_extra", "reward_named"]


def needing_extra(module: str) -> Any:
    """Import a module of this package that needs the extra ``rl``; explain how to install it."""
    try:
        return importlib.import_module(f"{__name__}.{module}")
    except ImportError as error:
        reason = " ".join(str(error).split())[:120]
        raise InvalidValueError(f"training needs gymnasium, sb3-contrib and torch ({reason})",
                                where="rl", allowed=install("rl")) from error
