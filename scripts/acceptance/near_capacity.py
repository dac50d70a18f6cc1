"""Near the capacity, where models of central queues are at their worst: 300 workers, and p95.

Held to what :mod:`acceptance.random_settings` allows, up to and beyond the capacity. Two settings
are of the profiles of the public artifact, which are not shipped.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from acceptance.line import Line
from acceptance.random_settings import promise_row, promise_verdict
from acceptance.setting import Setting, capacity_qps, of_share

__all__ = ["LINE", "of_reference"]

MANY = 300
FLEETS = (("digits-cpu", 3.0), ("text-cpu", 95.0), ("image-cpu", 350.0))
SHARES = (0.9, 0.95, 1.0, 1.05)
REFERENCE = ((150.0, 60, 3200.0), (147.0, 30, 1530.0))
"""SLO, workers and load of the settings of the public artifact's image models."""
_BEYOND = 1.1


def _settings(seed: int) -> list[Setting]:
    return [of_share(*fleet, MANY, share, "central-queue", service="p95")
            for fleet in FLEETS for share in SHARES]


def of_reference(folder: Path) -> list[Setting]:
    """The two settings of the public artifact's profiles, which lie in a folder."""
    name = str(folder / "ramsis_image_profiles.csv")
    return [Setting(name, slo_ms, workers, load_qps, round(load_qps / capacity_qps(
                name, slo_ms, workers, "central-queue", service="p95"), 3),
                "central-queue", {"service": "p95"})
            for slo_ms, workers, load_qps in REFERENCE]


LINE = Line("Near the capacity", _settings, promise_row, partial(promise_verdict, near=_BEYOND))
