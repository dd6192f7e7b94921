"""The lease of one dispatch: renewed while its step runs, removed when its result is no longer needed.

The harness never reads a record; the lease entry is enough. A missing entry means that the dispatch was
superseded: the step was reset, timed out, was lost to another worker, or its workflow ended. A renewal never
creates an entry, so a superseded dispatch stays superseded.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from orchestrator.application.errors import Unavailable
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.settings import LEASE_S

logger = logging.getLogger(__name__)

FIRST_RENEWAL_S = 1.0
MAX_RENEWAL_INTERVAL_S = 2.0
"""The longest time between two renewals, and so until a superseded step is noticed."""
TICK_S = 0.25
THREAD = "lease"


class RedisClock:
    """The time of the Redis server, kept with this process's monotonic clock.

    Hosts need not agree on the time of day. After an outage the time is read again, because another server,
    with another clock, may have taken over.
    """

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
    """A context manager: the renewer renews the lease while the block runs."""

    def __init__(
        self,
        client: Client,
        clock: RedisClock,
        key: str,
        member: str,
        lease_s: float = LEASE_S,
        on_first_renewal: Callable[[], Any] = lambda: None,
        on_superseded: Callable[[], Any] = lambda: None,
        renewer: LeaseRenewer | None = None,
    ) -> None:
        self._client, self._clock, self._key, self._member = client, clock, key, member
        self._lease_s, self._on_first_renewal, self._on_superseded = lease_s, on_first_renewal, on_superseded
        self._renewer = renewer or LeaseRenewer()
        self._is_first, self._is_over, self._is_given_up = True, False, False
        self._renew_at = 0.0
        self.is_superseded = False

    def renew(self) -> bool:
        """Extend the lease by `lease_s` from now. Returns False when the dispatch was superseded."""
        try:
            with translate_errors():
                expires_at_ms = self._clock.now_ms() + round(self._lease_s * 1000)
                changed = self._client.zadd(self._key, {self._member: expires_at_ms}, xx=True, ch=True)
                exists = bool(changed) or self._client.zscore(self._key, self._member) is not None
        except Unavailable:
            self._clock.forget()
            raise
        if not exists:
            self.is_superseded = True
        return exists

    def finish(self) -> None:
        """Mark the work as done: losing the lease from now on does not stop the run."""
        self._is_over = True

    def give_up(self) -> None:
        """Stop renewing: the run hangs and is reported as lost, so its result no longer counts."""
        self.is_superseded = self._is_given_up = True

    def __enter__(self) -> Lease:
        self._renew_at = time.monotonic() + FIRST_RENEWAL_S
        self._renewer.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._renewer.drop(self)

    def renew_if_due(self, now: float) -> None:
        """Renew the lease when it is time. A superseded lease is not renewed again."""
        if now < self._renew_at:
            return
        self._renew_at = now + min(self._lease_s / 4, MAX_RENEWAL_INTERVAL_S)
        if self._is_given_up:
            self._renewer.drop(self)
        elif not self.renew():
            self._renewer.drop(self)
            if not self._is_over:
                self._on_superseded()
        elif self._is_first:
            self._is_first = False
            self._on_first_renewal()


class LeaseRenewer:
    """Renews all leases of a process in one thread, which starts with the first lease and ends with the last.

    A short step ends before its first renewal and costs no command. With `on_tick` the thread runs for ever
    and calls it several times a second: these calls show that the process lives and that no step holds the
    interpreter lock.
    """

    def __init__(self, on_tick: Callable[[], Any] | None = None) -> None:
        self._on_tick = on_tick
        self._lock, self._leases = threading.Lock(), dict[Lease, None]()
        self._is_running = False
        if on_tick is not None:
            self._start()

    def add(self, lease: Lease) -> None:
        with self._lock:
            self._leases[lease] = None
            if not self._is_running:
                self._start()

    def drop(self, lease: Lease) -> None:
        with self._lock:
            self._leases.pop(lease, None)

    def _start(self) -> None:
        self._is_running = True
        threading.Thread(target=self._renew_until_empty, name=THREAD, daemon=True).start()

    def _renew_until_empty(self) -> None:
        while True:
            time.sleep(TICK_S)
            with self._lock:
                if not self._leases and self._on_tick is None:
                    self._is_running = False
                    return
                leases = list(self._leases)
            if self._on_tick is not None:
                self._on_tick()
            self._renew(leases)

    def _renew(self, leases: Iterable[Lease]) -> None:
        try:
            for lease in leases:
                lease.renew_if_due(time.monotonic())
        except Unavailable:
            pass  # the leases are still valid for a while; the next renewal tries again
        except Exception:
            logger.exception("cannot renew a lease")
