"""``ramsis help TOPIC``: help on a command, or lists of allowed words and formats."""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


def _profiles() -> Iterable[tuple[str, str]]:
    from ramsis.profiles.importers import FORMATS, about_format

    yield "", "What `ramsis profile import` reads; --format names it where files do not tell it."
    for name in FORMATS:
        yield name, about_format(name)


def _traces() -> Iterable[tuple[str, str]]:
    from ramsis.arrivals.load_table import shipped_traces
    from ramsis.arrivals.trace_formats import DESCRIPTIONS

    yield "", ("What --trace takes: lines of seconds and QPS, timestamps, a shipped trace ("
               + ", ".join(shipped_traces()) + "), or a data set by its --trace-format; text, "
               ".gz or .zst.")
    yield from DESCRIPTIONS.items()


def _schedulers() -> Iterable[tuple[str, str]]:
    from ramsis.policy import DISPATCHES
    from ramsis.sim import FLEET_SCHEDULERS

    yield "", ("What --scheduler takes: policies made for the load, by their dispatch ("
               + ", ".join(DISPATCHES) + "), or a scheduler with its parameters as "
               "NAME:parameter=value,...")
    for name, kind in FLEET_SCHEDULERS.items():
        parameters = ",".join(field.name if field.default is MISSING
                              else f"{field.name}={field.default}"
                              for field in fields(kind) if field.default != "")
        doc = (sys.modules[kind.__module__].__doc__ or "").partition("\n")[0]
        about = doc.partition(": ")[2].rstrip(".;:")
        yield name, f"{about}. Parameters: {parameters or 'none'}"


def _sized_schedulers() -> Iterable[tuple[str, str]]:
    from ramsis.sized import SIZED_SCHEDULERS

    yield "", ("What --scheduler takes where requests have a size (--sizes), with parameters as "
               "NAME:parameter=value,...; 0 is the best budget in hindsight, or no budget.")
    for name, kind in SIZED_SCHEDULERS.items():
        parameters = inspect.signature(kind).parameters.values()
        words = ",".join(f"{item.name}={'NAME' if item.default is None else item.default}"
                         for item in parameters)
        yield name, f"{(kind.__doc__ or '').partition('.')[0]}. Parameters: {words}"


_ARRIVALS = {
    "poisson": "independent requests",
    "negative-binomial": "groups of requests that arrive at once; I: index of dispersion, "
                         "variance over mean of the counts, at least 1",
    "mmpp": "bursts; R: rate in a burst over the rate outside, B: mean duration of a burst in ms, "
            "S: share of the time spent in bursts",
    "renewal": "independent, gamma-distributed gaps; CV: their coefficient of variation",
    "fixed-rate": "equal gaps",
    "trace": "a recorded trace of requests, repeated from a random position and scaled in time to "
             "the load; with their sizes, if --sizes names the same file",
}


def _processes() -> Iterable[tuple[str, str]]:
    from ramsis.arrivals.registry import OWN, patterns

    yield "", "What --arrivals takes, for policies and simulations."
    yield from ((pattern, _ARRIVALS[pattern.partition(":")[0]]) for pattern in patterns())
    yield OWN, "your own callable, which takes the load in requests per second"


def _exit_codes() -> Iterable[tuple[str, str]]:
    yield "", "What a command leaves with."
    yield from (("0", "ok"), ("2", "usage: a wrong option or word"),
                ("3", "bad input file"), ("4", "infeasible: nothing can do what was asked for"),
                ("5", "not converged"), ("6", "verification failed"),
                ("130", "interrupted; finished files are whole and stay"))


def _files() -> Iterable[tuple[str, str]]:
    yield "", "Files of ramsis; `ramsis validate` checks them against their formats."
    yield from (
        ("profile", "accuracy and latency of models by batch size: docs/profiles.md"),
        ("policy", "a decision table with its promise: docs/policy-file.md"),
        ("policy set", "a folder of policies with manifest.json: docs/policy-file.md"),
        ("placement", "which models run on which workers: docs/placement.md"),
        ("sweep", "a grid of simulations, in TOML: docs/sweep.md"),
        ("request log", "what became of each request, as CSV: docs/simulate.md"))


TOPICS: Mapping[str, tuple[str, Callable[[], Iterable[tuple[str, str]]]]] = {
    "profiles": ("formats of measurements that can be imported", _profiles),
    "traces": ("formats of traces", _traces),
    "schedulers": ("schedulers that can be simulated", _schedulers),
    "sized-schedulers": ("schedulers of requests with a size", _sized_schedulers),
    "processes": ("arrival processes", _processes),
    "files": ("files that ramsis writes and reads", _files),
    "exit-codes": ("what a command leaves with", _exit_codes),
}
"""Title and lines of each topic; a line is a word and its meaning."""


@click.command("help")
@click.argument("topic", nargs=-1)
@click.pass_context
def help_command(context: click.Context, topic: tuple[str, ...]) -> None:
    """Explain a command, or one of the words that commands take.

    TOPIC is a command, as `profile import`, or one of the topics that `ramsis help` lists.

    \b
    Examples:
      $ ramsis help
      $ ramsis help schedulers
      $ ramsis help profile import
    """
    root = context.find_root()
    if not topic:
        click.echo(root.get_help())
        click.echo()
        click.echo(_listed("Topics (ramsis help TOPIC)",
                           [(name, about) for name, (about, _) in TOPICS.items()], root))
    elif len(topic) == 1 and topic[0] in TOPICS:
        (_, about), *lines = TOPICS[topic[0]][1]()
        click.echo(_listed(about, lines, root))
    else:
        click.echo(_command_help(root, topic))


def _listed(about: str, lines: Iterable[tuple[str, str]], context: click.Context) -> str:
    formatter = context.make_formatter()
    formatter.write_text(about)
    with formatter.indentation():
        formatter.write_dl(list(lines))
    return formatter.getvalue().rstrip("\n")


def _command_help(root: click.Context, words: tuple[str, ...]) -> str:
    """Return the help page of a command."""
    context = root
    for word in words:
        group = context.command
        names = group.list_commands(context) if isinstance(group, click.Group) else []
        subcommand = (group.get_command(context, word) if isinstance(group, click.Group)
                      and word in names else None)
        if subcommand is None:
            choices = [*names, *(TOPICS if context is root else ())]
            near = difflib.get_close_matches(word, choices, n=3) or choices
            raise click.UsageError(f"No such topic or command: {' '.join(words)!r}; allowed: "
                                   + (", ".join(near) or "no further word"), root)
        context = click.Context(subcommand, info_name=word, parent=context)
    return context.get_help()


@click.command("completion")
@click.argument("shell", metavar="SHELL", type=click.Choice(_SHELLS))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete commands, options and their values.

    Let the shell read it when it starts, in ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish:
    eval "$(ramsis completion bash)", the same with zsh, or `ramsis completion fish | source`.

    \b
    Examples:
      $ ramsis completion zsh
    """
    shell_class = get_completion_class(shell)
    assert shell_class is not None
    completion = shell_class(context.find_root().command, {}, "ramsis", "_RAMSIS_COMPLETE")
    # The script alone: `source` would also start the shell, to look at its version.
    click.echo(completion.source_template % completion.source_vars())
