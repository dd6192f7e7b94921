"""Problems: every error of a request, as problem+json for programs and as a page for browsers.

`code` is the same word that events, replies and dead letters use, where they know the error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse, Response

from orchestrator.web.headers import HEADERS

if TYPE_CHECKING:
    from starlette.requests import Request

logger = logging.getLogger(__name__)

PROBLEM_TYPE = "application/problem+json"
RETRIES = {
    "unavailable": {"Retry-After": "1"},
    "request_lost": {"Retry-After": "1"},
    "busy": {"Retry-After": "5"},
}
"""When a request may be repeated, in seconds: after an outage of Redis, and while too many starts wait."""


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


STATUSES = {
    "not_found": 404,
    "payload_missing": 404,
    "history_not_kept": 404,
    "bad_query": 400,
    "invalid_spec": 422,
    "start_rejected": 409,
    "rejected": 409,
    "too_large": 413,
    "busy": 429,
    "request_lost": 503,
    "no_reply": 504,
    "unavailable": 503,
    "forbidden_by_redis": 403,
    "conflict": 409,
    "error": 400,
    "internal": 500,
}
"""The status of each known error. A start that is rejected with a list of problems has 422."""


def find_problem(error: Exception) -> Problem | None:
    """The problem that an error is; None for a defect."""
    from orchestrator.application.errors import AccessDenied
    from orchestrator.diagnosis.known_errors import find_known_error

    match error:
        case Problem():
            return error
        case HTTPException():
            return _find_http_problem(error)
    known = find_known_error(error)
    if known is None:
        return None
    is_invalid_start = known.code == "start_rejected" and known.problems
    status = 422 if is_invalid_start else STATUSES[known.code]
    headers = {} if isinstance(error, AccessDenied) else RETRIES.get(known.code, {})
    return Problem(status, known.code, known.message, known.problems, headers=headers, more=known.more)


def _find_http_problem(error: HTTPException) -> Problem:
    """The problem of a request that no route serves."""
    if error.status_code == 405:
        allowed = dict(error.headers or {})
        return Problem(405, "method_not_allowed", "this path has no such method", headers=allowed)
    if error.status_code == 404:
        return Problem(404, "not_found", "there is nothing at this path")
    status = error.status_code if error.status_code in TITLES else 400
    return Problem(status, "error", str(error.detail))


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
