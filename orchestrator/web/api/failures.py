"""Failures: executions that failed or will be tried again, grouped by cause."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from orchestrator.web.api.models import Query, Reply, Time
from orchestrator.web.api.route import ApiRoute, Call
from orchestrator.web.execution_filters import read_filters


class FailuresQuery(Query):
    workflow: str | None = Field(None, description="The name of the workflow.")
    group: str | None = None
    label: list[str] = Field([], description="A label, as KEY=VALUE; may be repeated.")
    since: str | None = Field(None, description="Created at this time or later.")
    until: str | None = Field(None, description="Created before this time.")
    text: str | None = Field(None, description="A part of the id, the name, the group or a label.")
    limit: Annotated[int, Field(ge=1, le=1_000)] = Field(50, description="How many groups.")


class Failure(Reply):
    """The executions with one cause. Ids, times and numbers in messages do not count."""

    failure: str = Field(description="Its id, for the filter `failure`.")
    workflow: str | None
    step: str | None
    kind: str
    type: str | None
    message: str
    failed: int = Field(description="The executions that have failed.")
    retrying: int = Field(description="The open executions of which a step will be tried again.")
    first_at: Time | None
    last_at: Time | None
    examples: list[str]


class Failures(Reply):
    failures: list[Failure]
    groups: int = Field(description="How many groups there are, also beyond `limit`.")
    checked: int = Field(description="How many executions were read.")
    complete: bool = Field(description="False if there are more executions than are read.")
    ungrouped: int = Field(description="The executions with still other causes.")


def list_failures(call: Call, query: FailuresQuery) -> Failures:
    """Group failed executions by workflow, step and cause, the largest group first."""
    report = call.instance.client.failures(read_filters(call.request.query_params).wanted)
    return Failures.model_validate(report.as_dict(query.limit))


ROUTES = [ApiRoute("GET", "/failures", list_failures, problems={400: "A filter is wrong."})]
