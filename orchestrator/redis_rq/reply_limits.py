"""Replies to producers as JSON, within a limit: a reply is kept in Redis for an hour, and read as a whole.

A large reply is cut in this order, until it fits:

    reason      its beginning is kept
    problems    the first ones are kept, each with the beginning of its texts; `more_problems` counts the
                rest
    the others  the largest are left out; `left_out` names them. An outcome or error is in the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.redis_rq.json_codec import dumps

MAX_REPLY_BYTES = 256 * 1024
MAX_REASON_CHARS = 10_000
MAX_PROBLEM_CHARS = 1_000
"""The limit for each text of a problem."""
MAX_PROBLEMS_BYTES = 128 * 1024

_KEPT = frozenset({"ok", "reason", "problems", "workflow_execution_id", "execution_id", "existing", "status"})


def encode_reply(reply: Mapping[str, Any], max_bytes: int = MAX_REPLY_BYTES) -> str:
    """A reply as JSON of at most `max_bytes`."""
    text = dumps(reply)
    if _fits(text, max_bytes):
        return text
    limited = dict(reply)
    if isinstance(limited.get("reason"), str):
        limited["reason"] = _cut(limited["reason"], MAX_REASON_CHARS)
    if "problems" in limited:
        limited["problems"], rest = _first_problems(limited["problems"])
        limited |= {"more_problems": rest} if rest else {}
    left_out: list[str] = []
    others = sorted(limited.keys() - _KEPT, key=lambda name: len(dumps(limited[name])), reverse=True)
    for name in others:
        if _fits(dumps(limited), max_bytes):
            break
        del limited[name]
        left_out.append(name)
        limited["left_out"] = sorted(left_out)
    return dumps(limited)


def _fits(text: str, max_bytes: int) -> bool:
    return 4 * len(text) <= max_bytes or (len(text) <= max_bytes and len(text.encode()) <= max_bytes)


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[:max_chars]}... ({len(text):,} characters)"


def _first_problems(problems: Any) -> tuple[list[dict[str, Any]], int]:
    """The first problems that fit, and the number of the others."""
    kept: list[dict[str, Any]] = []
    left = MAX_PROBLEMS_BYTES
    for problem in problems:
        limited = {
            name: _cut(value, MAX_PROBLEM_CHARS) if isinstance(value, str) else value
            for name, value in problem.items()
        }
        left -= len(dumps(limited).encode())
        if left < 0:
            break
        kept.append(limited)
    return kept, len(problems) - len(kept)
