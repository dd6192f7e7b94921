"""Shell completion of execution ids and workflow names, and the arguments that use it.

A shell runs the command at every press of the Tab key, so Redis has 0.3 s to reply; otherwise nothing is
completed. Errors are ignored: there is no place for a message in the line that the user is typing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from orchestrator.cli.options import Target

if TYPE_CHECKING:
    from orchestrator.redis_rq.queries.record_queries import RecordQueries

REPLY_TIMEOUT_S = 0.3
MAX_IDS = 50
MAX_SCANNED = 500

Pairs = list[tuple[str, str]]
"""Names with a short description, which some shells show."""


def complete_execution_ids(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the ids of the newest executions; the description is the status."""
    max_count = MAX_SCANNED if incomplete else MAX_IDS
    return _to_items(_query(ctx, lambda queries: queries.recent_executions(max_count)), incomplete)


def complete_registered_names(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    found = _query(ctx, lambda queries: [(name, "registered") for name in queries.names()])
    return _to_items(found, incomplete)


def complete_workflow_names(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete files and registered workflows. Files come first: bash drops the items before them."""
    return [CompletionItem(incomplete, type="file"), *complete_registered_names(ctx, param, incomplete)]


def complete_graph_target(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete everything that has a graph: files, registered workflows, executions."""
    return [*complete_workflow_names(ctx, param, incomplete), *complete_execution_ids(ctx, param, incomplete)]


execution_argument = click.argument("execution_id", metavar="ID", shell_complete=complete_execution_ids)
optional_execution_argument = click.argument(
    "execution_id", metavar="[ID]", required=False, shell_complete=complete_execution_ids
)
executions_argument = click.argument(
    "ids", metavar="ID...", nargs=-1, required=True, shell_complete=complete_execution_ids
)
optional_executions_argument = click.argument(
    "ids", metavar="[ID...]", nargs=-1, shell_complete=complete_execution_ids
)
name_argument = click.argument("name", shell_complete=complete_registered_names)
"""The name of a registered workflow."""


def _to_items(pairs: Pairs, incomplete: str) -> list[CompletionItem]:
    fitting = [(name, text) for name, text in pairs if name.startswith(incomplete) and name.isprintable()]
    return [CompletionItem(name, help=text.replace("_", " ")) for name, text in fitting[:MAX_IDS]]


def _query(ctx: click.Context, read: Callable[[RecordQueries], Pairs]) -> Pairs:
    """Query Redis within the time limit, in a thread: a name server may be slow, and has no timeout."""
    from orchestrator.cli.follow import open_record_queries

    replies: list[Pairs] = []
    with suppress(Exception):
        # Opened before the limit begins: this imports much, and contacts no server.
        queries = open_record_queries(ctx.ensure_object(Target))

        def run() -> None:
            with suppress(Exception):
                replies.append(read(queries))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(REPLY_TIMEOUT_S)
    return replies[0] if replies else []
