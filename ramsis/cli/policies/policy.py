"""``ramsis policy show``: a policy's table as a readable grid."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ramsis.cli.options.command import CommandGroup
from ramsis.cli.options.param_types import complete_files
from ramsis.cli.output.rows import WIDTH, budget_words, json_option, print_json, say
from ramsis.policy import Policy, read
from ramsis.runtime.table import AS_LAST_CODE

SYMBOLS = "123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_WIDEST = 100


def _show_central(policy: Policy, width: int | None) -> None:
    """Print the table of a common queue.

    Where the columns do not fit the width, evenly spaced ones are shown.
    """
    expected = policy.expectations
    say(f"SLO {policy.slo_ms:g} ms, load {policy.load_qps:g} QPS ({policy.arrivals_label}),"
               f" central queue of {policy.workers} workers, service {policy.service}, "
               f"violation price {policy.violation_price:g}")
    say(f"expected effective accuracy {expected.effective_accuracy:.4f}, violations "
               f"{expected.violation_rate:.4%} (upper bound {expected.upper_bound:.4f})")
    if policy.cascade is not None:
        promise = policy.cascade.promise
        say(f"with second opinions by {policy.models[policy.cascade.second].name} on "
            f"{promise.second_opinions:.1%}: effective accuracy {promise.effective_accuracy:.4f}, "
            f"violations {promise.violation_rate:.4%} (upper bound {promise.upper_bound:.4f})")
    click.echo("".join(f"{line}\n" for line in budget_words(policy)))
    for m, model in enumerate(policy.models):
        share = expected.model_share.get(model.name, 0.0)
        click.echo(f"{SYMBOLS[m % len(SYMBOLS)]} {model.name} ({share:.1%} of the queries)")
    click.echo(". wait   x drop\n\nidle by queued, the head with all its slack: model/batch")
    for line in _lines(policy, WIDTH if width is None else width):
        click.echo(line)


def _lines(policy: Policy, width: int) -> list[str]:
    answers = policy.codes[:, :, -1]
    columns = np.flatnonzero(policy.queue_levels[1:] <= _WIDEST)
    shown = [j for j in columns.tolist()
             if j == 0 or (answers[:, j] != answers[:, j - 1]).any()]
    distinct, room = len(shown), max(1, (width - 10) // 5)
    if distinct > room:
        shown = [shown[i] for i in np.linspace(0, distinct - 1, room).round().astype(int)]
    lines = [f"{'':>9} " + "".join(f"{policy.queue_levels[j + 1]:>5}" for j in shown)]
    rows = [(int(idle), tuple(_cell(policy, int(answers[i, j])) for j in shown))
            for i, idle in enumerate(policy.idle_levels[1:])]
    for cells, run in groupby(rows, key=lambda row: row[1]):
        idle = [number for number, _ in run]
        label = f"{idle[0]}" if len(idle) == 1 else f"{idle[0]}-{idle[-1]}"
        lines.append(f"{label:>9} " + "".join(f"{cell:>5}" for cell in cells))
    if distinct > room:
        lines.append(f"{room} of {distinct} columns that differ; --width shows more")
    return lines


def _cell(policy: Policy, answer: int) -> str:
    if answer < 0:
        return "." if answer == -1 else "x"
    model, batch = policy.actions[answer].tolist()
    return f"{SYMBOLS[model % len(SYMBOLS)]}/{batch}"


_WHOLE = -1  # in place of a batch that is the whole queue
_DROP = -1  # in place of a model where the table says to drop the earliest request
_COLOURS = ("green", "yellow", "cyan", "magenta", "blue", "red", "bright_green", "bright_yellow",
            "bright_cyan", "bright_magenta", "bright_blue", "bright_red")


@click.group("policy", cls=CommandGroup)
def policy_group() -> None:
    """Look into policy files."""


@policy_group.command("show", short_help="Show the model and batch size of each state.")
@click.argument("file", shell_complete=complete_files)
@json_option
@click.option("--width", type=click.IntRange(min=20), default=None,
              help="Width in columns of text.  [default: the terminal's, at most 100]")
def show(file: str, as_json: bool, width: int | None) -> None:
    """Show the table of a policy FILE: queued requests by slack, which model answers.

    With variable batching a second grid shows the batch size.

    For a policy of a central queue the grid shows, for each number of idle workers and queued
    requests, the answer if the first request has just arrived.

    Every model in use has a symbol and, on a terminal, a colour. Rows and columns that equal
    their neighbour are merged; if the columns still do not fit, evenly spaced ones are shown, and
    the last line says so.

    \b
    Examples:
      $ ramsis policy show policies_out/example/round-robin-00400qps.json
      $ ramsis policy show policies_out/example/round-robin-00400qps.json --json
    """
    policy = read(file)
    central = policy.dispatch == "central-queue"
    if as_json:
        print_json(list(map(_central_row if central else _row, policy.table_rows())),
                   **_document(policy, central=central))
    else:
        (_show_central if central else _show_grid)(policy, width)


def _show_grid(policy: Policy, width: int | None) -> None:
    """Print the decision table of a single worker as a grid of queue length by slack."""
    console = Console(width=width, highlight=False, emoji=False, markup=False)
    if width is None:
        console.width = min(console.width, WIDTH)
    columns = _columns(_answers(policy), max(console.width - _label_width(policy) - 1, 1))
    console.print(_header(policy))
    console.print(_legend(policy), "")
    lines = _grid(policy, columns)
    if policy.batching != "maximal":
        lines += _batch_grid(policy, columns)
    for line in lines:
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
    console.print(_footnote(columns))


def _central_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON row of a range of slack with one answer, for each number of idle workers."""
    place = {name: row[name] for name in ("idle", "queued", "slack_from_ms", "slack_below_ms")}
    if row["answer"] != "run":
        return {**place, "do": row["answer"]}
    return {**place, "do": "serve", "model": row["model"], "batch": row["batch"]}


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON row of a range of slack with one answer; a batch of 0 is a drop."""
    return {**{name: row[name] for name in ("queued", "slack_from_ms", "slack_below_ms", "model")},
            "batch": row["batch"] or 0}


def _document(policy: Policy, *, central: bool) -> dict[str, Any]:
    """Return what the document of ``--json`` has besides its rows."""
    if central:
        return {"dispatch": policy.dispatch, "load_qps": policy.load_qps,
                "workers": policy.workers, "slo_ms": policy.slo_ms,
                "violation_price": policy.violation_price}
    expected = policy.expectations
    model, batch = _longer(policy) or (0, None)
    return {
        "dispatch": policy.dispatch, "load_qps": policy.load_qps, "slowness": policy.slowness,
        "workers": policy.workers,
        "slo_ms": policy.slo_ms, "arrivals": dict(policy.arrivals),
        "expected_accuracy": expected.accuracy,
        "expected_violation_rate": expected.violation_rate,
        "expected_effective_accuracy": expected.effective_accuracy,
        "upper_bound": expected.upper_bound,
        "overflow": {"queued_above": policy.max_queue,
                     "model": policy.models[model].name if batch else None, "batch": batch},
    }


def _header(policy: Policy) -> Text:
    expected = policy.expectations
    late = "" if policy.late == "serve" else f", late: {policy.late}"
    slower = "" if policy.slowness == 1.0 else f" at slowness {policy.slowness:g}"
    lines = [
        f"SLO {policy.slo_ms:g} ms, load {policy.load_qps:g} QPS ({policy.arrivals_label}), "
        f"{policy.workers} workers, service {policy.service}{slower}, {policy.dispatch}, "
        f"{policy.batching} batching{late}",
        f"expected accuracy {_percent(expected.accuracy)}, "
        f"violations {_percent(expected.violation_rate)}, "
        f"effective accuracy {_percent(expected.effective_accuracy)} "
        f"(upper bound {_percent(expected.upper_bound)})",
    ]
    if policy.load_factor is not None:
        lines.append(f"planned for Poisson arrivals at {policy.load_factor:g} times the load, "
                     "promised under its own")
    if expected.unstable:
        lines.append(f"overloaded: queues of more than {policy.max_queue} grow without end")
    elif expected.overloaded:
        lines.append(f"overloaded: {_percent(expected.violation_rate)} of the requests are late "
                     "or dropped")
    return Text("\n".join([*lines, *budget_words(policy), ""]))


def _percent(rate: float | None) -> str:
    return "n/a" if rate is None else f"{100 * rate:.2f} %"


def _shown(policy: Policy) -> NDArray[np.int64]:
    """Return the index of the model chosen in each cell, or the mark of a drop."""
    model, batch = policy.model_and_batch()
    return np.where(batch[0] == 0, _DROP, model[0])


def _longer(policy: Policy) -> tuple[int, int] | None:
    """Return model and batch for queues longer than the table; batch 0 drops.

    None where the last row of the table applies.
    """
    code = policy.longer_queue
    if code == AS_LAST_CODE:
        return None
    model, batch = policy.actions[code].tolist() if code >= 0 else (0, 0)
    return model, batch


def _symbols(policy: Policy) -> dict[int, tuple[str, str]]:
    """Return symbol and colour of each model that the policy uses, and of drops."""
    model, batch = _longer(policy) or (0, 0)
    last = model if batch else _DROP
    used = sorted({*np.unique(_shown(policy)).tolist(), last} - {_DROP})
    return {
        _DROP: (".", "white"),
        **{model: (SYMBOLS[i] if i < len(SYMBOLS) else "*", _COLOURS[i % len(_COLOURS)])
           for i, model in enumerate(used)},
    }


def _legend(policy: Policy) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("")
    table.add_column("model", overflow="fold")
    for title in ("accuracy", "of the table", "of the queries"):
        table.add_column(title, justify="right")
    shown = _shown(policy)
    for model, (symbol, colour) in _symbols(policy).items():
        if model == _DROP:
            continue
        share = policy.expectations.model_share.get(policy.models[model].name, 0.0)
        cells = float((shown == model).mean())
        table.add_row(Text(symbol, colour), Text(policy.models[model].name),
                      *map(_percent, (policy.models[model].accuracy, cells, share)))
    if (shown == _DROP).any():
        table.add_row(".", "(drop the earliest)", "", _percent(float((shown == _DROP).mean())), "")
    return table


@dataclass(frozen=True)
class _Columns:
    """The slack bins to print; ``distinct`` is the number of different columns."""

    shown: NDArray[np.int64]
    distinct: int
    bins: int


def _columns(table: NDArray[np.int64], room: int) -> _Columns:
    """Return all columns if they fit; else the first of each run of equal ones, or some."""
    bins = table.shape[1]
    shown = np.arange(bins)
    if bins > room:
        changes = (np.diff(table, axis=1) != 0).any(axis=0)
        shown = np.concatenate(([0], np.flatnonzero(changes) + 1))
    distinct = len(shown)
    if distinct > room:
        shown = shown[np.linspace(0, distinct - 1, room).round().astype(np.int64)]
    return _Columns(shown, distinct, bins)


def _answers(policy: Policy) -> NDArray[np.int64]:
    """Number the answers of the table by model and remaining queue."""
    queued = np.arange(1, policy.max_queue + 1)[:, None]
    model, batch = policy.model_and_batch()
    answers: NDArray[np.int64] = model[0] * (policy.max_queue + 1) + queued - batch[0]
    return answers


def _label_width(policy: Policy) -> int:
    return max(len("slack ms"), 2 * len(str(policy.max_queue)) + 1)


def _grid(policy: Policy, columns: _Columns) -> list[Text]:
    """Return the decision grid: slack axis, a line per run of equal rows, and the overflow row."""
    label, symbols = _label_width(policy), _symbols(policy)
    slack_ms = policy.slack_ms[columns.shown]
    lines = [Text(f"{name:>{label}} {marks}")
             for name, marks in zip(("slack ms", "queued"), _axis(slack_ms), strict=True)]
    lines += _rows(_shown(policy)[:, columns.shown], symbols, label)
    overflow = Text(f"{f'>{policy.max_queue}':>{label}} ")
    longer = _longer(policy)
    if longer is None:
        return [*lines, overflow.append(f"as {policy.max_queue}"), Text()]
    model, batch = longer
    if not batch:
        return [*lines, overflow.append(*symbols[_DROP]), Text()]
    overflow.append(*symbols[model])
    return [*lines, overflow.append(f" in batches of {batch}"), Text()]


def _batch_grid(policy: Policy, columns: _Columns) -> list[Text]:
    """Return the grid of batches: a dot for the whole queue, a blank for a drop."""
    queued = np.arange(1, policy.max_queue + 1)[:, None]
    batch = policy.model_and_batch()[1][0]
    part = np.where(batch == queued, _WHOLE, batch)
    symbols = {batch: (SYMBOLS[batch - 1] if batch <= len(SYMBOLS) else "*", "")
               for batch in np.unique(part).tolist()} | {0: (" ", ""), _WHOLE: (".", "")}
    label = _label_width(policy)
    title = Text(f"{'batch':>{label}} of each queue; {SYMBOLS[9]} is 10, a dot the whole queue")
    return [title, *_rows(part[:, columns.shown], symbols, label), Text()]


def _rows(
    table: NDArray[np.int64], symbols: dict[int, tuple[str, str]], label: int
) -> list[Text]:
    """Return a line for each run of equal rows."""
    lines = []
    rows = enumerate(table.tolist(), start=1)
    for row, run in groupby(rows, key=lambda numbered: numbered[1]):
        queued = [str(n) for n, _ in run]
        name = queued[0] if len(queued) == 1 else f"{queued[0]}-{queued[-1]}"
        line = Text(f"{name:>{label}} ")
        for value, same in groupby(row):
            symbol, colour = symbols[value]
            line.append(symbol * len(list(same)), colour)
        lines.append(line)
    return lines


def _axis(slack_ms: NDArray[np.float64]) -> tuple[str, str]:
    """Return the axis labels, slack at every tenth column, and the tick marks under them."""
    values = ""
    for column, value in enumerate(slack_ms.tolist()):
        text = f"{value:.4g}"
        if column % 10 == 0 and (column == 0 or column + len(text) <= len(slack_ms)):
            values = f"{values:<{column}}{text}"
    return values, ("|" + " " * 9) * ((len(slack_ms) - 1) // 10) + "|"


def _footnote(columns: _Columns) -> str:
    note = "A column holds from its slack up to the next one's; slack is rounded down."
    if len(columns.shown) == columns.bins:
        return note
    note += f" {columns.bins} slack bins"
    if columns.distinct < columns.bins:
        note += f", equal neighbours merged into {columns.distinct}"
    if len(columns.shown) < columns.distinct:
        note += f", of which {len(columns.shown)} are shown (--json has all)"
    return note + "."
