"""Options of policies to generate, passed to a command as one argument."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from ramsis.cli.options.param_types import ARRIVALS, GRID
from ramsis.cli.options.shared import setting_option
from ramsis.settings import settings_of
from ramsis.synthesis.settings import PAPER, SynthesisSettings, as_in_the_paper

_PAPER = click.option(
    "--paper", is_flag=True,
    help="Settings of the EuroSys '24 paper: "
         + ", ".join(f"--{name.replace('_', '-')} {value:g}" if isinstance(value, float)
                     else f"--{name.replace('_', '-')} {value}" for name, value in PAPER.items()
                     if value is not None)
         + ". --grid can be set beside it.")

_Command = Callable[..., Any]
_WORDS = {"arrivals": ARRIVALS, "grid": GRID}
_NO_OPTIONS = ("slo_ms", "workers", "slo_classes", "slowness")
_OPTIONS = {name: setting_option(SynthesisSettings, name, _WORDS.get(name))
            for name in settings_of(SynthesisSettings) if name not in _NO_OPTIONS}
overhead_option = _OPTIONS["overhead_ms"]
service_option = _OPTIONS["service"]


def policy_options(*names: str) -> Callable[[_Command], _Command]:
    """Add ``--dispatch`` and the named options in this order; all of them without a name.

    ``--paper`` is always among them.
    The command gets them as ``settings``, the mapping that :class:`ramsis.SynthesisSettings`
    takes besides SLO and workers.
    """
    chosen = ("dispatch", *names) if names else tuple(_OPTIONS)

    def add(command: _Command) -> _Command:
        @functools.wraps(command)
        def gathered(*positional: Any, **options: Any) -> Any:
            settings = {name: value for name in chosen if (value := options.pop(name)) is not None}
            if "arrivals" in settings:
                settings["arrivals"] = settings["arrivals"].text
            paper = options.pop("paper")
            settings = as_in_the_paper(settings) if paper else settings
            return command(*positional, settings=settings, **options)

        decorated: _Command = _PAPER(gathered)
        for name in reversed(chosen):
            decorated = _OPTIONS[name](decorated)
        return decorated

    return add
