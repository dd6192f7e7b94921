"""Redacts values under keys that name a secret.

It applies to everything that leaves the record: the history, webhooks, the command line, logs. Records and
jobs keep the values, because executors need them.

    {"user": "ada", "db": {"bind_pw": "x"}}   ->   {"user": "ada", "db": {"bind_pw": "<redacted>"}}
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Any

REDACTED = "<redacted>"

SECRET_KEY_PARTS = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "authorization",
    "credential",
    "cookie",
    "api_key",
    "access_key",
    "private_key",
)
"""A key that contains one of these names a secret. Upper and lower case, '_' and '-' make no difference."""

SECRET_KEY_WORDS = ("pw", "pwd")
"""A key that has one of these as a whole word names a secret: bind_pw, but not pwned."""

MAX_REDACTION_DEPTH = 200
"""Everything below this depth is redacted; no valid value is deeper."""

MAX_CACHED_KEY_LENGTH = 64
"""Whether a key names a secret is cached, because keys repeat; longer keys are not cached."""

_SEARCHED = (str, dict, list, tuple)
_NESTED = (dict, list, tuple)
_SEPARATORS = re.compile(r"[^a-z0-9]+")
_PARTS = tuple(_SEPARATORS.sub("", part) for part in SECRET_KEY_PARTS)
_KEY_IN_TEXT = re.compile(r"""(?<![\w.-])([\w.-]++)["']?\s*[:=]\s*["']?""")
_VALUE_IN_TEXT = re.compile(r"""(?:(?:bearer|basic)\s+)?[^\s"'&,;<>{}\[\]]+""", re.IGNORECASE)


def redact_by_key(value: Any, names: Collection[str] = (), max_depth: int = MAX_REDACTION_DEPTH) -> Any:
    """Return a copy in which every value under a key that names a secret is redacted; null stays.

    A key names a secret by the rules above, or if it is one of `names`.
    """
    if isinstance(value, dict):
        if max_depth <= 0:
            return REDACTED
        return {
            key: REDACTED
            if item is not None and is_secret_key(str(key), names)
            else redact_by_key(item, names, max_depth - 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact_by_key(item, names, max_depth - 1) for item in value] if max_depth > 0 else REDACTED
    return value


def has_secret_key(value: Any, names: Collection[str] = (), max_depth: int = MAX_REDACTION_DEPTH) -> bool:
    """Whether redact_by_key() would change a value."""
    if not isinstance(value, _NESTED):
        return False
    if max_depth <= 0:
        return True
    if not isinstance(value, dict):
        return any(isinstance(item, _NESTED) and has_secret_key(item, names, max_depth - 1) for item in value)
    for key, item in value.items():
        if item is not None and is_secret_key(str(key), names):
            return True
        if isinstance(item, _NESTED) and has_secret_key(item, names, max_depth - 1):
            return True
    return False


def collect_secrets(
    value: Any, names: Collection[str] = (), max_depth: int = MAX_REDACTION_DEPTH
) -> list[str]:
    """Return every string that redact_by_key() redacts: it may also occur where no key names it."""
    secrets: list[str] = []
    _collect(value, names, max_depth, False, secrets)
    return secrets


def _collect(value: Any, names: Collection[str], max_depth: int, is_secret: bool, secrets: list[str]) -> None:
    if isinstance(value, str):
        if is_secret:
            secrets.append(value)
    elif max_depth > 0 and isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, _SEARCHED):
                _collect(item, names, max_depth - 1, is_secret or is_secret_key(str(key), names), secrets)
    elif max_depth > 0 and isinstance(value, _SEARCHED):
        for item in value:
            _collect(item, names, max_depth - 1, is_secret, secrets)


def redact_text(text: str, names: Collection[str] = ()) -> str:
    """Redact what looks like a secret in free text, such as password=x or "token": "x"."""
    parts: list[str] = []
    at = 0
    for key in _KEY_IN_TEXT.finditer(text):
        if key.start() < at or not is_secret_key(key[1], names):
            continue
        value = _VALUE_IN_TEXT.match(text, key.end())
        if value is not None:
            parts += [text[at : key.end()], REDACTED]
            at = value.end()
    return "".join([*parts, text[at:]])


def is_secret_key(key: str, names: Collection[str] = ()) -> bool:
    """Whether a key names a secret: by the rules above, or because it is one of `names`. Case is ignored."""
    lower = key.lower()
    if names and any(lower == name.lower() for name in names):
        return True
    return _cached_rules(lower) if len(lower) <= MAX_CACHED_KEY_LENGTH else _matches_rules(lower)


def _matches_rules(lower: str) -> bool:
    words = [word for word in _SEPARATORS.split(lower) if word]
    joined = "".join(words)
    return any(part in joined for part in _PARTS) or any(word in words for word in SECRET_KEY_WORDS)


_cached_rules = lru_cache(maxsize=1024)(_matches_rules)
