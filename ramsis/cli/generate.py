"""``ramsis generate``: policy files for load levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ramsis import profiles
from ramsis.cli.mixed import MixedFleet, fleet_of, generate_mixed
from ramsis.cli.options import load_option, mixed_fleet_options
from ramsis.cli.params import ByType
from ramsis.cli.policy_options import policy_options
from ramsis.cli.rows import (
    Column,
    budget_row,
    json_option,
    policy_row,
    print_json,
    print_rows,
    progress,
)
from ramsis.cluster.slo_class import SloClass
from ramsis.errors import InvalidValueError, describe
from ramsis.policy import (
    MANIFEST_NAME,
    Policy,
    policy_file_name,
)
from ramsis.synthesis import SynthesisSettings, choose_loads, generate_set

__all__ = ["PROMISE_COLUMNS", "generate"]

PROMISE_COLUMNS = (
    Column("load_qps", "load (QPS)", "g"),
    Column("expected_accuracy", "accuracy", ".4f"),
    Column("expected_violation_rate", "violations", ".4%"),
    Column("expected_effective_accuracy", "effective acc.", ".4f"),
    Column("upper_bound", "upper bound", ".4f"),
    Column("utilisation", "utilisation", ".1%"),
    Column("state", "state"),
)


@click.command("generate")
@mixed_fleet_options
@load_option()
@click.option("--out", required=True, metavar="DIR", type=click.Path(path_type=Path),
              help="Folder for the policy files and their manifest.")
@policy_options()
@click.option("--max-accuracy-step", type=float, default=None, metavar="X",
              help="Choose the fewest levels between the lowest and the highest --load whose "
                   "expected accuracies differ by at most X, such as 0.01.")
@click.option("--overwrite", is_flag=True,
              help="Remove the set that DIR holds before writing, whatever it was made from.")
@json_option
def generate(
    profile_names: ByType[str],
    slo_ms: tuple[SloClass, ...],
    workers: ByType[int],
    loads: tuple[float, ...],
    out: Path,
    settings: dict[str, Any],
    max_accuracy_step: float | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Make a model-selection policy for each load level.

    With --dispatch central-queue the policy decides about one queue for all workers. Which values
    of the other options go with which dispatch, and why: docs/options.md.

    Writes one policy file per level and a manifest into DIR, and prints what each policy will
    deliver: accuracy of the queries answered in time, share of SLO violations, effective
    accuracy (late queries count 0), and the upper bound that no scheme with batches up to
    --max-queue can beat. State OVERLOAD: the load passes the capacity, or more than a tenth of
    the queries will be late. A set in DIR made from the same inputs is extended, also by
    policies for another arrival process. `ramsis arrivals fit` finds the process of a trace.

    With several worker types or SLO classes DIR gets a folder of policies for each station, and
    the manifest says which share of each class goes to which station;
    "shared" and "apart" are what classes get from common workers and from workers of their own,
    of which the better is made.

    \b
    Examples:
      $ ramsis generate --profiles digits-cpu --slo-ms 100 --workers 4 --load 50:200:50 --out out
      $ ramsis generate --profiles digits-cpu --slo-ms 100 --workers 4 --load 80 --out out2 --json
      $ ramsis generate --profiles digits-cpu --slo-ms 25 --workers 40 --load 4000 --dispatch central-queue --out out3
      $ ramsis generate --profiles digits-cpu --slo-ms 15:0.3,25:0.7 --workers 8 --load 400 --dispatch central-queue --out out4
      $ ramsis generate --profiles digits-cpu --slo-ms 25 --workers 4 --load 400 --dispatch shortest-queue --out out5
    """  # noqa: E501 - an example is one line
    if None not in (settings["max_violation"], settings["violation_price"]):
        raise click.UsageError("--max-violation finds the price: leave --violation-price out.")
    serving = fleet_of(profile_names, slo_ms, workers)
    chosen = SynthesisSettings(slo_ms=serving.slo_ms, workers=serving.workers, **settings)
    if isinstance(serving, MixedFleet):
        if max_accuracy_step is not None:
            raise InvalidValueError(describe("not for a mixed fleet", where="--max-accuracy-step",
                                             value=max_accuracy_step, allowed="levels in --load"))
        generate_mixed(serving, loads, chosen, out, overwrite=overwrite, as_json=as_json)
        return
    profile = profiles.load(profile_names.one)
    if max_accuracy_step is not None:
        with progress("choosing load levels", 1):
            loads = choose_loads(profile, loads[0], loads[-1], chosen, max_accuracy_step)
    with progress("policies", len(loads)) as advance:
        policies = generate_set(
            profile, loads, chosen, out, overwrite=overwrite, on_policy=lambda _: advance()
        )
    rows = [_row(policy, out) for policy in policies]
    if as_json:
        print_json(rows)
        return
    print_rows(PROMISE_COLUMNS, rows)
    count = f"{len(policies)} {'policy' if len(policies) == 1 else 'policies'}"
    click.echo(f"\n{count} in {out} ({MANIFEST_NAME} lists them)")


def _row(policy: Policy, folder: Path) -> dict[str, object]:
    name = policy_file_name(policy.dispatch, policy.load_qps, policy.arrivals)
    state = "OVERLOAD" if policy.expectations.overloaded else "ok"
    if policy.randomised is not None:
        state += ", one action by chance"
    return {**policy_row(policy), **budget_row(policy), "file": str(folder / name),
            "state": state}
