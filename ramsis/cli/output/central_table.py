"""The table of a central queue as text: idle workers by queued requests."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import click
import numpy as np

from ramsis.cli.output.rows import WIDTH, budget_words, print_json, say
from ramsis.policy import Policy

SYMBOLS = "123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_WIDEST = 100


def show_central_table(policy: Policy, as_json: bool, width: int | None = None) -> None:
    """Print the table, as JSON with a row for each interval of slack with one action.

    Where the columns do not fit the width, evenly spaced ones are shown.
    """
    if as_json:
        document = _document(policy)
        print_json(document.pop("rows"), **document)
        return
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


def _document(policy: Policy) -> dict[str, Any]:
    names = [model.name for model in policy.models]
    rows = []
    for i, idle in enumerate(policy.idle_levels[1:].tolist()):
        for n, queued in enumerate(policy.queue_levels[1:].tolist()):
            start = 0
            for answer, run in groupby(policy.codes[i, n].tolist()):
                end = start + len(list(run))
                below = float(policy.slack_ms[end]) if end < len(policy.slack_ms) else None
                row: dict[str, Any] = {
                    "idle": idle, "queued": queued,
                    "slack_from_ms": float(policy.slack_ms[start]), "slack_below_ms": below,
                }
                if answer < 0:
                    row["do"] = "wait" if answer == -1 else "drop"
                else:
                    model, batch = policy.actions[answer].tolist()
                    row |= {"do": "serve", "model": names[model], "batch": batch}
                rows.append(row)
                start = end
    return {"dispatch": policy.dispatch, "load_qps": policy.load_qps, "workers": policy.workers,
            "slo_ms": policy.slo_ms, "violation_price": policy.violation_price, "rows": rows}
