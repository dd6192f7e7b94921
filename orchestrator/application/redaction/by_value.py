"""Hiding by value: texts without the secrets that occur in them, in whatever form they usually do.

How long that takes grows with the length of the text, and hardly with the number of secrets.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import Any

from orchestrator.application.redaction.by_key import MAX_REDACTION_DEPTH, REDACTED

MIN_SECRET_LENGTH = 4
"""A text that is shorter is in too many words by chance."""

MIN_SECRET_LINE_LENGTH = 8
"""Of a secret that has lines, such as a private key, a line of this length is a secret too."""

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")
_KEPT_IN_URLS = (b"", b"/", b"!#$%&'()*+,/:;=?@[]~", b" ")
"""What some of those who write URLs leave as it is; a space they may write as +."""


class ValueRedactor:
    """Hides these secrets, and nothing if there are none."""

    __slots__ = ("_beginnings", "_forms", "_lengths")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms = {form for secret in secrets for form in encoded_forms(secret)}
        lengths: dict[str, set[int]] = {}
        seconds: dict[str, set[str]] = {}
        for form in self._forms:
            lengths.setdefault(form[:MIN_SECRET_LENGTH], set()).add(len(form))
            seconds.setdefault(form[0], set()).add(form[1])
        self._lengths = {start: sorted(found, reverse=True) for start, found in lengths.items()}
        pairs = (f"{re.escape(one)}[{re.escape(''.join(others))}]" for one, others in seconds.items())
        self._beginnings = re.compile("|".join(pairs))

    def __bool__(self) -> bool:
        return bool(self._forms)

    def text(self, text: str) -> str:
        """The text without them."""
        shown: list[str] = []
        at = 0
        for start, end in self._found_in(text):
            shown += [text[at:start], REDACTED]
            at = end
        return "".join([*shown, text[at:]])

    def value(self, value: Any, max_depth: int = MAX_REDACTION_DEPTH) -> Any:
        """A JSON value without them: in its texts, in its keys, and as a number."""
        if not self._forms:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict | list | tuple) and max_depth <= 0:
            return REDACTED
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(one, max_depth - 1) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(one, max_depth - 1) for one in value]
        return REDACTED if isinstance(value, int | float) and str(value) in self._forms else value

    def _found_in(self, text: str) -> Iterator[tuple[int, int]]:
        """From where to where there are secrets; those that overlap are one."""
        if not self._forms:
            return
        start = end = at = 0
        while (found := self._beginnings.search(text, at)) is not None:
            at = found.start()
            length = self._length_at(text, at)
            if length and at < end:
                end = max(end, at + length)
            elif length:
                if end:
                    yield start, end
                start, end = at, at + length
            at += 1
        if end:
            yield start, end

    def _length_at(self, text: str, at: int) -> int:
        """How long the secret is that begins here; 0 if none does."""
        lengths = self._lengths.get(text[at : at + MIN_SECRET_LENGTH], ())
        return next((length for length in lengths if text[at : at + length] in self._forms), 0)


def encoded_forms(secret: str) -> set[str]:
    """What a secret looks like where it is used: itself, one of its lines, quoted in Python, in JSON and in
    JSON within JSON, in a URL, in base64, also as a part of something longer such as `user:password`."""
    if len(secret) < MIN_SECRET_LENGTH:
        return set()
    plain = {secret, secret.strip(), *_lines(secret)}
    forms = {form for one in plain for form in (one, repr(one)[1:-1], *_in_json(one))}
    raw = secret.encode(errors="replace")
    forms |= {_in_url(raw, kept) for kept in _KEPT_IN_URLS}
    forms |= {b64encode(raw).decode(), *(form for offset in range(3) for form in _in_base64(raw, offset))}
    return {form for form in forms if len(form) >= MIN_SECRET_LENGTH}


def _lines(secret: str) -> list[str]:
    stripped = [line.strip() for line in secret.splitlines()]
    return [line for line in stripped if len(line) >= MIN_SECRET_LINE_LENGTH]


def _in_json(secret: str) -> Iterator[str]:
    for is_ascii in (True, False):
        once = json.dumps(secret, ensure_ascii=is_ascii)[1:-1]
        yield from (once, json.dumps(once, ensure_ascii=is_ascii)[1:-1])


def _in_url(raw: bytes, kept: bytes) -> str:
    safe = _UNRESERVED | frozenset(kept)
    written = (chr(one) if one in safe else f"%{one:02X}" for one in raw)
    return "".join(written).replace(" ", "+")


def _in_base64(raw: bytes, offset: int) -> tuple[str, str]:
    """The characters that depend on the secret alone, if so many bytes (modulo 3) stand before it."""
    written = b64encode(bytes(offset) + raw).decode()
    certain = written[(0, 2, 3)[offset] : (offset + len(raw)) * 8 // 6]
    return certain, certain.translate(str.maketrans("+/", "-_"))


REDACT_NOTHING = ValueRedactor()
