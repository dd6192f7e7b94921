"""Schedules: what becomes of the slots of a registered workflow, those that come late and those that meet.

A slot is an instant of the cron. It is handled once, by moving `next_ms` beyond it: it starts an execution,
waits in the queue, or is counted as missed (nobody was there to start it in time) or skipped (the one before
had not ended). Whoever looks at a schedule may do so at any time and as often as they like.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any

from orchestrator.application.spec.cron import next_after, slots
from orchestrator.application.spec.model import CatchUp, Overlap, ScheduleSpec

SCHEDULE_SCHEMA_VERSION = 1
ON_TIME_MS = 60_000
"""How late a slot may be and still count as on time."""
MAX_SLOTS_PER_FIRE = 1_000
"""How many slots one look starts at the most; the next one goes on."""
MAX_QUEUED_SLOTS = 1_000

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")


@dataclass(frozen=True, slots=True)
class Schedule:
    """All we know of a schedule. `next_ms` is the first slot that is not handled yet; `open` are the
    executions that have not ended, unless they may overlap; `queued` are slots that wait for them."""

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
    """The schedule that a registration leaves. One with the same times goes on where it was; what has begun,
    waits or is paused stays so in any case."""
    if before is not None and (before.cron, before.timezone) == (spec.cron, spec.timezone):
        next_ms = before.next_ms
    else:
        next_ms = next_after(spec.cron, spec.timezone, now_ms)
    if before is None:
        return Schedule(name, **asdict(spec), next_ms=next_ms)
    return replace(before, **asdict(spec), next_ms=next_ms)


def fire(schedule: Schedule, now_ms: int, still_open: Collection[str]) -> tuple[Schedule, list[str]]:
    """Handle the slots that have come: the schedule after it, and the ids of the executions to start.
    `still_open` are those of its open executions that have not ended, or are about to begin."""
    is_open = tuple(one for one in schedule.open if one in still_open and schedule.overlap != "allow")
    if schedule.is_paused:
        return replace(schedule, open=is_open), []
    wanted, missed, next_ms = _come(schedule, now_ms)
    starts: list[str] = []
    waiting: list[int] = []
    skipped = 0
    for slot_ms in (*schedule.queued, *wanted):
        if schedule.overlap == "allow" or not (is_open or starts):
            starts.append(slot_execution_id(schedule.name, slot_ms))
        elif schedule.overlap == "queue" and len(waiting) < MAX_QUEUED_SLOTS:
            waiting.append(slot_ms)
        else:
            skipped += 1
    after = replace(
        schedule,
        next_ms=next_ms,
        open=is_open if schedule.overlap == "allow" else (*is_open, *starts),
        queued=tuple(waiting),
        last=starts[-1] if starts else schedule.last,
        started=schedule.started + len(starts),
        missed=schedule.missed + missed,
        skipped=schedule.skipped + skipped,
    )
    return after, starts


def _come(schedule: Schedule, now_ms: int) -> tuple[list[int], int, int]:
    """The slots to be started, how many are missed for good, and the first that is left for another time.
    Who catches up on all of them never has more than the queue holds."""
    most = MAX_SLOTS_PER_FIRE
    if schedule.overlap == "queue" and schedule.catch_up == "all":
        most = MAX_QUEUED_SLOTS - len(schedule.queued)
    wanted: list[int] = []
    missed = 0
    next_ms = schedule.next_ms
    coming = slots(schedule.cron, schedule.timezone, next_ms)
    while next_ms <= now_ms and len(wanted) < most:
        is_late = next_ms < now_ms - ON_TIME_MS
        if is_late and schedule.catch_up == "none":
            missed += 1
        elif is_late and schedule.catch_up == "one":
            missed, wanted = missed + len(wanted), [next_ms]
        else:
            wanted.append(next_ms)
        next_ms = next(coming)
    return wanted, missed, next_ms


def wake_ms(schedule: Schedule, now_ms: int) -> int | None:
    """When a schedule must be looked at again, if nobody ends before that. One that is behind goes on at
    once, unless its queue is full: then an end makes room, and looking sooner would find none."""
    if schedule.is_paused:
        return None
    is_full = schedule.next_ms <= now_ms and len(schedule.queued) >= MAX_QUEUED_SLOTS
    return now_ms + ON_TIME_MS if is_full else schedule.next_ms


def upcoming_slots(schedule: Schedule, count: int) -> list[int]:
    """The slots that come next, in ms."""
    first = schedule.next_ms
    return list(islice(chain([first], slots(schedule.cron, schedule.timezone, first)), count))


def slot_execution_id(name: str, slot_ms: int) -> str:
    """The id of the execution of a slot: always the same, and never that of another slot or schedule. A name
    that an execution id cannot hold is shortened, and told from others by its hash behind a second colon."""
    at = datetime.fromtimestamp(slot_ms // 1000, UTC)
    if not _PLAIN_NAME.fullmatch(name):
        digest = hashlib.sha1(name.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
        name = f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)[:100]}:{digest[:16]}"
    return f"{name}:{at:%Y%m%dT%H%M%SZ}"
