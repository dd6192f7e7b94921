"""The web page and the HTTP API: an ASGI application. It needs the extra `web`.

    from orchestrator import web

    application = web.app("redis://localhost:6379/0")

`orchestrator web` serves it. It mounts under a prefix in any ASGI application: docs/web.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.web.access.users import Role, User

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from orchestrator.settings import Settings
    from orchestrator.web.access.users import Authenticate
    from orchestrator.web.instance import Instance

__all__ = ["Role", "User", "app"]


def app(
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
    """Return the web application for one Redis and prefix, or for several `instances`.

    The Redis and the prefix are those of the settings by default. Its users are known by one of these:

    authenticate    a function of your application: it takes a request, and returns a User or None
    tokens          the path of a file of tokens; the page then has a login
    neither         every request may read and operate; only requests to a loopback address are
                    accepted, or to one of `allowed_hosts`

    A `read_only` application rejects every action, whatever the role of a user.
    """
    from orchestrator.web.application import make_application

    return make_application(
        redis_url,
        prefix,
        instances=instances,
        settings=settings,
        authenticate=authenticate,
        tokens=tokens,
        read_only=read_only,
        allowed_hosts=allowed_hosts,
    )
