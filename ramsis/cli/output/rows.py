"""Rows of results, printed as a table or as a JSON document, and notes on overload."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
from rich.cells import cell_len

from ramsis import __version__
from ramsis.cli.progress import progress as progress
from ramsis.errors import InfeasibleError
from ramsis.policy import Policy
from ramsis.policy.policy import price_and_headroom
from ramsis.policy.records import RESPONSES
from ramsis.report.verdicts import OVERLOAD, overload_rate
from ramsis.tables import Column as Column
from ramsis.tables import in_their_terms

_SHOWN = 10
_GAP = 2  # characters between columns
_LONGEST_WORD = 24  # characters of a text that stay together
WIDTH = 100
"""Characters of a printed line without ``--wide``."""

json_option = click.option("--json", "as_json", is_flag=True,
                           help="Print the rows as one JSON document.")


def _remember(context: click.Context, option: click.Parameter, value: bool) -> None:
    """Keep the value of a flag that is not passed to the command."""
    context.meta[f"ramsis.{option.name}"] = value


def table_options(command: Any) -> Any:
    """Add ``--json`` and ``--wide``, which :func:`wide` returns, to a command of a table."""
    return json_option(click.option(
        "--wide", is_flag=True, expose_value=False, callback=_remember,
        help="Print all columns, on lines of any width.")(command))


def _meta(key: str) -> Any:
    """Return a value that the running command has stored under a key; None without a command."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(f"ramsis.{key}")


def wide() -> bool:
    """Return whether all columns are to be printed, as ``--wide`` says."""
    return bool(_meta("wide"))


def say(text: str) -> None:
    """Print a sentence on stdout, wrapped to the table width."""
    if wide():
        click.echo(text)
        return
    click.echo(textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False,
                             subsequent_indent="  "))


def policy_row(policy: Policy) -> dict[str, Any]:
    """Return a policy's expectations under the column names that all commands share."""
    expected, cascade = policy.expectations, policy.cascade
    responses = expected if cascade is None else cascade.promise
    return {
        "scheduler": policy.dispatch,
        "load_qps": policy.load_qps,
        "slowness": policy.slowness,
        "workers": policy.workers,
        "slo_ms": policy.slo_ms,
        "arrivals": policy.arrivals_label,
        **policy.promised,
        "capacity_qps": expected.capacity_qps,
        "utilisation": expected.utilisation,
        **{name: getattr(responses, name) for name in RESPONSES},
        **policy.opinions,
    }


def headroom_row(policy: Policy) -> dict[str, Any]:
    """Return the policy's figures under longer service times; empty without headroom."""
    headroom = policy.headroom
    if headroom is None:
        return {}
    return {
        "headroom_factor": headroom.factor,
        "slower_effective_accuracy": headroom.slower_effective_accuracy,
        "slower_violation_rate": headroom.slower_violation_rate,
    }


def gap_words(policies: Iterable[Policy]) -> str:
    """Describe the parts of a certified gap besides the schedule: price and headroom."""
    terms = price_and_headroom(policies)
    return "certified gap: " + ", ".join(f"{name} {value}" for name, value in terms)


def budget_row(policy: Policy) -> dict[str, Any]:
    """Return the budget figures of a policy; empty without a budget."""
    if policy.budget is None:
        return {}
    return {
        "max_violation_rate": policy.budget.max_violation_rate,
        "violation_price": policy.violation_price,
        "violation_half_width": policy.budget.violation_half_width,
        "queries": policy.budget.queries,
    }


def budget_words(policy: Policy) -> list[str]:
    """Describe the budget of a policy in a line; no line without a budget."""
    budget = policy.budget
    if budget is None:
        return []
    return [f"within a budget of {budget.max_violation_rate:.4g}: measured "
            f"{budget.violation_rate:.4%} ± {budget.violation_half_width:.4%} violations "
            f"in {budget.queries} queries"]


def model_words(model_share: Mapping[str, float], most: int = 3) -> str:
    """Return the first models with their shares of the answers, at most so many."""
    return ", ".join(f"{name} ({share:.0%})" for name, share in list(model_share.items())[:most])


def say_command(words: Sequence[str]) -> None:
    """Print a wrapped command on stdout that can be pasted into a shell."""
    line = " "
    for part in re.split(" (?=--)", shlex.join(words)):  # an option and its value stay together
        if not wide() and len(line) + len(part) > WIDTH - 3 and line.strip():
            click.echo(f"{line} \\")
            line = "     "
        line += f" {part}"
    click.echo(line)


