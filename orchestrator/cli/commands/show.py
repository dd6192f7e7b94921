"""The command show, and its old name, status."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from orchestrator.application.records.step_log import filter_by_step
from orchestrator.cli.commands.completion import execution_argument
from orchestrator.cli.errors import EXIT_CODES, no_such_step
from orchestrator.cli.follow import open_record_queries
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output.step_log import (
    format_log_sections,
    format_unit_log,
    last_log_lines,
    to_history_entry,
)
from orchestrator.cli.output.tables import echo_table, escape_line

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.application.records.step_log import LogLine
    from orchestrator.redis_rq.queries.record_queries import RecordQueries


@click.command()
@execution_argument
@click.option("--step", "unit", metavar="STEP", help="All of one step, of an item (STEP#0), or of STEP#undo.")
@click.option("--outputs", is_flag=True, help="Print the outputs of all steps as one JSON value.")
@json_option
@connection_options
@pass_target
def show(target: Target, execution_id: str, unit: str | None, outputs: bool, as_json: bool) -> None:
    """Show an execution and its steps, by its execution id or its full id.

    The exit code is that of `run` for an execution that has ended, and 0 while it runs.
    """
    record, queries = target.client().record(execution_id), open_record_queries(target)
    if unit is not None:
        _check_unit(record, unit)
    if outputs:
        _echo_json(_outputs(record, unit))
    else:
        lines = filter_by_step((line for _, line in queries.lines(record.workflow_execution_id)), unit)
        if as_json:
            _echo_json(_as_dict(record, unit, lines))
        elif unit is not None:
            _echo_step(record, unit, queries, lines)
        else:
            _echo(record, queries.now_ms(), lines)
    raise click.exceptions.Exit(EXIT_CODES.get(record.status.value, 0))


status = click.Command("status", callback=show.callback, params=show.params, help=show.help, hidden=True)
"""What `show` was called before."""


def _echo(record: WorkflowRecord, now_ms: int, lines: Sequence[LogLine]) -> None:
    from orchestrator.cli.output import overview

    for line in overview.format_header(record, now_ms):
        click.echo(escape_line(line))
    rows, others = overview.step_rows(record, now_ms)
    if rows:
        echo_table(overview.COLUMNS, rows)
    for line in [
        others,
        *format_log_sections(last_log_lines(record, lines)),
        *overview.format_result(record),
    ]:
        if line:
            click.echo(escape_line(line))


def _echo_step(record: WorkflowRecord, unit: str, queries: RecordQueries, lines: Sequence[LogLine]) -> None:
    from orchestrator.cli.output.step_details import details, find_unit

    step = find_unit(record, unit)
    inputs = None if step is None or step.token is None else queries.inputs_of(step.token)
    told = details(record, unit, queries.now_ms(), inputs)
    for line in [*told, *format_unit_log(record.execution_id, unit, lines)]:
        click.echo(escape_line(line))


def _as_dict(record: WorkflowRecord, unit: str | None, lines: Sequence[LogLine]) -> Any:
    """An execution with the last words of its steps, or a step with all that it said."""
    from orchestrator.cli.output import report

    told = report.as_dict(record)
    if unit is None:
        words = [line for last in last_log_lines(record, lines).values() for line in last]
        return {**told, "lines": [to_history_entry(line) for line in words]}
    said = [to_history_entry(line) for line in lines]
    return {"step": unit, **(told["steps"].get(unit) or told["items"][unit]), "lines": said}


def _outputs(record: WorkflowRecord, unit: str | None) -> Any:
    from orchestrator.cli.output.values import redact_value

    if unit is not None:
        return redact_value(record, dict(record.units())[unit].output)
    steps = record.steps.items()
    return {name: redact_value(record, step.output) for name, step in steps if step.output is not None}


def _check_unit(record: WorkflowRecord, unit: str) -> None:
    known = [name for name, _ in record.units()]
    if unit not in known:
        raise no_such_step(record.execution_id, unit, known)


def _echo_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
