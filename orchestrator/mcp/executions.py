"""Tools that read executions: lists, one with its steps, why it waits, and failures by their cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from orchestrator.application.errors import PayloadMissing
from orchestrator.application.explain.execution_json import as_dict
from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.values.unit_id import step_of
from orchestrator.client import ExecutionFilter, Summary
from orchestrator.client.ends import StillRunning
from orchestrator.diagnosis import why
from orchestrator.mcp.arguments import Arguments, ExecutionId, JsonObject, Name, WaitSeconds
from orchestrator.mcp.system import System
from orchestrator.mcp.tool import Tool

MAX_SORTED_STEPS = 40
"""Of more steps, those that are neither complete nor pending come first."""


Status = Annotated[
    WorkflowStatus, WithJsonSchema({"type": "string", "enum": [one.value for one in WorkflowStatus]})
]
"""Its values stand in the schema itself: not every client follows references."""


class FilterArguments(Arguments):
    workflow: Name | None = Field(None, description="The name of the workflow.")
    labels: dict[str, str] = Field({}, description="Labels that an execution has.", max_length=16)
    since: datetime | None = Field(None, description="Created at this time or later; UTC by default.")
    text: Name | None = Field(None, description="A part of the id, the name, the group or a label.")


class ListArguments(FilterArguments):
    status: list[Status] = Field([], description="One of these statuses.")
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    after: str | None = Field(None, description="The `cursor` of the page before.", max_length=1_000)


class ExecutionArguments(Arguments):
    execution_id: ExecutionId
    wait_seconds: WaitSeconds = 0


class ExplainArguments(Arguments):
    execution_id: ExecutionId
    step: Name | None = Field(None, description="Explain this step instead of the whole execution.")


class FailuresArguments(FilterArguments):
    limit: Annotated[int, Field(ge=1, le=50)] = Field(10, description="How many causes.")


def list_executions(system: System, args: ListArguments) -> JsonObject:
    """List executions, the newest first, that match every given filter. Returns the id, the workflow and the
    status of each, and a `cursor` if there are more."""
    page = system.client.list(make_filter(args, args.status), args.limit, args.after or None)
    return {"executions": [_summarize(one) for one in page.executions], "cursor": page.cursor}


def get_execution(system: System, args: ExecutionArguments) -> JsonObject:
    """Get an execution: its status, outcome, error, inputs, and each step with its status and output. Use
    wait_seconds to follow long work: call it again until `is_over` is true. If it does not proceed, call
    explain_execution."""
    wait_for_end(system, args.execution_id, args.wait_seconds)
    return describe_execution(system, args.execution_id)


def explain_execution(system: System, args: ExplainArguments) -> JsonObject:
    """Explain why an execution or one of its steps waits or failed. Returns reasons, each with a code, words,
    and advice what to do. It also takes the `entry` of a start that has no reply yet."""
    found = why(system.redis, system.keys, args.execution_id, args.step or "").as_dict()
    return {name: _without_empty(value) for name, value in found.items()}


def list_failures(system: System, args: FailuresArguments) -> JsonObject:
    """Group the executions that failed, or of which a step will be tried again, by their cause, the largest
    group first. Returns the step, the message, how many there are, and some ids of each group."""
    found: JsonObject = system.client.failures(make_filter(args)).as_dict(args.limit)
    return found


def wait_for_end(system: System, execution_id: str, wait_seconds: int) -> None:
    """Wait for the end of an execution, but no longer than asked for."""
    if wait_seconds:
        with suppress(StillRunning, PayloadMissing):  # the outcome may be a value that has expired
            system.client.wait(execution_id, wait_seconds)


def make_filter(args: FilterArguments, statuses: list[WorkflowStatus] | None = None) -> ExecutionFilter:
    return ExecutionFilter(
        statuses=statuses or (),
        name=args.workflow,
        labels=args.labels,
        since_ms=None if args.since is None else _to_ms(args.since),
        text=args.text,
    )


def describe_execution(system: System, execution_id: str) -> JsonObject:
    """An execution with its steps. Keys without a value are left out, except those that say how it ended."""
    view = system.client.status_view(execution_id)
    found = as_dict(view)
    steps, items = found.pop("steps"), found.pop("items")
    head = {name: found.pop(name) for name in ("execution_id", "status")}
    shown = {name: _without_empty(step) for name, step in _sort_steps(steps).items()}
    return {
        **head,
        "is_over": view.record.is_final,
        **_without_empty(found),
        "step_counts": dict(Counter(step["status"] for step in steps.values())),
        "steps": {name: {**step, **_count_items(view, name, items)} for name, step in shown.items()},
    }


def _sort_steps(steps: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:
    """In the order of the document. Of many steps, those to look at come first: the others may be cut."""
    if len(steps) <= MAX_SORTED_STEPS:
        return steps
    return dict(sorted(steps.items(), key=lambda one: one[1]["status"] in ("complete", "pending", "skipped")))


def _count_items(view: StatusView, step: str, items: Mapping[str, JsonObject]) -> JsonObject:
    """How many items a map has of each status. get_step returns one of them."""
    if view.record.steps[step].items is None:
        return {}
    counts = Counter(item["status"] for unit, item in items.items() if step_of(unit) == step)
    return {"items": dict(counts)}


def _summarize(one: Summary) -> JsonObject:
    found = {
        "execution_id": one.execution_id,
        "workflow": one.name,
        "status": one.status.value,
        "created_at": one.created_at,
        "ended_at": one.ended_at,
        "group": one.group,
        "labels": dict(one.labels),
        "parent": one.parent,
    }
    shown: JsonObject = _without_empty(found)
    return shown


def _without_empty(value: Any) -> Any:
    """An object without the keys that have no value: they cost characters, and say nothing."""
    if isinstance(value, dict):
        return {name: one for name, one in value.items() if one not in (None, "", {}, (), [])}
    if isinstance(value, list | tuple):
        return [_without_empty(one) for one in value]
    return value


def _to_ms(at: datetime) -> int:
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


TOOLS = [Tool(list_executions), Tool(get_execution), Tool(explain_execution), Tool(list_failures)]
