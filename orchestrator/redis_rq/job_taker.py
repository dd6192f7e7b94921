"""Jobs that a worker of ours takes from RQ queues, and what it has done handed in, in few round trips.

A job that is taken is leased in the same moment, so nobody else need be asked whether it is still wanted. One
that was taken and that nobody begins, because its worker died right here, is found by its lease, or by the
parent of that worker: RQ's key of the worker says what it has.

    there is enough to do   hand in and take
    there is nothing        hand in and take nothing, wait, take what came
    nor was there before    hand in and wait, take what came

Each of these is a round trip. What came has left its queue and is not leased yet: if its worker dies right
there, the sweep finds it missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from redis.exceptions import NoScriptError

from orchestrator.application.errors import Unavailable
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.job_codec import JOB_FIELDS, lease_of_payload, read_payload
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.scripts import Script

SUSPENSION_CHECK_S = 1.0
"""How often a worker looks whether RQ's workers are suspended."""

BUSY_WAIT_S = 0.001
"""Who waits no longer than that for a job has enough of them."""

Job = tuple[str, dict[str, Any] | None]
"""A token and its payload, which is None if the job is not one of ours."""


class FinishedJob(NamedTuple):
    """A job that is done, and the event that says so, if there is one to say."""

    token: str
    stream: str = ""
    event: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class WorkerQueues:
    """For whom jobs are taken: an RQ worker by its name, and its queues, the most urgent first."""

    worker: str
    queues: Sequence[str]
    keys: Keys
    is_single: bool = True
    """Whether it runs one job at a time; its key says which."""

    @property
    def key(self) -> str:
        return f"rq:worker:{self.worker}"


class JobTaker:
    """Takes for one worker, on a client that does not decode replies: RQ may have compressed a job's data."""

    def __init__(self, client: Client, station: WorkerQueues, lease_until_ms: Callable[[], int]) -> None:
        self._client, self._station, self._lease_until_ms = client, station, lease_until_ms
        self._queues = [Keys.rq_queue(queue) for queue in station.queues]
        self._script_keys = [station.key, *self._queues]
        self._script = Script(client, "take", "lease_in")
        self._look_at, self._is_unsure, self._is_idle = 0.0, False, False
        self._popped: list[bytes] = []

    def take(self, max_jobs: int, wait_s: float = 0.0, done: Sequence[FinishedJob] = ()) -> list[Job]:
        """Hand in what is done, and take up to so many jobs. When there is none, the first
        that comes within `wait_s`; none while RQ's workers are suspended.

        Who cannot know whether it was done, because Redis is away, calls again with the same: what is handed
        in twice counts once, and what was taken is given again.
        """
        try:
            with translate_errors():
                found = self._take(max_jobs, wait_s, done)
        except Unavailable:
            self._is_unsure, self._is_idle = True, False
            raise
        self._is_unsure = False
        return _read(found)

    def _take(self, max_jobs: int, wait_s: float, done: Sequence[FinishedJob]) -> list[bytes]:
        """Who had to wait the last time waits at once, and does not ask before."""
        waits, looks = bool(max_jobs and wait_s), time.monotonic() >= self._look_at
        if looks or self._popped or not (self._is_idle and waits):
            found = self._run(max_jobs, done, looks)
            if found is None:
                time.sleep(wait_s)
            if found is None or found or not waits:
                self._is_idle = False
                return found or []
            done = ()
        done = self._wait(wait_s, done)
        found = self._run(max_jobs, done) if self._popped or done else []
        return found or []

    def _wait(self, wait_s: float, done: Sequence[FinishedJob]) -> Sequence[FinishedJob]:
        """Hand in what is done, and wait for a job in the same round trip: it is kept until it has begun.
        Returns what could not be handed in, since the server has forgotten how."""
        began = time.monotonic()
        with self._client.pipeline(transaction=False) as pipe:
            if done:
                pipe.evalsha(
                    self._script.sha, len(self._script_keys), *self._script_keys, *self._words(0, done)
                )
            pipe.blpop(self._queues, timeout=wait_s)
            *handed_in, popped = pipe.execute(raise_on_error=False)
        self._is_idle = time.monotonic() - began > BUSY_WAIT_S
        self._popped = [popped[1]] if isinstance(popped, tuple) else []
        for answer in (*handed_in, popped):
            if isinstance(answer, Exception) and not isinstance(answer, NoScriptError):
                raise answer
        return done if any(isinstance(one, NoScriptError) for one in handed_in) else ()

    def _run(self, max_jobs: int, done: Sequence[FinishedJob], looks: bool = False) -> list[bytes] | None:
        found: list[bytes] | None = self._script(self._script_keys, self._words(max_jobs, done, looks))
        self._popped = []
        if looks and found is not None:
            self._look_at = time.monotonic() + SUSPENSION_CHECK_S
        return found

    def _words(self, max_jobs: int, done: Sequence[FinishedJob], looks: bool = False) -> list[Any]:
        """What take.lua is told."""
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        words: list[Any] = [max_jobs, self._station.worker, now, self._lease_until_ms(), int(looks)]
        words += [int(self._is_unsure), int(self._station.is_single), self._station.keys.leases, len(done)]
        for token, stream, event in done:
            words += [token, stream, 2 * len(event)]
            for pair in event.items():
                words += pair
        return words + self._popped

    def hand_in(self, done: FinishedJob) -> None:
        """What is done by itself: a job that is done with leaves nothing behind."""
        with translate_errors(), self._client.pipeline(transaction=True) as pipe:
            if done.event:
                pipe.xadd(done.stream, dict[Any, Any](done.event))
            pipe.delete(Keys.rq_job(done.token))
            pipe.execute()

    # ---- for a parent that outlives the worker

    def current_job(self) -> Job | None:
        """What the worker has taken and not handed in."""
        token, parts = self._current()
        return None if parts is None else (token, read_payload(*parts))

    def is_superseded(self) -> bool:
        """Whether the worker has a job that nobody waits for any more."""
        _, parts = self._current()
        if parts is None:
            return False
        payload = read_payload(*parts)
        if payload is None:
            return True
        with translate_errors():
            return self._client.zscore(self._station.keys.leases, lease_of_payload(payload)) is None

    def _current(self) -> tuple[str, list[bytes] | None]:
        """Its token, and the parts of its job if there is any."""
        with translate_errors():
            token: Any = self._client.hget(self._station.key, "current_step")
            if token is None:
                return "", None
            job: Any = self._client.hmget(Keys.rq_job(token.decode()), *JOB_FIELDS, "worker_name")
        *parts, worker = job
        is_its_own = parts[0] is not None and worker == self._station.worker.encode()
        return token.decode(), parts if is_its_own else None


def _read(found: list[bytes]) -> list[Job]:
    jobs = zip(found[0::3], found[1::3], found[2::3], strict=True)
    return [(token.decode(errors="replace"), read_payload(*parts)) for token, *parts in jobs]
