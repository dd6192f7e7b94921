"""The supervisor: the process that is registered with RQ, and the parent of the child that runs the steps.

It runs no step itself. Its child is a work-horse, which runs one step after the other, or a concurrent child,
which runs several at once. When a child dies, whatever the cause, the supervisor reports its runs as lost at
once and starts another child. A child that sends no message for too long is killed, with the same effect. A
concurrent child sends its runs through a pipe; the job of a work-horse is in Redis. A child has its own
process group, so a step that kills its group does not kill the supervisor.

SIGTERM and SIGINT let the child finish its steps; the supervisor logs which these are. A second one kills
the child. While Redis is unavailable, the child gives up its results after a grace time (worker/leaving.py),
and the supervisor sends no commands that could delay its own end.
"""

from __future__ import annotations

import json
import logging
import math
import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from redis.exceptions import RedisError
from rq import Worker
from rq.worker_registration import register

from orchestrator.application.errors import Unavailable
from orchestrator.processes import REPEATED_SIGNAL_S
from orchestrator.redis_rq.job_taker import JobTaker
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.lost_reasons import describe_death, describe_exit
from orchestrator.worker.processes.forking import RestartBackoff, fork
from orchestrator.worker.processes.lost_runs import report_lost
from orchestrator.worker.processes.pipes import Pipes
from orchestrator.worker.processes.published_executors import PublishedExecutors
from orchestrator.worker.processes.rq_registration import registration
from orchestrator.worker.processes.run_counts import RunCounts

logger = logging.getLogger(__name__)

TICK_S = 0.5
HEARTBEAT_S = 1.0
"""How often the worker's state (busy or idle) and heartbeat are written for RQ: not with every step."""
RQ_WORKER_TTL_S = 65
"""How long RQ keeps a worker without heartbeats: the minute that RQ adds itself, and a few heartbeats."""
OUTAGE_HEARTBEAT_S = 30.0
"""The pause between heartbeats of a stopping worker while Redis is unavailable: each may take several
seconds, and the worker should not wait for it when its child has left."""
MAX_ANNOUNCED = 5
SUSPECT_SILENCE_S = 1.0
"""A healthy child sends several messages in this time."""
MAX_MESSAGE_BYTES = 1_000_000
SILENT = (
    "its worker killed it, because it sent no message for {:.0f} s; a step had stopped it, or held the"
    " interpreter lock"
)
STOPPED_TWICE = "its worker was told twice to stop"


