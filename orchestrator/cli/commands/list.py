"""The command `list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from orchestrator.application.explain.formatting import format_duration, format_error, humanize
from orchestrator.cli.filters import filter_options
from orchestrator.cli.follow import open_record_queries
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output.escaping import print_json, print_text

if TYPE_CHECKING:
    from orchestrator.client import Client, ExecutionDetails, ExecutionFilter, Page, Summary

MAX_ACTIVE_STEPS = 3


@click.command("list")
@filter_options()
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
    STEP is the step that failed, or the active steps with their status.
    """
    from orchestrator.cli.output.tables import Column, print_table

    client = target.client()
    page = _fill_page(client, execution_filter, limit, cursor)
    now_ms, details = open_record_queries(target).now_ms(), client.details(page.executions)
    pairs = list(zip(page.executions, details, strict=True))
    if as_json:
        rows = [_as_dict(one, more, now_ms) for one, more in pairs]
        print_json({"executions": rows, "cursor": page.cursor})
        return
    columns: list[Column | str] = [
        "EXECUTION",
        "NAME",
        Column("STATUS", is_status=True),
        "BEGAN (UTC)",
        "ENDED (UTC)",
        Column("TOOK", is_number=True),
        "GROUP",
        "LABELS",
        "STEP",
        "ERROR",
    ]
    print_table(columns, [_build_row(one, more, now_ms) for one, more in pairs])
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


def _as_dict(one: Summary, details: ExecutionDetails, now_ms: int) -> dict[str, Any]:
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
        "duration_ms": _duration_ms(one, now_ms),
        "error": details.error,
        "steps": details.steps or None,
        "paused": details.paused,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _build_row(one: Summary, details: ExecutionDetails, now_ms: int) -> list[str]:
    from orchestrator.application.explain.text import join_names
    from orchestrator.application.redaction.by_key import redact_by_key

    error = details.error or {}
    active = (f"{name} ({humanize(status)})" for name, status in details.steps.items())
    step = str(error.get("step") or "") or join_names(active, MAX_ACTIVE_STEPS)
    labels = ", ".join(f"{name}={value}" for name, value in redact_by_key(dict(one.labels)).items())
    times = [at.replace("T", " ")[:19] if at else "" for at in (one.created_at, one.ended_at)]
    took = format_duration(_duration_ms(one, now_ms) / 1000)
    message = format_error(dict(error)) if error else ""
    status = humanize(one.status.value)
    return [one.execution_id, one.name or "", status, *times, took, one.group or "", labels, step, message]


def _duration_ms(one: Summary, now_ms: int) -> int:
    """The time from the creation to the end, or until now."""
    from orchestrator.application.records.events import parse_iso_ms

    ended_ms = now_ms if one.ended_at is None else parse_iso_ms(one.ended_at)
    return max(ended_ms - parse_iso_ms(one.created_at), 0)
