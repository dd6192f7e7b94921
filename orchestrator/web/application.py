"""Builds the application: the guard around the routes, and for each instance its routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import ASGIApp, ExceptionHandler, Receive, Scope, Send

from orchestrator.application.errors import OrchestratorError
from orchestrator.settings import Settings
from orchestrator.web.access.guard import Guard, Policy
from orchestrator.web.access.paths import RESERVED_NAMES
from orchestrator.web.access.tokens import TokenFile
from orchestrator.web.access.users import Authenticate
from orchestrator.web.headers import SecureHeaders
from orchestrator.web.instance import Instance
from orchestrator.web.live.stream import Streams
from orchestrator.web.problems import Problem, handle_defect, handle_error
from orchestrator.web.routes import INSTANCE_ROUTES, PATHS, SHARED_NAMES, SHARED_ROUTES

HANDLERS: Mapping[Any, ExceptionHandler] = {
    Problem: handle_error,
    OrchestratorError: handle_error,
    RedisError: handle_error,
    HTTPException: handle_error,
    Exception: handle_defect,
}
"""Expected errors are answered below the middleware. Starlette raises any other again, after the answer."""


def make_application(
    redis_url: str | None = None,
    prefix: str | None = None,
    *,
    instances: Sequence[Instance] = (),
    settings: Settings | None = None,
    authenticate: Authenticate | None = None,
    tokens: str | None = None,
    read_only: bool = False,
    allowed_hosts: Sequence[str] = (),
) -> Starlette:
    """See orchestrator.web.app()."""
    if instances and (redis_url is not None or prefix is not None or settings is not None):
        raise ValueError("give instances, or a URL, a prefix and settings, not both")
    if authenticate is not None and tokens is not None:
        raise ValueError("give authenticate or tokens, not both")
    shown = tuple(instances) or (Instance.of("default", redis_url, prefix, settings),)
    names = [one.name for one in shown]
    if len(set(names)) < len(names):
        raise ValueError(f"two instances have the same name: {', '.join(names)}")
    if len(shown) > 1 and RESERVED_NAMES & set(names):
        raise ValueError(f"no instance may have one of these names: {', '.join(sorted(RESERVED_NAMES))}")
    policy = Policy(
        tokens=None if tokens is None else TokenFile(tokens),
        authenticate=authenticate,
        is_read_only=read_only,
        allowed_hosts=tuple(host.lower() for host in allowed_hosts),
        instance_names=frozenset(names if len(shown) > 1 else ()),
    )
    application = Starlette(
        routes=[*SHARED_ROUTES, *_mount(shown)],
        middleware=[Middleware(SecureHeaders), Middleware(Guard, policy=policy)],
        exception_handlers=HANDLERS,
    )
    application.state.instances = shown
    application.state.paths, application.state.shared_names = PATHS, SHARED_NAMES
    application.state.policy = policy
    application.state.streams = Streams()
    return application


def _mount(instances: Sequence[Instance]) -> list[BaseRoute]:
    """The routes of each instance: below its name, unless it is the only one."""
    if len(instances) == 1:
        return [Mount("", app=InstanceRoutes(instances[0]))]
    return [Mount(f"/{one.name}", app=InstanceRoutes(one)) for one in instances]


class InstanceRoutes:
    """The routes of one instance, which they find in `request.state.instance`."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        # A redirect of Starlette to the path without its last slash names the host that the request names.
        self._router: ASGIApp = Router(INSTANCE_ROUTES, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["instance"] = self._instance
        await self._router(scope, receive, send)


def all_routes() -> list[Route]:
    """Every route, of the application and of an instance; tests look at each."""
    return [*SHARED_ROUTES, *INSTANCE_ROUTES]
