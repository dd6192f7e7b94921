"""The command show, and its old name, status."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from orchestrator.application.records.step_log import of_step
from orchestrator.cli.commands.completion import execution_argument
from orchestrator.cli.errors import EXIT_CODES, no_such_step
from orchestrator.cli.follow import glances_at
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output.step_log import entry_of, last_words, of_one, sections
from orchestrator.cli.output.tables import echo_table, one_line

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.application.records.step_log import Line
    from orchestrator.redis_rq.queries.record_queries import Glances


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
    record, glances = target.client().record(execution_id), glances_at(target)
    if unit is not None:
        _check_unit(record, unit)
    if outputs:
        _echo_json(_outputs(record, unit))
    else:
        lines = of_step((line for _, line in glances.lines(record.workflow_execution_id)), unit)
        if as_json:
            _echo_json(_as_dict(record, unit, lines))
        elif unit is not None:
            _echo_step(record, unit, glances, lines)
        else:
            _echo(record, glances.now_ms(), lines)
    raise click.exceptions.Exit(EXIT_CODES.get(record.status.value, 0))


status = click.Command("status", callback=show.callback, params=show.params, help=show.help, hidden=True)
"""What `show` was called before."""


def _echo(record: WorkflowRecord, now_ms: int, lines: Sequence[Line]) -> None:
    from orchestrator.cli.output import overview

    for line in overview.header(record, now_ms):
        click.echo(one_line(line))
    rows, others = overview.step_rows(record, now_ms)
    if rows:
        echo_table(overview.COLUMNS, rows)
    for line in [others, *sections(last_words(record, lines)), *overview.result(record)]:
        if line:
            click.echo(one_line(line))


def _echo_step(record: WorkflowRecord, unit: str, glances: Glances, lines: Sequence[Line]) -> None:
    from orchestrator.cli.output.step_details import details, unit_of

    step = unit_of(record, unit)
    inputs = None if step is None or step.token is None else glances.inputs_of(step.token)
    told = details(record, unit, glances.now_ms(), inputs)
    for line in [*told, *of_one(record.execution_id, unit, lines)]:
        click.echo(one_line(line))


def _as_dict(record: WorkflowRecord, unit: str | None, lines: Sequence[Line]) -> Any:
    """An execution with the last words of its steps, or a step with all that it said."""
    from orchestrator.cli.output import report

    told = report.as_dict(record)
    if unit is None:
        words = [line for last in last_words(record, lines).values() for line in last]
        return {**told, "lines": [entry_of(line) for line in words]}
    said = [entry_of(line) for line in lines]
    return {"step": unit, **(told["steps"].get(unit) or told["items"][unit]), "lines": said}


def _outputs(record: WorkflowRecord, unit: str | None) -> Any:
    from orchestrator.cli.output.values import visible

    if unit is not None:
        return visible(record, dict(record.units())[unit].output)
    steps = record.steps.items()
    return {name: visible(record, step.output) for name, step in steps if step.output is not None}


def _check_unit(record: WorkflowRecord, unit: str) -> None:
    known = [name for name, _ in record.units()]
    if unit not in known:
        raise no_such_step(record.execution_id, unit, known)


def _echo_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
