"""The page of executions: filters, a page of the list, and the number of executions of each status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from orchestrator.application.explain.formatting import format_error, humanize
from orchestrator.application.explain.text import join_names
from orchestrator.application.records.events import parse_iso_ms
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.redaction.by_key import redact_by_key
from orchestrator.client import ExecutionDetails, ExecutionFilter, Page, Summary
from orchestrator.redis_rq.queries.failures import RETRYING
from orchestrator.web.execution_filters import Filters, format_times, read_filters, read_limit
from orchestrator.web.instance import Instance, instance_of
from orchestrator.web.rendering import path_of, render

MAX_ACTIVE_STEPS = 3


def home(request: Request) -> Response:
    """The first page: the executions, or the list of the instances if there are several."""
    if len(request.app.state.instances) == 1:
        return RedirectResponse(path_of(request, "executions"), 303)
    return render(request, "instances.html")


def show(request: Request) -> Response:
    instance, query = instance_of(request), request.query_params
    filters = read_filters(query)
    page = find_page(instance, filters, read_limit(query), query.get("after") or None)
    return render(
        request,
        "executions.html",
        rows=make_rows(instance, page.executions),
        cursor=page.cursor,
        is_first="after" not in query,
        counts=instance.queries.count_by_status(),
        filters=filters,
        limit=query.get("limit"),
        times=format_times(filters.wanted),
        status_links=_make_status_links(filters),
        names=instance.queries.names(),
        is_filtered=any(filters.texts.values()),
    )


ROUTES = [Route("/executions", show, name="executions")]


@dataclass(frozen=True, slots=True)
class Row:
    """An execution in the list: how long it took or has been open, and where it is or why it failed."""

    summary: Summary
    labels: dict[str, str]
    seconds: float
    step: str
    error: str


def find_page(instance: Instance, filters: Filters, limit: int, after: str | None) -> Page:
    """A page of the executions that match filters. With a failure it lists those that failed with it, or
    those that will try again, if only their statuses are wanted."""
    wanted, failure = filters.wanted, filters.failure
    if failure is None:
        return instance.client.list(wanted, limit, after)
    if wanted.statuses and set(wanted.statuses) <= set(RETRYING):
        ids = islice(instance.failures.select(failure, wanted, is_retrying=True), limit)
        return Page(instance.listing.find(ids, ExecutionFilter()))
    return instance.failures.page(failure, wanted, limit, after)


def make_rows(instance: Instance, executions: Sequence[Summary]) -> list[Row]:
    if not executions:
        return []
    now_ms, details = instance.queries.now_ms(), instance.client.details(executions)
    return [_make_row(one, more, now_ms) for one, more in zip(executions, details, strict=True)]


def _make_row(one: Summary, details: ExecutionDetails, now_ms: int) -> Row:
    error = dict(details.error or {})
    active = (f"{name} ({humanize(status)})" for name, status in details.steps.items())
    return Row(
        one,
        redact_by_key(dict(one.labels)),
        one.took_s if one.took_s is not None else max(now_ms - parse_iso_ms(one.created_at), 0) / 1000,
        str(error.get("step") or "") or join_names(active, MAX_ACTIVE_STEPS),
        format_error(error) if error else "",
    )


def _make_status_links(filters: Filters) -> dict[WorkflowStatus, dict[str, Any]]:
    """For each status the filters without it if it is one of them, or else with it."""
    wanted = [status.value for status in filters.wanted.statuses]
    return {
        status: {
            **filters.texts,
            "status": [one for one in wanted if one != status.value]
            if status.value in wanted
            else [*wanted, status.value],
        }
        for status in WorkflowStatus
    }
