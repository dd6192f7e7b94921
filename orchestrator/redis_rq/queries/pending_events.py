"""Events that somebody has sent and no coordinator has answered: what they will do is not done yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redis.exceptions import ResponseError

from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.keys import GROUP, Keys

READ_BATCH_SIZE = 500

Fields = Mapping[str, str]
EventPredicate = Callable[[Fields], bool]


def are_pending(client: Client, keys: Keys, questions: Sequence[EventPredicate]) -> list[bool]:
    """Of each question, whether there is an event under way that answers to it, in any of the streams."""
    found = [False] * len(questions)
    for stream in all_streams(client, keys)[1:]:
        with translate_errors():
            _look_through(client, stream, questions, found)
    return found


def all_streams(client: Client, keys: Keys) -> list[str]:
    """The starts, and every stream of events that coordinators read: as many as there ever were."""
    with translate_errors():
        known: Any = client.get(keys.max_partitions)
    return keys.streams(max(keys.partitions, int(known or 0)))


def has_entry(client: Client, stream: str, entry_id: str) -> bool:
    """Whether an entry is in its stream. Who may only write there is not told, and believes that it is."""
    try:
        with translate_errors():
            return bool(client.xrange(stream, entry_id, entry_id))
    except ResponseError:
        return True


def _look_through(
    client: Client, stream: str, questions: Sequence[EventPredicate], found: list[bool]
) -> None:
    delivered, after = _read_so_far(client, stream)
    while entries := _entries(client, stream, after):
        for entry_id, fields in entries:
            asked = [n for n, question in enumerate(questions) if not found[n] and question(fields or {})]
            if asked and (_number(entry_id) > delivered or _is_pending(client, stream, entry_id)):
                for n in asked:
                    found[n] = True
        after = f"({entries[-1][0]}"


def _read_so_far(client: Client, stream: str) -> tuple[tuple[int, ...], str]:
    """The last entry that was delivered, and where those begin that are not answered."""
    try:
        groups: Any = client.xinfo_groups(stream)
    except ResponseError:
        return (0, 0), "-"  # there is no such stream
    ours = next((group for group in groups if group["name"] == GROUP), None)
    if ours is None:
        return (0, 0), "-"
    delivered = str(ours["last-delivered-id"])
    pending: Any = client.xpending(stream, GROUP)
    return _number(delivered), pending["min"] or f"({delivered}"


def _entries(client: Client, stream: str, after: str) -> list[tuple[str, Fields]]:
    try:
        found: Any = client.xrange(stream, after, "+", READ_BATCH_SIZE)
    except ResponseError:
        return []  # something else stands in its place
    return list(found)


def _is_pending(client: Client, stream: str, entry_id: str) -> bool:
    return bool(client.xpending_range(stream, GROUP, entry_id, entry_id, 1))


def _number(entry_id: str) -> tuple[int, ...]:
    return tuple(map(int, entry_id.split("-")))
