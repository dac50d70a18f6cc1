"""From a profile to policies: one per load level, with what each will deliver.

How a policy is made depends on the dispatch rule; see :mod:`ramsis.synthesis.recipes`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from ramsis.errors import InputFileError, InvalidValueError, OutputError, describe
from ramsis.files import fingerprint
from ramsis.policy import MANIFEST_NAME, Policy, SetFolder, level_of, read_set, remove_set
from ramsis.profiles import ProfileSet
from ramsis.runtime.manifest import read_manifest
from ramsis.runtime.policy_set import ALL_WORKERS
from ramsis.synthesis.levels import adaptive_levels
from ramsis.synthesis.recipes import RECIPES
from ramsis.synthesis.settings import SynthesisSettings

__all__ = ["choose_loads", "generate_policy", "generate_set"]

_HARDLY_ANY_IN_TIME = 0.999  # violation rate above which the accuracy of the rest says nothing


def generate_policy(
    profile: ProfileSet, load_qps: float, settings: SynthesisSettings
) -> Policy:
    """The best policy for one load, with its promise and certificate.

    Raises
    ------
    InvalidValueError
        A number out of range.
    InfeasibleError
        An SLO below every latency; a budget of violations that cannot be met.
    NotConvergedError
        The solver stopped before its rule was met.
    """
    return _prepared(profile, load_qps, settings)()


def _prepared(
    profile: ProfileSet, load_qps: float, settings: SynthesisSettings
) -> Callable[[], Policy]:
    """The synthesis for one load, its input checked."""
    if settings.max_violation is not None:
        _prepared(profile, load_qps, priced(settings, 1.0))
        return partial(_within_budget, profile, load_qps, settings)
    recipe = RECIPES[settings.dispatch]
    problem = recipe.problem(profile, load_qps, settings)
    return partial(recipe.policy, profile, load_qps, settings, problem)


def priced(
    settings: SynthesisSettings, price: float
) -> SynthesisSettings:
    """The settings with a price instead of a budget of violations."""
    return replace(settings, violation_price=price, max_violation=None)


def _within_budget(
    profile: ProfileSet, load_qps: float, settings: SynthesisSettings
) -> Policy:
    from ramsis.synthesis.budget import policy_within

    assert settings.max_violation is not None
    policy = policy_within(lambda price: _prepared(profile, load_qps, priced(settings, price))(),
                           settings.max_violation, own_arrivals=settings.arrivals)
    # The search's own settings had a price instead.
    inputs = replace(policy.inputs, settings=fingerprint(settings.as_dict()))
    return replace(policy, inputs=inputs)


def choose_loads(
    profile: ProfileSet,
    lowest_qps: float,
    highest_qps: float,
    settings: SynthesisSettings,
    max_accuracy_step: float,
) -> tuple[float, ...]:
    """The fewest load levels whose expected accuracies differ by at most a step.

    See :func:`ramsis.synthesis.levels.adaptive_levels`; a policy is made for each load tried.
    It is the accuracy of the queries in time, so overload, where the fastest model does all
    work, takes few levels; where hardly any is in time it is that model's.

    Raises
    ------
    InvalidValueError, NotConvergedError
        As :func:`generate_policy`, and for a range or a step out of range.
    """
    def accuracy_at(load_qps: float) -> float:
        policy = _prepared(profile, load_qps, settings)()
        expected = policy.expectations
        if expected.accuracy is None or expected.violation_rate > _HARDLY_ANY_IN_TIME:
            return policy.models[0].accuracy
        return expected.accuracy

    return adaptive_levels(accuracy_at, lowest_qps, highest_qps, max_accuracy_step)


def generate_set(
    profile: ProfileSet,
    loads_qps: Sequence[float],
    settings: SynthesisSettings,
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    on_policy: Callable[[Policy], None] | None = None,
) -> tuple[Policy, ...]:
    """Write a policy file for each load, and the manifest of the folder.

    The manifest is brought up to date after every file, so an interruption leaves a valid set
    of the loads that are finished. A folder that holds a set made from the same profile and
    settings is extended, with other loads or another arrival process; what it has already is
    made anew.

    Parameters
    ----------
    loads_qps : sequence of float
    folder : path
        Made when missing.
    overwrite : bool
        Remove the set that the folder holds, whatever it was made from, before writing.
    on_policy : callable, optional
        Told each policy as its file is finished.

    Raises
    ------
    InvalidValueError, NotConvergedError
        As :func:`generate_policy`; a load out of range before anything is written.
    OutputError
        The folder cannot be written, or holds a set made from something else.
    """
    if not loads_qps:
        raise InvalidValueError(describe("no loads", where="loads_qps", allowed="one or more"))
    # All of them, before anything is touched.
    prepared = [_prepared(profile, load_qps, settings) for load_qps in loads_qps]
    made = (make() for make in prepared)
    first = next(made)
    target = _target(Path(folder), first, overwrite)
    policies: list[Policy] = []
    for policy in chain([first], made):
        target.add(level_of(policy))
        policies.append(policy)
        if on_policy is not None:
            on_policy(policy)
    return tuple(policies)


def _target(folder: Path, policy: Policy, overwrite: bool) -> SetFolder:
    """The folder of a set of such policies, with what it has already."""
    target = SetFolder.of(folder, policy)
    if not os.path.exists(folder / MANIFEST_NAME):
        return target
    if _is_divided(folder):
        raise OutputError(describe("the folder holds policies of several stations or types",
                                   where=str(folder), allowed="another folder"))
    if overwrite:
        remove_set(folder)
        return target
    for level in read_set(folder).levels:
        if level.policy.inputs != policy.inputs:
            raise OutputError(
                describe("the folder holds policies made from another profile or other settings",
                         where=str(folder), value=level.policy.inputs.profile_name,
                         allowed="an empty folder, or --overwrite")
            )
    target.keep_present()
    return target


def _is_divided(folder: Path) -> bool:
    """Whether a folder holds a set of several stations or worker types; not if it is damaged."""
    try:
        found = read_manifest(folder)
    except InputFileError:
        return False
    return set(found.worker_types) != {ALL_WORKERS} or any(
        len(level.stations) > 1 for level in found.levels)
