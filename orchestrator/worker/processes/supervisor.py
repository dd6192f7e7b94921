"""The supervisor: the worker that RQ knows, and a parent that outlives every child.

It runs no step itself. It is registered with RQ, and begins a child that does: a work-horse, which runs one
step after the other, or a crew, which runs several at once. When the child dies, by whatever one of its steps
did, what it had is reported as lost at once, and another child begins. When it is silent for too long it is
killed, for the same. What a crew has, it says through a pipe; what a work-horse has, Redis knows. A child has
a process group of its own: a step that kills its group does not kill its supervisor.
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
from rq.worker_registration import register

from orchestrator.application.errors import Unavailable
from orchestrator.redis_rq.job_taker import JobTaker
from orchestrator.redis_rq.keys import Keys
from orchestrator.worker.processes.forking import RestartBackoff, fork
from orchestrator.worker.processes.lost_runs import describe_exit, report_lost
from orchestrator.worker.processes.pipes import Pipes

logger = logging.getLogger(__name__)

TICK_S = 0.5
BEAT_S = 1.0
"""How often RQ is told that a worker is alive, and busy or idle: not with every step."""
RQ_WORKER_TTL_S = 65
"""How long RQ remembers a worker that it does not hear of: the minute that RQ adds, and some beats."""
REPEATED_SIGNAL_S = 1.0
SUSPECT_SILENCE_S = 1.0
"""A child that is well is heard several times in that."""
MAX_MESSAGE_BYTES = 1_000_000


class Child:
    """A child as its parent sees it."""

    def __init__(self, pid: int, pipe: int, leave_writer: int) -> None:
        self.pid, self.pipe, self._leave_writer = pid, pipe, leave_writer
        self.runs: dict[str, dict[str, Any]] = {}
        self.is_leaving = self.is_pipe_closed = self.is_busy = False
        self.began_at = self.last_message_at = time.monotonic()
        self._rest = b""

    def read(self) -> None:
        """What it has said since; to be called when there is something, or when it is dead."""
        while select.select([self.pipe], [], [], 0)[0]:
            said = os.read(self.pipe, 65_536)
            if not said:
                self.is_pipe_closed = True
                return
            *lines, rest = (self._rest + said).split(b"\n")
            self._rest = rest[-MAX_MESSAGE_BYTES:]
            for line in lines:
                self._hear(line)

    def _hear(self, line: bytes) -> None:
        try:
            said = json.loads(line)
            kind, token = said["type"], said.get("token")
        except (AttributeError, KeyError, TypeError, ValueError):
            logger.warning("process %d wrote into its pipe what is no word of ours", self.pid)
            return
        self.last_message_at = time.monotonic()
        match kind:
            case "began":
                self.runs[token] = said
            case "ended":
                self.runs.pop(token, None)
            case "leaving":
                self.is_leaving = True
            case "pulse":
                self.is_busy = bool(said.get("is_busy"))

    def ask_to_leave(self) -> None:
        """Have it leave, when it has finished what it runs."""
        if self._leave_writer >= 0:
            os.close(self._leave_writer)
        self._leave_writer = -1

    def kill(self) -> None:
        """With all that it has started and that did not leave its group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """To be called when it is dead, or by a copy of its parent."""
        os.close(self.pipe)
        self.ask_to_leave()


