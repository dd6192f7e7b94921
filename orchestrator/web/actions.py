"""The log of actions: one line for each request that may have changed something, with its user and result."""

from __future__ import annotations

import logging

from starlette.requests import HTTPConnection

from orchestrator.web.filters import shorten

logger = logging.getLogger("orchestrator.web.actions")

MAX_CHARS = 300


def log_action(request: HTTPConnection, action: str, target: str, result: str) -> None:
    """Log an action: its name, such as "cancel"; its target, such as an execution id; and its result, which
    is "ok" or the code of a problem. Control characters are escaped."""
    user = getattr(request.state, "user", None)
    instance = getattr(request.state, "instance", None)
    logger.info(
        "%s of %s by %s: %s",
        _one_line(action),
        _one_line(target) or "nothing",
        "nobody" if user is None else _one_line(user.name),
        _one_line(result),
        extra={} if instance is None else {"instance": instance.name},
    )


def _one_line(text: str) -> str:
    return shorten(text, MAX_CHARS).replace("\n", "\\n")
