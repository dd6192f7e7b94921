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
from orchestrator.cli.output.escaping import escape_line, print_json
from orchestrator.cli.output.history_lines import HistoryFormatter, entry_status, is_about
from orchestrator.cli.output.step_log import HistoryEntry, merge_log_lines

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.redis_rq.queries.record_queries import RecordQueries


@click.command()
@execution_argument
@click.option("--step", metavar="STEP", help="Only entries about this step and its items.")
@click.option("--follow", "is_following", is_flag=True, help="Continue until the execution has ended.")
@click.option(
    "--at", "commit", metavar="N", type=click.IntRange(1), help="Show the record as it was after commit N."
)
@click.option("--lines/--no-lines", "include_step_log", default=True, help="Include the log lines of steps.")
@json_option
@connection_options
@pass_target
def history(
    target: Target,
    execution_id: str,
    step: str | None,
    is_following: bool,
    commit: int | None,
    include_step_log: bool,
    as_json: bool,
) -> None:
    """Show what happened in an execution, and when.

    The cause of an entry is the id of the event, in a Redis stream, that led to the change. Log lines of
    executors stand between the dispatch and the end of their attempt. With --follow, --json prints one entry
    per line.

    A history with values (ORCHESTRATOR_HISTORY=full) also shows the inputs and the output of each attempt,
    and the number of each commit, for --at.
    """
    if commit is not None and is_following:
        raise click.UsageError("--at and --follow exclude each other")
    record, queries = target.client().record(execution_id), open_record_queries(target)
    if step is not None and step_of(step) not in record.graph.index:
        raise unknown_step(record.execution_id, step, record.graph.order)
    if commit is not None:
        _print_fields(record, queries, commit, step, as_json)
        return
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

    formatter = HistoryFormatter(record.created_at, list(record.steps), record.delta is not None)
    printer = LinePrinter()
    printer.print(formatter.heading)
    for entry in entries:
        printer.print(formatter.format(entry), entry_status(entry))


def _print_fields(
    record: WorkflowRecord, queries: RecordQueries, commit: int, step: str | None, as_json: bool
) -> None:
    """Print the fields of the record after a commit, or those of one step and its items."""
    from orchestrator.application.records.replay import fields_at
    from orchestrator.cli.output.values import format_json_line, redact_value

    entries = [json.loads(text) for text in queries.history(record.workflow_execution_id, 0)]
    fields = redact_value(record, fields_at(entries, commit))
    names = [name for name in sorted(fields) if step is None or _is_field_of(name, step)]
    if as_json:
        print_json({"commit": commit, "fields": {name: fields[name] for name in names}}, indent=2)
    else:
        for name in names:
            click.echo(escape_line(f"{name}  {format_json_line(fields[name])}"))


def _is_field_of(name: str, step: str) -> bool:
    step_id, _, part = step.partition("#")
    return name == f"step:{step}" or name == f"item:{step_id}:{part}" or name.startswith(f"item:{step}:")


def _read_entries(
    record: WorkflowRecord, queries: RecordQueries, is_following: bool, include_step_log: bool
) -> Iterator[HistoryEntry]:
    from orchestrator.application.records.replay import add_values

    execution = record.workflow_execution_id
    if is_following:
        return follow_history(queries, execution, include_step_log)
    entries = add_values(json.loads(text) for text in queries.history(execution, 0))
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
