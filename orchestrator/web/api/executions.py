"""Executions: a page of the list, one execution, and its outputs and status as other programs read them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from orchestrator.application.explain.execution_json import as_dict
from orchestrator.application.explain.flowtoy_run import as_flowtoy_run
from orchestrator.application.records.record_view import make_record_view
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.client import ExecutionFilter, Summary
from orchestrator.web.api.models import Json, JsonObject, Name, Query, Reply, Time
from orchestrator.web.api.route import READ_PROBLEMS, ApiRoute, Call
from orchestrator.web.api.selection import select_page
from orchestrator.web.execution_filters import MAX_LIMIT, read_filters


class FilterQuery(Query):
    """Which executions: those that match every given filter."""

    status: list[WorkflowStatus] = Field([], description="One of these statuses; may be repeated.")
    workflow: str | None = Field(None, description="The name of the workflow.")
    group: str | None = None
    label: list[str] = Field([], description="A label, as KEY=VALUE; may be repeated.")
    since: str | None = Field(None, description="Created at this time or later, such as 2026-01-31T12:00Z.")
    until: str | None = Field(None, description="Created before this time.")
    text: str | None = Field(None, description="A part of the id, the name, the group or a label.")
    failure: str | None = Field(None, description="With this failure: an id that /failures lists.")


class ExecutionsQuery(FilterQuery):
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 50
    after: str | None = Field(None, description="The `cursor` of the page before.")
    counts: bool = Field(False, description="Also count the executions of each status, whatever the filter.")


class ExecutionSummary(Reply):
    """An execution in a list."""

    workflow_execution_id: str
    execution_id: str
    status: WorkflowStatus
    name: str | None
    group: str | None
    labels: dict[str, str]
    parent: str | None = Field(description="The execution that started it.")
    created_at: Time
    ended_at: Time | None

    @classmethod
    def of(cls, one: Summary) -> ExecutionSummary:
        return cls(
            workflow_execution_id=one.workflow_execution_id,
            execution_id=one.execution_id,
            status=one.status,
            name=one.name,
            group=one.group,
            labels=dict(one.labels),
            parent=one.parent,
            created_at=one.created_at,
            ended_at=one.ended_at,
        )


class ExecutionPage(Reply):
    """Some executions, the newest first. A page may have fewer than `limit` and still a cursor."""

    executions: list[ExecutionSummary]
    cursor: str | None = Field(description="For `after` of the next page; null at the end.")
    counts: dict[WorkflowStatus, int] | None = None


class Step(Reply):
    """A step, an item of a map, or a compensation."""

    status: str = Field(description="Its status, or `queued` until a worker takes its job.")
    run_id: int
    attempt: int
    output: Json
    error: JsonObject | None
    reason: str | None = Field(description="Why it was skipped, cancelled or dispatched again.")
    worker: str | None
    child: str | None = Field(description="The execution that it started.")
    dispatched_at: Time | None
    started_at: Time | None
    ended_at: Time | None


class Execution(Reply):
    """An execution with all of its steps, as `orchestrator show --json` prints it."""

    workflow_execution_id: str
    execution_id: str
    workflow_id: str
    name: str | None
    status: WorkflowStatus
    outcome: Json
    error: JsonObject | None
    inputs: JsonObject
    state: JsonObject
    group: str | None
    schedule: str | None
    parent: JsonObject | None
    paused: JsonObject | None
    cancelled: JsonObject | None
    compensated: Json
    created_at: Time
    ended_at: Time | None
    steps: dict[str, Step]
    items: dict[str, Step] = Field(description="Items of maps, compensations and the webhook, by unit.")


def list_executions(call: Call, query: ExecutionsQuery) -> ExecutionPage:
    """List executions, the newest first.

    The filters are those of the page and of `orchestrator list`. With `failure`, the executions that failed
    with it are listed.
    """
    instance, filters = call.instance, read_filters(call.request.query_params)
    if filters.failure is None:
        page = instance.client.list(filters.wanted, query.limit, query.after or None)
        found, cursor = page.executions, page.cursor
    else:
        ids, cursor = select_page(
            instance, "retry", filters.wanted, filters.failure, query.limit, query.after
        )
        by_id = {one.workflow_execution_id: one for one in instance.listing.find(ids, ExecutionFilter())}
        found = [by_id[one] for one in ids if one in by_id]
    counts = instance.queries.count_by_status() if query.counts else None
    return ExecutionPage(executions=[ExecutionSummary.of(one) for one in found], cursor=cursor, counts=counts)


def get_execution(call: Call, execution: Name) -> Execution | None:
    """Get an execution with all of its steps.

    Its ETag changes with every commit. Send it as If-None-Match: the response is 304 while the record is the
    same, and costs two Redis commands. A step that waits in a queue becomes `in_progress` without a commit;
    its worker reports its start within about a second.
    """
    instance, client = call.instance, call.instance.client
    full_id = client.store.full_id(execution)
    known = call.request.headers.get("if-none-match")
    if known is not None and _matches(known, etag := make_etag(instance.queries.version(full_id)[0])):
        call.status = 304
        call.headers["ETag"] = etag
        return None
    view = client.status_view(full_id)
    call.headers["ETag"] = make_etag(view.record.version)
    return Execution.model_validate(as_dict(view))


def make_etag(version: str) -> str:
    return f'W/"{version}"'


def _matches(if_none_match: str, etag: str) -> bool:
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in tags or etag.removeprefix("W/") in tags


class RunOfStep(Reply):
    """A step, in the words of flowtoy."""

    state: str = Field(description="pending, running, succeeded, failed, skipped or cancelled.")
    started_at: float | None
    ended_at: float | None
    notes: list[str] = Field(description="Its error, or why it was skipped.")
    outputs: list[str] = Field(description="The names in its output.")


class Run(Reply):
    """An execution, in the words of flowtoy's Status API. Times are seconds since 1970."""

    run_id: str
    started_at: float | None
    ended_at: float | None
    total_steps: int
    completed_steps: int
    running_steps: list[str]
    running_count: int
    current_step: str | None
    steps: dict[str, RunOfStep]


