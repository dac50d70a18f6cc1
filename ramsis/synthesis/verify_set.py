"""Checking what a policy set says of several stations together.

Each station's policy is checked by itself (:mod:`ramsis.synthesis.verify`). Of a level remain the
shares of the classes, the loads that come to the stations by these, and the promise: the sums of
what the stations promise, by their loads.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

from ramsis.policy import Level, Policy, rates_of, validate_set
from ramsis.runtime.manifest import read_manifest
from ramsis.synthesis.checks import Check, close

__all__ = ["verify_levels"]

_ROUNDING = 1e-6


def verify_levels(folder: str | os.PathLike[str], tolerance: float) -> tuple[Check, ...]:
    """The claims of the levels with several stations; none where each level has one.

    Parameters
    ----------
    folder : path
        Of the manifest.
    tolerance : float
        Largest difference between a stated and a derived figure, > 0.

    Raises
    ------
    InputFileError
        The folder holds no valid set.
    """
    if all(len(level.stations) == 1 for level in read_manifest(Path(folder)).levels):
        return ()
    policies = validate_set(folder)
    return tuple(check for level in policies.levels if len(level.stations) > 1
                 for check in _checks(level, policies.slo_classes, tolerance))


def _checks(level: Level[Policy], classes: Mapping[float, float], tolerance: float) -> list[Check]:
    at = f"at {level.load_qps:g} QPS"
    checks = [close(f"share of the class of {slo_ms:g} ms {at}", 1.0, math.fsum(
        one.share.get(slo_ms, 0.0) for one in level.stations), _ROUNDING) for slo_ms in classes]
    checks += [close(f"load of {one.name} {at}", one.load_qps, level.load_qps * math.fsum(
        share * classes[slo_ms] for slo_ms, share in one.share.items()),
        _ROUNDING * level.load_qps) for one in level.stations]
    derived = rates_of((one.load_qps / level.load_qps, one.policy) for one in level.stations)
    return checks + [
        close(f"{name.replace('_', ' ')} {at}", level.expected[f"expected_{name}"],
              getattr(derived, name), tolerance)
        for name in ("accuracy", "violation_rate", "effective_accuracy")]
