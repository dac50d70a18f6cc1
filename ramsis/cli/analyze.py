"""``ramsis analyze``: what policies promise, a row for each."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ramsis.cli.params import FIGURE
from ramsis.cli.rows import Column, json_option, policy_row, print_json, print_rows
from ramsis.policy import Policy, read, read_set

__all__ = ["analyze"]

_COLUMNS = (
    Column("load_qps", "load (QPS)", "g"),
    Column("expected_accuracy", "accuracy", ".4f"),
    Column("expected_violation_rate", "violations", ".4%"),
    Column("expected_effective_accuracy", "effective acc.", ".4f"),
    Column("upper_bound", "upper bound", ".4f"),
    Column("utilisation", "utilisation", ".1%"),
    Column("batch", "batch p50/p99"),
    Column("queue", "queue p50/p99"),
    Column("slack", "slack ms p50"),
    Column("main_model", "most used model"),
    Column("solved", "certificate"),
    Column("state", "state"),
)


@click.command("analyze")
@click.argument("sources", nargs=-1, required=True, metavar="DIR|FILE...")
@json_option
@click.option("--plot", type=FIGURE, metavar="FILE",
              help="Draw accuracy, bound and violations against the load (png, pdf or svg; "
                   "needs the extra 'plot').")
def analyze(sources: tuple[str, ...], as_json: bool, plot: Path | None) -> None:
    """Show what policies promise: expectations, quantiles and certificate.

    Each argument is a policy file, or a folder with a manifest. Batch sizes are those that
    queries are served in; queue and slack are those found at a decision. The certificate gives
    how far the gain can be from the optimum of its model.

    \b
    Examples:
      $ ramsis analyze policies_out/example
      $ ramsis analyze policies_out/example --json
    """
    policies = [policy for source in sources for policy in _policies(source)]
    rows = [_row(policy) for policy in policies]
    if plot is not None:
        from ramsis.report.promises import plot_promises

        plot_promises(policies, plot)
        click.echo(f"figure in {plot}", err=True)
    if as_json:
        print_json(rows)
    else:
        print_rows(_COLUMNS, [{**row, **_words(p)} for row, p in zip(rows, policies, strict=True)])


def _policies(source: str) -> tuple[Policy, ...]:
    if not Path(source).is_dir():
        return (read(source),)
    return tuple(station.policy for level in read_set(source).levels
                 for station in level.stations)


def _row(policy: Policy) -> dict[str, Any]:
    expected = policy.expectations
    return {
        **policy_row(policy),
        "objective": policy.objective,
        "per_decision": asdict(expected.per_decision),
        "batch_size": asdict(expected.batch_size),
        "queue_length": asdict(expected.queue_length),
        "slack_ms": asdict(expected.slack_ms),
        "model_share": dict(expected.model_share),
        "full_queue_rate": expected.full_queue_rate,
        "certificate": asdict(policy.certificate),
    }


def _words(policy: Policy) -> dict[str, str]:
    """Columns that are short texts."""
    expected, proof = policy.expectations, policy.certificate
    used = max(expected.model_share.items(), key=lambda item: item[1], default=None)
    gap = "–" if proof.gain_upper is None else f"gap {max(0.0, proof.gain_upper - proof.gain):.0e}"
    return {
        "batch": f"{expected.batch_size.p50:g}/{expected.batch_size.p99:g}",
        "queue": f"{expected.queue_length.p50:g}/{expected.queue_length.p99:g}",
        "slack": f"{expected.slack_ms.p50:.1f}",
        "main_model": "–" if used is None else f"{used[0]} ({used[1]:.0%})",
        "solved": f"{proof.solver}, {gap}",
        "state": "OVERLOAD" if expected.overloaded else "ok",
    }
