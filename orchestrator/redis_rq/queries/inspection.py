"""What an operator wants to know and no record says: who is alive, what waits in streams, queues and lines.

Everything here only reads, in a bounded number of commands, and takes what it finds as it is: somebody else
may write to the same Redis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.redis_rq.connection import Client, clock_ms, execute_pipeline, translate_errors
from orchestrator.redis_rq.event_log import DEAD_AFTER_MS
from orchestrator.redis_rq.keys import GROUP, Keys
from orchestrator.redis_rq.queries.pending_events import all_streams

MAX_UNREAD_COUNTED = 1_000
"""Where Redis cannot tell how many entries nobody has read, no more than these are counted."""
MAX_SLOT_ENTRIES_READ = 100


@dataclass(frozen=True, slots=True)
class CoordinatorHeartbeat:
    """A coordinator, and when its loop came round for the last time."""

    name: str
    at_ms: int

    def is_alive(self, now_ms: int) -> bool:
        return now_ms - self.at_ms <= DEAD_AFTER_MS


@dataclass(frozen=True, slots=True)
class Stream:
    """An event stream: how long it is, what nobody has read, what was read and not acknowledged, and since
    when the oldest of both waits."""

    name: str
    length: int = 0
    unread: int = 0
    pending: int = 0
    last_read: str = "0-0"
    oldest_unread_ms: int | None = None
    oldest_pending_ms: int | None = None

    @property
    def waiting(self) -> int:
        return self.unread + self.pending

    def age_ms(self, now_ms: int) -> int:
        """How long the oldest entry has waited."""
        known = [one for one in (self.oldest_unread_ms, self.oldest_pending_ms) if one is not None]
        return max(now_ms - min(known), 0) if known else 0


@dataclass(frozen=True, slots=True)
class SlotEntry:
    """Somebody under a concurrency key. `at` is since when in ms, or the number in line."""

    member: str
    at: float
    limit: int
    execution: str
    step: str
    token: str

    @property
    def execution_id(self) -> str:
        return self.execution.partition("#")[2]


class Inspection:
    """One look at one Redis."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self.client, self.keys = client, keys

    def now_ms(self) -> int:
        return clock_ms(self.client)

    def coordinators(self) -> list[CoordinatorHeartbeat]:
        """All that are known, the latest beat first. One that is dead is forgotten by the others."""
        with translate_errors():
            found: Any = self.client.zrange(self.keys.coordinators, 0, -1, desc=True, withscores=True)
        return [CoordinatorHeartbeat(str(name), int(at_ms)) for name, at_ms in found]

    # ---- streams

    def streams(self, names: Sequence[str] | None = None) -> list[Stream]:
        """The streams as our group sees them: of the starts, then of the events."""
        if names is None:
            names = all_streams(self.client, self.keys)
        with self.client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.xlen(name)
                pipe.xinfo_groups(name)
            found = execute_pipeline(pipe)
        pairs = zip(names, found[0::2], found[1::2], strict=True)
        return [
            self._stream(name, 0 if isinstance(length, Exception) else length, _ours(groups))
            for name, length, groups in pairs
        ]

    def _stream(self, name: str, length: int, group: dict[str, Any] | None) -> Stream:
        last = str(group["last-delivered-id"]) if group is not None else "0-0"
        with self.client.pipeline(transaction=False) as pipe:
            pipe.xrange(name, f"({last}", "+", 1)
            pipe.xpending_range(name, GROUP, "-", "+", 1)
            first, oldest = execute_pipeline(pipe)
        unread_ms, pending_ms = _ms_of_first(first), _ms_of_first(oldest)
        if group is None:  # no coordinator has ever opened it: nobody has read anything
            return Stream(name, length, unread=length, oldest_unread_ms=unread_ms)
        unread = group.get("lag") if unread_ms is not None else 0
        if unread is None:  # before Redis 7, or after somebody deleted entries
            with translate_errors():
                entries: Any = self.client.xrange(name, f"({last}", "+", MAX_UNREAD_COUNTED)
            unread = len(entries)
        return Stream(name, length, int(unread), int(group["pending"]), last, unread_ms, pending_ms)

    def unread(
        self, stream: Stream, max_entries: int = MAX_UNREAD_COUNTED
    ) -> list[tuple[str, dict[str, str]]]:
        """The first entries of a stream that nobody has read."""
        with translate_errors():
            found: Any = self.client.xrange(stream.name, f"({stream.last_read}", "+", max_entries)
        return [(entry_id, fields) for entry_id, fields in found if fields]

    def pending(
        self, stream: Stream, max_entries: int = MAX_UNREAD_COUNTED
    ) -> list[tuple[str, dict[str, str]]]:
        """The first entries of a stream that somebody has read and nobody has acknowledged."""
        if not stream.pending:
            return []
        with translate_errors():
            rows: Any = self.client.xpending_range(stream.name, GROUP, "-", "+", max_entries)
        with translate_errors(), self.client.pipeline(transaction=False) as pipe:
            for row in rows:
                pipe.xrange(stream.name, row["message_id"], row["message_id"])
            found: Any = pipe.execute()
        return [(entry_id, fields) for entries in found for entry_id, fields in entries if fields]

    # ---- concurrency keys

    def places(self, key: str) -> tuple[list[SlotEntry], list[SlotEntry]]:
        """Who has a place under a key, and the first of those who stand in line for one."""
        with translate_errors(), self.client.pipeline(transaction=False) as pipe:
            pipe.zrange(self.keys.places(key), 0, MAX_SLOT_ENTRIES_READ - 1, withscores=True)
            pipe.zrange(self.keys.line(key), 0, MAX_SLOT_ENTRIES_READ - 1, withscores=True)
            held, line = pipe.execute()
        return _places(held), _places(line)

    def waiter_rank(self, key: str, member: str) -> int | None:
        """How many stand in line before somebody; None when he does not stand there."""
        with translate_errors():
            found: Any = self.client.zrank(self.keys.line(key), member)
        return None if found is None else int(found)


def _ours(groups: Any) -> dict[str, Any] | None:
    if isinstance(groups, Exception):
        return None
    return next((group for group in groups if group["name"] == GROUP), None)


def _ms_of_first(entries: Any) -> int | None:
    """The time in the id of the first entry, or of the first that is pending."""
    if not entries or isinstance(entries, Exception):
        return None
    entry_id = entries[0]["message_id"] if isinstance(entries[0], dict) else entries[0][0]
    return int(str(entry_id).partition("-")[0])


def _places(found: Sequence[tuple[str, float]]) -> list[SlotEntry]:
    """Members of the form that keys.slot_member() writes; what else stands there is nobody's."""
    places = []
    for member, at in found:
        parts = member.split("|")
        if len(parts) == 5 and parts[0].isdigit():
            places.append(SlotEntry(member, at, int(parts[0]), *parts[2:]))
    return places
