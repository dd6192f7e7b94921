"""JobTaker: one of our workers takes jobs from RQ queues and finishes them, in few round trips.

A job is leased in the script that takes it, so no other command checks whether it is still needed. If the
worker dies before it starts the job, the lease expires; or its parent process finds the job in RQ's key of
the worker.

    the queues have jobs                   finish and take
    the queues are empty                   finish and take nothing, wait, take the popped job
    the queues were empty the last time    finish and wait, take the popped job

Each part between commas is one round trip. A popped job has left its queue and is not leased yet: if the
worker dies at that point, the sweep detects that the job is missing.

Redis gives a job to the worker that has waited the longest, and a worker that waits anew is the last in line.
A stock worker waits for minutes. So a worker that waits anew every second would never get a step that stock
workers without its executor keep declining. While there are such steps, it keeps its place in line.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from redis.exceptions import NoScriptError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from orchestrator.application.errors import Unavailable
from orchestrator.redis_rq.connection import SOCKET_TIMEOUT_S, Client, translate_errors
from orchestrator.redis_rq.job_codec import JOB_FIELDS, lease_of_payload, read_payload
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.scripts import Script

SUSPENSION_CHECK_S = 1.0
"""How often a worker checks whether RQ's workers are suspended."""

WAIT_IN_LINE_S = 30
"""How long a worker keeps its place in line while steps are declined."""

BUSY_WAIT_S = 0.001
"""A worker that waits no longer than this for a job counts as busy."""

Job = tuple[str, dict[str, Any] | None]
"""A job id and its payload, which is None for a job that is not one of ours."""


class FinishedJob(NamedTuple):
    """A job that has ended, and the event to publish for it, if any."""

    job_id: str
    stream: str = ""
    event: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class WorkerQueues:
    """An RQ worker by its name, and the queues it serves, the most urgent first."""

    worker: str
    queues: Sequence[str]
    keys: Keys
    is_single: bool = True
    """Whether it runs one job at a time; then its key names the job."""

    @property
    def key(self) -> str:
        return f"rq:worker:{self.worker}"


