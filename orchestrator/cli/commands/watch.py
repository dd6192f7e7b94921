"""The command watch: an execution while it runs, until it has ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.commands.completion import execution_argument
from orchestrator.cli.commands.history import describe_entry
from orchestrator.cli.errors import EXIT_CODES
from orchestrator.cli.follow import (
    StepLogReader,
    detach_on_interrupt,
    follow,
    follow_history,
    open_record_queries,
)
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output import report
from orchestrator.cli.output.escaping import print_text
from orchestrator.cli.output.live import open_screen
from orchestrator.cli.output.overview import format_result, format_title
from orchestrator.cli.output.tables import escape_line
from orchestrator.cli.output.values import redact_value

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.client import Client
    from orchestrator.redis_rq.queries.record_queries import RecordQueries


@click.command()
@execution_argument
@json_option
@connection_options
@pass_target
def watch(target: Target, execution_id: str, as_json: bool) -> None:
    """Show how an execution goes, until it has ended.

    On a terminal its steps are drawn over and over, below what their executors say; into a pipe goes a line
    for each change, and each that an executor says. With --json nothing is shown before the end, and then
    what `run --json` prints. ^C leaves the execution running. The exit code is that of `run`, and 130 after
    ^C.
    """
    queries, client = open_record_queries(target), target.client()
    record = client.record(execution_id)
    with detach_on_interrupt(record.execution_id):
        clock = _clock(queries)
        if as_json:
            record = _in_silence(client, queries, record)
        elif sys.stdout.isatty():
            record = _on_terminal(client, queries, record, clock)
        else:
            record = _into_pipe(client, queries, record)
            click.echo(escape_line(format_title(record, clock())))
    if as_json:
        click.echo(report.as_json(record))
    else:
        for line in format_result(record):
            click.echo(escape_line(line))
    raise click.exceptions.Exit(EXIT_CODES.get(record.status.value, 0))


def _in_silence(client: Client, queries: RecordQueries, record: WorkflowRecord) -> WorkflowRecord:
    name = record.workflow_execution_id
    for _ in follow(queries, name, lambda: None, partial(print_text, err=True)):
        pass
    return client.record(name)


def _on_terminal(
    client: Client, queries: RecordQueries, record: WorkflowRecord, clock: Callable[[], int]
) -> WorkflowRecord:
    name = record.workflow_execution_id
    log_reader = StepLogReader(queries, name, queries.last_log_entry_id(name))
    with open_screen(sys.stdout) as screen:
        for found in follow(
            queries, name, lambda: client.record(name), screen.print_text, log_reader.poll_log
        ):
            record = found or record
            for line in log_reader.heard():
                screen.print_text(escape_line(f"{line.step}: {line.text}"))
            screen.draw(record, clock())  # also when nothing has changed: durations have
    return record


def _into_pipe(client: Client, queries: RecordQueries, record: WorkflowRecord) -> WorkflowRecord:
    from orchestrator.redis_rq.connection import retry_until_available

    name, began = record.workflow_execution_id, datetime.fromisoformat(record.created_at)
    for entry in follow_history(queries, name):
        line = describe_change(redact_value(record, entry), began)
        if line is not None:
            click.echo(escape_line(line))
    return retry_until_available(lambda: client.record(name))


def describe_change(entry: Mapping[str, Any], began: datetime) -> str | None:
    """One change of a step or of the workflow, or what it said or was told, as a line; None for all else."""
    if not {"to", "workflow", "control", "line"} & set(entry):
        return None
    after = (datetime.fromisoformat(entry["at"]) - began).total_seconds()
    attempt = f" (attempt {entry['attempt']})" if entry.get("attempt", 1) > 1 else ""
    return f"{after:8.3f} s  {entry.get('step', 'workflow')}: {describe_entry(entry)}{attempt}"


def _clock(queries: RecordQueries) -> Callable[[], int]:
    """The time of Redis, asked once: from then on ours tells how much has passed."""
    began_ms, began = queries.now_ms(), time.monotonic()
    return lambda: began_ms + round((time.monotonic() - began) * 1000)
