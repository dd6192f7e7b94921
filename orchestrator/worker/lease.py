"""The lease of one dispatch: beaten while its step runs, gone when nobody waits for it any more.

The harness never reads a record. Its lease entry tells it all: an entry that is missing means that the step
was superseded (reset, timed out, lost to another worker, or its workflow ended).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from orchestrator.application.errors import Unavailable
from orchestrator.redis_rq.connection import Client, translate_errors

logger = logging.getLogger(__name__)

LEASE_S = 30.0
FIRST_BEAT_S = 1.0
MAX_BEAT_INTERVAL_S = 2.0
"""Between two beats: so soon a step learns that nobody waits for it any more."""
TICK_S = 0.25
THREAD = "lease"


class RedisClock:
    """The time of Redis, by this process's monotonic clock: hosts need not agree on the time of day. After an
    outage it is asked again: another server may have taken over, with a clock of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._offset_ms: float | None = None

    def now_ms(self) -> int:
        if self._offset_ms is None:
            seconds, micros = self._client.time()
            self._offset_ms = int(seconds) * 1000 + int(micros) / 1000 - time.monotonic() * 1000
        return round(time.monotonic() * 1000 + self._offset_ms)

    def forget(self) -> None:
        self._offset_ms = None


class Lease:
    """Held for as long as the block lasts; `beats` says who beats it meanwhile."""

    def __init__(
        self,
        client: Client,
        clock: RedisClock,
        key: str,
        member: str,
        lease_s: float = LEASE_S,
        on_first_beat: Callable[[], Any] = lambda: None,
        on_superseded: Callable[[], Any] = lambda: None,
        renewer: LeaseRenewer | None = None,
    ) -> None:
        self._client, self._clock, self._key, self._member = client, clock, key, member
        self._lease_s, self._on_first_beat, self._on_superseded = lease_s, on_first_beat, on_superseded
        self._beats = renewer or LeaseRenewer()
        self._is_first, self._is_over, self._is_given_up = True, False, False
        self._beat_at = 0.0
        self.is_superseded = False

    def begin(self) -> bool:
        """Take the dispatch; False when it is not ours to take any more."""
        return self.beat()

    def beat(self) -> bool:
        try:
            with translate_errors():
                due = self._clock.now_ms() + round(self._lease_s * 1000)
                changed = self._client.zadd(self._key, {self._member: due}, xx=True, ch=True)
                alive = bool(changed) or self._client.zscore(self._key, self._member) is not None
        except Unavailable:
            self._clock.forget()
            raise
        if not alive:
            self.is_superseded = True
        return alive

    def finish(self) -> None:
        """The work is done: whoever settles the lease from now on has its result, and stops nobody."""
        self._is_over = True

    def give_up(self) -> None:
        """Beat no more: whoever holds this lease has been found wanting, and nobody is to wait for it."""
        self.is_superseded = self._is_given_up = True

    def __enter__(self) -> Lease:
        self._beat_at = time.monotonic() + FIRST_BEAT_S
        self._beats.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._beats.drop(self)

    def beat_if_due(self, now: float) -> None:
        """Whoever is superseded has had the last beat."""
        if now < self._beat_at:
            return
        self._beat_at = now + min(self._lease_s / 4, MAX_BEAT_INTERVAL_S)
        if self._is_given_up:
            self._beats.drop(self)
        elif not self.beat():
            self._beats.drop(self)
            if not self._is_over:
                self._on_superseded()
        elif self._is_first:
            self._is_first = False
            self._on_first_beat()


class LeaseRenewer:
    """The thread that beats all leases of a process: begun for the first one, and gone when there are none.

    Short steps end before their first beat, and cost nothing here. With `on_tick` it stays, and calls that
    some times a second: who hears of it knows that the process lives, and that nobody holds its interpreter.
    """

    def __init__(self, on_tick: Callable[[], Any] | None = None) -> None:
        self._on_tick = on_tick
        self._lock, self._leases = threading.Lock(), dict[Lease, None]()
        self._is_running = False
        if on_tick is not None:
            self._begin()

    def add(self, lease: Lease) -> None:
        with self._lock:
            self._leases[lease] = None
            if not self._is_running:
                self._begin()

    def drop(self, lease: Lease) -> None:
        with self._lock:
            self._leases.pop(lease, None)

    def _begin(self) -> None:
        self._is_running = True
        threading.Thread(target=self._beat_on, name=THREAD, daemon=True).start()

    def _beat_on(self) -> None:
        while True:
            time.sleep(TICK_S)
            with self._lock:
                if not self._leases and self._on_tick is None:
                    self._is_running = False
                    return
                leases = list(self._leases)
            if self._on_tick is not None:
                self._on_tick()
            self._beat(leases)

    def _beat(self, leases: Iterable[Lease]) -> None:
        try:
            for lease in leases:
                lease.beat_if_due(time.monotonic())
        except Unavailable:
            pass  # the next beats will tell; until then the leases run on
        except Exception:
            logger.exception("a lease could not be beaten")
