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
from orchestrator.cli.follow import follow_history, glances_at, left_running
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output.report import error_line, words
from orchestrator.cli.output.step_log import Entry, among
from orchestrator.cli.output.tables import cut, is_coloured, one_line, painted, terminal_width

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.redis_rq.queries.record_queries import Glances

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
@click.option("--lines/--no-lines", "has_lines", default=True, help="With what executors said, or without.")
@json_option
@connection_options
@pass_target
def history(
    target: Target, execution_id: str, step: str | None, is_followed: bool, has_lines: bool, as_json: bool
) -> None:
    """Tell what happened to an execution: when, to which step, in which run and attempt, and why.

    The cause is the id of the event, in a stream of Redis, that a change was decided upon. What executors
    said stands between the dispatch of their attempt and its end. With --follow, --json prints an entry on
    each line.
    """
    record, glances = target.client().record(execution_id), glances_at(target)
    if step is not None and step.partition("#")[0] not in record.graph.index:
        raise no_such_step(record.execution_id, step, record.graph.order)
    if as_json and not is_followed:
        told = list(_told(record, _entries(record, glances, False, has_lines), step))
        click.echo(json.dumps(told, indent=2, ensure_ascii=False))
        return
    lines = Lines(record.created_at, list(record.steps))
    if not as_json:
        click.echo(lines.titles)
    with left_running(record.execution_id):
        for entry in _entries(record, glances, is_followed, has_lines):
            for one in _told(record, [entry], step):
                click.echo(json.dumps(one, ensure_ascii=False) if as_json else lines.line(one))


def _entries(record: WorkflowRecord, glances: Glances, is_followed: bool, has_lines: bool) -> Iterator[Entry]:
    name = record.workflow_execution_id
    if is_followed:
        return follow_history(glances, name, has_lines)
    entries = [json.loads(text) for text in glances.history(name, 0)]
    return among(entries, [line for _, line in glances.lines(name)] if has_lines else ())


def _told(record: WorkflowRecord, entries: Iterable[Entry], step: str | None) -> Iterator[dict[str, Any]]:
    from orchestrator.cli.output.values import visible

    for entry in entries:
        if step is None or is_about(entry, step):
            yield visible(record, entry)


# ---- in words


def is_about(entry: Entry, step: str) -> bool:
    """Whether an entry is about a step, or about an item or the compensation of it."""
    named = str(entry.get("step", ""))
    return named == step or named.startswith(f"{step}#")


class Lines:
    """A line for each entry: the time, how long after the beginning, which step, which run and attempt, the
    cause, and what happened. The last has no width, and is cut where the terminal ends."""

    def __init__(self, began: str, steps: Sequence[str]) -> None:
        self._began = datetime.fromisoformat(began)
        self._width = max([8, *map(len, steps)])
        stream = sys.stdout
        self._room = terminal_width() if stream.isatty() else None
        self._is_coloured = is_coloured(stream)

    @property
    def titles(self) -> str:
        return _aligned("TIME (UTC)", "AFTER", "STEP", "RUN", "ATTEMPT", "CAUSE", "WHAT", self._width)

    def line(self, entry: Entry) -> str:
        plain = one_line(drawn(entry, self._began, self._width))
        if self._room is not None:
            plain = cut(plain, self._room)
        return painted(plain, _status(entry)) if self._is_coloured else plain


def drawn(entry: Entry, began: datetime, width: int) -> str:
    at = datetime.fromisoformat(entry["at"])
    return _aligned(
        at.isoformat(sep=" ", timespec="milliseconds")[:23],
        f"+{(at - began).total_seconds():.3f}s",
        str(entry.get("step", "workflow")),
        str(entry.get("run_id", "")),
        str(entry.get("attempt", "")),
        entry.get("cause") or "-",
        happened(entry),
        width,
    )


def _aligned(
    time: str, after: str, step: str, run: str, attempt: str, cause: str, what: str, width: int
) -> str:
    return f"{time:<23}  {after:>10}  {step:<{width}}  {run:>3}  {attempt:>7}  {cause:<17}  {what}"


def happened(entry: Entry) -> str:
    """What an entry says, in words; what we have no words for is shown as it is."""
    parts = []
    if "to" in entry:
        parts.append(_move(entry))
    if "workflow" in entry:
        parts.append(f"is {words(entry['workflow'])}")
    if "control" in entry:
        by = f" by {entry['by']}" if entry.get("by") else ""
        parts.append(f"told to {entry['control']}{by}")
    for name, value in entry.items():
        if name not in _PLACES:
            parts.append(_said(name, value))
    return ": ".join(parts[:2]) + "".join(f"; {part}" for part in parts[2:])


def _move(entry: Entry) -> str:
    before, after = entry.get("from"), str(entry["to"])
    if before == "on_hold":
        return f"released, is {words(after)}"
    if before == after == "in_progress":
        return "dispatched again"
    return VERBS.get(after, words(after))


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
    return f"{words(name)} {text}"


def _status(entry: Entry) -> str:
    return words(str(entry.get("to") or entry.get("workflow") or ""))
