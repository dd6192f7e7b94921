"""The watch over an executor that must report: its step says how often."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from orchestrator.invocation.parameters import Heartbeat


class HeartbeatWatchdog:
    """Looks on for as long as the block lasts; `on_silence` is called once, in a thread, when nothing was
    heard for too long. The heartbeat is one on the monotonic clock."""

    def __init__(self, heartbeat: Heartbeat, within_s: float, on_silence: Callable[[], None]) -> None:
        self._heartbeat, self._within_s, self._on_silence = heartbeat, within_s, on_silence
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="watch", daemon=True)

    def __enter__(self) -> HeartbeatWatchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _look_on(self) -> None:
        while (left_s := self._heartbeat.at + self._within_s - time.monotonic()) > 0:
            if self._stop.wait(left_s):
                return
        if not self._stop.is_set():
            self._on_silence()
