"""Routes of the API: what each takes and returns is declared once, by the signature of its function.

    def pause(call: Call, execution: str, body: PauseBody) -> ControlReply:
        \"\"\"Pause an execution.\"\"\"

`query` is the model of the parameters in the URL and `body` that of the JSON it takes; all other parameters
are parts of the path. The return type is the JSON of the response, and the docstring its description. Both
the endpoint and the OpenAPI document are made from it, so they cannot differ.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_type_hints

from anyio import CapacityLimiter, to_thread
from pydantic import BaseModel, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from orchestrator.web.access.guard import user_of
from orchestrator.web.access.users import User
from orchestrator.web.actions import log_action
from orchestrator.web.api.reading import JSON_TYPE, read_any, read_body, read_path, read_query
from orchestrator.web.instance import Instance, instance_of
from orchestrator.web.problems import explain_error, problem_response

ROOT = "/api/v1"
MAX_WAITING = 40
"""So many requests that wait for a coordinator have a thread, as many as all other requests have together."""

READ_PROBLEMS: Mapping[int, str] = {400: "A parameter is wrong.", 404: "There is none with this id."}
ACTION_PROBLEMS: Mapping[int, str] = {
    400: "A parameter or a header is wrong, or the body is not JSON.",
    409: "It was rejected, because of the status of the execution.",
    413: "The body, or a value in it, is too large.",
    415: "The body is not JSON.",
    422: "The body is wrong: `problems` lists the keys.",
    504: "No coordinator has replied in time. The request stays, and is handled later.",
}
START_PROBLEMS: Mapping[int, str] = {
    **ACTION_PROBLEMS,
    404: "No workflow is registered by this name.",
    409: "The execution id is taken, or the start was rejected.",
    422: "The body, the document or an input is wrong: `problems` lists what.",
    429: "Too many starts wait for coordinators. Nothing was sent; try again later.",
}


@dataclass(slots=True)
class Call:
    """One request, as a function of the API sees it. It may set the status and headers of its response, and
    for the log of actions the target of an action and its result."""

    request: Request
    instance: Instance
    user: User
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    target: str = ""
    result: str = "ok"


@dataclass(frozen=True)
class ApiRoute:
    """A route: its method, its path below ROOT, and the function that serves it.

    status    the status of its response
    others    further statuses with the same response, each with its meaning
    empty     statuses without a body, each with its meaning
    problems  the statuses of its problems, each with its meaning; not those that any route may have
    waits     whether it waits for a coordinator
    media     what it returns, if that is not JSON
    is_hook   whether a user with the role START may use it
    headers   the headers that it reads, each with its meaning
    """

    method: str
    path: str
    serve: Callable[..., Any]
    status: int = 200
    others: Mapping[int, str] = field(default_factory=dict)
    empty: Mapping[int, str] = field(default_factory=dict)
    problems: Mapping[int, str] = field(default_factory=lambda: READ_PROBLEMS)
    waits: bool = False
    media: str = JSON_TYPE
    is_hook: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def noun(self) -> str:
        """The module of the route, which groups routes in the document."""
        return self.serve.__module__.rpartition(".")[2]

    @property
    def name(self) -> str:
        return f"api.{self.noun}.{self.serve.__name__}"

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.serve, include_extras=True)

    @property
    def query(self) -> type[BaseModel] | None:
        return self._hints.get("query")

    @property
    def body(self) -> Any:
        """A model, or Any for a body that may be any JSON; None for a route without a body."""
        return self._hints.get("body")

    @property
    def returns(self) -> Any:
        return self._hints["return"]

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.returns)

    @cached_property
    def path_parameters(self) -> dict[str, TypeAdapter[Any]]:
        names = inspect.signature(self.serve).parameters
        path = [name for name in names if name not in ("call", "query", "body")]
        return {name: TypeAdapter(self._hints[name]) for name in path}

    @property
    def is_action(self) -> bool:
        return self.method != "GET"


def make_route(route: ApiRoute) -> Route:
    """The Starlette route of a route of the API."""
    return Route(f"{ROOT}{route.path}", _make_endpoint(route), methods=[route.method], name=route.name)


def _make_endpoint(route: ApiRoute) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        body = await request.body() if route.body is not None else b""
        limiter = _limiter_of(request) if route.waits else None
        return await to_thread.run_sync(_respond, route, request, body, limiter=limiter)

    endpoint.__name__ = route.name
    return endpoint


def _limiter_of(request: Request) -> CapacityLimiter:
    """The threads of requests that wait for a coordinator. While none replies, the pages must still work."""
    state = request.app.state
    if not hasattr(state, "waiting_requests"):
        state.waiting_requests = CapacityLimiter(MAX_WAITING)
    limiter: CapacityLimiter = state.waiting_requests
    return limiter


def _respond(route: ApiRoute, request: Request, body: bytes) -> Response:
    """Serve one request in a thread, and log it if it is an action."""
    call = Call(request, instance_of(request), user_of(request), route.status)
    call.target = " ".join(request.path_params.values())
    try:
        response = _serve(route, call, body)
    except Exception as error:
        problem = explain_error(error)
        call.result = problem.code
        response = problem_response(request, problem)
    if route.is_action:
        log_action(request, route.serve.__name__.replace("_", " "), call.target, call.result)
    return response


def _serve(route: ApiRoute, call: Call, body: bytes) -> Response:
    request, arguments = call.request, read_path(route.path_parameters, call.request.path_params)
    if route.query is not None:
        arguments["query"] = read_query(route.query, request.query_params)
    elif request.query_params:
        ignored = ("token",) if route.is_hook else ()
        read_query(_NoQuery, request.query_params, ignored)
    if route.body is not None:
        content_type = request.headers.get("content-type", "")
        is_model = isinstance(route.body, type) and issubclass(route.body, BaseModel)
        arguments["body"] = (read_body if is_model else read_any)(route.body, body, content_type)
    result = route.serve(call, **arguments)
    if call.status in route.empty:
        return Response(None, call.status, call.headers)
    content = route.adapter.dump_json(result) if route.media == JSON_TYPE else str(result).encode()
    return Response(content, call.status, call.headers, route.media)


class _NoQuery(BaseModel):
    """A route without parameters."""

    model_config = {"extra": "forbid"}
