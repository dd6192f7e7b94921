"""What happened in an execution: its history, its attempts and the log lines of its steps."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

from orchestrator.application.records.record_view import RecordView, make_record_view
from orchestrator.application.records.replay import add_values, fields_at, is_delta, list_attempts
from orchestrator.application.records.step_log import LogLine, filter_by_step
from orchestrator.application.values.unit_id import step_of
from orchestrator.web.api.models import Json, JsonObject, Name, Query, Reply, Time
from orchestrator.web.api.route import ApiRoute, Call

MAX_ENTRIES = 10_000


class HistoryQuery(Query):
    since: Annotated[int, Field(ge=0, le=2**53)] = Field(
        0, description="The position to begin at: 0, or `next` of the response before."
    )
    limit: Annotated[int, Field(ge=1, le=MAX_ENTRIES)] = Field(1_000, description="How many are read.")
    step: str | None = Field(None, description="Only entries about this step and its items.")


class History(Reply):
    """Entries of the history, the oldest first. Their keys: docs/history.md."""

    entries: list[JsonObject]
    next: int = Field(description="The position after the last entry that was read.")
    more: bool = Field(description="Whether there were more entries to read.")


class FieldsQuery(Query):
    commit: Annotated[int, Field(ge=1, le=2**53)]


class Fields(Reply):
    """The fields of the record after a commit."""

    commit: int
    fields: JsonObject


class AttemptsQuery(Query):
    step: str | None = Field(None, description="Only those of this step or item.")


class Attempt(Reply):
    """One dispatch of a unit. One that was revoked or lost has no `ended_at`."""

    step: str
    run_id: int
    attempt: int
    dispatched_at: Time
    inputs: Json
    ended_at: Time | None
    output: Json
    error: Json


class Attempts(Reply):
    attempts: list[Attempt] | None = Field(
        description="Null if the history has no values: ORCHESTRATOR_HISTORY=full keeps them."
    )


class LogQuery(Query):
    step: str | None = Field(None, description="Only lines of this step and its items.")
    after: Annotated[str, Field(pattern=r"^([0-9]{1,20}-[0-9]{1,20})?$")] = Field(
        "", description="`next` of the response before: lines that came later."
    )


class Line(Reply):
    at: Time
    step: str
    run_id: int
    attempt: int
    line: str


class Lines(Reply):
    """Log lines of executors, the oldest first. Lines of a running step appear within a second."""

    lines: list[Line]
    next: str = Field(description="For `after`, to get the lines that come later.")


def get_history(call: Call, execution: Name, query: HistoryQuery) -> History:
    """Get the history of an execution from a position on.

    Read again from `next` for what has happened since. Where the history has values, entries have the number
    of their `commit`, a dispatch its `inputs`, and the end of an attempt its `output`.
    """
    client, queries = call.instance.client, call.instance.queries
    full_id = client.store.full_id(execution)
    texts = queries.history(full_id, query.since, query.limit)
    if not texts:
        queries.version(full_id)  # raises RecordNotFound
        return History(entries=[], next=query.since, more=False)
    redact = make_record_view(client.record(full_id))
    read = [json.loads(text) for text in texts]
    more = len(read) == query.limit
    if more:
        read = _whole_commits(read)
    wanted = [redact(one) for one in add_values(read) if query.step is None or _is_about(one, query.step)]
    return History(entries=wanted, next=query.since + len(read), more=more)


def get_fields(call: Call, execution: Name, query: FieldsQuery) -> Fields:
    """Get the fields of the record as they were after a commit. The history must have values."""
    client = call.instance.client
    record = client.record(execution)
    found = fields_at(client.store.history(record.workflow_execution_id), query.commit)
    return Fields(commit=query.commit, fields=make_record_view(record)(found))


def get_attempts(call: Call, execution: Name, query: AttemptsQuery) -> Attempts:
    """Get every attempt with its inputs and its output or error. The history must have values."""
    client = call.instance.client
    record = client.record(execution)
    if record.delta is None:
        return Attempts(attempts=None)
    found = list_attempts(client.store.history(record.workflow_execution_id), query.step)
    redact = make_record_view(record)
    return Attempts(
        attempts=None if found is None else [Attempt.model_validate(redact(one.as_dict())) for one in found]
    )


def get_log(call: Call, execution: Name, query: LogQuery) -> Lines:
    """Get the log lines of an execution's steps."""
    client = call.instance.client
    full_id = client.store.full_id(execution)
    found = call.instance.queries.log_lines(full_id, query.after)
    if not found:
        call.instance.queries.version(full_id)  # raises RecordNotFound
        return Lines(lines=[], next=query.after)
    redact = make_record_view(client.record(full_id))
    lines = filter_by_step((line for _, line in found), query.step)
    return Lines(lines=[make_line(one, redact) for one in lines], next=found[-1][0])


def _whole_commits(entries: list[JsonObject]) -> list[JsonObject]:
    """The entries without the beginning of a last commit: its values are in its last entry. All entries, if
    none of them has values."""
    ends = [number for number, entry in enumerate(entries, 1) if is_delta(entry)]
    return entries[: ends[-1]] if ends else entries


def _is_about(entry: JsonObject, step: str) -> bool:
    unit = entry.get("step")
    return unit == step or (isinstance(unit, str) and step_of(unit) == step)


def make_line(one: LogLine, redact: RecordView) -> Line:
    return Line(at=one.at, step=one.step, run_id=one.run_id, attempt=one.attempt, line=redact.text(one.text))


ROUTES = [
    ApiRoute("GET", "/executions/{execution}/history", get_history),
    ApiRoute("GET", "/executions/{execution}/fields", get_fields),
    ApiRoute("GET", "/executions/{execution}/attempts", get_attempts),
    ApiRoute("GET", "/executions/{execution}/log", get_log),
]
