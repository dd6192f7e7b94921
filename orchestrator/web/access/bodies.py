"""The bodies of requests: at most so large, and sent within some time."""

from __future__ import annotations

import asyncio
import time

from starlette.requests import HTTPConnection
from starlette.types import Message, Receive

from orchestrator.web.problems import Problem

MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_PUBLIC_BODY_BYTES = 16 * 1024
"""On a public path, which needs no user: the login has one token."""
MAX_BODY_S = 30.0


def check_framing(connection: HTTPConnection) -> None:
    """Raise Problem for a body with two lengths: a proxy that reads the one header and a server that reads
    the other see different requests behind it."""
    if "content-length" in connection.headers and "transfer-encoding" in connection.headers:
        detail = "a request has Content-Length or Transfer-Encoding, not both"
        raise Problem(400, "bad_header", detail, headers={"Connection": "close"})


def check_length(connection: HTTPConnection, max_bytes: int) -> None:
    """Raise Problem for a body that says that it is too large."""
    length = connection.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > max_bytes:
        raise _too_large(max_bytes)


def limit_body(receive: Receive, max_bytes: int, max_s: float) -> Receive:
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
        if received > max_bytes:
            raise _too_large(max_bytes)
        is_complete = not message.get("more_body", False)
        return message

    return limited


def _too_large(max_bytes: int) -> Problem:
    return Problem(413, "too_large", f"the body of this request may have at most {max_bytes:,} bytes")
