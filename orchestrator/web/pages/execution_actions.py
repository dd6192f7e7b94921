"""The actions of the page of an execution: each is a form, and leads back to the page with a notice."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from orchestrator.application.spec.document import check_data
from orchestrator.application.values.document_limits import DATA_LIMITS
from orchestrator.client import Client, ControlResult
from orchestrator.redis_rq.json_codec import loads
from orchestrator.web.access.guard import user_of
from orchestrator.web.actions import log_action
from orchestrator.web.forms import Form, with_form
from orchestrator.web.instance import instance_of
from orchestrator.web.pages.execution import render_execution
from orchestrator.web.problems import Problem, find_problem
from orchestrator.web.rendering import path_of
from orchestrator.web.shown_execution import ShownExecution

MAX_REASON_CHARS, MAX_NAME_CHARS = 1_000, 300

Send = Callable[[Client, str, str, Form], ControlResult]
"""Sends a control: client, execution, user, form."""


def _pause(client: Client, execution: str, by: str, form: Form) -> ControlResult:
    return client.pause(execution, by, reason=_read_reason(form))


def _unpause(client: Client, execution: str, by: str, form: Form) -> ControlResult:
    return client.unpause(execution, by)


def _cancel(client: Client, execution: str, by: str, form: Form) -> ControlResult:
    return client.cancel(execution, _read_reason(form), by)


def _retry(client: Client, execution: str, by: str, form: Form) -> ControlResult:
    return client.retry(execution, _read_reason(form), by)


def _rerun(client: Client, execution: str, by: str, form: Form) -> ControlResult:
    return client.rerun(execution, _read_step(form), _read_reason(form), by)


def _hold(client: Client, execution: str, by: str, form: Form) -> ControlResult:
    return client.hold(execution, _read_step(form), by)


def _release(client: Client, execution: str, by: str, form: Form) -> ControlResult:
    return client.release(execution, _read_step(form), by)


def _delete(client: Client, execution: str, by: str, form: Form) -> ControlResult:
    return client.delete(execution)


ACTIONS: dict[str, Send] = {
    "pause": _pause,
    "unpause": _unpause,
    "cancel": _cancel,
    "retry": _retry,
    "rerun": _rerun,
    "hold": _hold,
    "release": _release,
    "delete": _delete,
}


def _serve(action: str) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of an action."""

    def act(request: Request, form: Form) -> Response:
        execution, client = request.path_params["execution"], instance_of(request).client
        try:
            result = ACTIONS[action](client, execution, user_of(request).name, form)
        except Exception as error:
            log_action(request, action, _target(execution, form), _code_of(error))
            raise
        log_action(request, action, _target(execution, form), "ok" if result.changed else "unchanged")
        if action == "delete":
            return RedirectResponse(path_of(request, "executions", notice="delete"), 303)
        return _lead_back(request, form, action if result.changed else "unchanged")

    act.__name__ = action
    return with_form(act)


@with_form
def send_signal(request: Request, form: Form) -> Response:
    """Send a signal. A payload that is not JSON is shown again, with the mistake."""
    execution, instance = request.path_params["execution"], instance_of(request)
    name, text = form.get("name", "").strip(), form.get("payload", "")
    try:
        payload = _read_payload(name, text)
    except ValueError as error:
        shown = ShownExecution.load(instance, execution)
        return render_execution(request, shown, 422, {"name": name, "payload": text, "error": str(error)})
    try:
        is_awaited = instance.client.signal(execution, name, payload)
    except Exception as error:
        log_action(request, "signal", execution, _code_of(error))
        raise
    log_action(request, "signal", execution, "ok")
    return _lead_back(request, form, "signal" if is_awaited else "signal-kept")


def _read_payload(name: str, text: str) -> Any:
    """The payload of a signal, null without one; ValueError says what is wrong with the form."""
    if not name or len(name) > MAX_NAME_CHARS:
        raise ValueError(f"a signal has a name of 1 to {MAX_NAME_CHARS} characters")
    if not text.strip():
        return None
    try:
        payload = loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"this is not JSON: {error.msg}, line {error.lineno}, column {error.colno}"
        ) from None
    except UnicodeEncodeError:
        raise ValueError("this is not JSON: it has half of a surrogate pair") from None
    except ValueError as error:
        raise ValueError(f"this is not JSON: {error}") from None
    except RecursionError:
        raise ValueError("this is not JSON: it is too deep") from None
    problems = check_data(payload, limits=DATA_LIMITS)
    if problems:
        raise ValueError(problems[0].message)
    return payload


def _lead_back(request: Request, form: Form, notice: str) -> Response:
    """Redirect to the page, with the drawer of a step open if the form is in it."""
    step, view = form.get("step") or None, form.get("view") or None
    execution = request.path_params["execution"]
    path = path_of(request, "execution", execution=execution, view=view, step=step, notice=notice)
    return RedirectResponse(path, 303)


def _target(execution: str, form: Form) -> str:
    step = form.get("step")
    return f"{execution} step {step}" if step else execution


def _code_of(error: Exception) -> str:
    problem = find_problem(error)
    return "internal" if problem is None else problem.code


def _read_reason(form: Form) -> str | None:
    reason = form.get("reason", "").strip()
    if len(reason) > MAX_REASON_CHARS:
        raise Problem(400, "bad_form", f"a reason has at most {MAX_REASON_CHARS:,} characters")
    return reason or None


def _read_step(form: Form) -> str:
    step = form.get("step", "")
    if not step:
        raise Problem(400, "bad_form", "name a step")
    return step


ROUTES = [
    *(
        Route(
            f"/executions/{{execution}}/{action}",
            _serve(action),
            methods=["POST"],
            name=f"{action}_execution",
        )
        for action in ACTIONS
    ),
    Route("/executions/{execution}/signals", send_signal, methods=["POST"], name="signal_execution"),
]
