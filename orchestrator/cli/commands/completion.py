"""The command `completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_ORCHESTRATOR_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell completion script.

    It completes commands, options, execution ids and workflow names. For bash, put
    `eval "$(orchestrator completion bash)"` into ~/.bashrc. For zsh, put the same with zsh into ~/.zshrc.
    For fish, run `orchestrator completion fish > ~/.config/fish/completions/orchestrator.fish`.
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None, "click has a class for each of these shells"
    root = ctx.find_root()
    click.echo(completion_class(root.command, {}, "orchestrator", VARIABLE).source())
