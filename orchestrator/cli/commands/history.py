"""The command history, and its entries in words."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.commands.completion import execution_argument
from orchestrator.cli.errors import no_such_step
from orchestrator.cli.follow import detach_on_interrupt, follow_history, open_record_queries
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output.report import error_line, humanize
from orchestrator.cli.output.step_log import HistoryEntry, merge_log_lines
from orchestrator.cli.output.tables import (
    colour_by_status,
    escape_line,
    is_coloured,
    terminal_width,
    truncate,
)

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.redis_rq.queries.record_queries import RecordQueries

VERBS = {
    "ready": "reset",
    "deferred": "deferred",
    "waiting": "waits",
    "in_progress": "dispatched",
    "retry": "to be retried",
    "on_hold": "held",
    "complete": "complete",
    "failed": "failed",
    "skipped": "skipped",
    "filtered": "filtered",
    "cancelled": "cancelled",
    "halted": "halted",
}
"""By the status that a step moved to."""

_PLACES = frozenset({"at", "cause", "step", "run_id", "attempt", "from", "to", "workflow", "control", "by"})


@click.command()
@execution_argument
@click.option("--step", metavar="STEP", help="Only what happened to this step and to its items.")
@click.option("--follow", "is_followed", is_flag=True, help="Go on with what happens, until it has ended.")
@click.option(
    "--lines/--no-lines", "include_step_log", default=True, help="With what executors said, or without."
)
@json_option
@connection_options
@pass_target
def history(
    target: Target,
    execution_id: str,
    step: str | None,
    is_followed: bool,
    include_step_log: bool,
    as_json: bool,
) -> None:
    """Tell what happened to an execution: when, to which step, in which run and attempt, and why.

    The cause is the id of the event, in a stream of Redis, that a change was decided upon. What executors
    said stands between the dispatch of their attempt and its end. With --follow, --json prints an entry on
    each line.
    """
    record, queries = target.client().record(execution_id), open_record_queries(target)
    if step is not None and step.partition("#")[0] not in record.graph.index:
        raise no_such_step(record.execution_id, step, record.graph.order)
    if as_json and not is_followed:
        told = list(_told(record, _entries(record, queries, False, include_step_log), step))
        click.echo(json.dumps(told, indent=2, ensure_ascii=False))
        return
    lines = HistoryFormatter(record.created_at, list(record.steps))
    if not as_json:
        click.echo(lines.heading)
    with detach_on_interrupt(record.execution_id):
        for entry in _entries(record, queries, is_followed, include_step_log):
            for one in _told(record, [entry], step):
                click.echo(json.dumps(one, ensure_ascii=False) if as_json else lines.line(one))


def _entries(
    record: WorkflowRecord, queries: RecordQueries, is_followed: bool, include_step_log: bool
) -> Iterator[HistoryEntry]:
    name = record.workflow_execution_id
    if is_followed:
        return follow_history(queries, name, include_step_log)
    entries = [json.loads(text) for text in queries.history(name, 0)]
    return merge_log_lines(entries, [line for _, line in queries.lines(name)] if include_step_log else ())


def _told(
    record: WorkflowRecord, entries: Iterable[HistoryEntry], step: str | None
) -> Iterator[dict[str, Any]]:
    from orchestrator.cli.output.values import redact_value

    for entry in entries:
        if step is None or is_about(entry, step):
            yield redact_value(record, entry)


# ---- in words


def is_about(entry: HistoryEntry, step: str) -> bool:
    """Whether an entry is about a step, or about an item or the compensation of it."""
    named = str(entry.get("step", ""))
    return named == step or named.startswith(f"{step}#")


class HistoryFormatter:
    """A line for each entry: the time, how long after the beginning, which step, which run and attempt, the
    cause, and what happened. The last has no width, and is cut where the terminal ends."""

    def __init__(self, began: str, steps: Sequence[str]) -> None:
        self._began = datetime.fromisoformat(began)
        self._width = max([8, *map(len, steps)])
        stream = sys.stdout
        self._room = terminal_width() if stream.isatty() else None
        self._is_coloured = is_coloured(stream)

    @property
    def heading(self) -> str:
        return _aligned("TIME (UTC)", "AFTER", "STEP", "RUN", "ATTEMPT", "CAUSE", "WHAT", self._width)

    def line(self, entry: HistoryEntry) -> str:
        plain = escape_line(format_entry(entry, self._began, self._width))
        if self._room is not None:
            plain = truncate(plain, self._room)
        return colour_by_status(plain, _status(entry)) if self._is_coloured else plain


def format_entry(entry: HistoryEntry, began: datetime, width: int) -> str:
    at = datetime.fromisoformat(entry["at"])
    return _aligned(
        at.isoformat(sep=" ", timespec="milliseconds")[:23],
        f"+{(at - began).total_seconds():.3f}s",
        str(entry.get("step", "workflow")),
        str(entry.get("run_id", "")),
        str(entry.get("attempt", "")),
        entry.get("cause") or "-",
        describe_entry(entry),
        width,
    )


def _aligned(
    time: str, after: str, step: str, run: str, attempt: str, cause: str, what: str, width: int
) -> str:
    return f"{time:<23}  {after:>10}  {step:<{width}}  {run:>3}  {attempt:>7}  {cause:<17}  {what}"


def describe_entry(entry: HistoryEntry) -> str:
    """What an entry says, in words; what we have no words for is shown as it is."""
    parts = []
    if "to" in entry:
        parts.append(_move(entry))
    if "workflow" in entry:
        parts.append(f"is {humanize(entry['workflow'])}")
    if "control" in entry:
        by = f" by {entry['by']}" if entry.get("by") else ""
        parts.append(f"told to {entry['control']}{by}")
    for name, value in entry.items():
        if name not in _PLACES:
            parts.append(_said(name, value))
    return ": ".join(parts[:2]) + "".join(f"; {part}" for part in parts[2:])


def _move(entry: HistoryEntry) -> str:
    before, after = entry.get("from"), str(entry["to"])
    if before == "on_hold":
        return f"released, is {humanize(after)}"
    if before == after == "in_progress":
        return "dispatched again"
    return VERBS.get(after, humanize(after))


def _said(name: str, value: Any) -> str:
    match name:
        case "error" if isinstance(value, dict):
            final = f"; not retried: {value['not_retried']}" if value.get("not_retried") else ""
            return f"{error_line(value)}{final}"
        case "reason" | "log":
            return str(value)
        case "line":
            return f"says: {value}"
        case "signal":
            return f"the signal {value} is kept until somebody waits for it"
        case "inputs" if isinstance(value, list):
            return f"other inputs: {', '.join(map(str, value))}"
        case "state_changed" if isinstance(value, list):
            return f"state has changed: {', '.join(map(str, value))}"
        case "shared":
            return f"shared {value}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{humanize(name)} {text}"


def _status(entry: HistoryEntry) -> str:
    return humanize(str(entry.get("to") or entry.get("workflow") or ""))
