"""RedisSchedules: schedules as JSON in one hash; their next slots are timers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from orchestrator.application.engine.schedules import Schedule, apply_registration, wake_ms
from orchestrator.application.errors import StoreError
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES
from orchestrator.application.spec.model import ScheduleSpec
from orchestrator.backend.ports import Committed, EventRef, StoredSchedule
from orchestrator.redis_rq.commit_args import Command
from orchestrator.redis_rq.connection import Client, parse_time_ms, translate_errors
from orchestrator.redis_rq.json_codec import dumps, loads
from orchestrator.redis_rq.keys import GROUP, Keys, schedule_member
from orchestrator.redis_rq.scripts import Script

MAX_CONFLICTS = 20

_STATUS = {1: Committed.YES, 0: Committed.CONFLICT, -2: Committed.GONE}


class RedisSchedules:
    def __init__(self, client: Client, keys: Keys) -> None:
        self._client, self._keys = client, keys
        self._commit = Script(client, "commit_schedule", "errors")
        self._open_executions = Script(client, "open_executions")

    # ---- reading

    def find(self, name: str) -> StoredSchedule | None:
        text, now_ms = self._read(name)
        return StoredSchedule(read_schedule(name, text), text, now_ms) if text else None

    def _read(self, name: str) -> tuple[str, int]:
        """The stored text of a schedule, "" for none, and the time of Redis, which schedules use."""
        with translate_errors(), self._client.pipeline(transaction=False) as pipe:
            pipe.hget(self._keys.schedules, name)
            pipe.time()
            text, now = pipe.execute()
        return text or "", parse_time_ms(now)

    def all(self) -> list[Schedule]:
        """Every schedule, by name."""
        with translate_errors():
            found: dict[str, str] = self._client.hgetall(self._keys.schedules)  # type: ignore[assignment]
        return [read_schedule(name, text) for name, text in sorted(found.items())]

    def find_open(self, execution_ids: Sequence[str]) -> set[str]:
        if not execution_ids:
            return set()
        keys = self._keys
        args = [
            keys.execution(""),
            keys.workflow(""),
            GROUP,
            len(FINAL_WORKFLOW_STATUSES),
            *sorted(FINAL_WORKFLOW_STATUSES),
        ]
        with translate_errors():
            return set(
                self._open_executions(
                    [keys.scheduled, keys.starts, keys.held_queues], [*args, *execution_ids]
                )
            )

    # ---- writing

    def commit(
        self,
        before: StoredSchedule,
        after: Schedule,
        starts: Sequence[str],
        wake_ms: int | None,
        event: EventRef | None,
    ) -> Committed:
        keys, ended = self._keys, [one for one in before.schedule.open if one not in after.open]
        args: Command = [after.name, before.text, dumps(after.as_dict()), schedule_member(after.name)]
        args.append("" if wake_ms is None else wake_ms)
        args += [0] if event is None else [1, event.stream, GROUP, event.entry_id]
        args += [len(ended), *ended]
        args += [len(starts), *starts, int(after.overlap != "allow")]
        with translate_errors():
            status = self._commit([keys.schedules, keys.scheduled, keys.timers, keys.starts], args)
        return _STATUS[status]

    def pause(self, name: str) -> bool:
        """Start nothing until unpause(); False when there is no such schedule."""
        return self._change(name, lambda schedule: replace(schedule, is_paused=True))

    def unpause(self, name: str) -> bool:
        """Go on at once. Slots that passed meanwhile are missed slots: `catch_up` decides about them."""
        return self._change(name, lambda schedule: replace(schedule, is_paused=False))

    def _change(self, name: str, change: Callable[[Schedule], Schedule]) -> bool:
        for _ in range(MAX_CONFLICTS):
            stored = self.find(name)
            if stored is None:
                return False
            after = change(stored.schedule)
            due_ms = None if after.is_paused else stored.now_ms
            if self.commit(stored, after, (), due_ms, None) is Committed.YES:
                return True
        raise StoreError(f"the schedule {name!r} keeps changing: try again")

    def registration_args(self, name: str, spec: ScheduleSpec | None) -> Command:
        """The arguments of register_workflow.lua about the schedule of a name, from ARGV[6] on."""
        text, now_ms = self._read(name)
        before = _read_if_possible(name, text)
        member = schedule_member(name)
        if spec is None:
            return [text, "", member, "", *(before.open if before is not None else ())]
        after = apply_registration(name, spec, before, now_ms)
        due_ms = wake_ms(after, now_ms)
        return [text, dumps(after.as_dict()), member, "" if due_ms is None else due_ms]


def read_schedule(name: str, text: str) -> Schedule:
    try:
        return Schedule.from_dict(loads(text))
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise StoreError(
            f"the schedule {name!r} cannot be read, register it again: {type(error).__name__}: {error}"
        ) from error


def _read_if_possible(name: str, text: str) -> Schedule | None:
    """None for an unreadable schedule: registering its workflow again repairs it."""
    try:
        return read_schedule(name, text) if text else None
    except StoreError:
        return None
