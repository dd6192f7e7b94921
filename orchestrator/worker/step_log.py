"""What one run says, on its way to Redis.

    log(text) -> waiting -> a thread writes it every half second -> the rest travels with the result

So a run that is killed has lost half a second of it at the most, and one that says nothing, or ends before,
costs nothing. While Redis is away, lines wait; what was written when the answer was lost is written twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from orchestrator.application.errors import Unavailable
from orchestrator.application.records.events import iso
from orchestrator.application.records.step_log import LogLine, StepLogLimiter
from orchestrator.redis_rq.connection import SOCKET_TIMEOUT_S, Client, translate_errors
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.step_log import add_log_lines
from orchestrator.worker.lease import RedisClock

logger = logging.getLogger(__name__)

EVERY_S = 0.5
FLUSH_AT_LINES = 100
"""So many lines do not wait for their time."""


class StepLogWriter:
    def __init__(self, client: Client, clock: RedisClock, payload: Mapping[str, Any]) -> None:
        self._client, self._clock, self._payload = client, clock, payload
        self._allowance = StepLogLimiter()
        self._waiting: list[LogLine] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_over = False

    def append(self, text: str) -> None:
        with self._lock:
            if self._is_over:
                return  # a thread of an executor that has returned
            at, run = iso(self._clock.now_ms()), self._payload
            self._waiting += [
                LogLine(run["step"], run["run_id"], run["attempt"], at, one)
                for one in self._allowance.lines(text)
            ]
            if self._thread is None:
                self._wake = threading.Event()
                self._thread = threading.Thread(target=self._write_on, name="lines", daemon=True)
                self._thread.start()
        if len(self._waiting) >= FLUSH_AT_LINES:
            self._wake.set()

    def send(self, stream: str, fields: dict[Any, Any]) -> None:
        """Send the last event of the run, and what nobody has written yet before it, in one round trip."""
        if self.close():
            self._client.xadd(stream, fields)
            return
        with self._client.pipeline(transaction=False) as pipe:
            self._put(pipe, self._waiting)
            pipe.xadd(stream, fields)
            *answers, sent = pipe.execute(raise_on_error=False)
        refused = next((one for one in answers if isinstance(one, Exception)), None)
        if isinstance(sent, Exception):
            self._waiting = self._waiting if refused else []
            raise sent
        if refused is not None:
            self._give_up(refused)
        self._waiting = []

    def close(self) -> bool:
        """Nothing is said any more; whether all of it is written."""
        with self._lock:
            self._is_over = True
        if self._thread is not None:
            self._wake.set()
            self._thread.join(SOCKET_TIMEOUT_S)
        return not self._waiting

    def __enter__(self) -> StepLogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        """Whoever could not send a last event has spoken all the same."""
        if not self.close():
            self._write()

    def _write_on(self) -> None:
        while not self._is_over:
            self._wake.wait(EVERY_S)
            self._wake.clear()
            if not self._is_over:
                self._write()

    def _write(self) -> None:
        with self._lock:
            lines, self._waiting = self._waiting, []
        if not lines:
            return
        try:
            with translate_errors(), self._client.pipeline(transaction=False) as pipe:
                self._put(pipe, lines)
                pipe.execute()
        except Unavailable:
            with self._lock:
                self._waiting = [*lines, *self._waiting]
        except Exception as error:
            self._give_up(error)

    def _put(self, pipe: Any, lines: list[LogLine]) -> None:
        add_log_lines(pipe, Keys.from_leases_key(self._payload["leases"]), self._payload["execution"], lines)

    def _give_up(self, error: Exception) -> None:
        """No step fails because it cannot be heard."""
        logger.warning("what step %s says cannot be kept: %s", self._payload["step"], error)
