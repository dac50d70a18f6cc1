"""Policies of several stations for some loads, written to a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ramsis import __version__
from ramsis.cluster import SloClass, WorkerType
from ramsis.errors import OutputError, describe
from ramsis.policy import MANIFEST_NAME, Level, Policy, PolicySet, remove_set, write_set
from ramsis.synthesis.mix_problem import MixProblem
from ramsis.synthesis.settings import SynthesisSettings

__all__ = ["MixProblem", "generate_mix"]


def generate_mix(
    types: Sequence[WorkerType],
    classes: Sequence[SloClass],
    loads_qps: Sequence[float],
    settings: SynthesisSettings,
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    on_level: Callable[[Level[Policy]], object] | None = None,
) -> PolicySet[Policy]:
    """Write the policies of several stations for some loads, and their manifest.

    The manifest is written last, so a folder without one holds nothing finished.

    Parameters
    ----------
    types, classes, settings
        As for :class:`MixProblem`.
    loads_qps : sequence of float
        Of all queries, rising, > 0.
    overwrite : bool
        Replace the set that the folder holds.

    Raises
    ------
    InvalidValueError, InfeasibleError, NotConvergedError
        As :class:`MixProblem` and :meth:`MixProblem.level`, before anything is written.
    OutputError
        The folder cannot be written, or holds a policy set already.
    """
    problem = MixProblem(types, classes, settings)
    present = (Path(folder) / MANIFEST_NAME).exists()
    if present and not overwrite:
        raise OutputError(describe("the folder holds policies already", where=str(folder),
                                   allowed="an empty folder, or --overwrite"))
    levels = []
    for load_qps in loads_qps:
        levels.append(problem.level(load_qps))
        if on_level is not None:
            on_level(levels[-1])
    if present:
        remove_set(folder)
    policies = PolicySet(levels, {one.name: one.count or 0 for one in types},
                         {one.slo_ms: one.share for one in problem.classes})
    write_set(folder, policies, created_by=f"ramsis {__version__}")
    return policies
