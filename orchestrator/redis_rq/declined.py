"""The steps that workers have declined lately, because they do not have the executor.

A worker that declines a step notes it here. A worker that has the executor, and runs nothing, reads the notes
and publishes an `available` event for each: the step is then dispatched at once. `explain` and `doctor` read
the same notes.

A note is a hint. A step whose note was lost is dispatched again when its wait is over, after five seconds at
most. A note that is no longer true leads to an event that changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import astuple, dataclass
from typing import Any

from orchestrator.application.records.events import AvailableEvent
from orchestrator.redis_rq.connection import Client, parse_time_ms
from orchestrator.redis_rq.event_codec import event_fields
from orchestrator.redis_rq.json_codec import dumps, loads
from orchestrator.redis_rq.keys import Keys

ANY_EXECUTOR = "*"
"""The published name of a worker that has a function for every name."""
KEPT_MS = 60_000
"""How long a note is kept. A step waits for five seconds at most; the rest is for jobs in long queues."""
MAX_NOTES_READ = 10_000
"""If more steps wait, only the latest are read. The others are dispatched again when their wait is over."""


@dataclass(frozen=True, slots=True)
class DeclinedStep:
    """A step that was declined, the RQ queue of its job, and the event stream for its events."""

    queue: str
    executor: str
    execution: str
    step: str
    stream: str


def note_declined(client: Client, keys: Keys, declined: DeclinedStep) -> None:
    """Note that a step was declined now, by the clock of Redis, and forget what was declined long ago."""
    now_ms = parse_time_ms(client.time())
    with client.pipeline(transaction=False) as pipe:
        pipe.zadd(keys.declined, {dumps(astuple(declined)): now_ms})
        pipe.zremrangebyscore(keys.declined, "-inf", now_ms - KEPT_MS)
        pipe.pexpire(keys.declined, KEPT_MS)
        pipe.execute()


def read_declined(client: Client, keys: Keys, since_ms: float = 0) -> list[tuple[DeclinedStep, float]]:
    """The steps that were declined after `since_ms`, the latest first, and when each was."""
    notes: Any = client.zrevrangebyscore(
        keys.declined, "+inf", f"({since_ms:.0f}", start=0, num=MAX_NOTES_READ, withscores=True
    )
    return [(declined, at_ms) for note, at_ms in notes if (declined := _parse(note)) is not None]


class Waker:
    """Has the steps dispatched that wait for the executors of one worker, each once after it was declined."""

    def __init__(
        self, client: Client, keys: Keys, queues: Collection[str], executors: Collection[str]
    ) -> None:
        self._client, self._keys = client, keys
        self._queues, self._executors = frozenset(queues), frozenset(executors)
        self._since_ms = 0.0

    def wake(self) -> int:
        """Publish an `available` event for each step. Returns their number."""
        notes = read_declined(self._client, self._keys, self._since_ms)
        if not notes:
            return 0
        waiting = [one for one, _ in notes if self._can_run(one)]
        with self._client.pipeline(transaction=False) as pipe:
            for one in waiting:
                event = AvailableEvent(one.execution, one.step, one.executor)
                pipe.xadd(one.stream, dict[Any, Any](event_fields(event)))
            pipe.execute()
        self._since_ms = notes[0][1]
        return len(waiting)

    def _can_run(self, declined: DeclinedStep) -> bool:
        return declined.queue in self._queues and has_executor(self._executors, declined.executor)


def has_executor(names: Collection[str], executor: str) -> bool:
    """Whether a worker that publishes these names has an executor."""
    return executor in names or ANY_EXECUTOR in names


def _parse(note: str | bytes) -> DeclinedStep | None:
    """A note that note_declined() wrote; None for anything else."""
    try:
        parts = loads(note.decode() if isinstance(note, bytes) else note)
    except (ValueError, RecursionError):
        return None
    is_note = isinstance(parts, list) and len(parts) == 5 and all(isinstance(part, str) for part in parts)
    return DeclinedStep(*parts) if is_note else None
