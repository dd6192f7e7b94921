"""The command `watch`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.completers import execution_argument
from orchestrator.cli.errors import EXIT_CODES
from orchestrator.cli.follow import (
    StepLogReader,
    detach_on_interrupt,
    follow,
    follow_history,
    open_record_queries,
)
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output.console import can_redraw
from orchestrator.cli.output.escaping import escape_line, print_text
from orchestrator.cli.output.history_lines import describe_change

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.client import Client
    from orchestrator.redis_rq.queries.record_queries import RecordQueries


@click.command()
@execution_argument
@click.option(
    "--timeline", "has_timeline", is_flag=True, help="Show when each step was queued, ran and waited."
)
@json_option
@connection_options
@pass_target
def watch(target: Target, execution_id: str, has_timeline: bool, as_json: bool) -> None:
    """Follow an execution until it ends.

    On a terminal the steps are redrawn in place, below their log lines. Elsewhere each change and each log
    line is printed as one line. With --json only the result is printed, as `run --json` does. ^C stops
    watching, and the execution continues. The exit code is that of `run`, or 130 after ^C.

    With --timeline there is a bar for each step instead. On a terminal it is redrawn; elsewhere it is
    printed at the end.
    """
    from orchestrator.cli.output import overview, report

    if has_timeline and as_json:
        raise click.UsageError("--timeline and --json exclude each other")
    queries, client = open_record_queries(target), target.client()
    record = client.record(execution_id)
    with detach_on_interrupt(record.execution_id):
        clock = _make_clock(queries)
        if as_json:
            record = _wait_for_end(client, queries, record)
        elif has_timeline:
            record = _watch_timeline(client, queries, record, clock)
        elif can_redraw(sys.stdout):
            record = _watch_on_terminal(client, queries, record, clock)
        else:
            record = _print_changes(client, queries, record)
            click.echo(escape_line(overview.format_title(record, clock())))
    if as_json:
        click.echo(report.as_json(queries.status_view(record)))
    else:
        for line in overview.format_result(record):
            click.echo(escape_line(line))
    raise click.exceptions.Exit(EXIT_CODES.get(record.status.value, 0))


def _wait_for_end(client: Client, queries: RecordQueries, record: WorkflowRecord) -> WorkflowRecord:
    execution = record.workflow_execution_id
    for _ in follow(queries, execution, lambda: None, partial(print_text, err=True)):
        pass
    return client.record(execution)


def _watch_on_terminal(
    client: Client, queries: RecordQueries, record: WorkflowRecord, clock: Callable[[], int]
) -> WorkflowRecord:
    from orchestrator.cli.output.live import LiveDisplay

    execution, view = record.workflow_execution_id, queries.status_view(record)
    log_reader = StepLogReader(queries, execution, queries.last_log_entry_id(execution))

    def read() -> None:
        nonlocal record
        record = client.record(execution)

    def poll() -> None:
        nonlocal view
        log_reader.poll_log()
        view = queries.status_view(record)  # a worker that takes a job does not change the record

    with LiveDisplay(sys.stdout) as display:
        for _ in follow(queries, execution, read, display.print_text, poll):
            for line in log_reader.take_new_lines():
                display.print_text(f"{line.step}: {line.text}")
            display.draw(view, clock())  # without a change, too: the durations have changed
    return record


def _watch_timeline(
    client: Client, queries: RecordQueries, record: WorkflowRecord, clock: Callable[[], int]
) -> WorkflowRecord:
    """Draw the timeline until the execution has ended; elsewhere than on a terminal, print it then."""
    from orchestrator.cli.output import timeline_text
    from orchestrator.cli.output.live import LiveDisplay

    execution, entries = record.workflow_execution_id, list[dict[str, Any]]()
    signs = timeline_text.select_signs(sys.stdout)

    def read() -> None:
        nonlocal record
        record = client.record(execution)
        entries.extend(json.loads(text) for text in queries.history(execution, len(entries)))

    def format_frame(width: int, max_lines: int) -> list[str]:
        view = queries.status_view(record)
        return timeline_text.format_frame(view, entries, clock(), width, max_lines, signs)

    if can_redraw(sys.stdout):
        with LiveDisplay(sys.stdout) as display:
            for _ in follow(queries, execution, read, display.print_text):
                display.draw_lines(format_frame(*display.size))
    else:
        for _ in follow(queries, execution, read, partial(print_text, err=True)):
            pass
        for line in format_frame(timeline_text.PLAIN_WIDTH, timeline_text.MAX_PLAIN_LINES):
            click.echo(escape_line(line))
    return record


def _print_changes(client: Client, queries: RecordQueries, record: WorkflowRecord) -> WorkflowRecord:
    from orchestrator.cli.output.values import redact_value
    from orchestrator.redis_rq.connection import retry_until_available

    execution, created_at = record.workflow_execution_id, datetime.fromisoformat(record.created_at)
    for entry in follow_history(queries, execution):
        line = describe_change(redact_value(record, entry), created_at)
        if line is not None:
            click.echo(escape_line(line))
    return retry_until_available(lambda: client.record(execution))


def _make_clock(queries: RecordQueries) -> Callable[[], int]:
    """Return a clock in the time of Redis. Redis is asked once; after that the local clock counts on."""
    began_ms, began = queries.now_ms(), time.monotonic()
    return lambda: began_ms + round((time.monotonic() - began) * 1000)