def get_status(call: Call, execution: Name) -> Run:
    """Get an execution as flowtoy's Status API returns a run.

    Its web page and its TUI can show it: `RUNNER_STATUS_URL=http://HOST:PORT/api/v1/executions/ID`.
    """
    return Run.model_validate(as_flowtoy_run(call.instance.client.run_status(execution)))


class OutputsQuery(Query):
    payloads: bool = Field(False, description="Load the values that are stored by reference.")


def get_outputs(call: Call, execution: Name, query: OutputsQuery) -> dict[str, Json]:
    """Get the output of each completed step by its name, as flowtoy's Status API returns them.

    A large value is a reference, `{"$payload": ID}`, unless `payloads` is true.
    """
    client = call.instance.client
    record = client.record(execution)
    if query.payloads:
        outputs = client.outputs(record.workflow_execution_id)
    else:
        steps = record.steps.items()
        outputs = {step_id: step.output for step_id, step in steps if step.status is StepStatus.COMPLETE}
    redact = make_record_view(record)
    return {step_id: redact(output) for step_id, output in outputs.items()}


ROUTES = [
    ApiRoute("GET", "/executions", list_executions, problems={400: "A filter is wrong."}),
    ApiRoute(
        "GET",
        "/executions/{execution}",
        get_execution,
        problems=READ_PROBLEMS,
        empty={304: "The record has not changed since it had this ETag."},
        headers={"If-None-Match": "The ETag of an earlier response."},
    ),
    ApiRoute("GET", "/executions/{execution}/status", get_status),
    ApiRoute("GET", "/executions/{execution}/outputs", get_outputs),
]
