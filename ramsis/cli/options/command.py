"""Commands with brief, grouped help whose options can also be set in a TOML file.

``--help`` of a command with many options shows the most common ones, each with the first line of
its help text; ``--help-all`` shows all in full. Hidden options are accepted nevertheless, also in
the TOML file of ``--settings``.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from ramsis.errors import InputFileError, RamsisError
from ramsis.files import read_toml

MORE_ARRIVALS = ("--trace-format", "--unit", "--time-column", "--load-column", "--scale")
"""Options of traces that few need."""
MORE_COMPUTING = ("--engine", "--address", "--processes")
"""Options of the computing engine that few need."""

_GROUPS = {
    "What is served": "profiles models slo-ms workers min-workers max-workers startup-s cost "
                      "rate-per-worker placement fixed scaling scenario grow variants code model",
    "Load": "load trace sizes size-column arrivals duration-s trace-format unit time-column "
            "load-column scale stretch growth seed seeds points queries data deadline timeout-s "
            "tensors process replan from-s forecast burst",
    "Target": "min-accuracy min-effective-accuracy max-violation every violation-price "
              "cost-per-worker cost-per-worker-s cost-per-violation cost-per-accuracy-point",
    "Schedulers and policies": "policy scheduler dispatch headroom grid objective late "
                               "batching confidence max-queue max-accuracy-step "
                               "paper solver monitor monitor-ms told bound interference max-batch "
                               "levels interval-s compare cascades",
    "Service times": "service overhead-ms network-ms slowness told-slowness slow-spells",
    "Measuring": "backend batches accuracy accuracy-source device threads order percentile "
                 "relative-error min-samples max-samples seconds-per-batch max-latency-ms "
                 "quantiles dim tokens inputs restart",
    "Server": "host port retry no-pin drain-s worker-memory-mb check calibrate "
              "calibrate-seconds advise peers",
    "Limits": "slots max-wait-s batch-timeout-s max-body-mb max-json-mb max-header-kb "
              "header-timeout-s request-timeout-s max-connections max-pending-mb",
    "Computing": "engine address processes keep",
    "Output": "out name by overwrite dry-run csv plot timeline request-log json wide strict",
}
"""Headings of help pages, and the options below each."""


def _by_option(groups: Mapping[str, str]) -> dict[str, str]:
    """Return the help heading under which each option is listed."""
    return {f"--{name}": heading for heading, names in groups.items() for name in names.split()}


_HEADING = _by_option(_GROUPS)
_FEW = 10  # options that need no headings
_OPTION_WIDTH = 34
_EXAMPLES = "Examples:\n"
_BRIEF_PARAGRAPHS, _BRIEF_EXAMPLES = 2, 2


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the word that is most similar to a misspelt one; None if none is similar.

    >>> nearest("genrate", ["generate", "verify"])
    'generate'
    >>> nearest("cap", ["capacity", "generate"])
    'capacity'
    """
    names = list(words)
    matches = difflib.get_close_matches(word, names, n=1)
    begins = [name for name in names if len(word) > 1 and name.startswith(word)]
    return next(iter(matches or begins), None)


def given_options(context: click.Context) -> list[click.Parameter]:
    """Return the options given on the command line or by ``--settings``.

    Output options such as ``--wide``, which are not passed to the command, are left out.
    """
    return [param for param in context.command.params if param.expose_value
            and context.get_parameter_source(param.name or "")
            is not click.core.ParameterSource.DEFAULT]


def refuse_options(names: Collection[str], why: str) -> None:
    """Refuse these options of the current command if given; ``why`` completes the message."""
    for option in given_options(click.get_current_context()):
        if option.name in names:
            raise click.UsageError(f"{option.opts[0]} {why}")


def allow_options(names: Collection[str], why: str) -> None:
    """Refuse every given option that is not listed, as :func:`refuse_options` does."""
    allowed = {param.name or "" for param in click.get_current_context().command.params}
    refuse_options(allowed.difference(names), why)


def by_option(message: str, options: Collection[str]) -> str:
    """Put the option's name in front of an error message about one of these arguments.

    >>> by_option("max_queue: not a number in range", ["--max-queue"])
    '--max-queue: not a number in range'
    >>> by_option("load_qps: not positive", ["--load"])
    '--load: not positive'
    """
    name, colon, text = message.partition(": ")
    named = f"--{name.replace('_', '-')}"
    for option in (named, re.sub("-(qps|ms|s)$", "", named)):
        if option in options:
            return f"{option}{colon}{text}"
    return message


def _examples(text: str) -> list[str]:
    """Return the examples of a help text, each with its continuation lines."""
    block = text.partition(_EXAMPLES)[2]
    return re.findall(r"^ *\$ (?:.*\\\n)*.*$", block, re.M)


