"""Shell completion: the command that prints the script, and what completes to what is in Redis.

A shell asks on every press of a key, and nobody waits for it: Redis has 0.3 s to answer, or nothing is
completed. No failure is told either; there is no place for it in the line that is being written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from orchestrator.cli.options import Target

if TYPE_CHECKING:
    from orchestrator.redis_rq.queries.record_queries import RecordQueries

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_ORCHESTRATOR_COMPLETE"
REPLY_TIMEOUT_S = 0.3
MAX_IDS = 50
MAX_SCANNED = 500

Pairs = list[tuple[str, str]]


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, ids and names in a SHELL.

    For bash, put `eval "$(orchestrator completion bash)"` into ~/.bashrc; for zsh the same with zsh into
    ~/.zshrc; for fish, `orchestrator completion fish > ~/.config/fish/completions/orchestrator.fish`.
    """
    made = get_completion_class(shell)
    assert made is not None, "click knows these shells"
    root = ctx.find_root()
    click.echo(made(root.command, {}, "orchestrator", VARIABLE).source())


def complete_execution_ids(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The newest executions; the status is the explanation that some shells show."""
    found = _answer(ctx, lambda queries: queries.recent_executions(MAX_SCANNED if incomplete else MAX_IDS))
    return _items(found, incomplete)


def complete_registered_names(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    found = _answer(ctx, lambda queries: [(name, "registered") for name in queries.names()])
    return _items(found, incomplete)


def complete_workflow_names(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Registered workflows, and files: those first, since bash forgets what it has heard before them."""
    return [CompletionItem(incomplete, type="file"), *complete_registered_names(ctx, param, incomplete)]


def complete_graph_target(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """What has a graph: files, registered workflows, executions."""
    return [*complete_workflow_names(ctx, param, incomplete), *complete_execution_ids(ctx, param, incomplete)]


execution_argument = click.argument("execution_id", metavar="ID", shell_complete=complete_execution_ids)
"""The execution that a command is about."""
name_argument = click.argument("name", shell_complete=complete_registered_names)
"""The registered workflow that a command is about."""


def _items(found: Pairs, incomplete: str) -> list[CompletionItem]:
    fitting = [(name, what) for name, what in found if name.startswith(incomplete) and name.isprintable()]
    return [CompletionItem(name, help=what.replace("_", " ")) for name, what in fitting[:MAX_IDS]]


def _answer(ctx: click.Context, ask: Callable[[RecordQueries], Pairs]) -> Pairs:
    """What Redis says in time. It is asked in a thread: a name server has no timeout that we could set."""
    from orchestrator.cli.follow import open_record_queries

    answers: list[Pairs] = []
    with suppress(Exception):
        queries = open_record_queries(
            ctx.ensure_object(Target)
        )  # before the clock starts: it loads much, and asks nobody

        def run() -> None:
            with suppress(Exception):
                answers.append(ask(queries))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(REPLY_TIMEOUT_S)
    return answers[0] if answers else []
