"""The event of a dead letter, within a limit.

An event that fits is kept whole, and can be replayed. Of a larger one the beginning is kept, to be read. The
field `cut` of the letter lists what is missing; letters of earlier releases do not have it.

There are at most MAX_DEAD_LETTERS letters, so MAX_LETTER_BYTES also bounds all of them together.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.redis_rq.json_codec import dumps, loads

MAX_LETTER_BYTES = 128 * 1024
"""The maximum of an event as JSON."""
MAX_LETTER_FIELD_CHARS = 10_000
"""How much is kept of a field of a larger event."""
MAX_LETTER_REASON_CHARS = 10_000
MAX_FIELD_NAME_CHARS = 200
MAX_CUT_NAMES = 20


def letter_fields(event: Mapping[str, str]) -> dict[str, str]:
    """The fields `event` and `cut` of a letter, both JSON."""
    if sum(map(len, event)) + sum(map(len, event.values())) <= MAX_LETTER_BYTES:
        text = dumps(event)
        if len(text.encode()) <= MAX_LETTER_BYTES:
            return {"event": text, "cut": "[]"}
    kept, cut = _cut(event)
    return {"event": dumps(kept), "cut": dumps(cut)}


def read_cut(letter: Mapping[str, str], event: Mapping[str, str]) -> list[str]:
    """What is missing from the event of a letter. A letter of an earlier release does not say so: there, a
    field of the maximum length may be complete, but that cannot be known."""
    if "cut" not in letter:
        return [name for name, value in event.items() if len(value) >= MAX_LETTER_FIELD_CHARS]
    try:
        cut = loads(letter["cut"])
    except (ValueError, RecursionError):
        return ["its fields"]
    return [str(name) for name in cut] if isinstance(cut, list) else ["its fields"]


def _cut(event: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The beginning of an event, and the names of the fields that were cut or left out."""
    kept: dict[str, str] = {}
    cut: list[str] = []
    left = MAX_LETTER_BYTES
    for name, value in event.items():
        beginning = value[:MAX_LETTER_FIELD_CHARS]
        size = len(name) if len(name) > left else len(dumps({name: beginning}).encode())
        if size <= left:
            kept[name] = beginning
            left -= size
        if kept.get(name) != value:
            cut.append(name[:MAX_FIELD_NAME_CHARS])
    if len(cut) > MAX_CUT_NAMES:
        cut = [*cut[:MAX_CUT_NAMES], f"{len(cut) - MAX_CUT_NAMES:,} more"]
    return kept, cut
