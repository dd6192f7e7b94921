"""Rendering: templates, the paths in them, and values of users as text.

Jinja escapes everything that a template prints. Names and values come from documents and executors, so
control characters in them are shown as escapes too: `text` and `json` are the filters for them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse

from orchestrator import __version__
from orchestrator.web.access.paths import instance_path, is_api
from orchestrator.web.access.users import Role
from orchestrator.web.static_files import DIGESTS


def render(request: HTTPConnection, template: str, status: int = 200, /, **values: Any) -> HTMLResponse:
    """A page from a template, which makes paths by `path(name)`."""
    application = request.app.state
    user, policy = getattr(request.state, "user", None), application.policy
    context = {
        "PAGES": PAGES,
        "page_name": "executions" if template == "execution.html" else template.removesuffix(".html"),
        "instance_path": lambda one: f"{root_of(request)}/{one.name}{application.paths['executions']}",
        "path": lambda name, /, **params: path_of(request, name, **params),
        "static": lambda name: static_path(request, name),
        "user": user,
        "may_operate": user is not None and user.may(Role.OPERATE) and not policy.is_read_only,
        "has_login": policy.tokens is not None,
        "instance": getattr(request.state, "instance", None),
        "instances": application.instances,
        "version": __version__,
        "notice": NOTICES.get(request.query_params.get("notice", "")),
    }
    return HTMLResponse(_environment().get_template(template).render(context | values), status)


PAGES = (
    ("executions", "Executions"),
    ("failures", "Failures"),
    ("start", "Start"),
    ("queues", "Queues and workers"),
    ("schedules", "Schedules"),
    ("dead_letters", "Dead letters"),
    ("doctor", "Doctor"),
)
"""The pages of an instance, in the order of the menu."""

NOTICES = {
    "cancel": "Cancelled.",
    "pause": "Paused.",
    "unpause": "Resumed.",
    "retry": "Retried.",
    "rerun": "The steps run again.",
    "hold": "The step is on hold.",
    "release": "The step is released.",
    "delete": "Deleted.",
    "signal": "The signal was delivered.",
    "signal-kept": "The signal is kept until a step waits for it.",
    "unchanged": "Nothing changed: the execution was in this state already.",
    "started": "Started.",
    "resent": "The event was sent again.",
    "dropped": "The dead letter was dropped.",
    "existing": "This execution existed before; nothing was started.",
}
"""What an action has done, by the word in the URL: no other text can be put on a page by a link."""


def is_page(request: HTTPConnection) -> bool:
    """Whether a request wants a page, and not data of the API."""
    path = instance_path(request.scope, request.app.state.policy.instance_names)
    return not is_api(path) and "text/html" in request.headers.get("accept", "")


def root_of(request: HTTPConnection) -> str:
    """The path under which the application is mounted. The guard notes it; a request that fails outside of
    every route has not passed it."""
    return str(getattr(request.state, "root", request.scope.get("root_path", "")))


def path_of(request: HTTPConnection, name: str, /, **params: Any) -> str:
    """The path of a route, below the prefix of the application and the name of its instance.

    Parameters that are not part of the path become the query; those that are None are left out.
    """
    application = request.app.state
    root = root_of(request)
    instance = getattr(request.state, "instance", None)
    if name not in application.shared_names and instance is not None and len(application.instances) > 1:
        root += f"/{instance.name}"
    path: str = application.paths[name]
    for key in [key for key in params if f"{{{key}}}" in path]:
        path = path.replace(f"{{{key}}}", quote(str(params.pop(key)), safe=""))
    query = urlencode({key: one for key, one in params.items() if one is not None}, doseq=True)
    return f"{root}{path}?{query}" if query else f"{root}{path}"


def static_path(request: HTTPConnection, name: str) -> str:
    """The path of a file of the page. It changes with the file, so that browsers may keep it for ever."""
    return f"{path_of(request, 'static', file=name)}?{DIGESTS[name]}"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from orchestrator.web import filters

    environment = Environment(
        loader=PackageLoader("orchestrator.web"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters.FILTERS
    environment.tests |= filters.TESTS
    return environment
