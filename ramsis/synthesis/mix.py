"""Policies of a mixed fleet for some loads, written to a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ramsis import __version__
from ramsis.cluster import SloClass, WorkerType
from ramsis.errors import OutputError, describe
from ramsis.policy import MANIFEST_NAME
from ramsis.policy.mix import MixLevel, remove_mix, write_mix
from ramsis.runtime.mix import MIX_NAME
from ramsis.synthesis.fleet import FleetSettings
from ramsis.synthesis.mix_problem import MixProblem
from ramsis.synthesis.settings import SynthesisSettings

__all__ = ["MixProblem", "generate_mix"]


def generate_mix(
    types: Sequence[WorkerType],
    classes: Sequence[SloClass],
    loads_qps: Sequence[float],
    settings: FleetSettings | SynthesisSettings,
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    on_level: Callable[[MixLevel], object] | None = None,
) -> tuple[MixLevel, ...]:
    """Write the policies of a mixed fleet for some loads, and the ``mix.json`` that lists them.

    The mix is written last, so a folder without one holds nothing finished.

    Parameters
    ----------
    types, classes, settings
        As for :class:`MixProblem`.
    loads_qps : sequence of float
        Of all queries, rising, > 0.
    overwrite : bool
        Replace the mix that the folder holds.

    Raises
    ------
    InvalidValueError, InfeasibleError, NotConvergedError
        As :class:`MixProblem` and :meth:`MixProblem.level`, before anything is written.
    OutputError
        The folder cannot be written, or holds a mix or a policy set already.
    """
    problem = MixProblem(types, classes, settings)
    for name in (MIX_NAME, MANIFEST_NAME):
        if (Path(folder) / name).exists() and not (overwrite and name == MIX_NAME):
            raise OutputError(describe("the folder holds policies already", where=str(folder),
                                       allowed="an empty folder, or --overwrite for a mix"))
    levels = []
    for load_qps in loads_qps:
        levels.append(problem.level(load_qps))
        if on_level is not None:
            on_level(levels[-1])
    if overwrite and (Path(folder) / MIX_NAME).exists():
        remove_mix(folder)
    write_mix(folder, levels, kind="fleet" if isinstance(settings, FleetSettings) else "worker",
              types={one.name: one.count or 0 for one in types}, classes=problem.classes,
              created_by=f"ramsis {__version__}")
    return tuple(levels)
