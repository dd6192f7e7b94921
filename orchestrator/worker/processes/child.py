"""What every child of a supervisor shares: its set-up, and running a job.

set up (memory limit, connections, leave pipe, executors) -> take jobs -> run_job for each of them
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from orchestrator.redis_rq.connection import Client, connect
from orchestrator.settings import Settings
from orchestrator.worker.harness import Harness, load_executors
from orchestrator.worker.lease import RedisClock
from orchestrator.worker.leaving import RunTracker, leave_within
from orchestrator.worker.memory_limit import limit_memory
from orchestrator.worker.processes.pipes import Pipes, exit_immediately
from orchestrator.worker.processes.run_counts import RunCounter
from orchestrator.worker.step_call import log_fields

logger = logging.getLogger(__name__)


class ChildSetup(NamedTuple):
    harness: Harness
    job_client: Client
    """For taking jobs and for RQ's commands; it does not decode replies."""
    lease_until_ms: Callable[[], int]
    leave: threading.Event
    """Set when the supervisor wants this child to leave, or has died."""
    tracker: RunTracker
    """The child tells it when a run begins and ends; the harness, when an executor does."""
    counter: RunCounter
    """The harness tells it the outcome of each run."""


def set_up_child(settings: Settings, worker: str, pipes: Pipes, declines: bool) -> ChildSetup:
    """Limit the memory of this process, connect to Redis, and load the executors."""
    limit_memory(settings.max_memory)
    client, job_client = connect(settings.redis_url), connect(settings.redis_url, decodes=False)
    clock, lease_s, leave, tracker = RedisClock(client), settings.lease_s, threading.Event(), RunTracker()
    counter = RunCounter()

    def on_leave() -> None:
        leave.set()
        leave_within(tracker, settings.stop_grace_s)

    pipes.on_leave(on_leave)
    executors = load_executors(settings.executors)
    harness = Harness(
        client,
        executors,
        clock,
        worker,
        lease_s,
        declines=declines,
        on_executor=tracker.on_executor,
        on_end=counter.add,
        settings=settings,
    )

    def lease_until_ms() -> int:
        return clock.now_ms() + round(lease_s * 1000)

    return ChildSetup(harness, job_client, lease_until_ms, leave, tracker, counter)


def run_job(harness: Harness, payload: Mapping[str, Any]) -> None:
    """Run a job whose lease is already renewed.

    No executor can make the harness raise. If it raises all the same, a step has broken something that this
    process needs, so the process exits.
    """
    try:
        harness.run(payload, is_leased=True)
    except BaseException:
        try:
            logger.exception("the harness failed; this process exits", extra=log_fields(payload))
        finally:
            exit_immediately()
