"""The command `cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from orchestrator.cli.options import Target

if TYPE_CHECKING:
    from orchestrator.client import ExecutionFilter


@click.command()
@optional_executions_argument
@filter_options()
@failure_option
@reason_option
@yes_option
@control_options
def cancel(
    target: Target,
    ids: tuple[str, ...],
    execution_filter: ExecutionFilter | None,
    failure: str | None,
    reason: str | None,
    by: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Cancel executions.

    Give execution ids, a filter, or a --failure: the open executions of which a step waits for its next
    attempt after this failure. Running steps are stopped. Completed steps that have a compensation are
    compensated.
    """
    selection = find_selection(ids, execution_filter, failure)
    if selection is None:
        client = target.client()
        send_to_each(ids, lambda one: client.cancel(one, reason, by), as_json)
    else:
        send_to_all(
            "cancel",
            target,
            selection,
            lambda client, wanted: client.cancel_all(wanted, reason, by, failure),
            yes,
            as_json,
        )
