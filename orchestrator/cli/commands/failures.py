"""The command `failures`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from orchestrator.application.explain.formatting import format_count
from orchestrator.cli.filters import filter_options
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output.escaping import print_json, print_text

if TYPE_CHECKING:
    from orchestrator.client import ExecutionFilter, FailureGroup, FailureReport


@click.command()
@filter_options(takes_status=False)
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="Maximum number of groups.",
)
@json_option
@connection_options
@pass_target
def failures(target: Target, execution_filter: ExecutionFilter | None, limit: int, as_json: bool) -> None:
    """Group failed executions by workflow, step and cause.

    FAILED executions have ended; RETRYING ones are open, and a step waits for its next attempt. Ids, times
    and numbers in messages do not count. `retry`, `delete` and `cancel` take such a group with --failure: the
    first two its failed executions, and the last one its retrying ones.
    """
    report = target.client().failures(execution_filter)
    shown = report.groups[:limit]
    if as_json:
        print_json(report.as_dict(limit), indent=2)
        return
    _print_groups(shown)
    for note in _list_notes(report, shown):
        print_text(note, err=True)


def _print_groups(groups: Sequence[FailureGroup]) -> None:
    from orchestrator.cli.output.tables import Column, print_table

    columns: list[Column | str] = [
        "FAILURE",
        "WORKFLOW",
        "STEP",
        Column("FAILED", is_number=True),
        Column("RETRYING", is_number=True),
        "FIRST (UTC)",
        "LAST (UTC)",
        "EXAMPLES",
        Column("CAUSE", is_wrapped=True),
    ]
    print_table(columns, [_build_row(one) for one in groups])


def _build_row(group: FailureGroup) -> list[str]:
    cause = group.cause
    times = [at.replace("T", " ")[:19] if at else "" for at in (group.first_at, group.last_at)]
    counts = [str(group.failed), str(group.retrying)]
    return [
        cause.id,
        cause.workflow or "",
        cause.step,
        *counts,
        *times,
        ", ".join(group.examples),
        cause.text,
    ]


def _list_notes(report: FailureReport, shown: Sequence[FailureGroup]) -> list[str]:
    """Say what the table does not show."""
    notes = []
    if len(shown) < len(report.groups):
        notes.append(f"and {format_count(len(report.groups) - len(shown), 'group')} more; --limit shows more")
    if report.ungrouped:
        notes.append(f"{format_count(report.ungrouped, 'execution')} with still other causes; use a filter")
    if not report.is_complete:
        notes.append(
            f"only the newest {report.checked:,} executions were read; use --since, --until or a filter"
        )
    return notes
