"""Redaction: what stands under a key that names a secret is not shown.

It is for whatever leaves the record: the history, webhooks, the command line, logs. Records and jobs keep the
values, since executors need them.

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
"""A key that contains one of these names a secret, in any case, with or without '_' and '-' inside."""

SECRET_KEY_WORDS = ("pw", "pwd")
"""So does a key of which one of these is a whole word: bind_pw, but not pwned."""

MAX_REDACTION_DEPTH = 200
"""Below that nothing is shown: no value of ours is deeper."""

MAX_CACHED_KEY_LENGTH = 64
"""Keys come again and again; one that is longer is not kept for that."""

_SEARCHED = (str, dict, list, tuple)
_SIGNS = re.compile(r"[^a-z0-9]+")
_PARTS = tuple(_SIGNS.sub("", part) for part in SECRET_KEY_PARTS)
_SAID = re.compile(r"""(?<![\w.-])([\w.-]++)["']?\s*[:=]\s*["']?""")
_VALUE = re.compile(r"""(?:(?:bearer|basic)\s+)?[^\s"'&,;<>{}\[\]]+""", re.IGNORECASE)


def redact_by_key(value: Any, names: Collection[str] = (), max_depth: int = MAX_REDACTION_DEPTH) -> Any:
    """The value, with all hidden that stands under a key which names a secret: a usual one, or of `names`.

    Null stays: there is nothing to hide.
    """
    if isinstance(value, dict):
        if max_depth <= 0:
            return REDACTED
        return {
            key: REDACTED
            if one is not None and is_secret_key(str(key), names)
            else redact_by_key(one, names, max_depth - 1)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact_by_key(one, names, max_depth - 1) for one in value] if max_depth > 0 else REDACTED
    return value


def collect_secrets(
    value: Any, names: Collection[str] = (), max_depth: int = MAX_REDACTION_DEPTH
) -> list[str]:
    """Every text that redacted() hides: what stands there may be repeated where no key names it."""
    found: list[str] = []
    _search(value, names, max_depth, False, found)
    return found


def _search(value: Any, names: Collection[str], max_depth: int, is_hidden: bool, found: list[str]) -> None:
    if isinstance(value, str):
        if is_hidden:
            found.append(value)
    elif max_depth > 0 and isinstance(value, dict):
        for key, one in value.items():
            if isinstance(one, _SEARCHED):
                _search(one, names, max_depth - 1, is_hidden or is_secret_key(str(key), names), found)
    elif max_depth > 0 and isinstance(value, _SEARCHED):
        for one in value:
            _search(one, names, max_depth - 1, is_hidden, found)


def redact_text(text: str, names: Collection[str] = ()) -> str:
    """A text that somebody else wrote, without what looks like a secret in it: password=x, "token": "x"."""
    shown: list[str] = []
    at = 0
    for said in _SAID.finditer(text):
        if said.start() < at or not is_secret_key(said[1], names):
            continue
        value = _VALUE.match(text, said.end())
        if value is not None:
            shown += [text[at : said.end()], REDACTED]
            at = value.end()
    return "".join([*shown, text[at:]])


def is_secret_key(key: str, names: Collection[str] = ()) -> bool:
    """Whether a key names a secret: by its usual names, or because it is one of `names`, in any case."""
    lower = key.lower()
    if names and any(lower == name.lower() for name in names):
        return True
    return _remembered(lower) if len(lower) <= MAX_CACHED_KEY_LENGTH else _is_usual(lower)


def _is_usual(lower: str) -> bool:
    words = [word for word in _SIGNS.split(lower) if word]
    plain = "".join(words)
    return any(part in plain for part in _PARTS) or any(word in words for word in SECRET_KEY_WORDS)


_remembered = lru_cache(maxsize=1024)(_is_usual)