def print_rows(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table on stdout with aligned numbers, at most :data:`WIDTH` characters wide.

    Headings and texts that do not fit are wrapped. With ``--wide`` the table has all columns and
    any width.
    """
    shown = [column for column in in_their_terms(columns, rows) if wide() or not column.wide]
    cells = [[column.text(row) for column in shown] for row in rows]
    widths = _widths(shown, cells, None if wide() else WIDTH)
    for line in _lines(shown, [column.title for column in shown], widths, at_the_end=True):
        click.secho(line, bold=True)
    for row, texts in zip(rows, cells, strict=True):
        for line in _lines(shown, texts, widths):
            click.secho(line, fg="red" if row.get("overloaded") else None)


def _widths(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], most: int | None
) -> list[int]:
    """Return column widths that sum to ``most`` unless a number or a word is longer.

    Headings are wrapped before texts are.
    """
    widths, longest, least = [], [], []
    for i, column in enumerate(columns):
        texts = [row[i] for row in cells]
        longest.append(max(map(cell_len, texts), default=1))
        widths.append(max(cell_len(column.title), longest[-1]))
        words = texts if column.form else [word[:_LONGEST_WORD] for text in texts
                                           for word in text.split()]
        least.append(max(map(cell_len, [*column.title.split(), *words]), default=1))
    while most is not None and sum(widths) + _GAP * (len(widths) - 1) > most:
        able = [(widths[i] > longest[i], widths[i], i) for i in range(len(widths))
                if widths[i] > least[i]]
        if not able:
            break
        widths[max(able)[2]] -= 1
    return widths


def _lines(
    columns: Sequence[Column], texts: Sequence[str], widths: Sequence[int], *,
    at_the_end: bool = False,
) -> Iterator[str]:
    """Yield the lines of a table row; shorter cells are aligned to its top or its end."""
    cells = [textwrap.wrap(text, width, break_on_hyphens=False) if cell_len(text) > width
             else [text] for text, width in zip(texts, widths, strict=True)]
    height = max(map(len, cells), default=0)
    for k in range(height):
        line = []
        for column, cell, width in zip(columns, cells, widths, strict=True):
            i = k - (height - len(cell)) * at_the_end
            text = cell[i] if 0 <= i < len(cell) else ""
            blank = " " * (width - cell_len(text))
            line.append(blank + text if column.form else text + blank)
        yield (" " * _GAP).join(line).rstrip()


def print_json(rows: Sequence[Mapping[str, Any]], **more: Any) -> None:
    """Print one JSON document on stdout: the rows under ``rows``, and the command that made it."""
    origin = {"created_by": f"ramsis {__version__}", "command": command_line()}
    click.echo(json.dumps({**origin, **more, "rows": [dict(row) for row in rows]}, indent=1))


def command_line() -> str:
    """Return the running command as it was typed."""
    return shlex.join(["ramsis", *(_meta("arguments") or ())])


def print_classes(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], unit: str) -> None:
    """Print rows of which each has the share in time of every class in ``by_class``."""
    ranges = [tuple(entry["sizes"]) for entry in rows[0]["by_class"]]
    click.echo("\nin time by size:")
    print_rows([*columns, *(Column(str(i), f"{low}–{high} {unit}", ".2%")
                            for i, (low, high) in enumerate(ranges))], [
        {**row, **{str(i): entry["in_time_rate"] for i, entry in enumerate(row["by_class"])}}
        for row in rows])


strict_option = click.option(
    "--strict", is_flag=True, expose_value=False, callback=_remember,
    help="Exit with code 4 on overload, after writing everything.")
"""``--strict``, applied by :func:`tell_overload` and not passed to the command."""


def overloaded(rows: Iterable[Mapping[str, Any]], *names: str) -> Iterator[str]:
    """Yield a description of each overloaded row.

    ``names`` are keys of values that identify a row; some may be absent.
    """
    for row in rows:
        rate = overload_rate(row)
        if rate > OVERLOAD:
            load_qps = row.get("load_qps")
            load = "" if load_qps is None else f", {load_qps:.6g} QPS"
            description = ", ".join(str(row[name]) for name in names if row.get(name))
            yield f"{description}{load}: OVERLOAD, {rate:.1%} of the requests late or dropped"


def tell_overload(cases: Iterable[str]) -> None:
    """Name on stderr the cases that are overloaded, as ``400 QPS: OVERLOAD``."""
    overloads = list(cases)
    for case in overloads[:_SHOWN]:
        click.echo(f"note: {case}", err=True)
    if len(overloads) > _SHOWN:
        click.echo(f"note: OVERLOAD in {len(overloads) - _SHOWN} more rows", err=True)
    if overloads and _meta("strict"):
        raise InfeasibleError(
            f"overload in {len(overloads)} of the rows above (--strict): more workers are needed, "
            "which `ramsis capacity` counts")


def with_words(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with parameters and targets in words."""
    return [{**row, "tuned_word": "yes" if row["tuned"] else "no",
             "meets_word": {True: "yes", False: "no", None: None}[row["meets_target"]],
             "parameter_words": ", ".join(
                 f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                 for name, value in row["parameters"].items())} for row in rows]


def cheapest(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the row of least cost, or worker time without prices, that misses no target."""
    return min((row for row in rows if row["meets_target"] is not False),
               key=lambda row: row.get("cost_worker_s", row["worker_s"]), default=None)
