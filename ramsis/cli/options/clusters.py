"""Clusters from command-line options: worker types with their profiles, and SLO classes."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import click

from ramsis import profiles
from ramsis.cli.options.shared import gathered, scheduler_option, with_options
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


@dataclass(frozen=True)
class Served:
    """Options on profiles, SLO and workers; None where a command does not require them."""

    profile_names: ByType[str]
    slo_ms: tuple[SloClass, ...]
    workers: ByType[int] | None = None
    models: Sequence[str] | None = None  # all by default; of several profiles each has its own
    overhead_ms: float = 0.0

    def require(self) -> None:
        """Refuse a command line that names no profile, SLO or workers."""
        for option, value in (("--profiles", self.profile_names), ("--slo-ms", self.slo_ms),
                              ("--workers", self.workers)):
            if value is None:
                raise click.UsageError(f"Missing option '{option}'.")

    def profiles(self) -> dict[str, ProfileSet]:
        """Read the profiles, with the overhead added; return them by file.

        If ``--service`` is not given and they have only one statistic, a note names it.
        """
        sets = {file: profiles.load(file) for file in self.profile_names.values.values()}
        service = default_service(*sets.values())
        if service not in (DISTRIBUTION, FIXED) and not click.get_current_context().params.get(
                "service"):
            click.echo(f"note: service times are {_STATISTICS[service]}, as the profile has no "
                       "other statistic: it does not show how they vary", err=True)
        return {file: profile.with_overhead(self.overhead_ms)
                for file, profile in _kept(sets, self.models).items()}

    def profile(self) -> ProfileSet:
        """Read the profile of the workers, where no worker types are named."""
        return self.profiles()[self.profile_names.one]

    def cluster(self) -> Cluster:
        """Return the cluster; its profiles are read once the names are known to fit."""
        assert self.workers is not None
        read = cache(self.profiles)
        return named_cluster(self.profile_names, self.slo_ms, self.workers,
                             ("--profiles", "--workers"), lambda file: read()[file])


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

    The command gets ``schedulers``, a tuple of the values parsed by ``type_``; an empty one stands
    for :data:`BOTH`. ``help_`` is the help text of ``--scheduler``.
    """

    def named(dispatches: tuple[str, ...], schedulers: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*(type_.convert(name, None, None) for name in dispatches), *schedulers)

    def add(command: _Command) -> _Command:
        return with_options(
            command,
            click.option("--dispatch", "dispatches", type=click.Choice(list(DISPATCHES)),
                         multiple=True, metavar="NAME",
                         help=f"Policies by how requests reach workers: {DISPATCH_NAMES}.\nRepeat "
                         f"to compare.  [default: {' and '.join(BOTH)}]"),
            scheduler_option(help_, type=type_, metavar="NAME"),
            gathered(schedulers=named))

    return add
