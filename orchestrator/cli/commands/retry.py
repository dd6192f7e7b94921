"""The command `retry`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.completers import optional_executions_argument
from orchestrator.cli.controls import (
    control_options,
    failure_option,
    find_selection,
    reason_option,
    send_to_all,
    send_to_each,
    yes_option,
)
from orchestrator.cli.filters import filter_options
from orchestrator.cli.options import Target, corrections_option

if TYPE_CHECKING:
    from orchestrator.client import ExecutionFilter


@click.command()
@optional_executions_argument
@filter_options()
@failure_option
@corrections_option
@reason_option
@yes_option
@control_options
def retry(
    target: Target,
    ids: tuple[str, ...],
    execution_filter: ExecutionFilter | None,
    failure: str | None,
    inputs: dict[str, Any],
    reason: str | None,
    by: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Run the unfinished steps of failed executions again.

    Give ids of failed or cancelled executions, a filter, or a --failure. Completed steps keep their output;
    to run them again, use `rerun-steps`.
    """
    selection = find_selection(ids, execution_filter, failure)
    if selection is None:
        client = target.client()
        send_to_each(ids, lambda one: client.retry(one, reason, by, inputs or None), as_json)
    elif inputs:
        raise click.UsageError("--inputs needs execution ids; it cannot be used with a filter")
    else:
        send_to_all(
            "retry",
            target,
            selection,
            lambda client, wanted: client.retry_all(wanted, reason, by, failure),
            yes,
            as_json,
        )
