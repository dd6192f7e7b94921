"""The supervisor: the process that is registered with RQ, and the parent of the child that runs the steps.

It runs no step itself. Its child is a work-horse, which runs one step after the other, or a concurrent child,
which runs several at once. When a child dies, whatever the cause, the supervisor reports its runs as lost at
once and starts another child. A child that sends no message for too long is killed, with the same effect. A
concurrent child sends its runs through a pipe; the job of a work-horse is in Redis. A child has its own
process group, so a step that kills its group does not kill the supervisor.
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
from typing import Any

from redis.exceptions import RedisError
from rq import Worker
from rq.utils import now
from rq.worker_registration import register

from orchestrator.application.errors import Unavailable
from orchestrator.redis_rq.job_taker import JobTaker
from orchestrator.redis_rq.keys import Keys
from orchestrator.worker.processes.forking import RestartBackoff, fork
from orchestrator.worker.processes.lost_runs import describe_exit, report_lost
from orchestrator.worker.processes.pipes import Pipes
from orchestrator.worker.processes.rq_registration import registration

logger = logging.getLogger(__name__)

TICK_S = 0.5
HEARTBEAT_S = 1.0
"""How often the worker's state (busy or idle) and heartbeat are written for RQ: not with every step."""
RQ_WORKER_TTL_S = 65
"""How long RQ keeps a worker without heartbeats: the minute that RQ adds itself, and a few heartbeats."""
REPEATED_SIGNAL_S = 1.0
"""A signal within this time after another one is the same signal, not a second request."""
SUSPECT_SILENCE_S = 1.0
"""A healthy child sends several messages in this time."""
MAX_MESSAGE_BYTES = 1_000_000


class Child:
    """A child process, from the supervisor's side: its pid, its pipes and its runs."""

    def __init__(self, pid: int, pipe: int, leave_writer: int) -> None:
        self.pid, self.pipe, self._leave_writer = pid, pipe, leave_writer
        self.runs: dict[str, dict[str, Any]] = {}
        self.is_leaving = self.is_pipe_closed = self.is_busy = False
        self.began_at = self.last_message_at = time.monotonic()
        self._rest = b""

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
            kind, token = message["type"], message.get("token")
        except (AttributeError, KeyError, TypeError, ValueError):
            logger.warning("process %d wrote an invalid message into its pipe", self.pid)
            return
        self.last_message_at = time.monotonic()
        match kind:
            case "began":
                self.runs[token] = message
            case "ended":
                self.runs.pop(token, None)
            case "leaving":
                self.is_leaving = True
            case "pulse":
                self.is_busy = bool(message.get("is_busy"))

    def ask_to_leave(self) -> None:
        """Make the child leave after it has finished its steps."""
        if self._leave_writer >= 0:
            os.close(self._leave_writer)
        self._leave_writer = -1

    def kill(self) -> None:
        """Kill the child and all processes in its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the pipes. To be called when the child is dead, or in a fork of the supervisor."""
        os.close(self.pipe)
        self.ask_to_leave()


class Supervisor:
    """Keeps one child running and reports the runs of dead children.

    `run_child` is the main function of a child. `worker` is the registered RQ worker. `taker`, given for a
    work-horse, finds the job of the child in Redis; a concurrent child sends its runs itself.
    """

    def __init__(
        self,
        worker: Worker,
        run_child: Callable[[Pipes], Any],
        burst: bool,
        lease_s: float,
        taker: JobTaker | None = None,
    ) -> None:
        self._worker, self._run_child, self._burst, self._lease_s = worker, run_child, burst, lease_s
        self._taker = taker
        self._children: list[Child] = []
        self._stop_requests, self._stop_requested_at, self._is_over = 0, -math.inf, False
        self._heartbeat_at = 0.0
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
        with suppress(RedisError):
            self._worker.register_death()

    def _stop(self, *_: object) -> None:
        """The signal handler. One Ctrl-C arrives twice if a parent passes it on, so a repetition is
        ignored."""
        if time.monotonic() - self._stop_requested_at < REPEATED_SIGNAL_S:
            return
        self._stop_requested_at = time.monotonic()
        self._stop_requests += 1
        self._is_over = True
        for child in self._children:
            child.ask_to_leave() if self._stop_requests == 1 else child.kill()

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
                child.kill()

    def _is_superseded(self) -> bool:
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
        """Add the job of a dead work-horse, which is in Redis, to its runs."""
        try:
            job = None if self._taker is None else self._taker.current_job()
        except Unavailable as error:
            logger.warning("cannot read the job of process %d; its lease will expire: %s", child.pid, error)
            return
        if job is not None and job[1] is not None:
            child.runs[job[0]] = job[1]

    def _report(self, child: Child, status: int) -> None:
        """Report the runs of a dead child as lost."""
        cause = describe_exit(status)
        if status != 0:
            logger.warning("process %d died (%s) with %d steps running", child.pid, cause, len(child.runs))
            if not child.runs:  # a step that kills its process is limited by max_lost already
                self._backoff.on_death(child.began_at)
        process, others = "process" if self._taker is None else "work-horse", len(child.runs) - 1
        reason = f"its {process} died ({cause})"
        if others > 0:
            reason += f" with {others} other steps"
        for run in child.runs.values():
            if report_lost(self._worker.connection, run, reason):
                with suppress(RedisError):
                    self._worker.connection.delete(Keys.rq_job(run["token"]))

    def _send_heartbeat(self) -> None:
        """Write for RQ that this worker is alive, and whether it is busy."""
        state = "busy" if any(child.runs or child.is_busy for child in self._children) else "idle"
        if time.monotonic() - self._heartbeat_at < HEARTBEAT_S:
            return
        self._heartbeat_at = time.monotonic()
        try:
            if self._worker.birth_date is None:
                # Not by register_birth(): it fails if the child has taken a job and so written to this hash.
                self._worker.birth_date = self._worker.last_heartbeat = now()
            with self._worker.connection.pipeline() as pipe:
                pipe.hset(self._worker.key, mapping=registration(self._worker))  # Redis may have lost it
                register(self._worker, pipe)
                self._worker.set_state(state, pipeline=pipe)
                self._worker.heartbeat(RQ_WORKER_TTL_S, pipeline=pipe)
                pipe.execute()
            if self._is_redis_unavailable:
                logger.info("Redis is available again")
            self._is_redis_unavailable = False
        except RedisError as error:
            if not self._is_redis_unavailable:
                logger.warning("Redis is unavailable; retrying: %s", error)
            self._is_redis_unavailable = True
