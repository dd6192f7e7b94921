"""The command `retry`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.completers import optional_executions_argument
from orchestrator.cli.controls import (
    control_options,
    names_executions,
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
@filter_options
@corrections_option
@reason_option
@yes_option
@control_options
def retry(
    target: Target,
    ids: tuple[str, ...],
    execution_filter: ExecutionFilter | None,
    inputs: dict[str, Any],
    reason: str | None,
    by: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Run the unfinished steps of failed executions again.

    Give ids of failed or cancelled executions, or a filter. Completed steps keep their output; to run them
    again, use `rerun-steps`.
    """
    client = target.client()
    if names_executions(ids, execution_filter):
        send_to_each(ids, lambda one: client.retry(one, reason, by, inputs or None), as_json)
    elif inputs:
        raise click.UsageError("--inputs needs execution ids; it cannot be used with a filter")
    else:
        send_to_all(
            "retry",
            "retried",
            client,
            execution_filter,
            lambda selected: client.retry_all(selected, reason, by),
            yes,
            as_json,
        )
