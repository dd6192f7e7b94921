"""The supervisor of a crew: the worker that RQ knows, and a parent that outlives every child.

It runs no step itself. It is registered with RQ, begins a crew in a process of its own, and learns through a
pipe what that runs. When the crew dies, by whatever one of its steps did, all its runs are reported as lost
at once, and another crew begins. When it is silent for too long it is killed, for the same. It has a process
group of its own: a step that kills its group does not kill its supervisor.
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
from rq.worker_registration import register

from orchestrator.redis_rq.keys import Keys
from orchestrator.worker.forking import Patience, fork
from orchestrator.worker.losses import cause_of, report_lost
from orchestrator.worker.rq_worker import StepWorker

logger = logging.getLogger(__name__)

TICK_S = 0.5
BEAT_S = 5.0
CHANGE_S = 1.0
"""How often RQ is told that a worker is busy now, or idle: not with every step."""
TWICE_S = 1.0
LONGEST_WORD = 1_000_000


class Child:
    """A crew's process as its parent sees it."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid, self.pipe = pid, pipe
        self.runs: dict[str, dict[str, Any]] = {}
        self.is_leaving = self.is_mute = False
        self.began_at = self.heard_at = time.monotonic()
        self._rest = b""

    def read(self) -> None:
        """What it has said since; to be called when there is something, or when it is dead."""
        while select.select([self.pipe], [], [], 0)[0]:
            said = os.read(self.pipe, 65_536)
            if not said:
                self.is_mute = True
                return
            *lines, rest = (self._rest + said).split(b"\n")
            self._rest = rest[-LONGEST_WORD:]
            for line in lines:
                self._hear(line)

    def _hear(self, line: bytes) -> None:
        try:
            said = json.loads(line)
            kind, token = said["type"], said.get("token")
        except (AttributeError, KeyError, TypeError, ValueError):
            logger.warning("process %d wrote into its pipe what is no word of ours", self.pid)
            return
        self.heard_at = time.monotonic()
        match kind:
            case "began":
                self.runs[token] = said
            case "ended":
                self.runs.pop(token, None)
            case "leaving":
                self.is_leaving = True


class Supervisor:
    """`be_a_crew(pipe)` is what a child does; `worker` stands for all of it in RQ's registry."""

    def __init__(
        self, worker: StepWorker, be_a_crew: Callable[[int], Any], burst: bool, lease_s: float
    ) -> None:
        self._worker, self._be_a_crew, self._burst, self._lease_s = worker, be_a_crew, burst, lease_s
        self._children: list[Child] = []
        self._asked, self._asked_at, self._is_over = 0, -math.inf, False
        self._beat_at = 0.0
        self._is_away = False
        self._patience = Patience()

    def serve(self) -> None:
        """Until SIGTERM: then the crew finishes what it runs. A second one ends it at once."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)
        while not self._is_over or self._children:
            is_served = any(not child.is_leaving for child in self._children)
            if not is_served and not self._is_over and self._patience.is_over:
                self._begin()
            self._beat()
            self._listen()
            self._reap()
        with suppress(RedisError):
            self._worker.register_death()  # type: ignore[no-untyped-call]

    def _ask(self, *_: object) -> None:
        """Who presses Ctrl-C is heard twice, if this worker has a parent that passes it on."""
        if time.monotonic() - self._asked_at < TWICE_S:
            return
        self._asked_at = time.monotonic()
        self._asked += 1
        self._is_over = True
        for child in self._children:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGTERM if self._asked == 1 else signal.SIGKILL)

    def _begin(self) -> None:
        reading, writing = os.pipe()

        def be_a_child() -> None:
            os.setpgrp()
            for one in (reading, *(other.pipe for other in self._children)):
                os.close(one)
            self._be_a_crew(writing)

        pid = fork(be_a_child)
        os.close(writing)
        self._children.append(Child(pid, reading))

    def _listen(self) -> None:
        heard = [child.pipe for child in self._children if not child.is_mute]
        ready, _, _ = select.select(heard, [], [], TICK_S)
        for child in self._children:
            if child.pipe in ready:
                child.read()
            # One that says nothing for so long holds its interpreter: its leases have ended by then.
            if time.monotonic() - child.heard_at > self._lease_s:
                logger.warning("process %d has been silent for %g s: it is killed", child.pid, self._lease_s)
                child.heard_at = time.monotonic()
                with suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)

    def _reap(self) -> None:
        for child in list(self._children):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid == 0:
                continue
            child.read()
            os.close(child.pipe)
            self._children.remove(child)
            self._is_over |= self._burst and status == 0 and not child.is_leaving and not child.runs
            self._report(child, status)

    def _report(self, child: Child, status: int) -> None:
        """Who was in a process that has died is lost."""
        cause = cause_of(status)
        if status != 0:
            logger.warning("process %d died (%s), with %d steps in it", child.pid, cause, len(child.runs))
            if not child.runs:  # whoever is in it is counted, and does not bring this about for ever
                self._patience.on_death(child.began_at)
        others = len(child.runs) - 1
        reason = f"its process died ({cause})" + (f", with {others} other steps in it" if others > 0 else "")
        for run in child.runs.values():
            if report_lost(self._worker.connection, run, reason):
                with suppress(RedisError):
                    self._worker.connection.delete(Keys.rq_job(run["token"]))

    def _beat(self) -> None:
        """Tell RQ that this worker is alive, and whether it is busy."""
        state = "busy" if any(child.runs for child in self._children) else "idle"
        pause_s = BEAT_S if state == self._worker.get_state() else CHANGE_S
        if time.monotonic() - self._beat_at < pause_s:
            return
        self._beat_at = time.monotonic()
        try:
            if self._worker.birth_date is None:
                self._worker.register_birth()  # type: ignore[no-untyped-call]
            with self._worker.connection.pipeline() as pipe:
                pipe.hset(self._worker.key, mapping=self._worker.serialize())  # Redis may have lost it
                register(self._worker, pipe)
                self._worker.set_state(state, pipeline=pipe)
                self._worker.heartbeat(pipeline=pipe)
                pipe.execute()
            if self._is_away:
                logger.info("Redis is back")
            self._is_away = False
        except RedisError as error:
            if not self._is_away:
                logger.warning("Redis is away, waiting for it: %s", error)
            self._is_away = True
