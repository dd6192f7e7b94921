"""Bulk actions: on executions that are named, or that match a filter. A preview counts them first."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from orchestrator.application.errors import RecordNotFound
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.web.api.executions import FilterQuery
from orchestrator.web.api.models import Body, Name, Reply
from orchestrator.web.api.route import ACTION_PROBLEMS, ApiRoute, Call
from orchestrator.web.api.selection import select_page
from orchestrator.web.execution_filters import make_filters, read_filters
from orchestrator.web.problems import Problem

MAX_EXECUTIONS = 1_000
Action = Literal["cancel", "retry", "delete"]


class Filter(Body):
    """Which executions: those that match every given filter. At least one must be given."""

    status: list[str] = Field([], description="One of these statuses.")
    workflow: Name | None = None
    group: Name | None = None
    label: list[str] = Field([], description="Labels, each as KEY=VALUE.")
    since: str | None = None
    until: str | None = None
    text: Name | None = None
    failure: Name | None = Field(None, description="With this failure: an id that /failures lists.")


class BulkBody(Body):
    """Either `ids` or a `filter`."""

    ids: Annotated[list[Name], Field(max_length=MAX_EXECUTIONS)] | None = None
    filter: Filter | None = None
    reason: Name | None = Field(None, description="Kept in the history.")
    limit: Annotated[int, Field(ge=1, le=MAX_EXECUTIONS)] = Field(
        MAX_EXECUTIONS, description="How many executions of the filter, the newest first."
    )
    after: str | None = Field(None, description="The `cursor` of the request before.")


class Bulk(Reply):
    """What a bulk action has done, by full ids."""

    done: list[str]
    rejected: dict[str, str] = Field(description="The executions that rejected it, with the reasons.")
    cursor: str | None = Field(description="For `after` of the next request; null if there are no more.")


class Preview(Reply):
    count: int = Field(description="How many executions match now. Some may reject the action.")


class PreviewQuery(FilterQuery):
    pass


def preview(call: Call, action: Action, query: PreviewQuery) -> Preview:
    """Count the executions that a bulk action by this filter would be sent to."""
    filters = read_filters(call.request.query_params)
    _check_filter(any(filters.texts.values()))
    ids = call.instance.client.select(action, filters.wanted, filters.failure)
    return Preview(count=sum(1 for _ in ids))


def act(call: Call, action: Action, body: BulkBody) -> Bulk:
    """Cancel, retry or delete many executions, at most 1,000 in one request.

    Send the request again with `after` until `cursor` is null. An execution that cannot follow the action is
    listed in `rejected`, and does not stop the others.
    """
    if (body.ids is None) == (body.filter is None):
        raise _wrong("give `ids` or a `filter`: one of the two")
    rejected: dict[str, str] = {}
    cursor: str | None = None
    if body.filter is None:
        call.target = f"{len(body.ids or ())} executions"
        ids = _find_ids(call, body.ids or [], rejected)
    else:
        given = body.filter.model_dump(exclude_none=True)
        filters = make_filters({name: one if isinstance(one, list) else [one] for name, one in given.items()})
        _check_filter(any(filters.texts.values()))
        ids, cursor = select_page(
            call.instance, action, filters.wanted, filters.failure, body.limit, body.after
        )
        call.target = f"{len(ids)} executions by a filter"
    result = call.instance.client.control_each(action, ids, body.reason, call.user.name)
    call.result = f"{action}: {len(result.done)} done, {len(result.rejected) + len(rejected)} rejected"
    return Bulk(done=result.done, rejected={**rejected, **result.rejected}, cursor=cursor)


def _find_ids(call: Call, ids: list[str], rejected: dict[str, str]) -> list[str]:
    """The full ids of executions; those that do not exist are added to `rejected`."""
    found: list[str] = []
    for one in dict.fromkeys(ids):
        try:
            found.append(call.instance.client.store.full_id(one))
        except RecordNotFound as error:
            rejected[one] = str(error)
    return found


def _check_filter(is_given: bool) -> None:
    if not is_given:
        statuses = ", ".join(WorkflowStatus)
        raise _wrong(f"give at least one filter; for all executions give every status: {statuses}")


def _wrong(message: str) -> Problem:
    return Problem(422, "invalid_request", message)


ROUTES = [
    ApiRoute(
        "GET", "/bulk/{action}", preview, problems={400: "A filter is wrong.", 422: "No filter is given."}
    ),
    ApiRoute(
        "POST", "/bulk/{action}", act, problems={400: "A filter is wrong.", **ACTION_PROBLEMS}, waits=True
    ),
]
