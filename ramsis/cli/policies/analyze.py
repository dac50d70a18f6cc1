"""``ramsis analyze``: tabulate the expectations of policies.

A run of MLPerf's load generator (``--loadgen``) states percentiles of the latency. So the share of
late requests is known only up to the two levels between which the deadline lies. Let k be the
least number of late requests of n that these levels allow. The promise of a violation rate v
counts as broken if P(Binomial(n, v) >= k) < 0.01. The test ignores that late requests occur in
clusters, so a promise that is broken by little may be broken by chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from ramsis import report
from ramsis.cli.options.command import Command
from ramsis.cli.options.param_types import complete_files
from ramsis.cli.options.shared import plot_option
from ramsis.cli.output.rows import (
    Column,
    gap_words,
    policy_row,
    print_json,
    print_rows,
    say,
    table_options,
)
from ramsis.errors import InvalidValueError, VerificationError
from ramsis.policy import Policy, read, read_set
from ramsis.profiles.importers.mlperf import ServerRun, read_server
from ramsis.report.columns import PROMISED
from ramsis.synthesis.certified import gap_of_promise

_LEVEL = 0.01  # probability under the promise below which it is taken as broken

_COLUMNS = (
    *PROMISED,
    Column("certified_gap", "certified gap", ".2%"),
    Column("utilisation", "utilisation", ".1%", wide=True),
    Column("request_accuracy", "accuracy p1/p50/p99", wide=True),
    Column("batch", "batch p50/p99", wide=True),
    Column("queue", "queue p50/p99", wide=True),
    Column("slack", "slack p50 (ms)", wide=True),
    Column("response", "response p50/p99 (ms)", wide=True),
    Column("main_model", "most used model", wide=True),
    Column("solved", "certificate", wide=True),
    Column("state", "state"),
)

_LEVELS = (0.01, 0.5, 0.99)


@click.command("analyze", cls=Command)
@click.argument("sources", nargs=-1, required=True, metavar="DIR|FILE...",
                shell_complete=complete_files)
@table_options
@plot_option("accuracy, bound and violations over the load")
@click.option("--loadgen", type=click.Path(dir_okay=False), metavar="FILE",
              help="Compare the promise with a measurement: the summary of MLPerf's loadgen, "
                   "Server scenario.")
def analyze(
    sources: tuple[str, ...], as_json: bool, plot: Path | None, loadgen: str | None
) -> None:
    """Show the promises of policies: expectations, quantiles and certificate.

    Each argument is a policy file, or a folder with a manifest. Quantiles of accuracy (99 % of the
    requests have at least p1) and of batch size are over the requests, those of queue and slack
    over the decisions. Response times are from arrival to answer. The certified gap is the
    relative gap of the promise to the bound on every scheduler that answers each request by one
    model, at the policy's own violation price. The certificate bounds how far the policy's gain
    (mean reward less the prices of violations and delays) is below the optimum of the decision
    problem that was solved.

    With --loadgen the measured run is compared with the policy for the lowest load that is at
    least the run's load. The exit code is 6 if significantly more requests were late than promised
    (level 1 %).

    \b
    Examples:
      $ ramsis analyze policies_out/example
      $ ramsis analyze policies_out/example --json
    """
    policies = [policy for source in sources for policy in _policies(source)]
    rows = [_row(policy) for policy in policies]
    held = None if loadgen is None else hold_against(policies, read_server(loadgen))
    if as_json:
        print_json(rows, **({} if held is None else {"loadgen": asdict(held)}))
    else:
        usual = all(policy.slowness == 1.0 for policy in policies)
        print_rows([column for column in _COLUMNS if column.key != "slowness" or not usual],
                   [{**row, **_words(p)} for row, p in zip(rows, policies, strict=True)])
        say(gap_words(policies))
    if plot is not None:
        report.plot_promises(rows, plot)
        click.echo(f"figure in {plot}", err=True)
    if held is not None:
        if not as_json:
            click.echo()
            say(_in_words(held))
        if not held.kept:
            raise VerificationError(
                "the promise was not kept in this run: measure the profile through the server "
                "(`ramsis serve --calibrate`), or make policies with a larger --headroom")


def _policies(source: str) -> tuple[Policy, ...]:
    if not Path(source).is_dir():
        return (read(source),)
    return tuple(station.policy for level in read_set(source).levels
                 for station in level.stations)


def _in_words(held: Held) -> str:
    run = held.run
    late = (f"{run.late_low:.2%}" if run.late_low == run.late_high
            else f"{run.late_low:.2%} to {run.late_high:.2%}")
    return (f"loadgen, Server: {run.queries} queries at {run.load_qps:g} QPS, {late} later than "
            f"{run.slo_ms:g} ms (result {run.result}); the policy for {held.policy_qps:g} QPS "
            f"promises {held.promised:.4%}: {'kept' if held.kept else 'NOT KEPT'}")


def _row(policy: Policy) -> dict[str, Any]:
    expected = policy.expectations
    return {
        **policy_row(policy),
        "objective": policy.objective,
        "per_decision": asdict(expected.per_decision),
        "request_accuracy": {f"p{100 * level:02.0f}": policy.accuracy_quantile(level)
                             for level in _LEVELS},
        "request_late": {f"p{100 * level:02.0f}": expected.violation_rate > 1.0 - level
                         for level in _LEVELS},
        "batch_size": asdict(expected.batch_size),
        "queue_length": None if expected.queue_length is None else asdict(expected.queue_length),
        "slack_ms": None if expected.slack_ms is None else asdict(expected.slack_ms),
        "model_share": dict(expected.model_share),
        "full_queue_rate": expected.full_queue_rate,
        "certificate": asdict(policy.certificate),
        **gap_of_promise(policy),
    }


def _response(policy: Policy) -> str:
    p50, p99 = policy.expectations.response_p50_ms, policy.expectations.response_p99_ms
    return "–" if p50 is None or p99 is None else f"{p50:.1f}/{p99:.1f}"


def _words(policy: Policy) -> dict[str, str]:
    """Return the columns of text in a policy's row of results."""
    expected, proof = policy.expectations, policy.certificate
    used = max(expected.model_share.items(), key=lambda item: item[1], default=None)
    gap = "–" if proof.gain_upper is None else f"gap {max(0.0, proof.gain_upper - proof.gain):.0e}"
    accuracies = [policy.accuracy_quantile(level) for level in _LEVELS]
    return {
        "request_accuracy": "/".join(
            "–" if accuracy is None else f"{accuracy:.4f}" for accuracy in accuracies),
        "batch": f"{expected.batch_size.p50:g}/{expected.batch_size.p99:g}",
        "queue": ("no end" if expected.queue_length is None else
                  f"{expected.queue_length.p50:g}/{expected.queue_length.p99:g}"),
        "slack": "–" if expected.slack_ms is None else f"{expected.slack_ms.p50:.1f}",
        "response": _response(policy),
        "main_model": "–" if used is None else f"{used[0]} ({used[1]:.0%})",
        "solved": f"{proof.solver}, {gap}",
        "state": "OVERLOAD" if expected.overloaded else "ok",
    }


