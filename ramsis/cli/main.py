"""``ramsis``: the command group; errors become one line and an exit code."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

# The matrices are small: threads of the linear algebra would slow it down.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import click  # noqa: E402 - the threads are set first
from click.shell_completion import CompletionItem  # noqa: E402

from ramsis import __version__  # noqa: E402
from ramsis.cli.options.command import CommandGroup, nearest  # noqa: E402
from ramsis.errors import RamsisError, printable  # noqa: E402
from ramsis.memory import without_collection  # noqa: E402
from ramsis.plugins import trusting  # noqa: E402

_USAGE, _INTERRUPTED = 2, 130
_ASKS_FOR_HELP = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""What recent versions of click raise for a group without a command."""
_LONGEST = 2000  # of a message
_GROUPS = {
    "Prepare": {
        "profile": ("profiles.profile:profile", "Measure, import and inspect latency profiles."),
        "arrivals": ("arrivals:arrivals", "Fit arrival processes to a trace."),
        "scenario": ("planning.scenario:scenario_group",
                     "Turn scenarios into placement problems."),
    },
    "Decide": {
        "plan": ("planning.plan:plan", "Plan workers and policies for a load and a target."),
        "generate": ("policies.generate:generate", "Make a policy for each load level."),
        "capacity": ("planning.capacity:capacity", "Find the fewest workers for a target."),
        "scale": ("planning.scale:scale_command", "Plan the number of workers over time."),
        "place": ("planning.place:place", "Decide which models run on which workers."),
        "bound": ("planning.bound:bound", "Bound what schedulers can reach."),
        "frontier": ("planning.frontier:frontier_command",
                     "Trace accuracy against violations."),
    },
    "Try": {
        "simulate": ("simulation.simulate:simulate_command",
                     "Simulate policies and schedulers on a workload."),
        "sweep": ("simulation.sweep:sweep_command", "Simulate a resumable grid of cases."),
        "report": ("report:report", "Write a self-contained page about results."),
    },
    "Serve": {
        "serve": ("serving.serve:serve_command", "Serve models by policies, over HTTP."),
        "load": ("serving.load:load_command", "Send a workload to a server and measure it."),
        "export": ("policies.export:export", "Write policies for other systems and languages."),
    },
    "Check": {
        "analyze": ("policies.analyze:analyze", "Show the promises of policies."),
        "policy": ("policies.policy:policy_group", "Show the table of a policy."),
        "verify": ("policies.verify:verify", "Derive the claims of policy files again."),
        "validate": ("validate:validate_command", "Check files against their formats."),
        "audit": ("serving.audit:audit", "Compare a request log with the optimum."),
    },
    "Help": {
        "help": ("help:help_command", "Explain a command or an argument."),
        "completion": ("help:completion_command", "Complete commands in a shell."),
    },
}
_COMMANDS = {name: command for group in _GROUPS.values() for name, command in group.items()}


class _LazyGroup(CommandGroup):
    """Group that imports a command's module at first use, so that startup is fast."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["ramsis.arguments"] = tuple(args)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = f"ramsis.cli.{_COMMANDS[cmd_name][0]}".partition(":")
        if module not in sys.modules:
            with without_collection():
                importlib.import_module(module)
            gc.freeze()  # imported objects stay: collections need not scan them
        command: click.Command = getattr(sys.modules[module], attribute)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        """Return the commands that start with the incomplete word, without importing them."""
        return [CompletionItem(name, help=text) for name, (_, text) in _COMMANDS.items()
                if name.startswith(incomplete)] + click.Command.shell_complete(
                    self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, _COMMANDS))
        for heading, commands in _GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(widest), text)
                                    for name, (_, text) in commands.items()])


@click.command(
    cls=_LazyGroup,
    name="ramsis",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__)
def cli() -> None:
    """Model-selection policies for machine-learning inference, computed offline.

    \b
    Exit codes: 0 ok, 2 usage, 3 bad input file, 4 infeasible, 5 not converged,
      6 verification failed, 130 interrupted

    \b
    Examples:
      $ ramsis plan --profiles digits-cpu --load 1000 --slo-ms 25 --min-accuracy 0.95 --out plan
      $ ramsis bound --profiles digits-cpu --slo-ms 100 --workers 4 --load 50,100
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):  # replace characters that the terminal lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace" if stream is sys.stdout else "backslashreplace")
    sys.exit(_run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        with trusting(sys.argv[1:] if arguments is None else arguments):
            result = cli.main(args=arguments, prog_name="ramsis", standalone_mode=False)
    except RamsisError as error:
        if os.environ.get("RAMSIS_TRACEBACK"):
            traceback.print_exception(error)
        return _fail(_with_kind(str(error), arguments), error.exit_code)
    except click.ClickException as error:
        code: int = error.exit_code
        if not isinstance(error, _ASKS_FOR_HELP):
            return _fail(_usage(error), code)
        error.show()
        return code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; finished files are whole and stay", err=True)
        return _INTERRUPTED
    except SystemExit as left:
        # click leaves with 1 when the reader of stdout went away, as `head` does.
        return 0 if left.code == 1 else int(left.code or 0)
    except MemoryError:
        return _fail("not enough memory for a problem of this size; a coarser --grid or a smaller "
                     "--max-queue needs less", _USAGE)
    except OSError as error:
        _drop_output()
        what = "cannot write the output" if error.filename is None else str(error.filename)
        return _fail(f"{what} ({error.strerror})", _USAGE)
    return result if isinstance(result, int) else 0


def _with_kind(message: str, arguments: Sequence[str] | None) -> str:
    """Append the kind of the refused file to a message, if another command takes it."""
    from ramsis.cli.file_kinds import next_step

    return message + next_step(message, sys.argv[1:] if arguments is None else arguments)


def _drop_output() -> None:
    """Replace stdout by the null device, so that Python does not flush it again on exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> int:
    """Print an error in one line."""
    line = printable(" ".join(message.split())).encode("utf-8", "backslashreplace").decode()
    line = line if len(line) <= _LONGEST else line[:_LONGEST - 3] + "..."
    with contextlib.suppress(OSError):  # where stderr is on a full disk
        click.echo(f"error: {line}", err=True)
    return code


def _usage(error: click.ClickException) -> str:
    """Return the usage error with the command that shows help."""
    context = getattr(error, "ctx", None)
    more = f" See '{context.command_path} --help'." if context else ""
    if isinstance(error, click.NoSuchOption):
        near = nearest(error.option_name, error.possibilities or ())
        suggestion = f" Did you mean {near!r}?" if near else ""
        return f"No such option {error.option_name!r}.{suggestion}{more}"
    return error.format_message() + more


if __name__ == "__main__":
    main()
