"""The command `history`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from orchestrator.application.values.unit_id import step_of
from orchestrator.cli.completers import execution_argument
from orchestrator.cli.errors import unknown_step
from orchestrator.cli.follow import detach_on_interrupt, follow_history, open_record_queries
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output.escaping import print_json
from orchestrator.cli.output.history_lines import HistoryFormatter, entry_status, is_about
from orchestrator.cli.output.step_log import HistoryEntry, merge_log_lines

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.redis_rq.queries.record_queries import RecordQueries


@click.command()
@execution_argument
@click.option("--step", metavar="STEP", help="Only entries about this step and its items.")
@click.option("--follow", "is_following", is_flag=True, help="Continue until the execution has ended.")
@click.option("--lines/--no-lines", "include_step_log", default=True, help="Include the log lines of steps.")
@json_option
@connection_options
@pass_target
def history(
    target: Target,
    execution_id: str,
    step: str | None,
    is_following: bool,
    include_step_log: bool,
    as_json: bool,
) -> None:
    """Show what happened in an execution, and when.

    The cause of an entry is the id of the event, in a Redis stream, that led to the change. Log lines of
    executors stand between the dispatch and the end of their attempt. With --follow, --json prints one entry
    per line.
    """
    record, queries = target.client().record(execution_id), open_record_queries(target)
    if step is not None and step_of(step) not in record.graph.index:
        raise unknown_step(record.execution_id, step, record.graph.order)
    entries = _read_entries(record, queries, is_following, include_step_log)
    selected = _select_entries(record, entries, step)
    if as_json and not is_following:
        print_json(list(selected), indent=2)
        return
    with detach_on_interrupt(record.execution_id):
        if as_json:
            for entry in selected:
                print_json(entry)
        else:
            _print_entries(record, selected)


def _print_entries(record: WorkflowRecord, entries: Iterable[HistoryEntry]) -> None:
    from orchestrator.cli.output.console import LinePrinter

    formatter = HistoryFormatter(record.created_at, list(record.steps))
    printer = LinePrinter()
    printer.print(formatter.heading)
    for entry in entries:
        printer.print(formatter.format(entry), entry_status(entry))


def _read_entries(
    record: WorkflowRecord, queries: RecordQueries, is_following: bool, include_step_log: bool
) -> Iterator[HistoryEntry]:
    execution = record.workflow_execution_id
    if is_following:
        return follow_history(queries, execution, include_step_log)
    entries = [json.loads(text) for text in queries.history(execution, 0)]
    lines = [line for _, line in queries.log_lines(execution)] if include_step_log else ()
    return merge_log_lines(entries, lines)


def _select_entries(
    record: WorkflowRecord, entries: Iterable[HistoryEntry], step: str | None
) -> Iterator[dict[str, Any]]:
    """Yield the entries about a step, or all, with their secrets redacted."""
    from orchestrator.cli.output.values import redact_value

    for entry in entries:
        if step is None or is_about(entry, step):
            yield redact_value(record, entry)
