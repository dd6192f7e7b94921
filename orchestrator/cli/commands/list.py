"""The command `list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.filters import filter_options
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output.escaping import print_json, print_text

if TYPE_CHECKING:
    from orchestrator.client import Client, ExecutionFilter, Page, Summary


@click.command("list")
@filter_options
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="Maximum number of executions.",
)
@click.option("--cursor", metavar="CURSOR", help="Continue a list: the cursor that it printed at its end.")
@json_option
@connection_options
@pass_target
def list_executions(
    target: Target, execution_filter: ExecutionFilter | None, limit: int, cursor: str | None, as_json: bool
) -> None:
    """List executions, newest first.

    An execution must match all filters; several statuses are alternatives. Child executions are listed too.
    """
    from orchestrator.cli.output.tables import Column, print_table

    page = _fill_page(target.client(), execution_filter, limit, cursor)
    if as_json:
        rows = [summary_as_dict(one) for one in page.executions]
        print_json({"executions": rows, "cursor": page.cursor})
        return
    columns: list[Column | str] = [
        "EXECUTION",
        "NAME",
        Column("STATUS", is_status=True),
        "BEGAN (UTC)",
        "ENDED (UTC)",
        "GROUP",
        "LABELS",
    ]
    print_table(columns, [_build_row(one) for one in page.executions])
    if page.cursor is not None:
        print_text(f"More: --cursor '{page.cursor}'", err=True)


def _fill_page(
    client: Client, execution_filter: ExecutionFilter | None, limit: int, cursor: str | None
) -> Page:
    """Read pages until the limit is reached: one page may end early if few executions match the filter."""
    from orchestrator.client import Page

    found: list[Summary] = []
    while True:
        page = client.list(execution_filter, limit - len(found), cursor)
        found += page.executions
        cursor = page.cursor
        if cursor is None or len(found) == limit:
            return Page(found, cursor)


def summary_as_dict(one: Summary) -> dict[str, Any]:
    """An execution of the list for --json; fields without a value are left out."""
    from orchestrator.application.redaction.by_key import redact_by_key

    fields = {
        "execution_id": one.execution_id,
        "workflow_execution_id": one.workflow_execution_id,
        "name": one.name,
        "status": one.status.value,
        "created_at": one.created_at,
        "ended_at": one.ended_at,
        "group": one.group,
        "labels": redact_by_key(dict(one.labels)) or None,
        "parent": one.parent,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _build_row(one: Summary) -> list[str]:
    from orchestrator.application.redaction.by_key import redact_by_key

    labels = ", ".join(f"{name}={value}" for name, value in redact_by_key(dict(one.labels)).items())
    times = [at.replace("T", " ")[:19] if at else "" for at in (one.created_at, one.ended_at)]
    status = one.status.value.replace("_", " ")
    return [one.execution_id, one.name or "", status, *times, one.group or "", labels]
