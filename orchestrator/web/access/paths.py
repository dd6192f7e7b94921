"""Paths, as guard and routes read them: below the prefix of the application, and the name of an instance."""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import quote

from starlette.types import Scope

PUBLIC_PATHS = frozenset({"/login", "/logout", "/healthz"})
"""Open to everybody: the login, what it needs, and the health of this process. Nothing of an instance."""
_STATIC = re.compile(r"/static/[^/]+")
_HOOK = re.compile(r"/api/v1/hooks/[^/]+")

RESERVED_NAMES = frozenset({"api", "healthz", "login", "logout", "static"})
"""Names that no instance may have: its paths would be those of the application."""


def own_path(scope: Scope) -> str:
    """The path of a request below the prefix under which the application is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    rest = path[len(root) :]
    return rest if root and path.startswith(root) and rest[:1] in ("", "/") else path


def instance_path(scope: Scope, instance_names: Collection[str]) -> str:
    """The path of a request below the name of its instance, if the application shows several."""
    path = own_path(scope)
    name, slash, rest = path.removeprefix("/").partition("/")
    return f"/{rest}" if slash and name in instance_names else path


def public_root(scope: Scope) -> str:
    """The prefix of the application as a path in URLs. It begins with one slash, so that no link with it
    leads to another host."""
    root = scope.get("root_path", "").strip("/")
    return f"/{quote(root, safe='/')}" if root else ""


def is_public(path: str) -> bool:
    return path in PUBLIC_PATHS or _STATIC.fullmatch(path) is not None


def is_hook(path: str) -> bool:
    """Whether a path of an instance is one for webhooks, which start a workflow."""
    return _HOOK.fullmatch(path) is not None


def is_api(path: str) -> bool:
    """Whether a path of an instance belongs to the API, whose errors are JSON."""
    return path.startswith("/api/")
