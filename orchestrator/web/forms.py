"""Reads the body of a request: a form of a page, or JSON of the API; and calls what serves it in a thread.

Everything below the routes is plain functions: Redis is read and written by the same client as everywhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import Response

from orchestrator.web.problems import Problem

MAX_FIELDS = 2_000
"""A bulk action names each selected execution."""

Form = ImmutableMultiDict[str, str]


def with_form(serve: Callable[[Request, Form], Response]) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of a form that is sent with POST: `serve` gets its fields, and runs in a thread."""

    async def endpoint(request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise Problem(400, "bad_form", "the body must be a form: application/x-www-form-urlencoded")
        body = await request.body()
        return await run_in_threadpool(lambda: serve(request, read_form(body)))

    endpoint.__name__ = serve.__name__
    return endpoint


def read_form(body: bytes) -> Form:
    try:
        pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except (UnicodeDecodeError, ValueError):
        raise Problem(
            400, "bad_form", f"the form must be UTF-8 text with at most {MAX_FIELDS:,} fields"
        ) from None
    return ImmutableMultiDict(pairs)
