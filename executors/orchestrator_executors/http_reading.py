"""Reads an HTTP response: up to a limit, and decoded by its content type.

The limit holds for the bytes on the wire and for the decompressed bytes. httpx would decompress each chunk as
a whole, and a chunk of gzip can grow to a thousand times its size.
"""

from __future__ import annotations

import codecs
import json
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .settings import Refused

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
"""Prefixes of the charsets that are accepted. Python has codecs that are not charsets, and some are slow."""

_GZIP = zlib.MAX_WBITS | 16


class MalformedResponse(Exception):
    """The response is malformed; that of a retry may not be."""


class _TooLarge(Exception):
    pass


async def read_body(response: httpx.Response, max_bytes: int, host: str) -> bytes:
    """Read the whole body. Raises Refused, and reads no further, as soon as it is too large."""
    content = bytearray()
    try:
        if int(response.headers.get("content-length", "0")) > max_bytes:
            raise _TooLarge
        async for chunk in _read_chunks(response, max_bytes, host):
            content += chunk
    except _TooLarge:
        hint = "raise max_response_bytes to allow this"
        raise Refused(f"{host} answers with more than {max_bytes:,} bytes; {hint}") from None
    return bytes(content)


async def read_body_start(response: httpx.Response) -> bytes:
    """Read the start of the body, as far as it can be read."""
    import httpx

    start = bytearray()
    with suppress(_TooLarge, MalformedResponse, httpx.HTTPError):
        async for chunk in _read_chunks(response, START_BYTES, ""):
            start += chunk
    return bytes(start)


def decode_body(content: bytes, content_type: str, host: str) -> dict[str, Any]:
    """Decode a body to JSON, text or base64. Only the content type decides, so the key is always the same."""
    kind, _, parameters = content_type.lower().partition(";")
    kind = kind.strip()
    if kind == "application/json" or kind.endswith("+json"):
        return {"json": _parse_json(content, host) if content else None}
    if not kind or kind.startswith("text/") or kind.endswith("+xml") or kind in TEXT_CONTENT_TYPES:
        return {"text": content.decode(_charset(parameters), errors="replace")}
    return {"base64": b64encode(content).decode()}


def body_value(body: dict[str, Any]) -> Any:
    """The value of a body, as in flowtoy: JSON, even if the content type is another one, else text or
    base64."""
    [value] = body.values()
    if "text" not in body:
        return value
    try:
        return _parse_json(value, "")
    except MalformedResponse:
        return value


async def _read_chunks(response: httpx.Response, max_bytes: int, host: str) -> AsyncIterator[bytes]:
    """The decompressed body in chunks, up to the limit; _TooLarge if there is more."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip", ""):
        raise MalformedResponse(f"{host} answers in an encoding that was not requested: {encoding[:40]}")
    gzip = _GzipDecoder(host) if "gzip" in encoding else None
    received = size = 0
    async for raw in response.aiter_raw():
        received += len(raw)
        for chunk in gzip.decompress(raw, max_bytes) if gzip is not None else (raw,):
            yield chunk[: max_bytes - size]
            size += len(chunk)
            if size > max_bytes:
                raise _TooLarge
        if received > max_bytes:
            raise _TooLarge
    if gzip is not None:
        gzip.finish()


class _GzipDecoder:
    """Decompresses a stream of gzip members into chunks of limited size."""

    def __init__(self, host: str) -> None:
        self._host, self._member, self._is_empty = host, zlib.decompressobj(_GZIP), True

    def decompress(self, raw: bytes, max_bytes: int) -> Iterator[bytes]:
        while raw:
            if self._member.eof:
                self._member = zlib.decompressobj(_GZIP)
            self._is_empty = False
            try:
                chunk = self._member.decompress(raw, max_bytes + 1)
            except zlib.error as error:
                raise MalformedResponse(f"{self._host} answers with invalid gzip: {error}") from None
            if chunk:
                yield chunk
            raw = self._member.unused_data if self._member.eof else self._member.unconsumed_tail

    def finish(self) -> None:
        if not self._is_empty and not self._member.eof:
            raise MalformedResponse(f"{self._host} answers with truncated gzip")


def _parse_json(content: bytes | str, host: str) -> Any:
    def reject(constant: str) -> Any:
        raise ValueError(constant)

    try:
        return json.loads(content, parse_constant=reject)
    except (ValueError, RecursionError) as error:
        raise MalformedResponse(f"{host} answers with invalid JSON: {type(error).__name__}") from None


def _charset(parameters: str) -> str:
    """The charset of a content type, if it is an accepted one; else UTF-8."""
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "charset":
            with suppress(LookupError, ValueError):
                found = codecs.lookup(value.strip().strip("\"'")).name
                if found.startswith(CHARSET_PREFIXES):
                    return found
    return "utf-8"
