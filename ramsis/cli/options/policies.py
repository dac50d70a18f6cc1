"""The options that say what policies are made for, as one argument of a command."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import click

from ramsis.analysis.sampled import CONFIDENCE
from ramsis.arrivals import patterns
from ramsis.arrivals.registry import OWN
from ramsis.cli.options.param_types import ARRIVALS, GRID
from ramsis.cli.options.shared import DEFAULT_SERVICE, overhead_option
from ramsis.cluster.preference import PREFERENCES
from ramsis.policy import DISPATCHES, SERVICES
from ramsis.runtime.routing import DISPATCH_NAMES
from ramsis.synthesis.options import PAPER, as_in_the_paper
from ramsis.worker.problem import Objective
from ramsis.worker.problem.actions import Batching, LateRule
from ramsis.worker.solve import SOLVERS

_PAPER = click.option(
    "--paper", is_flag=True,
    help="What the EuroSys '24 paper does, in one word: "
         + ", ".join(f"--{name.replace('_', '-')} {value:g}" if isinstance(value, float)
                     else f"--{name.replace('_', '-')} {value}" for name, value in PAPER.items()
                     if value is not None)
         + ". The grid may be another.")

_Command = Callable[..., Any]
_Options = Mapping[str, Callable[[_Command], _Command]]

_OLD = {"worker": "round-robin", "fleet": "central-queue"}


def _renamed(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Name the option that took the place of ``--scheme``."""
    if value is not None:
        new = _OLD.get(value, DISPATCH_NAMES)
        raise click.UsageError(f"--scheme is now --dispatch: give --dispatch {new}.", context)


_OPTIONS: _Options = {
    "dispatch": click.option(
        "--dispatch", type=click.Choice(list(DISPATCHES)), default="round-robin",
        show_default=True,
        metavar="NAME",
        help=f"How requests reach workers: {DISPATCH_NAMES}; in turn, "
             "in turn but for workers that have many more than another one, or by one queue that "
             "all workers take from."),
    "grid": click.option(
        "--grid", type=GRID, default=None, metavar="fixed:D|model",
        help="Slack grid: D equal steps, or the profiled latencies.  [default: fixed:100; for a "
             "central queue the latencies, or fixed:60 where times are drawn]"),
    "objective": click.option(
        "--objective", type=click.Choice([o.value for o in Objective]), default=None,
        help="Accuracy averaged over queries, or over decisions as in the paper.  [default: "
             "per-query]"),
    "arrivals": click.option(
        "--arrivals", type=ARRIVALS, default="poisson", show_default=True, metavar="PROCESS",
        help=f"Arrival process that the policies promise under; {', '.join(patterns())}, or "
             f"{OWN}."),
    "service": click.option(
        "--service", type=click.Choice(SERVICES), default=None,
        help="Latency statistic that service times are taken to be, or drawn from the "
             f"distribution.  [default: {DEFAULT_SERVICE}]"),
    "late": click.option(
        "--late", type=click.Choice([rule.value for rule in LateRule]), default=None,
        help="Requests that nothing can answer in time: a worker's fastest model serves the "
             "whole queue, they are dropped, or any model may serve.  [default: drop; serve per "
             "decision]"),
    "batching": click.option(
        "--batching", type=click.Choice([way.value for way in Batching]), default=None,
        help="Batches of a worker: its whole queue, or any part of it.  [default: maximal; from "
             "a central queue variable]"),
    "violation_price": click.option(
        "--violation-price", type=float, default=None,
        help="What a late or dropped query costs, in units of accuracy; at 0 effective accuracy "
             "alone counts.  [default: 1; 0 per decision]"),
    "max_violation": click.option(
        "--max-violation", type=float, default=None, metavar="X",
        help="Budget of violations, such as 0.001; makes the most accurate policy that keeps to "
             "it in simulation, at the price that this takes, in some ten seconds a load."),
    "confidence": click.option(
        "--confidence", type=float, default=CONFIDENCE, show_default=True, metavar="X",
        help="Of the intervals that follow from the number of samples; a budget of violations is "
             "met at their upper end."),
    "overhead_ms": overhead_option,
    "headroom": click.option(
        "--headroom", type=float, default=None, metavar="X",
        help="Plan for service times longer by this share; 0: as profiled.  [default: 0.1, 0.05 "
             "or 0, the largest that gives up at most 0.003 of effective accuracy; per decision "
             "0]"),
    "prefer": click.option(
        "--prefer", type=click.Choice(PREFERENCES), default=None,
        help="Of policies that are equally good, to 0.0002 of effective accuracy, the one that "
             "answers earliest, or takes the fewest worker-seconds.  [default: early]"),
    "max_queue": click.option(
        "--max-queue", type=int, default=32, show_default=True,
        help="Longest queue that a worker's table tells apart; a central queue's largest batch."),
    "solver": click.option(
        "--solver", type=click.Choice(SOLVERS), default=SOLVERS[0], show_default=True,
        help="The last two are slow and meant for comparisons."),
}


def policy_options(*names: str) -> Callable[[_Command], _Command]:
    """``--dispatch`` and the options of these names, in this order; all of them without a name.

    The command gets them as ``settings``, the mapping that :class:`ramsis.SynthesisSettings`
    takes besides SLO and workers.
    """
    chosen = ("dispatch", *names) if names else tuple(_OPTIONS)

    def add(command: _Command) -> _Command:
        @functools.wraps(command)
        def gathered(*positional: Any, **given: Any) -> Any:
            settings = {name: given.pop(name) for name in chosen}
            if "arrivals" in settings:
                settings["arrivals"] = settings["arrivals"].text
            paper = given.pop("paper")
            settings = as_in_the_paper(settings) if paper else settings
            return command(*positional, settings=settings, **given)

        made: _Command = click.option("--scheme", hidden=True, expose_value=False, is_eager=True,
                                      callback=_renamed)(gathered)
        made = _PAPER(made)
        for name in reversed(chosen):
            made = _OPTIONS[name](made)
        return made

    return add
