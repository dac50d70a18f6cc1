"""Clusters from command-line options: worker types with their profiles, and SLO classes."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import click

from ramsis import profiles
from ramsis.cli.options.shared import scheduler_option
from ramsis.cluster import Cluster, SloClass, default_service
from ramsis.cluster.parsing import ByType, named_cluster
from ramsis.cluster.service_times import DISTRIBUTION, FIXED
from ramsis.errors import InvalidValueError
from ramsis.policy import DISPATCHES
from ramsis.profiles import ProfileSet
from ramsis.runtime.routing import DISPATCH_NAMES

BOTH = ("round-robin", "central-queue")
"""Default comparison: a queue for each worker, and a central queue."""

_CASCADES = "cascades=true"
_Command = Callable[..., Any]

_STATISTICS = {"mean": "means", "p50": "medians", "p90": "90th percentiles",
               "p99": "99th percentiles"}


def profiles_of(
    profile_names: ByType[str], models: Sequence[str] | None, overhead_ms: float = 0.0
) -> dict[str, ProfileSet]:
    """Read the profiles that ``--profiles`` names, with the overhead added; return them by file.

    If ``--service`` is not given and they have only one statistic, a note names it.

    Parameters
    ----------
    models : sequence of str, optional
        Models to keep; of several profiles each keeps those that it has. All by default.
    """
    sets = {file: profiles.load(file) for file in profile_names.values.values()}
    service = default_service(*sets.values())
    if service not in (DISTRIBUTION, FIXED) and not click.get_current_context().params.get(
            "service"):
        click.echo(f"note: service times are {_STATISTICS[service]}, as the profile has no other "
                   "statistic: it does not show how they vary", err=True)
    return {file: profile.with_overhead(overhead_ms)
            for file, profile in _kept(sets, models).items()}


def _kept(
    sets: Mapping[str, ProfileSet], models: Sequence[str] | None
) -> Mapping[str, ProfileSet]:
    if models is None:
        return sets
    model_names = list(dict.fromkeys(model.name for profile in sets.values()
                                     for model in profile.models))
    for name in models:
        if name not in model_names:
            near = difflib.get_close_matches(name, model_names, n=3) or model_names
            raise InvalidValueError("no such model in the profile", where="--models", value=name,
                                    allowed=", ".join(near))
    kept = {file: [model.name for model in profile.models if model.name in models]
            for file, profile in sets.items()}
    for file, names in kept.items():
        if not names:
            raise InvalidValueError(f"the profile {file} has none of these models",
                                    where="--models", value=", ".join(models),
                                    allowed=", ".join(model.name for model in sets[file].models))
    return {file: profile.subset(kept[file]) for file, profile in sets.items()}


def cluster_of(
    profile_names: ByType[str], classes: tuple[SloClass, ...], workers: ByType[int],
    models: Sequence[str] | None = None, overhead_ms: float = 0.0,
) -> Cluster:
    """Return the cluster that the options describe; profiles are read by :func:`profiles_of`."""
    @cache  # read once the names are known to fit
    def read() -> dict[str, ProfileSet]:
        return profiles_of(profile_names, models, overhead_ms)

    return named_cluster(profile_names, classes, workers, ("--profiles", "--workers"),
                         lambda file: read()[file])


def cluster_terms(cluster: Cluster) -> dict[str, Any]:
    """Return the columns of a row that describe the cluster."""
    return {
        "workers": cluster.workers, "slo_ms": cluster.slo_ms,
        "worker_types": {worker_type.name: worker_type.count
                         for worker_type in cluster.worker_types},
        "slo_classes": [{"slo_ms": slo_class.slo_ms, "share": slo_class.share}
                        for slo_class in cluster.classes],
    }


def cluster_terms_if_several(cluster: Cluster) -> dict[str, Any]:
    """Return the terms of a cluster, without types and classes for a single one of each."""
    terms = cluster_terms(cluster)
    if cluster.simple:
        return {name: terms[name] for name in ("workers", "slo_ms")}
    return terms


def also_with_cascades(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return schedulers and, for each whose policies can, the same with second opinions.

    >>> also_with_cascades(("greedy", "central-queue:max_queue=16"))
    ('greedy', 'central-queue:max_queue=16', 'central-queue:max_queue=16,cascades=true')
    """
    able = [name for name, rule in DISPATCHES.items() if rule.in_turn]
    added = [f"{name}{',' if ':' in name else ':'}{_CASCADES}" for name in names
             if name.partition(":")[0] in able and "cascades=" not in name]
    if not added:
        raise click.UsageError(f"--cascades takes --dispatch {' or '.join(able)}.")
    return (*names, *added)


def dispatch_words(name: str) -> list[str]:
    """Return the options of ``generate`` for a dispatch, with or without second opinions."""
    dispatch, _, settings = name.partition(":")
    return ["--dispatch", dispatch, *(["--cascades"] if settings == _CASCADES else [])]


def compared_options(type_: click.ParamType[Any], help_: str) -> Callable[[_Command], _Command]:
    """Add ``--dispatch`` and ``--scheduler`` to a command that compares schedulers.

    The command gets ``schedulers``, a tuple of the values parsed by ``type_``, and ``named``,
    which is False without names; ``schedulers`` are then :data:`BOTH`.

    Parameters
    ----------
    type_ : click.ParamType
        Type of a scheduler's name.
    help_ : str
        Help text of ``--scheduler``.
    """

    def add(command: _Command) -> _Command:
        @functools.wraps(command)
        def gathered(
            *positional: Any, dispatches: tuple[str, ...], schedulers: tuple[Any, ...],
            **options: Any,
        ) -> Any:
            read = functools.partial(type_.convert, param=None, ctx=None)
            named = (*map(read, dispatches), *schedulers)
            return command(*positional, schedulers=named or tuple(map(read, BOTH)),
                           named=bool(named), **options)

        decorated: _Command = gathered
        for option in (
            scheduler_option(help_, type=type_, metavar="NAME"),
            click.option("--dispatch", "dispatches", type=click.Choice(list(DISPATCHES)),
                         multiple=True, metavar="NAME",
                         help=f"Policies by how requests reach workers: {DISPATCH_NAMES}.\nRepeat "
                         "to compare.  "
                         f"[default: {' and '.join(BOTH)}]"),
        ):
            decorated = option(decorated)
        return decorated

    return add
