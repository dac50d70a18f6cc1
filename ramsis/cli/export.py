"""``ramsis export``: what other serving systems take."""

from __future__ import annotations

from pathlib import Path

import click

from ramsis import profiles
from ramsis.cli.params import OUT_FILE
from ramsis.cli.rows import progress
from ramsis.errors import InfeasibleError, InvalidValueError, describe
from ramsis.files import write_atomic
from ramsis.policy import Policy, PolicySet
from ramsis.serving.policies import check_served, read_policies
from ramsis.serving.ray_export import configuration, yaml_text
from ramsis.serving.variants import read_variants
from ramsis.sim import ConstantLoad
from ramsis.synthesis.capacity import Targets, fewest_workers

__all__ = ["export"]

_SECONDS = 10.0


@click.group("export")
def export() -> None:
    """Write what other serving systems take."""


@export.command("ray-serve")
@click.argument("policies", type=click.Path(path_type=Path), metavar="POLICIES")
@click.option("--variants", required=True, metavar="FILE",
              help="TOML file of the models to run, by the names in the policies.")
@click.option("--out", type=OUT_FILE, required=True,
              metavar="FILE", help="YAML file to write.")
@click.option("--overhead-ms", type=click.FloatRange(min=0), default=0.0, show_default=True,
              help="Taken from every slack: what service times do not contain.")
@click.option("--autoscale", "profile_name", metavar="FILE|NAME",
              help="Scale the workers by capacity answers for this profile, up to those of the "
              "policies.  [default: a fixed number]")
@click.option("--min-accuracy", type=float, metavar="X",
              help="With --autoscale: least mean accuracy of the queries answered in time.")
@click.option("--max-violation", type=float, default=0.001, show_default=True, metavar="X",
              help="With --autoscale: largest share of the queries that are late or dropped.")
@click.option("--startup-s", type=click.FloatRange(min=0), default=30.0, show_default=True,
              help="With --autoscale: how long a replica takes until it serves.")
def export_ray_serve(
    policies: Path,
    variants: str,
    out: Path,
    overhead_ms: float,
    profile_name: str | None,
    min_accuracy: float | None,
    max_violation: float,
    startup_s: float,
) -> None:
    """Write the configuration with which `serve run` of Ray serves by policies.

    A deployment of workers runs batches; a dispatcher forms them by table and deadline, and
    answers the Open Inference Protocol. On each node paths must be the same and `ramsis[ray]`
    installed. With --autoscale the number of workers follows the load that is anticipated when a
    new one would be ready: the fewest that `capacity` finds for it.

    \b
    Examples:
      $ ramsis export ray-serve policies_out/example --variants variants.toml --out app.yaml
    """
    found, models = read_policies(policies), read_variants(variants)
    check_served(found, [one.name for one in models.variants], None, variants)
    levels: list[tuple[float, int]] = []
    if profile_name is not None:
        levels = _levels(found, profile_name, Targets(max_violation, min_accuracy, None))
    write_atomic(out, yaml_text(configuration(
        found, policies, models, levels=levels, startup_s=startup_s, overhead_ms=overhead_ms)))
    for load_qps, workers in levels:
        click.echo(f"up to {load_qps:g} QPS: {workers} workers")
    click.echo(f"{out}: serve run {out}")


def _levels(
    policies: PolicySet[Policy], profile_name: str, targets: Targets
) -> list[tuple[float, int]]:
    """The fewest workers for each load of the policies, as far as they are enough."""
    most = sum(policies.worker_types.values())
    if len(policies.worker_types) > 1 or len(policies.slo_classes) > 1:
        raise InvalidValueError(describe("capacity is searched for one worker type and one SLO",
                                         where="--autoscale", allowed="policies of these"))
    profile, (slo_ms,) = profiles.load(profile_name), policies.slo_classes
    first = policies.levels[0].stations[0].policy
    loads = sorted({level.load_qps for level in policies.levels})
    levels: list[tuple[float, int]] = []
    with progress("loads", len(loads)) as advance:
        for load_qps in loads:
            try:
                workers = fewest_workers(
                    profile, ConstantLoad(load_qps, 1000.0 * _SECONDS), targets,
                    slo_ms=slo_ms, scheme=first.dispatch, service=first.service,
                    seeds=(0, 1)).workers
            except InfeasibleError:
                workers = most
            levels.append((load_qps, min(max(workers, levels[-1][1] if levels else 1), most)))
            advance()
    return levels
