"""The guard: every request passes it, before its path is looked at.

It finds the user, and rejects the request of a user whose role does not suffice. A request that only reads
needs READ, and any other needs OPERATE; only public paths and those for webhooks differ. It also rejects

    an unknown Host           without users: any name can resolve to a loopback address
    another origin            a browser sends the cookie of this page also for requests of other pages
    a large or slow body      larger than MAX_BODY_BYTES, on a public path than MAX_PUBLIC_BODY_BYTES, or sent
                              in more than MAX_BODY_S
    two lengths of a body     Content-Length and Transfer-Encoding
    too many wrong tokens     by their rate, for all addresses together; a valid token always works
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrator.web.access.bodies import (
    MAX_BODY_BYTES,
    MAX_BODY_S,
    MAX_PUBLIC_BODY_BYTES,
    check_framing,
    check_length,
    limit_body,
)
from orchestrator.web.access.failures import FailureLimit
from orchestrator.web.access.origin import READING, check_host, check_origin
from orchestrator.web.access.paths import instance_path, is_hook, is_public, own_path, public_root
from orchestrator.web.access.sessions import COOKIE, find_user
from orchestrator.web.access.tokens import TokenFile
from orchestrator.web.access.users import LOCAL_USER, Authenticate, Role, User
from orchestrator.web.problems import Problem, problem_response


@dataclass(frozen=True, slots=True)
class Policy:
    """The users of this application, and the requests that it accepts."""

    tokens: TokenFile | None = None
    authenticate: Authenticate | None = None
    is_read_only: bool = False
    allowed_hosts: Sequence[str] = ()
    instance_names: frozenset[str] = frozenset()
    """The first part of the paths, if the application shows several instances."""
    failures: FailureLimit = field(default_factory=FailureLimit)

    async def check(self, connection: HTTPConnection) -> User | None:
        """The user of a request that is allowed; None on a public path. Raises Problem for any other."""
        if self.authenticate is None and self.tokens is None:
            check_host(connection, self.allowed_hosts)
        check_origin(connection)
        if is_public(own_path(connection.scope)):
            return None
        user = await self._find_user(connection)
        if user is None:
            raise Problem(401, "login_required", "log in, or send a token: Authorization: Bearer TOKEN")
        needed = self._find_needed_role(connection)
        if not user.may(needed):
            raise Problem(
                403, "forbidden", f"{user.name} may not do this: it needs the role {needed.name.lower()}"
            )
        if self.is_read_only and connection.scope["method"] not in READING:
            raise Problem(403, "read_only", "this page only reads; every action is rejected")
        return user

    def check_token(self, token: str) -> User | None:
        """The user of a token; None if it is wrong. Raises Problem if many were."""
        assert self.tokens is not None, "there are no tokens to check"
        user = self.tokens.find(token)
        if user is None and self.failures.count():
            raise Problem(429, "too_many_logins", "too many wrong tokens; try again in a minute")
        return user

    async def _find_user(self, connection: HTTPConnection) -> User | None:
        """The user of a request; None if it has no valid token and no login."""
        if self.authenticate is not None:
            # It may ask a database: a plain function runs in a thread.
            found = await run_in_threadpool(self.authenticate, connection)
            return await found if inspect.isawaitable(found) else found
        if self.tokens is None:
            return LOCAL_USER
        token = self._find_token(connection)
        if token is not None:
            return self.check_token(token)
        cookie = connection.cookies.get(COOKIE)
        return None if cookie is None else find_user(cookie, self.tokens, time.time())

    def _find_needed_role(self, connection: HTTPConnection) -> Role:
        if self._is_hook(connection):
            return Role.START
        return Role.READ if connection.scope["method"] in READING else Role.OPERATE

    def _is_hook(self, connection: HTTPConnection) -> bool:
        """Whether a request starts a workflow by its path for webhooks."""
        scope = connection.scope
        return scope["method"] == "POST" and is_hook(instance_path(scope, self.instance_names))

    def _find_token(self, connection: HTTPConnection) -> str | None:
        """The token in the header Authorization; of a webhook, also the one in its URL, since its sender may
        not be able to set a header."""
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return token.strip()
        return connection.query_params.get("token") if self._is_hook(connection) else None


class Guard:
    """ASGI middleware: checks each request. `request.state` has its user, and as `root` the path under which
    the application is mounted."""

    def __init__(self, app: ASGIApp, policy: Policy) -> None:
        self._app, self._policy = app, policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # there are no web sockets
        state = {**scope.get("state", {}), "root": public_root(scope), "user": None}
        scope = {**scope, "state": state}
        connection = HTTPConnection(scope)
        try:
            check_framing(connection)
            user = state["user"] = await self._policy.check(connection)
            max_bytes = MAX_PUBLIC_BODY_BYTES if user is None else MAX_BODY_BYTES
            check_length(connection, max_bytes)
        except Problem as error:
            await problem_response(connection, error)(scope, receive, send)
            return
        await self._app(scope, limit_body(receive, max_bytes, MAX_BODY_S), send)


def user_of(connection: HTTPConnection) -> User:
    """The user of a request that the guard let pass, and that is not for a public path."""
    user: User = connection.state.user
    assert isinstance(user, User), "the guard lets no request without a user pass, but for public paths"
    return user