class Command(click.Command):
    """A command with its options in groups.

    ``more`` are options that only ``--help-all`` shows, as ``--grid``; ``headings`` have the
    options below a heading in this command alone, as ``{"Log": "unit slo-ms"}``.
    """

    def __init__(
        self, *args: Any, more: Sequence[str] = (), headings: Mapping[str, str] | None = None,
        **attrs: Any,
    ) -> None:
        super().__init__(*args, **attrs)
        self.more = frozenset(more)
        self.headings = _by_option(headings or {})

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters; long commands also get ``--settings`` and ``--help-all``."""
        params = super().get_params(ctx)
        return [*params[:-1], _SETTINGS, params[-1], _HELP_ALL] if self.more else params

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; errors name the option that caused them."""
        with self._naming_options():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; errors name the option that caused them."""
        with self._naming_options():
            return super().invoke(ctx)

    @contextmanager
    def _naming_options(self) -> Iterator[None]:
        try:
            yield
        except RamsisError as error:
            options = {name for param in self.params for name in param.opts}
            error.args = (by_option(str(error), options),)
            raise

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's description; brief help has two paragraphs and two examples."""
        text = inspect.cleandoc(self.help or "")
        if self._brief(ctx):
            examples = _examples(text)
            paragraphs = text.partition("\b")[0].rstrip().split("\n\n")
            text = "\n\n".join(paragraphs[:_BRIEF_PARAGRAPHS])
            if examples:
                text += f"\n\n\b\n{_EXAMPLES}" + "\n".join(examples[:_BRIEF_EXAMPLES])
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, grouped under headings."""
        brief = self._brief(ctx)
        groups: dict[str, list[tuple[str, str]]] = {
            heading: [] for heading in (*self.headings.values(), *_GROUPS)}
        groups["Options"] = []
        left = 0
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None or isinstance(param, click.Argument):  # those stand in the usage
                continue
            if brief and param.opts[0] in self.more:
                left += 1
                continue
            heading = (_HEADING | self.headings).get(param.opts[0], "Options")
            groups[heading].append((record[0], _first_line(record[1]) if brief else record[1]))
        if sum(map(len, groups.values())) <= _FEW:
            groups = {"Options": [row for rows in groups.values() for row in rows]}
        for heading, rows in groups.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows, col_max=_OPTION_WIDTH)
        if left:
            formatter.write_paragraph()
            formatter.write_text(f"{left} more options: {ctx.command_path} --help-all")

    def _brief(self, ctx: click.Context) -> bool:
        return bool(self.more) and not ctx.meta.get("ramsis.help-all", False)


class CommandGroup(click.Group):
    """Command group that suggests the closest command for a misspelt one."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = self._nearest(ctx, args[0])
            raise click.UsageError(f"No such command {args[0]!r}."
                                   + (f" Did you mean {near!r}?" if near else ""), ctx)
        return super().resolve_command(ctx, args)

    def _nearest(self, ctx: click.Context, word: str) -> str | None:
        names = self.list_commands(ctx)
        near = nearest(word, names)
        if near is not None:
            return near
        below: dict[str, str] = {}
        for name in names:
            group = self.get_command(ctx, name)
            if isinstance(group, click.Group):
                below |= {subcommand: f"{name} {subcommand}"
                          for subcommand in group.list_commands(ctx)}
        match = nearest(word, below)
        return None if match is None else below[match]


def _first_line(text: str) -> str:
    """Return the first line of a help text, followed by the default.

    >>> _first_line("Profile file.\\nOf several types: gpu=a.json.  [required]")
    'Profile file.  [required]'
    """
    line, _, further = text.partition("\n")
    _, bracket, defaults = further.partition("  [")
    return line + bracket + defaults


def _show_all(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta["ramsis.help-all"] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _read_settings(ctx: click.Context, option: click.Parameter, path: str | None) -> None:
    """Use options of a file as defaults, which the command line overrides."""
    if path is not None and not ctx.resilient_parsing:
        defaults = dict(_defaults(ctx.command, read_toml(path), path))
        ctx.default_map = {**(ctx.default_map or {}), **defaults}


def _defaults(
    command: click.Command, document: Mapping[str, Any], path: str
) -> Iterator[tuple[str, Any]]:
    """Yield parameter name and value of each option that a settings file sets."""
    options = {name.lstrip("-"): option
               for option in command.params if isinstance(option, click.Option)
               and not option.hidden for name in option.opts if name.startswith("--")}
    for key, value in document.items():
        name = key.replace("_", "-")
        if name not in options:
            near = nearest(name, options)
            raise InputFileError(
                f"no such option of `ramsis {command.name}`", where=path, value=key,
                allowed=f"{near}, which is the nearest" if near else ", ".join(sorted(options)))
        param = options[name]
        converted = _value(param, value, f"{path}: {key}")
        if converted is not None:
            assert param.name is not None
            yield param.name, converted


def _value(option: click.Option, value: Any, where: str) -> Any:
    """Convert a TOML value to its command-line form; None for a flag that is off."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise InputFileError("not a flag", where=where, value=value, allowed="true or false")
        if option.secondary_opts:
            return value
        return option.flag_value if value else None
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(value, str | int | float) and not isinstance(value, bool)
                             for value in values):
        raise InputFileError("not the value of an option", where=where, value=value,
                             allowed="a text, a number, or a list of these")
    texts = [number if isinstance(number, str) else format(number, "g")
             if float(format(number, "g")) == number
             else repr(number) for number in values]
    return texts if option.multiple else ",".join(texts)


_SETTINGS = click.Option(
    ["--settings"], type=click.Path(dir_okay=False), metavar="FILE.toml", expose_value=False,
    is_eager=True, callback=_read_settings,
    help="Take options from a file.\nThe command line wins.")
_HELP_ALL = click.Option(
    ["--help-all"], is_flag=True, expose_value=False, is_eager=True, callback=_show_all,
    help="Show all options and exit.")
