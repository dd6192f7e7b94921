"""The command `show`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.completers import execution_argument
from orchestrator.cli.errors import EXIT_CODES, unknown_step
from orchestrator.cli.follow import open_record_queries
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output.escaping import escape_line, print_json

if TYPE_CHECKING:
    from orchestrator.application.explain.status_view import StatusView
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.application.records.step_log import LogLine
    from orchestrator.redis_rq.queries.record_queries import RecordQueries


@click.command()
@execution_argument
@click.option(
    "--step", "unit", metavar="STEP", help="Show one step, one item (STEP#0) or a compensation (STEP#undo)."
)
@click.option("--outputs", is_flag=True, help="Print the outputs of all steps as one JSON value.")
@json_option
@connection_options
@pass_target
def show(target: Target, execution_id: str, unit: str | None, outputs: bool, as_json: bool) -> None:
    """Show an execution and its steps.

    ID is an execution id or a full id. The exit code is that of `run` for an ended execution, and 0 for a
    running one.
    """
    from orchestrator.application.records.step_log import filter_by_step

    view, queries = target.client().status_view(execution_id), open_record_queries(target)
    record = view.record
    if unit is not None:
        _check_unit(record, unit)
    if outputs:
        print_json(_collect_outputs(record, unit), indent=2)
    else:
        lines = filter_by_step((line for _, line in queries.log_lines(record.workflow_execution_id)), unit)
        if as_json:
            attempts = _list_attempts(record, queries)
            print_json(_as_dict(view, unit, lines, attempts), indent=2)
        elif unit is not None:
            _print_step(view, unit, queries, lines)
        else:
            _print_execution(view, queries.now_ms(), lines)
    raise click.exceptions.Exit(EXIT_CODES.get(record.status.value, 0))


def _print_execution(view: StatusView, now_ms: int, lines: Sequence[LogLine]) -> None:
    from orchestrator.cli.output import overview
    from orchestrator.cli.output.step_log import format_log_sections, last_log_lines
    from orchestrator.cli.output.tables import print_table

    record = view.record
    _print_lines(overview.format_header(record, now_ms))
    rows, hidden = overview.step_rows(view, now_ms)
    if rows:
        print_table(overview.COLUMNS, rows)
    log = format_log_sections(last_log_lines(record, lines))
    _print_lines([*([hidden] if hidden else []), *log, *overview.format_result(record)])


def _print_step(view: StatusView, unit: str, queries: RecordQueries, lines: Sequence[LogLine]) -> None:
    from orchestrator.cli.output.step_details import find_unit, format_details
    from orchestrator.cli.output.step_log import format_unit_log

    step = find_unit(view.record, unit)
    inputs = None if step is None or step.token is None else queries.inputs_of(step.token)
    attempts = _list_attempts(view.record, queries)
    own = None if attempts is None else [one for one in attempts if one["step"] == unit]
    _print_lines(format_details(view, unit, queries.now_ms(), inputs, own))
    _print_lines(format_unit_log(view.record.execution_id, unit, lines))


def _print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        click.echo(escape_line(line))


def _list_attempts(record: WorkflowRecord, queries: RecordQueries) -> list[dict[str, Any]] | None:
    """Every attempt that the history has; None if it has no values."""
    from orchestrator.application.records.replay import list_attempts
    from orchestrator.cli.output.values import redact_value

    if record.delta is None:
        return None
    entries = [json.loads(text) for text in queries.history(record.workflow_execution_id, 0)]
    found = list_attempts(entries)
    return None if found is None else [redact_value(record, one.as_dict()) for one in found]


def _as_dict(
    view: StatusView,
    unit: str | None,
    lines: Sequence[LogLine],
    attempts: Sequence[dict[str, Any]] | None,
) -> Any:
    """An execution with the last log lines of its steps, or a step with all of its log lines; and attempts,
    null if the history does not have them."""
    from orchestrator.application.explain.execution_json import as_dict
    from orchestrator.cli.output.step_log import last_log_lines, to_history_entry

    fields = as_dict(view)
    if unit is None:
        last = [line for unit_lines in last_log_lines(view.record, lines).values() for line in unit_lines]
        return {**fields, "lines": [to_history_entry(line) for line in last], "attempts": attempts}
    entries = [to_history_entry(line) for line in lines]
    own = None if attempts is None else [one for one in attempts if one["step"] == unit]
    shown = fields["steps"].get(unit) or fields["items"][unit]
    return {"step": unit, **shown, "lines": entries, "attempts": own}


def _collect_outputs(record: WorkflowRecord, unit: str | None) -> Any:
    from orchestrator.cli.output.values import redact_value

    if unit is not None:
        return redact_value(record, dict(record.units())[unit].output)
    steps = record.steps.items()
    return {name: redact_value(record, step.output) for name, step in steps if step.output is not None}


def _check_unit(record: WorkflowRecord, unit: str) -> None:
    known = [name for name, _ in record.units()]
    if unit not in known:
        raise unknown_step(record.execution_id, unit, known)
