"""The step log of one run, on its way to Redis.

    log(text) -> buffer -> a thread writes the buffer every half second -> the rest is sent with the result

A run that is killed loses the log lines of half a second at most. A run that logs nothing, or ends within
half a second, costs no extra command. While Redis is unavailable, lines stay in the buffer. If a write
succeeds but its reply is lost, the lines are written twice.
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

FLUSH_EVERY_S = 0.5
FLUSH_AT_LINES = 100
"""With this many lines in the buffer, they are written at once."""


class StepLogWriter:
    """Buffers the log lines of one run and writes them from a thread; leaving the block writes the rest."""

    def __init__(self, client: Client, clock: RedisClock, payload: Mapping[str, Any]) -> None:
        self._client, self._clock, self._payload = client, clock, payload
        self._limiter = StepLogLimiter()
        self._buffer: list[LogLine] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_over = False

    def append(self, text: str) -> None:
        with self._lock:
            if self._is_over:
                return  # called by a thread of an executor that has returned
            at, run = iso(self._clock.now_ms()), self._payload
            self._buffer += [
                LogLine(run["step"], run["run_id"], run["attempt"], at, line)
                for line in self._limiter.accept(text)
            ]
            if self._thread is None:
                self._wake = threading.Event()
                self._thread = threading.Thread(target=self._write_until_closed, name="step log", daemon=True)
                self._thread.start()
        if len(self._buffer) >= FLUSH_AT_LINES:
            self._wake.set()

    def send(self, stream: str, fields: dict[Any, Any]) -> None:
        """Send the last event of the run, preceded by the buffered lines, in one round trip."""
        if self.close():
            self._client.xadd(stream, fields)
            return
        with self._client.pipeline(transaction=False) as pipe:
            self._queue_writes(pipe, self._buffer)
            pipe.xadd(stream, fields)
            *replies, sent = pipe.execute(raise_on_error=False)
        log_error = next((reply for reply in replies if isinstance(reply, Exception)), None)
        if isinstance(sent, Exception):
            self._buffer = self._buffer if log_error else []
            raise sent
        if log_error is not None:
            self._warn_of_loss(log_error)
        self._buffer = []

    def close(self) -> bool:
        """Accept no more lines, and stop the thread. Returns whether all lines are written."""
        with self._lock:
            self._is_over = True
        if self._thread is not None:
            self._wake.set()
            self._thread.join(SOCKET_TIMEOUT_S)
        return not self._buffer

    def __enter__(self) -> StepLogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        """Write the buffered lines of a run that sent no last event."""
        if not self.close():
            self._write()

    def _write_until_closed(self) -> None:
        while not self._is_over:
            self._wake.wait(FLUSH_EVERY_S)
            self._wake.clear()
            if not self._is_over:
                self._write()

    def _write(self) -> None:
        with self._lock:
            lines, self._buffer = self._buffer, []
        if not lines:
            return
        try:
            with translate_errors(), self._client.pipeline(transaction=False) as pipe:
                self._queue_writes(pipe, lines)
                pipe.execute()
        except Unavailable:
            with self._lock:
                self._buffer = [*lines, *self._buffer]
        except Exception as error:
            self._warn_of_loss(error)

    def _queue_writes(self, pipe: Any, lines: list[LogLine]) -> None:
        add_log_lines(pipe, Keys.from_leases_key(self._payload["leases"]), self._payload["execution"], lines)

    def _warn_of_loss(self, error: Exception) -> None:
        """Log lines that cannot be stored never fail a step."""
        logger.warning("log lines of step %s cannot be stored: %s", self._payload["step"], error)
