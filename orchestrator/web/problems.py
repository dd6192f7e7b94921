"""Problems: every error of a request, as problem+json for programs and as a page for browsers.

`code` is the same word that events, replies and dead letters use, where they know the error.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from redis.exceptions import NoPermissionError, ResponseError
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse, Response

from orchestrator.application import errors
from orchestrator.web.headers import HEADERS

if TYPE_CHECKING:
    from starlette.requests import Request

logger = logging.getLogger(__name__)

PROBLEM_TYPE = "application/problem+json"
RETRY_SOON_S, RETRY_LATER_S = 1, 5
"""When a request may be repeated: after an outage of Redis, and while too many starts wait."""


class Problem(Exception):
    """A request that cannot be served: its status, a code for programs, and what is wrong for people.

    `more` are further members for programs, such as the entry of a start that has no reply yet.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        problems: Iterable[Mapping[str, Any]] = (),
        *,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.problems = status, code, detail, tuple(problems)
        self.headers, self.more = dict(headers or {}), dict(more or {})

    def as_dict(self) -> dict[str, Any]:
        fields = {"type": "about:blank", "title": TITLES[self.status], "status": self.status}
        problems = {"problems": list(self.problems)} if self.problems else {}
        return {**fields, "code": self.code, "detail": self.detail, **problems, **self.more}


TITLES = {
    400: "Bad request",
    401: "Login required",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Too slow",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported media type",
    422: "Invalid",
    429: "Too many requests",
    500: "Internal error",
    503: "Unavailable",
    504: "No reply",
}


def find_problem(error: Exception) -> Problem | None:
    """The problem that an error is; None for a defect."""
    from orchestrator.client.controls import ControlRejected
    from orchestrator.client.replies import NoReply, RequestLost
    from orchestrator.diagnosis.why import UnknownStep
    from orchestrator.redis_rq.dead_letters import DeadLetterNotFound
    from orchestrator.redis_rq.queries.listing import InvalidCursor

    match error:
        case Problem():
            return error
        case HTTPException():
            return _find_http_problem(error)
        case errors.RecordNotFound() | UnknownStep() | DeadLetterNotFound():
            return Problem(404, "not_found", str(error))
        case errors.PayloadMissing():
            return Problem(404, "payload_missing", str(error))
        case errors.HistoryNotKept():
            return Problem(404, "history_not_kept", str(error))
        case InvalidCursor():
            return Problem(400, "bad_query", str(error))
        case errors.InvalidSpec(problems=problems):
            return Problem(422, "invalid_spec", str(error), [one.as_dict() for one in problems])
        case errors.StartRejected(problems=problems) if problems:
            return Problem(422, "start_rejected", str(error), problems)
        case errors.StartRejected():
            return Problem(409, "start_rejected", str(error))
        case ControlRejected():
            return Problem(409, "rejected", str(error))
        case errors.TooLarge():
            return Problem(413, "too_large", str(error))
        case errors.Busy():
            return Problem(429, "busy", str(error), headers=_retry_after(RETRY_LATER_S))
        case RequestLost():
            return Problem(503, "request_lost", str(error), headers=_retry_after(RETRY_SOON_S))
        case NoReply():
            return Problem(504, "no_reply", str(error), more={"entry": error.entry_id})
        case errors.Unavailable():
            detail = f"cannot use Redis: {str(error).removeprefix('Redis: ')}"
            return Problem(503, "unavailable", detail, headers=_retry_after(RETRY_SOON_S))
        case errors.AccessDenied():
            return Problem(503, "unavailable", str(error))
        case NoPermissionError():
            return _forbidden_by_redis()
        case ResponseError() if _NO_PERMISSION_IN_SCRIPT.search(str(error)):
            return _forbidden_by_redis()
        case errors.RecordConflict():
            return Problem(409, "conflict", str(error))
        case errors.OrchestratorError():
            is_mistake = getattr(error, "exit_code", None) == 2
            return Problem(400 if is_mistake else 500, "error" if is_mistake else "internal", str(error))
    return None


_NO_PERMISSION_IN_SCRIPT = re.compile("^(The user executing the script can't|ACL failure in script)")
"""Redis has an error of its own for a command that a script may not call."""


def _forbidden_by_redis() -> Problem:
    return Problem(403, "forbidden_by_redis", "the Redis user of this page may not do this")


def _find_http_problem(error: HTTPException) -> Problem:
    """The problem of a request that no route serves."""
    if error.status_code == 405:
        allowed = dict(error.headers or {})
        return Problem(405, "method_not_allowed", "this path has no such method", headers=allowed)
    if error.status_code == 404:
        return Problem(404, "not_found", "there is nothing at this path")
    status = error.status_code if error.status_code in TITLES else 400
    return Problem(status, "error", str(error.detail))


def _retry_after(seconds: int) -> dict[str, str]:
    return {"Retry-After": str(seconds)}


def problem_response(request: HTTPConnection, problem: Problem) -> Response:
    """The response to a request that has a problem: JSON under /api/, elsewhere a page, or the login if there
    is one."""
    from orchestrator.web.rendering import is_page, path_of, render

    if is_page(request):
        if problem.status == 401 and request.app.state.policy.tokens is not None:
            return RedirectResponse(path_of(request, "login"), 303)
        response: Response = render(request, "problem.html", problem.status, problem=problem)
        response.headers.update(problem.headers)
        return response
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else {}
    return JSONResponse(problem.as_dict(), problem.status, {**headers, **problem.headers}, PROBLEM_TYPE)


def explain_error(error: Exception) -> Problem:
    """The problem that an error is. A defect is logged with its traceback, and its text is not shown."""
    problem = find_problem(error)
    if problem is None:
        logger.error("a request failed because of a defect", exc_info=error)
        problem = Problem(500, "internal", "this is a defect; the log of this process has its traceback")
    return problem


async def handle_error(request: Request, error: Exception) -> Response:
    """Answer with the problem that an error is."""
    return problem_response(request, explain_error(error))


async def handle_defect(request: Request, error: Exception) -> Response:
    """Answer to a request that failed outside of every route. No middleware of ours sees this response."""
    response = await handle_error(request, error)
    response.headers.update(HEADERS)
    return response
