"""Pending events: events that were published and not handled yet, so that their effect is still to come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redis.exceptions import ResponseError

from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.keys import GROUP, Keys

READ_BATCH_SIZE = 500

Fields = Mapping[str, str]
EventPredicate = Callable[[Fields], bool]


def are_pending(client: Client, keys: Keys, predicates: Sequence[EventPredicate]) -> list[bool]:
    """For each predicate, whether a pending event in any event stream matches it."""
    found = [False] * len(predicates)
    for stream in all_streams(client, keys)[1:]:
        with translate_errors():
            _search(client, stream, predicates, found)
    return found


def all_streams(client: Client, keys: Keys) -> list[str]:
    """The starts, and every event stream that coordinators read: the largest number ever used."""
    with translate_errors():
        known: Any = client.get(keys.max_partitions)
    return keys.streams(max(keys.partitions, int(known or 0)))


def has_entry(client: Client, stream: str, entry_id: str) -> bool:
    """Whether an entry is in its stream. True without the right to read the stream."""
    try:
        with translate_errors():
            return bool(client.xrange(stream, entry_id, entry_id))
    except ResponseError:
        return True


def find_held_queue(client: Client, keys: Keys, entry_id: str) -> str | None:
    """The full queue that a start waits for; None if it is not held. It is "" without the right to read
    it."""
    try:
        with translate_errors():
            found = client.hget(keys.held_queues, entry_id)
            return None if found is None else str(found)
    except ResponseError:
        return ""


def _search(client: Client, stream: str, predicates: Sequence[EventPredicate], found: list[bool]) -> None:
    """Set `found` for each predicate that matches a pending event of a stream."""
    delivered, after = _first_pending(client, stream)
    while entries := _entries(client, stream, after):
        for entry_id, fields in entries:
            matched = [n for n, matches in enumerate(predicates) if not found[n] and matches(fields or {})]
            if matched and (_parse_id(entry_id) > delivered or _is_pending(client, stream, entry_id)):
                for n in matched:
                    found[n] = True
        after = f"({entries[-1][0]}"


def _first_pending(client: Client, stream: str) -> tuple[tuple[int, ...], str]:
    """The id of the last delivered entry, and where to start reading entries that are not acknowledged."""
    try:
        groups: Any = client.xinfo_groups(stream)
    except ResponseError:
        return (0, 0), "-"  # the stream does not exist
    ours = next((group for group in groups if group["name"] == GROUP), None)
    if ours is None:
        return (0, 0), "-"
    delivered = str(ours["last-delivered-id"])
    pending: Any = client.xpending(stream, GROUP)
    return _parse_id(delivered), pending["min"] or f"({delivered}"


def _entries(client: Client, stream: str, after: str) -> list[tuple[str, Fields]]:
    try:
        found: Any = client.xrange(stream, after, "+", READ_BATCH_SIZE)
    except ResponseError:
        return []  # the key has another type
    return list(found)


def _is_pending(client: Client, stream: str, entry_id: str) -> bool:
    return bool(client.xpending_range(stream, GROUP, entry_id, entry_id, 1))


def _parse_id(entry_id: str) -> tuple[int, ...]:
    return tuple(map(int, entry_id.split("-")))
