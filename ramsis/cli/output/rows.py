"""Rows of results: a table for people, one JSON document for programs."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ramsis import __version__
from ramsis.policy import Policy
from ramsis.policy.records import RESPONSES
from ramsis.runtime.table import WAIT_CODE
from ramsis.tables import Column

__all__ = ["Column", "budget_row", "budget_words", "command_line", "headroom_row",
           "json_option", "policy_row", "print_json", "print_rows", "progress", "recovery_row"]

json_option = click.option("--json", "as_json", is_flag=True,
                           help="Print the rows as one JSON document.")


def policy_row(policy: Policy) -> dict[str, Any]:
    """A policy's promise under the names that every command uses."""
    expected = policy.expectations
    return {
        "scheduler": policy.dispatch,
        "load_qps": policy.load_qps,
        "workers": policy.workers,
        "slo_ms": policy.slo_ms,
        "arrivals": policy.arrivals_label,
        "expected_accuracy": expected.accuracy,
        "expected_violation_rate": expected.violation_rate,
        "expected_effective_accuracy": expected.effective_accuracy,
        "upper_bound": expected.upper_bound,
        "capacity_qps": expected.capacity_qps,
        "utilisation": expected.utilisation,
        **{name: getattr(expected, name) for name in RESPONSES},
        "overloaded": expected.overloaded,
    }


def headroom_row(policy: Policy) -> dict[str, Any]:
    """What a policy gives up for robustness and what that saves; empty where nothing was to be."""
    found = policy.headroom
    if found is None:
        return {}
    return {
        "headroom_factor": found.factor,
        "headroom_loss": found.loss,
        "slower_effective_accuracy": found.effective_accuracy,
        "slower_violation_rate": found.violation_rate,
        "slower_effective_accuracy_without": found.effective_accuracy_without,
        "slower_violation_rate_without": found.violation_rate_without,
    }


def budget_row(policy: Policy) -> dict[str, Any]:
    """What a policy within a budget of violations says of it; empty for another one."""
    if policy.budget is None:
        return {}
    return {
        "max_violation_rate": policy.budget.max_violation_rate,
        "violation_price": policy.violation_price,
        "violation_half_width": policy.budget.violation_half_width,
        "queries": policy.budget.queries,
        "mixture_probability": policy.randomised.probability if policy.randomised else None,
    }


def recovery_row(policy: Policy) -> dict[str, Any]:
    """How a policy recovers from a burst; empty where it does not say."""
    found = policy.expectations.recovery
    if found is None:
        return {}
    return {"burst": found.burst, "recovery_ms": found.within_ms, "metastable": found.metastable}


def budget_words(policy: Policy) -> list[str]:
    """The same in a line for people; none for another policy."""
    budget, randomised = policy.budget, policy.randomised
    words = []
    if budget is not None:
        words.append(f"within a budget of {budget.max_violation_rate:.4g}: measured "
                     f"{budget.violation_rate:.4%} ± {budget.violation_half_width:.4%} violations "
                     f"in {budget.queries} queries")
    if randomised is not None:
        i, n, j = randomised.place
        words.append(f"one action by chance: {_action(policy, randomised.code)}, for "
                     f"{policy.queue_levels[n + 1]} queued, slack from {policy.slack_ms[j]:g} ms "
                     f"and {policy.idle_levels[i + 1]} idle, with probability "
                     f"{randomised.probability:.4g}")
    return words


def _action(policy: Policy, code: int) -> str:
    if code < 0:
        return "wait" if code == WAIT_CODE else "drop"
    model, batch = policy.actions[code].tolist()
    return f"{policy.models[model].name} in a batch of {batch}"


def print_rows(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
    """A table on stdout, the numbers aligned; as wide as it needs to be, so that none is cut."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.title, justify="right" if column.form else "left", no_wrap=True)
    for row in rows:
        style = "red" if row.get("overloaded") else None
        table.add_row(*(column.text(row) for column in columns), style=style)
    console = Console(highlight=False, emoji=False, markup=False, width=10_000)
    for line in _rendered(console, table):
        click.echo(line)


def _rendered(console: Console, table: Table) -> list[str]:
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]


def print_json(rows: Sequence[Mapping[str, Any]], **more: Any) -> None:
    """One JSON document on stdout with the rows in a list under ``rows``, and what made it."""
    made = {"created_by": f"ramsis {__version__}", "command": command_line()}
    click.echo(json.dumps({**made, **more, "rows": [dict(row) for row in rows]}, indent=1))


def command_line() -> str:
    """The command that runs, as it was typed."""
    context = click.get_current_context(silent=True)
    words = context.meta.get("ramsis.arguments", ()) if context is not None else ()
    return shlex.join(["ramsis", *words])


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Any]:
    """A bar on stderr when it is a terminal, or a count; yields ``advance()``."""
    if not sys.stderr.isatty():
        yield lambda steps=1: None
        return
    from rich.progress import (  # which commands without a terminal do without
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )
    with bar, _log_of_compiling(bar.console):
        task = bar.add_task(what, total=total)
        yield lambda steps=1: bar.advance(task, steps)


@contextmanager
def _log_of_compiling(console: Console) -> Iterator[None]:
    """The log of :mod:`ramsis.compiling` goes to a console."""
    import logging  # which commands without a terminal do without

    log, handler = logging.getLogger("ramsis.compiling"), logging.Handler()
    handler.emit = lambda record: console.print(record.getMessage())  # type: ignore[method-assign]
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(before)
        log.removeHandler(handler)
