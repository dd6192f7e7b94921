"""Reading an answer by HTTP: never more of it than was asked for, and as its content type says.

A limit holds for what comes over the line and for what it unfolds to: httpx would unfold each piece as a
whole, and a piece of gzip unfolds to a thousand times its size.
"""

from __future__ import annotations

import codecs
import json
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .network import Refused

if TYPE_CHECKING:
    import httpx

START_BYTES = 2_000
TEXT_CONTENT_TYPES = frozenset(
    {
        "application/javascript",
        "application/x-ndjson",
        "application/x-www-form-urlencoded",
        "application/xml",
        "application/yaml",
    }
)
CHARSET_PREFIXES = ("utf-8", "utf-16", "ascii", "iso8859", "cp125", "koi8", "shift_jis", "euc_", "gb", "big5")
"""What these begin with is how people write; Python knows codes that are none, and some are slow."""

_GZIP = zlib.MAX_WBITS | 16


class MalformedResponse(Exception):
    """The answer is broken; the next may not be."""


class _TooLarge(Exception):
    pass


async def read_body(response: httpx.Response, max_bytes: int, host: str) -> bytes:
    """The whole content; Refused, and nothing more is read, as soon as it is too large."""
    content = bytearray()
    try:
        if int(response.headers.get("content-length", "0")) > max_bytes:
            raise _TooLarge
        async for piece in _pieces(response, max_bytes, host):
            content += piece
    except _TooLarge:
        more = "raise max_response_bytes if that is meant"
        raise Refused(f"{host} answers with more than {max_bytes:,} bytes; {more}") from None
    return bytes(content)


async def read_body_start(response: httpx.Response) -> bytes:
    """How the content begins, as far as it can be read."""
    import httpx

    start = bytearray()
    with suppress(_TooLarge, MalformedResponse, httpx.HTTPError):
        async for piece in _pieces(response, START_BYTES, ""):
            start += piece
    return bytes(start)


def decode_body(content: bytes, content_type: str, host: str) -> dict[str, Any]:
    """JSON, text, or bytes as base64: by the content type alone, so that a step always finds the same key."""
    kind, _, parameters = content_type.lower().partition(";")
    kind = kind.strip()
    if kind == "application/json" or kind.endswith("+json"):
        return {"json": _json(content, host) if content else None}
    if not kind or kind.startswith("text/") or kind.endswith("+xml") or kind in TEXT_CONTENT_TYPES:
        return {"text": content.decode(_charset(parameters), errors="replace")}
    return {"base64": b64encode(content).decode()}


def body_value(body: dict[str, Any]) -> Any:
    """The content for those who take what is there, as flowtoy does: JSON, also if its type does not say so,
    else the text, or bytes as base64."""
    [value] = body.values()
    if "text" not in body:
        return value
    try:
        return _json(value, "")
    except MalformedResponse:
        return value


async def _pieces(response: httpx.Response, max_bytes: int, host: str) -> AsyncIterator[bytes]:
    """The content in pieces, as far as the limit; _TooLarge if there is more."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip", ""):
        raise MalformedResponse(f"{host} answers in an encoding that was not asked for: {encoding[:40]}")
    unfold = _Gzip(host) if "gzip" in encoding else None
    received = size = 0
    async for raw in response.aiter_raw():
        received += len(raw)
        for piece in unfold(raw, max_bytes) if unfold is not None else (raw,):
            yield piece[: max_bytes - size]
            size += len(piece)
            if size > max_bytes:
                raise _TooLarge
        if received > max_bytes:
            raise _TooLarge
    if unfold is not None:
        unfold.end()


class _Gzip:
    """Unfolds what comes in pieces that are bounded, of one member after another."""

    def __init__(self, host: str) -> None:
        self._host, self._member, self._is_empty = host, zlib.decompressobj(_GZIP), True

    def __call__(self, raw: bytes, most: int) -> Iterator[bytes]:
        while raw:
            if self._member.eof:
                self._member = zlib.decompressobj(_GZIP)
            self._is_empty = False
            try:
                piece = self._member.decompress(raw, most + 1)
            except zlib.error as error:
                raise MalformedResponse(f"{self._host} answers with gzip that is broken: {error}") from None
            if piece:
                yield piece
            raw = self._member.unused_data if self._member.eof else self._member.unconsumed_tail

    def end(self) -> None:
        if not self._is_empty and not self._member.eof:
            raise MalformedResponse(f"{self._host} answers with gzip that breaks off")


def _json(content: bytes | str, host: str) -> Any:
    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    try:
        return json.loads(content, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise MalformedResponse(f"{host} answers with JSON that is none: {type(error).__name__}") from None


def _charset(parameters: str) -> str:
    """That of a content type, if it is one that people write in; UTF-8 if not."""
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "charset":
            with suppress(LookupError, ValueError):
                found = codecs.lookup(value.strip().strip("\"'")).name
                if found.startswith(CHARSET_PREFIXES):
                    return found
    return "utf-8"