@dataclass(frozen=True)
class Held:
    """Comparison of a run with the promise of a policy."""

    run: ServerRun
    policy_qps: float  # load of the policy
    promised: float  # its share of late and dropped requests
    probability: float  # of as many late requests as in the run or more, under the promise
    kept: bool


def hold_against(policies: Sequence[Policy], run: ServerRun) -> Held:
    """Compare a run with the policy for the lowest load that is at least the run's load."""
    from scipy.stats import binom

    slos = sorted({policy.slo_ms for policy in policies})
    same_slo = [policy for policy in policies
                if math.isclose(policy.slo_ms, run.slo_ms, rel_tol=1e-6)]
    if not same_slo:
        raise InvalidValueError("no policy is for the run's target latency", where="--loadgen",
                                value=f"{run.slo_ms:g} ms",
                                allowed=", ".join(f"{slo:g} ms" for slo in slos))
    enough = [policy for policy in same_slo if policy.load_qps >= run.load_qps]
    if not enough:
        highest = max(policy.load_qps for policy in same_slo)
        raise InvalidValueError("no policy is for a load as high as the run's", where="--loadgen",
                                value=f"{run.load_qps:g} QPS", allowed=f"at most {highest:g} QPS")
    policy = min(enough, key=lambda policy: policy.load_qps)
    promised = policy.expectations.violation_rate
    late = math.ceil(run.late_low * run.queries - 1e-9)
    probability = float(binom.sf(late - 1, run.queries, min(1.0, promised)))
    return Held(run, policy.load_qps, promised, probability, probability >= _LEVEL)