class Supervisor:
    """`run_child` is what a child does with its pipes; `worker` stands for all of it in RQ's registry.
    `taker` knows what a child has that does not say so itself."""

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
        self._asked, self._asked_at, self._is_over = 0, -math.inf, False
        self._beat_at = 0.0
        self._is_away = False
        self._backoff = RestartBackoff()

    def serve(self) -> None:
        """Until SIGTERM: then the child finishes what it runs. A second one ends it at once."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)
        while not self._is_over or self._children:
            is_served = any(not child.is_leaving for child in self._children)
            if not is_served and not self._is_over and self._backoff.is_over:
                self._begin()
            self._beat()
            self._listen()
            self._reap()
        with suppress(RedisError):
            self._worker.register_death()

    def _ask(self, *_: object) -> None:
        """Who presses Ctrl-C is heard twice, if this worker has a parent that passes it on."""
        if time.monotonic() - self._asked_at < REPEATED_SIGNAL_S:
            return
        self._asked_at = time.monotonic()
        self._asked += 1
        self._is_over = True
        for child in self._children:
            child.ask_to_leave() if self._asked == 1 else child.kill()

    def _begin(self) -> None:
        message_reader, message_writer = os.pipe()
        leave_reader, leave_writer = os.pipe()

        def run_child() -> None:
            os.setpgrp()
            for one in (message_reader, leave_writer):
                os.close(one)
            for other in self._children:
                other.close()
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            self._run_child(Pipes(message_writer, leave_reader))

        pid = fork(run_child)
        for one in (message_writer, leave_reader):
            os.close(one)
        child = Child(pid, message_reader, leave_writer)
        self._children.append(child)
        if self._is_over:  # somebody asked while we forked
            child.ask_to_leave()

    def _listen(self) -> None:
        heard = [child.pipe for child in self._children if not child.is_pipe_closed]
        ready, _, _ = select.select(heard, [], [], TICK_S)
        for child in self._children:
            if child.pipe in ready:
                child.read()
            # One that says nothing holds its interpreter, and cannot hear that nobody waits for it any more.
            silent_s = time.monotonic() - child.last_message_at
            if silent_s > self._lease_s or (silent_s > SUSPECT_SILENCE_S and self._is_superseded()):
                logger.warning("process %d has been silent for %.0f s: it is killed", child.pid, silent_s)
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
            self._ask_for_its_job(child)
            self._is_over |= self._burst and status == 0 and not child.is_leaving and not child.runs
            self._report(child, status)

    def _ask_for_its_job(self, child: Child) -> None:
        try:
            found = None if self._taker is None else self._taker.current_job()
        except Unavailable as error:
            logger.warning("cannot ask what process %d had, its lease will tell: %s", child.pid, error)
            return
        if found is not None and found[1] is not None:
            child.runs[found[0]] = found[1]

    def _report(self, child: Child, status: int) -> None:
        """What a process had that has died is lost."""
        cause = describe_exit(status)
        if status != 0:
            logger.warning("process %d died (%s), with %d steps in it", child.pid, cause, len(child.runs))
            if not child.runs:  # whoever is in it is counted, and does not bring this about for ever
                self._backoff.on_death(child.began_at)
        process, others = "process" if self._taker is None else "work-horse", len(child.runs) - 1
        reason = f"its {process} died ({cause})" + (
            f", with {others} other steps in it" if others > 0 else ""
        )
        for run in child.runs.values():
            if report_lost(self._worker.connection, run, reason):
                with suppress(RedisError):
                    self._worker.connection.delete(Keys.rq_job(run["token"]))

    def _beat(self) -> None:
        """Tell RQ that this worker is alive, and whether it is busy."""
        state = "busy" if any(child.runs or child.is_busy for child in self._children) else "idle"
        if time.monotonic() - self._beat_at < BEAT_S:
            return
        self._beat_at = time.monotonic()
        try:
            if self._worker.birth_date is None:
                self._worker.register_birth()
            with self._worker.connection.pipeline() as pipe:
                pipe.hset(self._worker.key, mapping=self._worker.serialize())  # Redis may have lost it
                register(self._worker, pipe)
                self._worker.set_state(state, pipeline=pipe)
                self._worker.heartbeat(RQ_WORKER_TTL_S, pipeline=pipe)
                pipe.execute()
            if self._is_away:
                logger.info("Redis is back")
            self._is_away = False
        except RedisError as error:
            if not self._is_away:
                logger.warning("Redis is away, waiting for it: %s", error)
            self._is_away = True
