"""Controls of one execution: each waits for the reply of a coordinator, so what it returns has happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field

from orchestrator.client import ControlRejected, ControlResult
from orchestrator.web.api.models import Body, Json, JsonObject, Name, Reply
from orchestrator.web.api.route import ACTION_PROBLEMS, ApiRoute, Call

PROBLEMS = {404: "There is no execution with this id.", **ACTION_PROBLEMS}


class Reason(Body):
    reason: Name | None = Field(None, description="Kept in the history.")


class RetryBody(Reason):
    inputs: JsonObject | None = Field(None, description="Replaces inputs of the same names; the others stay.")


class RerunBody(RetryBody):
    step: Name = Field(description="Runs again, with all steps that depend on it.")


class StepBody(Body):
    step: Name


class SignalBody(Body):
    name: Name
    payload: Json = None


class Controlled(Reply):
    """The status of an execution after a control. `changed` is false if the control had no effect."""

    execution_id: str
    status: str
    changed: bool


class Signalled(Reply):
    execution_id: str
    signal: str
    kept: bool = Field(description="Whether it is kept, because no step waits for it yet.")


class Empty(Body):
    """An empty object, or no body at all."""


def cancel(call: Call, execution: Name, body: Reason) -> Controlled:
    """Cancel an execution and its children; then its completed steps are compensated."""
    return _control(call, execution, call.instance.client.cancel, reason=body.reason, by=call.user.name)


def pause(call: Call, execution: Name, body: Reason) -> Controlled:
    """Dispatch no more steps. Running steps continue, and their results count."""
    return _control(call, execution, call.instance.client.pause, reason=body.reason, by=call.user.name)


def unpause(call: Call, execution: Name, body: Empty) -> Controlled:
    """Resume a paused execution."""
    return _control(call, execution, call.instance.client.unpause, by=call.user.name)


def retry(call: Call, execution: Name, body: RetryBody) -> Controlled:
    """Run the steps again that did not complete in a failed or cancelled execution."""
    by = call.user.name
    return _control(
        call, execution, call.instance.client.retry, reason=body.reason, by=by, inputs=body.inputs
    )


def rerun(call: Call, execution: Name, body: RerunBody) -> Controlled:
    """Run a step of an ended execution again, with all that depend on it; it may have completed."""
    return _control(
        call,
        execution,
        call.instance.client.rerun,
        step_id=body.step,
        reason=body.reason,
        by=call.user.name,
        inputs=body.inputs,
    )


def hold(call: Call, execution: Name, body: StepBody) -> Controlled:
    """Hold a step that is not in progress, until it is released."""
    return _control(call, execution, call.instance.client.hold, step_id=body.step, by=call.user.name)


def release(call: Call, execution: Name, body: StepBody) -> Controlled:
    """Release a step that is on hold."""
    return _control(call, execution, call.instance.client.release, step_id=body.step, by=call.user.name)


def delete(call: Call, execution: Name) -> Controlled:
    """Permanently delete an ended execution and its history."""
    return _control(call, execution, call.instance.client.delete)


def signal(call: Call, execution: Name, body: SignalBody) -> Signalled:
    """Send a signal to an execution: the step that waits for it continues with its payload.

    If no step waits for it, the signal is kept; for an execution that does not exist yet, for a day.
    """
    call.target = f"{execution} {body.name}"
    is_delivered = call.instance.client.signal(execution, body.name, body.payload)
    call.result = "delivered" if is_delivered else "kept"
    return Signalled(execution_id=execution, signal=body.name, kept=not is_delivered)


def _control(call: Call, execution: str, send: Callable[..., ControlResult], **options: Any) -> Controlled:
    step = options.get("step_id")
    call.target = f"{execution} {step}" if step else execution
    try:
        result = send(execution, **options)
    except ControlRejected:
        call.instance.queries.version(call.instance.client.store.full_id(execution))  # 404 if there is none
        raise
    call.result = "ok" if result.changed else "unchanged"
    return Controlled(execution_id=execution.rpartition("#")[2], status=result.status, changed=result.changed)


def _action(path: str, serve: Callable[..., Any]) -> ApiRoute:
    return ApiRoute("POST", f"/executions/{{execution}}/{path}", serve, problems=PROBLEMS, waits=True)


ROUTES = [
    _action("cancel", cancel),
    _action("pause", pause),
    _action("unpause", unpause),
    _action("retry", retry),
    _action("rerun", rerun),
    _action("hold", hold),
    _action("release", release),
    _action("signals", signal),
    ApiRoute("DELETE", "/executions/{execution}", delete, problems=PROBLEMS, waits=True),
]
