"""Schedules: when the slots of a registered workflow start executions, and what happens to slots that are
late or overlap.

A slot is a time of the cron expression. It is handled once, by moving `next_ms` beyond it: it starts an
execution, waits in the queue, or is counted as missed (no coordinator started it in time) or skipped (the
previous execution had not ended). `fire` may be called at any time and any number of times.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import chain, islice, takewhile
from typing import Any

from orchestrator.application.spec.cron import iter_slots, next_after
from orchestrator.application.spec.model import CatchUp, Overlap, ScheduleSpec

SCHEDULE_SCHEMA_VERSION = 1
ON_TIME_MS = 60_000
"""How late a slot may be to count as on time."""
MAX_SLOTS_PER_FIRE = 1_000
"""The slots that one call of `fire` handles; the next call continues."""
MAX_QUEUED_SLOTS = 1_000
MAX_LOOK_BACK_MS = 3 * 366 * 86_400_000
"""How far back past slots are searched."""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")


@dataclass(frozen=True, slots=True)
class Schedule:
    """The stored state of a schedule. `next_ms` is the first slot that has not been handled; `open` are the
    executions that have not ended, unless they may overlap; `queued` are the slots that wait for them."""

    name: str
    cron: str
    timezone: str
    catch_up: CatchUp
    overlap: Overlap
    next_ms: int
    is_paused: bool = False
    open: tuple[str, ...] = ()
    queued: tuple[int, ...] = ()
    last: str | None = None
    started: int = 0
    missed: int = 0
    skipped: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {"schema": SCHEDULE_SCHEMA_VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Schedule:
        known = {name: stored[name] for name in cls.__slots__ if name in stored}
        return cls(**{**known, "open": tuple(stored["open"]), "queued": tuple(stored["queued"])})


def apply_registration(name: str, spec: ScheduleSpec, before: Schedule | None, now_ms: int) -> Schedule:
    """The schedule after a registration. With the same cron and timezone it continues where it was. Open
    executions, queued slots and a pause are kept in any case."""
    if before is not None and (before.cron, before.timezone) == (spec.cron, spec.timezone):
        next_ms = before.next_ms
    else:
        next_ms = next_after(spec.cron, spec.timezone, now_ms)
    if before is None:
        return Schedule(name, **asdict(spec), next_ms=next_ms)
    return replace(before, **asdict(spec), next_ms=next_ms)


def fire(schedule: Schedule, now_ms: int, still_open: Collection[str]) -> tuple[Schedule, list[str]]:
    """Handle the slots that are due. Returns the schedule afterwards, and the ids of the executions to start.
    `still_open` are those of its open executions that have not ended, or are about to start."""
    open_executions = tuple(one for one in schedule.open if one in still_open and schedule.overlap != "allow")
    if schedule.is_paused:
        return replace(schedule, open=open_executions), []
    due, missed, next_ms = _due_slots(schedule, now_ms)
    starts: list[str] = []
    queued: list[int] = []
    skipped = 0
    for slot_ms in (*schedule.queued, *due):
        if schedule.overlap == "allow" or not (open_executions or starts):
            starts.append(slot_execution_id(schedule.name, slot_ms))
        elif schedule.overlap == "queue" and len(queued) < MAX_QUEUED_SLOTS:
            queued.append(slot_ms)
        else:
            skipped += 1
    after = replace(
        schedule,
        next_ms=next_ms,
        open=open_executions if schedule.overlap == "allow" else (*open_executions, *starts),
        queued=tuple(queued),
        last=starts[-1] if starts else schedule.last,
        started=schedule.started + len(starts),
        missed=schedule.missed + missed,
        skipped=schedule.skipped + skipped,
    )
    return after, starts


def _due_slots(schedule: Schedule, now_ms: int) -> tuple[list[int], int, int]:
    """The slots to start, the number of missed slots, and the first slot that is left for the next call. A
    schedule that catches up on all slots takes no more than its queue can hold."""
    max_slots = MAX_SLOTS_PER_FIRE
    if schedule.overlap == "queue" and schedule.catch_up == "all":
        max_slots = MAX_QUEUED_SLOTS - len(schedule.queued)
    due: list[int] = []
    missed = 0
    next_ms = schedule.next_ms
    following = iter_slots(schedule.cron, schedule.timezone, next_ms)
    while next_ms <= now_ms and len(due) < max_slots:
        is_late = next_ms < now_ms - ON_TIME_MS
        if is_late and schedule.catch_up == "none":
            missed += 1
        elif is_late and schedule.catch_up == "one":
            missed, due = missed + len(due), [next_ms]
        else:
            due.append(next_ms)
        next_ms = next(following)
    return due, missed, next_ms


def wake_ms(schedule: Schedule, now_ms: int) -> int | None:
    """When `fire` must be called again, if no execution ends before that. A schedule that is behind continues
    at once, unless its queue is full: only the end of an execution makes room in it."""
    if schedule.is_paused:
        return None
    is_full = schedule.next_ms <= now_ms and len(schedule.queued) >= MAX_QUEUED_SLOTS
    return now_ms + ON_TIME_MS if is_full else schedule.next_ms


def upcoming_slots(schedule: Schedule, count: int) -> list[int]:
    """The next slots, in ms."""
    first = schedule.next_ms
    return list(islice(chain([first], iter_slots(schedule.cron, schedule.timezone, first)), count))


def past_slots(schedule: Schedule, count: int) -> list[int]:
    """The last slots before the next one, in ms, the newest first. Looks back for a few years at most."""
    first, span_ms = schedule.next_ms, count * 60_000
    while True:
        slots = takewhile(
            lambda at_ms: at_ms < first, iter_slots(schedule.cron, schedule.timezone, first - span_ms)
        )
        found = list(deque(slots, maxlen=count))
        if len(found) == count or span_ms > MAX_LOOK_BACK_MS:
            return found[::-1]
        span_ms *= 4


def slot_execution_id(name: str, slot_ms: int) -> str:
    """The id of the execution of a slot: always the same, and different from that of any other slot or
    schedule. A name that an execution id cannot contain is shortened, and its hash is added after a colon."""
    at = datetime.fromtimestamp(slot_ms // 1000, UTC)
    if not _PLAIN_NAME.fullmatch(name):
        digest = hashlib.sha1(name.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
        name = f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)[:100]}:{digest[:16]}"
    return f"{name}:{at:%Y%m%dT%H%M%SZ}"
