"""The bodies of requests: at most so large, and sent within some time."""

from __future__ import annotations

import asyncio
import time

from starlette.requests import HTTPConnection
from starlette.types import Message, Receive

from orchestrator.web.problems import Problem

MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_BODY_S = 30.0


def check_length(connection: HTTPConnection) -> None:
    """Raise Problem for a body that says that it is too large."""
    length = connection.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > MAX_BODY_BYTES:
        raise _too_large()


def limit_body(receive: Receive, max_s: float) -> Receive:
    """Raise Problem from `receive` if a body is too large, or takes too long. The body of a request without
    Content-Length ends only when its sender says so."""
    received, until, is_complete = 0, time.monotonic() + max_s, False

    async def limited() -> Message:
        nonlocal received, is_complete
        if is_complete:  # the next message is the end of the connection, whenever that comes
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), max(0.0, until - time.monotonic()))
        except TimeoutError:
            raise Problem(
                408, "too_slow", f"the body of a request must be sent within {max_s:g} seconds"
            ) from None
        received += len(message.get("body", b""))
        if received > MAX_BODY_BYTES:
            raise _too_large()
        is_complete = not message.get("more_body", False)
        return message

    return limited


def _too_large() -> Problem:
    return Problem(413, "too_large", f"the body of a request may have at most {MAX_BODY_BYTES:,} bytes")
