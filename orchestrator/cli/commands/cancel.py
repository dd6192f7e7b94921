"""The command `cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from orchestrator.cli.options import Target

if TYPE_CHECKING:
    from orchestrator.client import ExecutionFilter


@click.command()
@optional_executions_argument
@filter_options
@reason_option
@yes_option
@control_options
def cancel(
    target: Target,
    ids: tuple[str, ...],
    execution_filter: ExecutionFilter | None,
    reason: str | None,
    by: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Cancel executions.

    Give execution ids, or a filter. Running steps are stopped. Completed steps that have a compensation are
    compensated.
    """
    client = target.client()
    if names_executions(ids, execution_filter):
        send_to_each(ids, lambda one: client.cancel(one, reason, by), as_json)
    else:
        send_to_all(
            "cancel",
            "cancelled",
            client,
            execution_filter,
            lambda selected: client.cancel_all(selected, reason, by),
            yes,
            as_json,
        )
