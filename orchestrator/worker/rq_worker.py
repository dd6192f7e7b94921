"""StepWorker: an RQ worker for our queues.

It is registered with RQ and seen by its tools; it differs from a stock `rq worker --serializer json` in
four things: it runs nothing but our one function, it loads the executors before it forks, it reports a dead
work-horse at once, whatever its exit code, and whoever asks it to stop a job stops that one or nothing.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import redis
from rq import Queue, Worker
from rq.exceptions import NoSuchJobError
from rq.job import Job
from rq.serializers import JSONSerializer

from orchestrator.redis_rq.connection import Client
from orchestrator.redis_rq.jobs import RUN_STEP, read_payload
from orchestrator.worker.losses import cause_of, report_lost

logger = logging.getLogger(__name__)


class StepJob(Job):
    """A job that can only be a step of ours: whoever can write to Redis must not be able to run more."""

    def restore(self, raw_data: Any) -> Any:
        """A hash that cannot be read is no job; the step it stood for is found missing and sent again."""
        try:
            return super().restore(raw_data)
        except NoSuchJobError:
            raise
        except Exception as error:
            raise NoSuchJobError(f"job {self.id} cannot be read: {error}") from error

    # Callbacks name functions to be called: no job of ours has any.
    success_callback = property(lambda self: None)
    failure_callback = property(lambda self: None)
    stopped_callback = property(lambda self: None)

    def perform(self) -> Any:
        if self.func_name != RUN_STEP:
            raise PermissionError(f"this worker runs {RUN_STEP} and nothing else, not {self.func_name}")
        return super().perform()


class StepWorker(Worker):
    job_class = StepJob

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._turn, self._forked_for = threading.Lock(), ""

    def fork_work_horse(self, job: Job, queue: Queue) -> None:
        with self._turn:
            super().fork_work_horse(job, queue)
            self._forked_for = job.id

    def handle_payload(self, message: Mapping[str, Any]) -> None:
        """A command from outside, on a thread of its own. It may come when its job has ended; the lock keeps
        the next one from being forked between RQ's look at the job and its shot at the work-horse."""
        with self._turn:
            command = json.loads(message["data"])
            if command.get("command") == "stop-job" and command.get("job_id") != self._forked_for:
                logger.debug("does not run %s, so it is not stopped", command.get("job_id"))
                return
            super().handle_payload(message)  # type: ignore[no-untyped-call]

    def kill_horse(self, sig: signal.Signals = signal.SIGKILL) -> None:
        """A work-horse leads a group of its own. RQ asks for the group of its pid, which is 0 when there is
        none any more: that would be the group of this very process, and of whoever started it."""
        pid = self.horse_pid
        if pid:
            with suppress(ProcessLookupError):
                os.killpg(pid, sig)

    def monitor_work_horse(self, job: Job, queue: Queue) -> None:
        """RQ believes an exit code of 0; but whoever calls os._exit(0) has left its job as it was."""
        super().monitor_work_horse(job, queue)
        if self.connection.hget(job.key, "status") == b"started":
            self.handle_work_horse_killed(job, 0, 0, None)
            self.handle_job_failure(job, queue=queue, exc_string="Work-horse left with exit code 0")

    def handle_work_horse_killed(self, job: Job, retpid: int, ret_val: int, rusage: Any) -> None:
        """Report the loss now; the sweep would find it in RQ's registry a moment later."""
        payload = read_payload(_text(job.data))
        if payload is not None:
            report_lost(self.connection, payload, f"its work-horse died ({cause_of(ret_val)})")


def make_worker(client: Client, queues: Sequence[str], name: str | None = None) -> StepWorker:
    """A worker for these RQ queues, on a client that does not decode replies: RQ wants bytes."""
    made = [Queue(queue, connection=client, serializer=JSONSerializer, job_class=StepJob) for queue in queues]
    return StepWorker(
        made,
        name=name,
        connection=client,
        serializer=JSONSerializer,
        job_class=StepJob,
        worker_ttl=60,
        job_monitoring_interval=5,
        log_job_description=False,
    )


def connect_for_rq(url: str) -> Client:
    return redis.Redis.from_url(url, protocol=2, socket_connect_timeout=10)


def _text(data: Any) -> str:
    return data.decode(errors="replace") if isinstance(data, bytes) else str(data)