class JobTaker:
    """Takes jobs for one worker. Its client must not decode replies: RQ may have compressed a job's data."""

    def __init__(
        self, client: Client, worker_queues: WorkerQueues, lease_until_ms: Callable[[], int]
    ) -> None:
        self._client, self._worker_queues, self._lease_until_ms = client, worker_queues, lease_until_ms
        self._has_declined = False
        self._queues = [Keys.rq_queue(queue) for queue in worker_queues.queues]
        self._script_keys = [worker_queues.key, *self._queues]
        self._script = Script(client, "take_jobs", "job_lease")
        self._check_suspension_at = 0.0
        self._is_reply_lost, self._is_idle = False, False
        self._popped: list[bytes] = []

    def take(
        self,
        max_jobs: int,
        wait_s: float = 0.0,
        finished: Sequence[FinishedJob] = (),
        may_wait_on: Callable[[], bool] = lambda: True,
    ) -> list[Job]:
        """Finish jobs, and take up to `max_jobs` new ones. When the queues are empty, wait up to `wait_s` for
        the first; while RQ's workers are suspended, take none.

        While steps are declined, wait for longer, as long as `may_wait_on`, called every `wait_s`, agrees.

        After Unavailable the caller repeats the same call: a job that is finished twice counts once, and a
        job that was taken by the first call is returned again.
        """
        try:
            with translate_errors():
                found = self._take(max_jobs, wait_s, finished, may_wait_on)
        except Unavailable:
            self._is_reply_lost, self._is_idle = True, False
            raise
        self._is_reply_lost = False
        return _parse_jobs(found)

    def _take(
        self,
        max_jobs: int,
        wait_s: float,
        finished: Sequence[FinishedJob],
        may_wait_on: Callable[[], bool],
    ) -> list[bytes]:
        """Take jobs; a worker that had to wait the last time waits at once."""
        may_wait, checks = bool(max_jobs and wait_s), time.monotonic() >= self._check_suspension_at
        if checks or self._popped or self._has_declined or not (self._is_idle and may_wait):
            found = self._run_script(max_jobs, finished, checks)
            if found is None:
                time.sleep(wait_s)
            if found is None or found or not may_wait:
                self._is_idle = False
                return found or []
            finished = ()
            if checks:
                self._has_declined = self._check_declined()
        if self._has_declined:
            self._wait_in_line(wait_s, may_wait_on)
        else:
            finished = self._wait(wait_s, finished)
        found = self._run_script(max_jobs, finished) if self._popped or finished else []
        return found or []

    def _check_declined(self) -> bool:
        try:
            return bool(self._client.exists(self._worker_queues.keys.declined))
        except ResponseError:  # the Redis user has the rights of an earlier release
            return False

    def _wait_in_line(self, wait_s: float, may_wait_on: Callable[[], bool]) -> None:
        """Wait for a job without losing the place in line; it is kept in `_popped`. To end the wait, this
        worker pushes to a list of its own that it waits for too: a job that Redis gives to it at this moment
        is not lost."""
        interruption, is_interrupted = f"{self._worker_queues.key}:interrupt", False
        pool = self._client.connection_pool
        connection: Any = pool.get_connection()
        until = time.monotonic() + WAIT_IN_LINE_S + SOCKET_TIMEOUT_S
        try:
            connection.send_command("BLPOP", *self._queues, interruption, WAIT_IN_LINE_S)
            while not connection.can_read(wait_s):
                if time.monotonic() > until:
                    raise RedisTimeoutError("Redis does not reply")
                if not is_interrupted and not may_wait_on():
                    self._client.rpush(interruption, "")
                    self._client.expire(interruption, WAIT_IN_LINE_S)
                    is_interrupted = True
            popped = connection.read_response()
        except BaseException:
            connection.disconnect()
            raise
        finally:
            pool.release(connection)
        self._popped = [popped[1]] if popped and popped[0] != interruption.encode() else []

    def _wait(self, wait_s: float, finished: Sequence[FinishedJob]) -> Sequence[FinishedJob]:
        """Finish jobs, and wait for a new one in the same round trip; it is kept in `_popped`. Returns the
        jobs that could not be finished, because the server does not have the script."""
        began_at = time.monotonic()
        with self._client.pipeline(transaction=False) as pipe:
            if finished:
                args = self._script_args(0, finished)
                pipe.evalsha(self._script.sha, len(self._script_keys), *self._script_keys, *args)
            pipe.blpop(self._queues, timeout=wait_s)
            *replies, popped = pipe.execute(raise_on_error=False)
        self._is_idle = time.monotonic() - began_at > BUSY_WAIT_S
        self._popped = [popped[1]] if isinstance(popped, tuple) else []
        for reply in (*replies, popped):
            if isinstance(reply, Exception) and not isinstance(reply, NoScriptError):
                raise reply
        return finished if any(isinstance(reply, NoScriptError) for reply in replies) else ()

    def _run_script(
        self, max_jobs: int, finished: Sequence[FinishedJob], checks: bool = False
    ) -> list[bytes] | None:
        """Run take_jobs.lua; with `checks`, None while the workers are suspended."""
        args = self._script_args(max_jobs, finished, checks)
        found: list[bytes] | None = self._script(self._script_keys, args)
        self._popped = []
        if checks and found is not None:
            self._check_suspension_at = time.monotonic() + SUSPENSION_CHECK_S
        return found

    def _script_args(self, max_jobs: int, finished: Sequence[FinishedJob], checks: bool = False) -> list[Any]:
        own = self._worker_queues
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        args: list[Any] = [max_jobs, own.worker, now, self._lease_until_ms(), int(checks)]
        args += [int(self._is_reply_lost), int(own.is_single), own.keys.leases, len(finished)]
        for job_id, stream, event in finished:
            args += [job_id, stream, 2 * len(event)]
            for pair in event.items():
                args += pair
        return args + self._popped

    def finish(self, job: FinishedJob) -> None:
        """Publish the event of a job and delete the job, without taking another."""
        with translate_errors(), self._client.pipeline(transaction=True) as pipe:
            if job.event:
                pipe.xadd(job.stream, dict[Any, Any](job.event))
            pipe.delete(Keys.rq_job(job.job_id))
            pipe.execute()

    # ---- for a parent that outlives the worker

    def current_job(self) -> Job | None:
        """The job that the worker has taken and not finished."""
        job_id, fields = self._current()
        return None if fields is None else (job_id, read_payload(*fields, job_id=job_id))

    def is_superseded(self) -> bool:
        """Whether the worker runs a job whose result is no longer needed."""
        job_id, fields = self._current()
        if fields is None:
            return False
        payload = read_payload(*fields, job_id=job_id)
        if payload is None:
            return True
        with translate_errors():
            return self._client.zscore(self._worker_queues.keys.leases, lease_of_payload(payload)) is None

    def _current(self) -> tuple[str, list[bytes] | None]:
        """The id of the worker's current job, and the JOB_FIELDS of the job if there is one."""
        with translate_errors():
            job_id: Any = self._client.hget(self._worker_queues.key, "current_step")
            if job_id is None:
                return "", None
            job: Any = self._client.hmget(Keys.rq_job(job_id.decode()), *JOB_FIELDS, "worker_name")
        *fields, worker = job
        is_own = fields[0] is not None and worker == self._worker_queues.worker.encode()
        return job_id.decode(), fields if is_own else None


def _parse_jobs(found: list[bytes]) -> list[Job]:
    jobs = zip(found[0::3], found[1::3], found[2::3], strict=True)
    named = [(job_id.decode(errors="replace"), fields) for job_id, *fields in jobs]
    return [(job_id, read_payload(*fields, job_id=job_id)) for job_id, fields in named]
