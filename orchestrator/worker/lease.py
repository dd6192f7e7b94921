"""The lease of one dispatch: beaten while its step runs, gone when nobody waits for it any more.

The harness never reads a record. Its lease entry tells it all: an entry that is missing means that the step
was superseded (reset, timed out, lost to another worker, or its workflow ended).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from orchestrator.application.errors import Unavailable
from orchestrator.redis_rq.connection import Client, translated

LEASE_S = 30.0
FIRST_BEAT_S = 1.0
LONGEST_PAUSE_S = 2.0
"""Between two beats: so soon a step learns that nobody waits for it any more."""


class RedisClock:
    """The time of Redis, by this process's monotonic clock: hosts need not agree on the time of day."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._offset_ms: float | None = None

    def now_ms(self) -> int:
        if self._offset_ms is None:
            seconds, micros = self._client.time()
            self._offset_ms = int(seconds) * 1000 + int(micros) / 1000 - time.monotonic() * 1000
        return round(time.monotonic() * 1000 + self._offset_ms)


class Lease:
    def __init__(
        self,
        client: Client,
        clock: RedisClock,
        key: str,
        member: str,
        lease_s: float = LEASE_S,
        on_first_beat: Callable[[], Any] = lambda: None,
        on_superseded: Callable[[], Any] = lambda: None,
    ) -> None:
        self._client, self._clock, self._key, self._member = client, clock, key, member
        self._lease_s, self._on_first_beat, self._on_superseded = lease_s, on_first_beat, on_superseded
        self._is_over = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="lease", daemon=True)
        self.is_superseded = False

    def begin(self) -> bool:
        """Take the dispatch; False when it is not ours to take any more."""
        return self.beat()

    def beat(self) -> bool:
        with translated():
            due = self._clock.now_ms() + round(self._lease_s * 1000)
            changed = self._client.zadd(self._key, {self._member: due}, xx=True, ch=True)
            alive = bool(changed) or self._client.zscore(self._key, self._member) is not None
        if not alive:
            self.is_superseded = True
        return alive

    def finish(self) -> None:
        """The work is done: whoever settles the lease from now on has its result, and stops nobody."""
        self._is_over = True

    def give_up(self) -> None:
        """Beat no more: whoever holds this lease has been found wanting, and nobody is to wait for it."""
        self.is_superseded = True
        self._stop.set()

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _beat_on(self) -> None:
        """Short steps end before the first beat, and cost nothing here."""
        pause, is_first = FIRST_BEAT_S, True
        while not self._stop.wait(pause):
            try:
                if not self.beat():
                    if not self._is_over:
                        self._on_superseded()
                    return
                if is_first:
                    self._on_first_beat()
                    is_first = False
            except Unavailable:
                pass  # the next beat will tell; until then the lease runs on
            pause = min(self._lease_s / 4, LONGEST_PAUSE_S)
