"""``ramsis completion``: print the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", metavar="SHELL", type=click.Choice(_SHELLS))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print what makes SHELL complete commands, options and their values.

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
