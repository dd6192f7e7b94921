"""Detects an executor that hangs: a step with `heartbeat` must send heartbeats at least that often."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from orchestrator.invocation.parameters import Heartbeat


class HeartbeatWatchdog:
    """Watches a heartbeat while the block runs. When the last one is older than `within_s`, the watchdog
    calls `on_silence` once, in a thread. The heartbeat must use the monotonic clock."""

    def __init__(self, heartbeat: Heartbeat, within_s: float, on_silence: Callable[[], None]) -> None:
        self._heartbeat, self._within_s, self._on_silence = heartbeat, within_s, on_silence
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> HeartbeatWatchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _watch(self) -> None:
        while (left_s := self._heartbeat.at + self._within_s - time.monotonic()) > 0:
            if self._stop.wait(left_s):
                return
        if not self._stop.is_set():
            self._on_silence()
