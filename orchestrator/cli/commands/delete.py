"""The command `delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator.application.explain.formatting import format_count
from orchestrator.cli.completers import optional_executions_argument
from orchestrator.cli.controls import (
    confirm_deletion,
    failure_option,
    find_selection,
    send_to_all,
    send_to_each,
)
from orchestrator.cli.filters import filter_options
from orchestrator.cli.options import Target, connection_options, json_option, pass_target

if TYPE_CHECKING:
    from orchestrator.client import ExecutionFilter


@click.command()
@optional_executions_argument
@filter_options()
@failure_option
@click.option("--yes", is_flag=True, help="Do not ask for a confirmation.")
@json_option
@connection_options
@pass_target
def delete(
    target: Target,
    ids: tuple[str, ...],
    execution_filter: ExecutionFilter | None,
    failure: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Permanently delete ended executions and their history.

    Give execution ids, a filter, or a --failure: then the executions that failed with it are deleted. It asks
    first. Without a terminal it deletes nothing, unless --yes is given.
    """
    selection = find_selection(ids, execution_filter, failure)
    if selection is None:
        if not yes:
            confirm_deletion(format_count(len(ids), "execution"))
        send_to_each(ids, target.client().delete, as_json)
    else:
        send_to_all(
            "delete",
            target,
            selection,
            lambda client, wanted: client.delete_all(wanted, failure),
            yes,
            as_json,
        )