class Child:
    """A child process, from the supervisor's side: its pid, its pipes and its runs."""

    def __init__(self, pid: int, pipe: int, leave_writer: int) -> None:
        self.pid, self.pipe, self._leave_writer = pid, pipe, leave_writer
        self.runs: dict[str, dict[str, Any]] = {}
        self.counts = RunCounts()
        self._horse_run: dict[str, Any] | None = None
        self.is_leaving = self.is_pipe_closed = self.is_busy = False
        self.began_at = self.last_message_at = time.monotonic()
        self._rest = b""
        self.killed_because: str | None = None
        """Why the supervisor killed it."""

    def read(self) -> None:
        """Read the messages in the pipe. To be called when the pipe is readable, or the child is dead."""
        while select.select([self.pipe], [], [], 0)[0]:
            data = os.read(self.pipe, 65_536)
            if not data:
                self.is_pipe_closed = True
                return
            *lines, rest = (self._rest + data).split(b"\n")
            self._rest = rest[-MAX_MESSAGE_BYTES:]
            for line in lines:
                self._apply(line)

    def _apply(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            kind, job_id = message["type"], message.get("job_id")
        except (AttributeError, KeyError, TypeError, ValueError):
            logger.warning("process %d wrote an invalid message into its pipe", self.pid)
            return
        self.last_message_at = time.monotonic()
        match kind:
            case "began":
                self.runs[job_id] = {**message, "received_at": time.monotonic()}
            case "ended":
                self.runs.pop(job_id, None)
            case "leaving":
                self.is_leaving = True
            case "pulse":
                self.is_busy = bool(message.get("is_busy"))
                self._horse_run = message.get("run")
                self.counts = RunCounts.parse(message.get("counts"))

    def describe_runs(self) -> dict[str, str]:
        """What the child still works on, by job id."""
        now = time.monotonic()
        runs = [{**run, "for_s": now - run["received_at"]} for run in self.runs.values()]
        return {
            run[
                "job_id"
            ]: f"{run['step']} of {run['execution'].rpartition('#')[2]}, attempt {run['attempt']},"
            f" for {run['for_s']:.1f} s"
            for run in (*runs, *([self._horse_run] if self._horse_run else []))
        }

    def ask_to_leave(self) -> None:
        """Make the child leave after it has finished its steps."""
        if self._leave_writer >= 0:
            os.close(self._leave_writer)
        self._leave_writer = -1

    def kill(self, because: str) -> None:
        """Kill the child and all processes in its process group."""
        self.killed_because = because
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the pipes. To be called when the child is dead, or in a fork of the supervisor."""
        os.close(self.pipe)
        self.ask_to_leave()


class Supervisor:
    """Keeps one child running and reports the runs of dead children.

    `run_child` is the main function of a child. `worker` is the registered RQ worker. `taker`, given for a
    work-horse, finds the job of the child in Redis; a concurrent child sends its runs itself. `executors` are
    published with every heartbeat.
    """

    def __init__(
        self,
        worker: Worker,
        run_child: Callable[[Pipes], Any],
        burst: bool,
        lease_s: float,
        taker: JobTaker | None = None,
        executors: PublishedExecutors | None = None,
    ) -> None:
        self._worker, self._run_child, self._burst, self._lease_s = worker, run_child, burst, lease_s
        self._taker, self._executors = taker, executors
        self._children: list[Child] = []
        self._stop_requests, self._stop_requested_at, self._is_over = 0, -math.inf, False
        self._announced: set[str] | None = None
        self._heartbeat_at = 0.0
        self._past_counts = RunCounts()
        self._is_redis_unavailable = False
        self._backoff = RestartBackoff()

    def serve(self) -> None:
        """Run until SIGTERM, which lets the child finish its steps; a second SIGTERM kills the child."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        while not self._is_over or self._children:
            has_active_child = any(not child.is_leaving for child in self._children)
            if not has_active_child and not self._is_over and self._backoff.is_over:
                self._start_child()
            self._send_heartbeat()
            self._read_messages()
            self._reap()
            self._announce_stop()
        if not self._is_redis_unavailable:  # otherwise the registration expires
            with suppress(RedisError):
                self._worker.register_death()

    def _stop(self, *_: object) -> None:
        """The signal handler; a repetition of the same signal is ignored."""
        if time.monotonic() - self._stop_requested_at < REPEATED_SIGNAL_S:
            return
        self._stop_requested_at = time.monotonic()
        self._stop_requests += 1
        self._is_over = True
        for child in self._children:
            child.ask_to_leave() if self._stop_requests == 1 else child.kill(STOPPED_TWICE)

    def _announce_stop(self) -> None:
        """After a signal, log what this worker waits for, and again when a child has begun another step."""
        if not self._stop_requests or self._is_news_expected():
            return
        runs = {job_id: text for child in self._children for job_id, text in child.describe_runs().items()}
        if self._announced is not None and runs.keys() <= self._announced:
            return
        self._announced = {*runs, *(self._announced or ())}
        if not runs:
            logger.info("stopping; no step is running")
            return
        listed = "; ".join([*runs.values()][:MAX_ANNOUNCED])
        if len(runs) > MAX_ANNOUNCED:
            listed += f"; and {len(runs) - MAX_ANNOUNCED} more"
        steps, it, again = (
            ("step", "it", "the step runs") if len(runs) == 1 else ("steps", "them", "the steps run")
        )
        logger.warning(
            "stopping after %d %s: %s; a second SIGTERM or Ctrl-C ends %s now, and %s again",
            len(runs),
            steps,
            listed,
            it,
            again,
        )

    def _is_news_expected(self) -> bool:
        """Whether a child has sent no message since the signal, and is not silent for long."""
        asked_at = self._stop_requested_at
        is_recent = time.monotonic() - asked_at < SUSPECT_SILENCE_S
        return is_recent and any(child.last_message_at < asked_at for child in self._children)

    def _start_child(self) -> None:
        message_reader, message_writer = os.pipe()
        leave_reader, leave_writer = os.pipe()

        def run_child() -> None:
            os.setpgrp()
            for fd in (message_reader, leave_writer):
                os.close(fd)
            for other in self._children:
                other.close()
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            self._run_child(Pipes(message_writer, leave_reader))

        pid = fork(run_child)
        for fd in (message_writer, leave_reader):
            os.close(fd)
        child = Child(pid, message_reader, leave_writer)
        self._children.append(child)
        if self._is_over:  # the signal arrived during the fork
            child.ask_to_leave()

    def _read_messages(self) -> None:
        """Wait for messages of the children, and kill a child that has sent none for too long."""
        pipes = [child.pipe for child in self._children if not child.is_pipe_closed]
        ready, _, _ = select.select(pipes, [], [], TICK_S)
        for child in self._children:
            if child.pipe in ready:
                child.read()
            # In a silent child a step holds the interpreter lock, so the child cannot notice a superseded
            # run.
            silent_s = time.monotonic() - child.last_message_at
            if silent_s > self._lease_s or (silent_s > SUSPECT_SILENCE_S and self._is_superseded()):
                logger.warning("process %d has sent no message for %.0f s; killing it", child.pid, silent_s)
                child.last_message_at = time.monotonic()
                child.kill(SILENT.format(silent_s))

    def _is_superseded(self) -> bool:
        if self._is_redis_unavailable:
            return False
        with suppress(Unavailable):
            return self._taker is not None and self._taker.is_superseded()
        return False

    def _reap(self) -> None:
        for child in list(self._children):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid == 0:
                continue
            child.read()
            child.close()
            self._children.remove(child)
            self._add_current_job(child)
            self._is_over |= self._burst and status == 0 and not child.is_leaving and not child.runs
            self._report(child, status)

    def _add_current_job(self, child: Child) -> None:
        """Add the job of a dead work-horse, which is in Redis, to its runs. One that was leaving had no job
        any more: the job there is that of its successor."""
        if child.is_leaving or (self._is_over and self._is_redis_unavailable):
            return
        try:
            job = None if self._taker is None else self._taker.current_job()
        except Unavailable as error:
            logger.warning("cannot read the job of process %d; its lease will expire: %s", child.pid, error)
            return
        if job is not None and job[1] is not None:
            child.runs[job[0]] = job[1]

    def _report(self, child: Child, status: int) -> None:
        """Report the runs of a dead child as lost."""
        process = "process" if self._taker is None else "work-horse"
        exit_code = os.waitstatus_to_exitcode(status)
        self._past_counts += child.counts + RunCounts(failed=len(child.runs))
        reason = describe_death(process, exit_code, len(child.runs) - 1, child.killed_because)
        if status != 0:
            ended_by = describe_exit(exit_code)
            logger.warning("process %d died (%s) with %d steps running", child.pid, ended_by, len(child.runs))
            if not child.runs:  # a step that kills its process is limited by max_lost already
                self._backoff.on_death(child.began_at)
        for job_id, run in child.runs.items():
            if report_lost(self._worker.connection, run, reason):
                with suppress(RedisError):
                    self._worker.connection.delete(Keys.rq_job(job_id))

    def _send_heartbeat(self) -> None:
        """Write for RQ that this worker is alive, and whether it is busy."""
        running = sum(len(child.runs) or int(child.is_busy) for child in self._children)
        state = "busy" if running else "idle"
        is_slow = self._is_over and self._is_redis_unavailable
        if time.monotonic() - self._heartbeat_at < (OUTAGE_HEARTBEAT_S if is_slow else HEARTBEAT_S):
            return
        self._heartbeat_at = time.monotonic()
        try:
            if self._worker.birth_date is None:
                # Not by register_birth(): it takes a key that the child has already written to for another
                # worker of this name.
                self._worker.birth_date = self._worker.last_heartbeat = datetime.now(UTC)
            with self._worker.connection.pipeline() as pipe:
                counts = sum((child.counts for child in self._children), self._past_counts)
                fields = registration(self._worker) | counts.rq_fields()
                pipe.hset(self._worker.key, mapping=fields)  # Redis may have lost it
                register(self._worker, pipe)
                self._worker.set_state(state, pipeline=pipe)
                self._worker.heartbeat(RQ_WORKER_TTL_S, pipeline=pipe)
                pipe.execute()
            if self._executors is not None:
                self._executors.refresh(running)
            if self._is_redis_unavailable:
                logger.info("Redis is available again")
            self._is_redis_unavailable = False
        except RedisError as error:
            if not self._is_redis_unavailable:
                logger.warning("Redis is unavailable; retrying: %s", error)
            self._is_redis_unavailable = True
