"""Inspection: state that is in no record: live coordinators, waiting events, slot holders and waiters.

Everything here only reads, in a bounded number of commands, and tolerates unexpected data: other programs may
write to the same Redis.
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
"""Where Redis does not know how many entries are unread, at most this many are counted."""
MAX_SLOT_ENTRIES_READ = 100


@dataclass(frozen=True, slots=True)
class CoordinatorHeartbeat:
    """A coordinator, and the time of its last heartbeat."""

    name: str
    at_ms: int

    def is_alive(self, now_ms: int) -> bool:
        return now_ms - self.at_ms <= DEAD_AFTER_MS


@dataclass(frozen=True, slots=True)
class Stream:
    """An event stream: its length, its unread entries, its pending ones (read and not acknowledged), and the
    times of the oldest of both."""

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
    """A holder or waiter of a concurrency key. `at` is the time of the grant in ms, or the number of the
    waiter."""

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
    """Reads the state of one Redis."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self.client, self.keys = client, keys

    def now_ms(self) -> int:
        return clock_ms(self.client)

    def coordinators(self) -> list[CoordinatorHeartbeat]:
        """All known coordinators, the latest heartbeat first. Live ones delete the entries of dead ones."""
        with translate_errors():
            found: Any = self.client.zrange(self.keys.coordinators, 0, -1, desc=True, withscores=True)
        return [CoordinatorHeartbeat(str(name), int(at_ms)) for name, at_ms in found]

    # ---- streams

    def streams(self, names: Sequence[str] | None = None) -> list[Stream]:
        """The streams as our consumer group sees them: the starts first, then the event streams."""
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
        if group is None:  # no coordinator has opened the stream yet
            return Stream(name, length, unread=length, oldest_unread_ms=unread_ms)
        unread = group.get("lag") if unread_ms is not None else 0
        if unread is None:  # before Redis 7, or after entries were deleted
            with translate_errors():
                entries: Any = self.client.xrange(name, f"({last}", "+", MAX_UNREAD_COUNTED)
            unread = len(entries)
        return Stream(name, length, int(unread), int(group["pending"]), last, unread_ms, pending_ms)

    def unread(
        self, stream: Stream, max_entries: int = MAX_UNREAD_COUNTED
    ) -> list[tuple[str, dict[str, str]]]:
        """The first unread entries of a stream."""
        with translate_errors():
            found: Any = self.client.xrange(stream.name, f"({stream.last_read}", "+", max_entries)
        return [(entry_id, fields) for entry_id, fields in found if fields]

    def pending(
        self, stream: Stream, max_entries: int = MAX_UNREAD_COUNTED
    ) -> list[tuple[str, dict[str, str]]]:
        """The first entries of a stream that were read and not acknowledged."""
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

    def slot_holders_and_waiters(self, key: str) -> tuple[list[SlotEntry], list[SlotEntry]]:
        """The holders of a concurrency key, and its first waiters."""
        with translate_errors(), self.client.pipeline(transaction=False) as pipe:
            pipe.zrange(self.keys.slot_holders(key), 0, MAX_SLOT_ENTRIES_READ - 1, withscores=True)
            pipe.zrange(self.keys.slot_waiters(key), 0, MAX_SLOT_ENTRIES_READ - 1, withscores=True)
            holders, waiters = pipe.execute()
        return _parse_slot_entries(holders), _parse_slot_entries(waiters)

    def waiter_rank(self, key: str, member: str) -> int | None:
        """How many waiters are ahead of one; None when it does not wait."""
        with translate_errors():
            found: Any = self.client.zrank(self.keys.slot_waiters(key), member)
        return None if found is None else int(found)


def _ours(groups: Any) -> dict[str, Any] | None:
    if isinstance(groups, Exception):
        return None
    return next((group for group in groups if group["name"] == GROUP), None)


def _ms_of_first(entries: Any) -> int | None:
    """The time in the id of the first entry or pending entry."""
    if not entries or isinstance(entries, Exception):
        return None
    entry_id = entries[0]["message_id"] if isinstance(entries[0], dict) else entries[0][0]
    return int(str(entry_id).partition("-")[0])


def _parse_slot_entries(found: Sequence[tuple[str, float]]) -> list[SlotEntry]:
    """The members that keys.slot_member() wrote; others are ignored."""
    entries = []
    for member, at in found:
        parts = member.split("|")
        if len(parts) == 5 and parts[0].isdigit():
            entries.append(SlotEntry(member, at, int(parts[0]), *parts[2:]))
    return entries
