"""Starts: one execution or many, and the reply to a start that was not waited for."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from orchestrator.application.errors import OrchestratorError, StartRejected
from orchestrator.application.records.events import ConflictPolicy
from orchestrator.application.values.trace_context import TRACEPARENT_RULE, parse_traceparent
from orchestrator.client import StartOptions, StartResult
from orchestrator.client.replies import NoReply, RequestLost
from orchestrator.client.starts import StartRequest
from orchestrator.web.api.documents import read_document
from orchestrator.web.api.models import ID_PATTERN, Body, EntryId, Json, JsonObject, Name, NewId, Query, Reply
from orchestrator.web.api.problem_models import ItemProblem
from orchestrator.web.api.route import START_PROBLEMS, ApiRoute, Call
from orchestrator.web.instance import Instance
from orchestrator.web.problems import Problem, explain_error

MAX_STARTS = 1_000
MAX_WINDOW_S = 366 * 86_400
IDEMPOTENCY_KEY = "Idempotency-Key"
TRACEPARENT = "traceparent"
HEADERS = {
    IDEMPOTENCY_KEY: "The idempotency root: a second start with the same one returns the first execution.",
    TRACEPARENT: "The span that causes the start, as in W3C Trace Context; ignored if it is not valid.",
}


LabelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
LabelValue = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class Start(Body):
    """A start: of a registered `workflow` by its name, or of a `document`."""

    workflow: Name | None = Field(None, description="The name of a registered workflow.")
    document: JsonObject | str | None = Field(None, description="A workflow document: JSON, or text of YAML.")
    inputs: JsonObject = Field({})
    execution_id: NewId | None = Field(None, description="By default made from the time.")
    labels: dict[LabelName, LabelValue] = Field({}, max_length=16)
    group: Name | None = None
    priority: Annotated[int, Field(ge=1, le=5)] | None = None
    conflict_policy: ConflictPolicy | None = Field(
        None, description="What happens if the execution id is taken."
    )
    idempotency_root: NewId | None = Field(
        None, description="A second start with the same root returns the first execution."
    )
    idempotency_window_s: Annotated[int, Field(ge=1, le=MAX_WINDOW_S)] | None = None
    webhook: str | JsonObject | None = Field(
        None, description="Called when the execution ends: a URL, or a mapping as in a document."
    )
    traceparent: str | None = Field(
        None, description="The span that causes the start; by default that of the header.", max_length=256
    )


class StartMany(Body):
    starts: Annotated[list[Start], Field(min_length=1, max_length=MAX_STARTS)]


class StartQuery(Query):
    wait: bool = Field(True, description="Wait until a coordinator has accepted it.")
    timeout_s: Annotated[float, Field(gt=0, le=60)] = Field(10, description="How long to wait.")


class Started(Reply):
    """The execution that a start led to, or the entry of a start that was not waited for.

    `existing` is true if the execution existed before. Then `status` is set too, and `outcome` or `error` if
    it has ended.
    """

    execution_id: str | None = None
    workflow_execution_id: str | None = None
    existing: bool = False
    status: str | None = None
    outcome: Json = None
    error: JsonObject | None = None
    entry: str = Field(description="The id of the start, for /starts/{entry}.")

    @classmethod
    def of(cls, entry: str, one: StartResult) -> Started:
        return cls(
            execution_id=one.execution_id,
            workflow_execution_id=one.workflow_execution_id,
            existing=one.existing,
            status=one.status,
            outcome=one.outcome,
            error=one.error,
            entry=entry,
        )


class StartedOne(Reply):
    """The reply to one of many starts: what it led to, or its problem."""

    ok: bool
    started: Started | None = None
    problem: ItemProblem | None = None


class StartedMany(Reply):
    """The replies, in the order of the starts."""

    started: int = Field(description="How many led to an execution, or were sent.")
    replies: list[StartedOne]


class PendingStart(Reply):
    status: Literal["waiting", "started"]
    started: Started | None = None


def start(call: Call, query: StartQuery, body: Start) -> Started:
    """Start a workflow, and wait until a coordinator has accepted it."""
    return send_start(call, make_start(body, read_key(call), read_traceparent(call)), query)


def start_many(call: Call, query: StartQuery, body: StartMany) -> StartedMany:
    """Start many workflows in one request, each as by itself.

    The reply to each says whether it was started. An Idempotency-Key counts for the whole request: the root
    of start 0 is KEY:0, unless it has one.
    """
    key, client = read_key(call), call.instance.client
    replies: list[StartedOne | None] = [None] * len(body.starts)
    requests: dict[int, StartRequest] = {}
    for number, one in enumerate(body.starts):
        try:
            own_key = None if key is None else f"{key}:{number}"
            requests[number] = make_start(one, own_key, read_traceparent(call))
        except (Problem, OrchestratorError) as error:
            replies[number] = _failed(error)
    entries: dict[int, str] = {}
    for number, sent in zip(requests, client.send_starts(list(requests.values())), strict=True):
        if isinstance(sent, str):
            entries[number] = sent
        else:
            replies[number] = _failed(sent)
    found = client.wait_for_starts(list(entries.values()), query.timeout_s) if query.wait else None
    for place, (number, entry) in enumerate(entries.items()):
        result = None if found is None else found[place]
        if isinstance(result, OrchestratorError):
            replies[number] = _failed(_name_workflow(call.instance, requests[number], result))
        else:
            started = Started(entry=entry) if result is None else Started.of(entry, result)
            replies[number] = StartedOne(ok=True, started=started)
    complete = [one for one in replies if one is not None]
    succeeded = sum(one.ok for one in complete)
    call.target, call.result = f"{len(complete)} workflows", f"{succeeded} started"
    return StartedMany(started=succeeded, replies=complete)


def get_start(call: Call, entry: EntryId) -> PendingStart:
    """Get the reply to a start by its entry: after a timeout, or for one that was not waited for.

    A reply is kept for an hour.
    """
    [found] = call.instance.client.wait_for_starts([entry], 0)
    if isinstance(found, RequestLost):
        raise Problem(404, "not_found", f"there is no start {entry!r}, or its reply is more than an hour old")
    if isinstance(found, NoReply):
        call.status = 202
        return PendingStart(status="waiting")
    if isinstance(found, OrchestratorError):
        raise found
    return PendingStart(status="started", started=Started.of(entry, found))


def read_key(call: Call) -> str | None:
    """The Idempotency-Key of a request, with or without quotes; None if it has none."""
    key = call.request.headers.get(IDEMPOTENCY_KEY)
    if key is None:
        return None
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if re.fullmatch(ID_PATTERN, key) is None:
        raise Problem(
            400,
            "bad_header",
            f"{IDEMPOTENCY_KEY}: write 1 to 256 letters, digits, '_', '-', '.' or ':', not {key[:80]!r}",
        )
    return key


def read_traceparent(call: Call) -> str | None:
    """The traceparent of a request. One that is not valid counts as none, as W3C Trace Context demands: the
    sender of a request may not have set the header itself."""
    text = call.request.headers.get(TRACEPARENT)
    return text if text is not None and parse_traceparent(text) is not None else None


def make_start(body: Start, key: str | None, traceparent: str | None = None) -> StartRequest:
    """The start that a body asks for; raises Problem or InvalidSpec."""
    if (body.workflow is None) == (body.document is None):
        raise _wrong("workflow", "give the name of a registered `workflow`, or a `document`: one of the two")
    if key is not None and body.idempotency_root not in (None, key):
        raise _wrong("idempotency_root", f"it differs from the header {IDEMPOTENCY_KEY}: give one of the two")
    if body.traceparent is not None and parse_traceparent(body.traceparent) is None:
        raise _wrong("traceparent", f"it {TRACEPARENT_RULE}")
    options = StartOptions(
        conflict_policy=body.conflict_policy,
        labels=body.labels,
        group=body.group,
        priority=body.priority,
        idempotency_root=body.idempotency_root or key,
        idempotency_window_s=body.idempotency_window_s,
        webhook=body.webhook,
        traceparent=body.traceparent or traceparent,
    )
    source = body.workflow if body.workflow is not None else read_document(body.document or {})
    return StartRequest(source, body.inputs, body.execution_id, options)


def send_start(call: Call, request: StartRequest, query: StartQuery) -> Started:
    """Send a start, and wait for its reply if the request does; sets the status of the response."""
    client = call.instance.client
    call.target = request.workflow if isinstance(request.workflow, str) else _title(request.workflow)
    [sent] = client.send_starts([request])
    if not isinstance(sent, str):
        raise sent
    if not query.wait:
        call.status, call.result = 202, f"sent {sent}"
        return Started(entry=sent)
    [found] = client.wait_for_starts([sent], query.timeout_s)
    if isinstance(found, OrchestratorError):
        raise _name_workflow(call.instance, request, found)
    if found.existing:
        call.status = 200
    call.result = f"{'existing' if found.existing else 'started'} {found.execution_id}"
    return Started.of(sent, found)


def _name_workflow(instance: Instance, request: StartRequest, error: Exception) -> Exception:
    """The error of a start, or Problem 404 if it was rejected because its workflow is not registered."""
    if not isinstance(error, StartRejected) or not isinstance(request.workflow, str):
        return error
    if request.workflow in instance.queries.names():
        return error
    return Problem(404, "unknown_workflow", str(error))


def _failed(error: Exception) -> StartedOne:
    return StartedOne(ok=False, problem=ItemProblem.model_validate(explain_error(error).as_dict()))


def _title(workflow: object) -> str:
    spec = getattr(workflow, "spec", None)
    return f"document {getattr(spec, 'name', None) or 'without a name'}"


def _wrong(path: str, message: str) -> Problem:
    return Problem(
        422,
        "invalid_request",
        f"{path}: {message}",
        [{"path": path, "code": "value_error", "message": message}],
    )


ROUTES = [
    ApiRoute(
        "POST",
        "/executions",
        start,
        status=201,
        others={
            200: "The execution existed before: by its idempotency root, or conflict policy `use_existing`.",
            202: "It was sent and not waited for.",
        },
        problems=START_PROBLEMS,
        waits=True,
        headers=HEADERS,
    ),
    ApiRoute("POST", "/starts", start_many, problems=START_PROBLEMS, waits=True, headers=HEADERS),
    ApiRoute(
        "GET",
        "/starts/{entry}",
        get_start,
        others={202: "No coordinator has handled it yet."},
        problems={
            404: "There is no such start, or its reply is gone.",
            409: "The start was rejected.",
            422: "The document or an input is wrong.",
        },
        waits=True,
    ),
]
