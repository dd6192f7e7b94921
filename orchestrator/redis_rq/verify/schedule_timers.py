"""ScheduleTimers: checks that every schedule has a timer for its next slot, and nothing else has one.

A schedule without a timer never starts anything again, without any error. A timer may be early, because it is
only a hint; and a little late, when the schedule was behind or could not be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchestrator.application.audit.findings import Finding
from orchestrator.application.engine.schedules import ON_TIME_MS, wake_ms
from orchestrator.application.errors import StoreError, Unavailable
from orchestrator.backend.ports import Committed
from orchestrator.redis_rq.connection import Client, parse_time_ms
from orchestrator.redis_rq.keys import (
    Keys,
    parse_schedule_address,
    schedule_address,
    schedule_member,
    timer_member,
)
from orchestrator.redis_rq.queries.pending_events import EventPredicate, are_pending
from orchestrator.redis_rq.schedules import RedisSchedules, read_schedule

SCAN_COUNT = 1_000


class ScheduleTimers:
    def __init__(self, client: Client, keys: Keys) -> None:
        self._client, self._keys = client, keys
        self._schedules = RedisSchedules(client, keys)

    def findings(self) -> dict[str, Finding]:
        """The problems by schedule name; only those that two checks find."""
        before = self._unexplained()
        after = self._unexplained() if before else {}
        return {name: finding for name, finding in after.items() if before.get(name) == finding}

    def _unexplained(self) -> dict[str, Finding]:
        """The problems that no pending event explains: an event removes its timer, and its handling arms the
        next one."""
        found = dict(self._check())
        explained = are_pending(self._client, self._keys, [_is_event_of(name) for name in found])
        return {
            name: found[name] for name, is_explained in zip(found, explained, strict=True) if not is_explained
        }

    def repair(self, name: str) -> bool:
        """Arm the timer of the next slot, or delete the timer of a removed schedule; False when the schedule
        is unreadable or changes meanwhile."""
        try:
            stored = self._schedules.find(name)
        except Unavailable:
            raise
        except StoreError:
            return False
        if stored is None:
            return self._delete_timer(name)
        due_ms = wake_ms(stored.schedule, stored.now_ms)
        return self._schedules.commit(stored, stored.schedule, (), due_ms, None) is Committed.YES

    def _check(self) -> Iterator[tuple[str, Finding]]:
        """The problems of all schedules, and of all timers of schedules."""
        registered: list[str] = self._client.hkeys(self._keys.schedules)  # type: ignore[assignment]
        names = sorted({*registered, *self._names_with_timer()})
        with self._client.pipeline(transaction=True) as pipe:
            pipe.time()
            for name in names:
                pipe.hget(self._keys.schedules, name)
                pipe.zscore(self._keys.timers, schedule_member(name))
            now, *found = pipe.execute()
        for name, text, due_ms in zip(names, found[0::2], found[1::2], strict=True):
            finding = _evaluate(name, text, due_ms, parse_time_ms(now))
            if finding is not None:
                yield name, finding

    def _names_with_timer(self) -> Iterator[str]:
        if self._client.type(self._keys.timers) != "zset":
            return
        pattern = timer_member("schedule", "*", "", "")
        for member, _ in self._client.zscan_iter(self._keys.timers, match=pattern, count=SCAN_COUNT):
            name = parse_schedule_address(str(member).split("|")[1])
            if schedule_member(name) == member:
                yield name

    def _delete_timer(self, name: str) -> bool:
        """Delete the timer of a schedule, unless the schedule was registered meanwhile."""

        def delete_unless_registered(pipe: Any) -> None:
            is_registered = pipe.hexists(self._keys.schedules, name)
            pipe.multi()
            if not is_registered:
                pipe.zrem(self._keys.timers, schedule_member(name))

        return self._client.transaction(delete_unless_registered, self._keys.schedules) == [1]


def _evaluate(name: str, text: str | None, due_ms: float | None, now_ms: int) -> Finding | None:
    where = f"schedule {name}"
    if text is None:
        return None if due_ms is None else Finding("stray", where, "it has a timer, but is not registered")
    try:
        schedule = read_schedule(name, text)
    except StoreError as error:
        return Finding("unreadable", where, str(error))
    if schedule.is_paused:
        return None
    if due_ms is None:
        return Finding("timer", where, "the timer of its next slot is missing")
    latest_ms = max(schedule.next_ms, now_ms + ON_TIME_MS)
    if due_ms > latest_ms:
        text = f"the timer is due at {due_ms:.0f}, but its next slot is at {schedule.next_ms}"
        return Finding("timer", where, text)
    return None


def _is_event_of(name: str) -> EventPredicate:
    address = schedule_address(name)
    return lambda event: (event.get("type"), event.get("execution")) == ("schedule", address)
