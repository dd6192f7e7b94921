"""Redacts the values of secrets wherever they occur, also in their common encodings.

The time grows with the length of the text, and hardly with the number of secrets.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import Any

from orchestrator.application.redaction.by_key import MAX_REDACTION_DEPTH, REDACTED

MIN_SECRET_LENGTH = 4
"""A shorter string occurs in many words by chance, so it is not redacted."""

MIN_SECRET_LINE_LENGTH = 8
"""In a secret of several lines, such as a private key, each line of at least this length is a secret."""

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")
_KEPT_IN_URLS = (b"", b"/", b"!#$%&'()*+,/:;=?@[]~", b" ")
"""Characters that various URL encoders leave unchanged; with the space it becomes a `+`."""


class ValueRedactor:
    """Redacts these secrets in texts and values. It is false, and redacts nothing, if there are none."""

    __slots__ = ("_forms", "_has_other_forms_in_json", "_lengths", "_starts")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms = {form for secret in secrets for form in encoded_forms(secret)}
        lengths: dict[str, set[int]] = {}
        seconds: dict[str, set[str]] = {}
        for form in self._forms:
            lengths.setdefault(form[:MIN_SECRET_LENGTH], set()).add(len(form))
            seconds.setdefault(form[0], set()).add(form[1])
        self._lengths = {start: sorted(found, reverse=True) for start, found in lengths.items()}
        pairs = (f"{re.escape(first)}[{re.escape(''.join(others))}]" for first, others in seconds.items())
        self._starts = re.compile("|".join(pairs))
        self._has_other_forms_in_json = any(map(_may_differ_in_json, self._forms))

    def __bool__(self) -> bool:
        return bool(self._forms)

    def may_change_json(self, text: str) -> bool:
        """Whether redact_value() may change the value with this JSON text. True is no promise: the text may
        have a secret where the value has none, such as in a word of its structure."""
        if not self._forms:
            return False
        return self._has_other_forms_in_json or next(self._find(text), None) is not None

    def redact_text(self, text: str) -> str:
        """Redact the secrets in a text."""
        parts: list[str] = []
        at = 0
        for start, end in self._find(text):
            parts += [text[at:start], REDACTED]
            at = end
        return "".join([*parts, text[at:]])

    def redact_value(self, value: Any, max_depth: int = MAX_REDACTION_DEPTH) -> Any:
        """Redact the secrets in a JSON value: in its strings and keys, and where a number is a secret."""
        if not self._forms:
            return value
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, dict | list | tuple) and max_depth <= 0:
            return REDACTED
        if isinstance(value, dict):
            return {
                self.redact_text(str(key)): self.redact_value(item, max_depth - 1)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.redact_value(item, max_depth - 1) for item in value]
        return REDACTED if isinstance(value, int | float) and str(value) in self._forms else value

    def _find(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield start and end of each secret in the text; overlapping secrets become one range."""
        if not self._forms:
            return
        start = end = at = 0
        while (match := self._starts.search(text, at)) is not None:
            at = match.start()
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
        """Return the length of the longest secret that starts here, or 0."""
        lengths = self._lengths.get(text[at : at + MIN_SECRET_LENGTH], ())
        return next((length for length in lengths if text[at : at + length] in self._forms), 0)


_ESCAPED_IN_JSON = re.compile(r'["\\\x00-\x1f]')
_NUMBER_WITH_EXPONENT = re.compile(r"-?[\d.]+e[-+]?\d+", re.IGNORECASE)


def _may_differ_in_json(form: str) -> bool:
    """Whether a value with this form of a secret may have a JSON text without it."""
    return _ESCAPED_IN_JSON.search(form) is not None or _NUMBER_WITH_EXPONENT.fullmatch(form) is not None


def encoded_forms(secret: str) -> set[str]:
    """Return the forms in which a secret may occur: itself, one of its lines, quoted by Python, in JSON, in
    JSON within JSON, in a URL, in base64, also in the base64 of a longer text such as `user:password`."""
    if len(secret) < MIN_SECRET_LENGTH:
        return set()
    plain = {secret, secret.strip(), *_long_lines(secret)}
    forms = {form for text in plain for form in (text, repr(text)[1:-1], *_json_forms(text))}
    raw = secret.encode(errors="replace")
    forms |= {_url_form(raw, kept) for kept in _KEPT_IN_URLS}
    forms |= {b64encode(raw).decode(), *(form for offset in range(3) for form in _base64_forms(raw, offset))}
    return {form for form in forms if len(form) >= MIN_SECRET_LENGTH}


def _long_lines(secret: str) -> list[str]:
    stripped = [line.strip() for line in secret.splitlines()]
    return [line for line in stripped if len(line) >= MIN_SECRET_LINE_LENGTH]


def _json_forms(secret: str) -> Iterator[str]:
    for is_ascii in (True, False):
        once = json.dumps(secret, ensure_ascii=is_ascii)[1:-1]
        yield from (once, json.dumps(once, ensure_ascii=is_ascii)[1:-1])


def _url_form(raw: bytes, kept: bytes) -> str:
    safe = _UNRESERVED | frozenset(kept)
    characters = (chr(byte) if byte in safe else f"%{byte:02X}" for byte in raw)
    return "".join(characters).replace(" ", "+")


def _base64_forms(raw: bytes, offset: int) -> tuple[str, str]:
    """Return the base64 characters that depend on the secret only, if `offset` bytes (modulo 3) precede it.

    The second form is in the URL-safe alphabet.
    """
    encoded = b64encode(bytes(offset) + raw).decode()
    certain = encoded[(0, 2, 3)[offset] : (offset + len(raw)) * 8 // 6]
    return certain, certain.translate(str.maketrans("+/", "-_"))


REDACT_NOTHING = ValueRedactor()
